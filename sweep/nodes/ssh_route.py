"""The way to a node: the machines to pass and how to reach and know each of them."""

from __future__ import annotations

import getpass
import os
import re
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweep.model.errors import NodeError
from sweep.nodes.ssh_config import SshFiles, look_up

_PORT = 22
_MAX_PORT = 65535
_NO_FILE = ("none", "/dev/null")
_FAMILIES = {"inet": socket.AF_INET, "inet6": socket.AF_INET6}
_TARGET = re.compile(
    r"(?:ssh://)?(?:(?P<user>[^@]+)@)?(?:\[(?P<v6>[^\]]+)\]|(?P<host>[^\s:@/*?]+))(?::(?P<port>\d+))?/?"
)
_HONOURED = {
    "hostname", "port", "user", "identityfile", "identitiesonly", "identityagent", "proxyjump",
    "proxycommand", "userknownhostsfile", "globalknownhostsfile", "hostkeyalias",
    "connecttimeout", "addressfamily", "canonicalizehostname", "canonicaldomains",
    "canonicalizemaxdots", "canonicalizefallbacklocal", "stricthostkeychecking",
}  # fmt: skip
_WITHOUT_EFFECT = {
    # Terminals, forwardings and local conveniences, none of which a sweep uses.
    "addkeystoagent", "clearallforwardings", "controlmaster", "controlpath", "controlpersist",
    "dynamicforward", "enableescapecommandline", "escapechar", "exitonforwardfailure",
    "fingerprinthash", "forkafterauthentication", "forwardagent", "forwardx11",
    "forwardx11timeout", "forwardx11trusted", "gatewayports", "hashknownhosts", "ignoreunknown",
    "localcommand", "localforward", "loglevel", "logverbose", "permitlocalcommand",
    "remoteforward", "requesttty", "sendenv", "stdinnull", "streamlocalbindmask",
    "streamlocalbindunlink", "syslogfacility", "updatehostkeys", "usekeychain", "visualhostkey",
    "xauthlocation",
    # Replaced by what every connection of sweep has: deadlines, pings, repeated attempts.
    "connectionattempts", "serveralivecountmax", "serveraliveinterval", "tcpkeepalive",
    # Ways to log in beside keys: a refused login says that only keys are offered.
    "batchmode", "challengeresponseauthentication", "gssapiauthentication",
    "gssapidelegatecredentials", "hostbasedauthentication", "kbdinteractiveauthentication",
    "numberofpasswordprompts", "passwordauthentication", "preferredauthentications",
}  # fmt: skip


@dataclass(frozen=True)
class Hop:
    """One machine on the way to a node: a jump host, or the node itself."""

    alias: str
    hostname: str
    port: int
    user: str
    key_name: str
    """The host's name in known_hosts."""
    known_hosts: tuple[str, ...]
    """The first one is where the user adds keys."""
    identity_files: tuple[str, ...]
    """As configured; empty: the agent's keys, then the user's default ones."""
    identities_only: bool
    agent_socket: str | None
    connect_timeout_s: int
    family: socket.AddressFamily = socket.AF_UNSPEC
    jumps: tuple[str, ...] = ()
    unchecked: tuple[str, ...] = ()
    """Settings by which OpenSSH would take any host key. They are not followed."""
    not_honoured: tuple[str, ...] = ()

    @property
    def address(self) -> str:
        """Host and port as messages show them."""
        return f"{self.hostname}:{self.port}"


def route(target: str, files: SshFiles) -> tuple[Hop, ...]:
    """Return the machines to pass, in order; the node comes last.

    `target` is an alias or a name, as `host`, `user@host`, `user@host:port` or `ssh://…`.
    """
    return _route(target, files, ())


def as_argument(target: str) -> str:
    """Return a target as `ssh` takes it on its command line: with a port, as a URL."""
    parsed = _TARGET.fullmatch(target)
    plain = parsed is None or target.startswith("ssh://") or not (parsed["port"] or parsed["v6"])
    return target if plain else f"ssh://{target}"


def _route(target: str, files: SshFiles, inside: tuple[str, ...]) -> tuple[Hop, ...]:
    hop = _hop(target, files)
    if hop.alias in inside:
        circle = " -> ".join([*inside, hop.alias])
        raise NodeError(
            f"{inside[0]}: ProxyJump goes in a circle: {circle}",
            hint=f"give `Host {hop.alias}` a `ProxyJump none` above the general section",
        )
    if not hop.jumps:
        return (hop,)
    # As with OpenSSH, of the jump hosts only the first one's own ProxyJump counts.
    first = _route(hop.jumps[0], files, (*inside, hop.alias))
    return (*first, *(_hop(text, files) for text in hop.jumps[1:]), hop)


def _hop(target: str, files: SshFiles) -> Hop:
    parsed = _TARGET.fullmatch(target)
    if parsed is None:
        raise NodeError(f"{target!r} is not a host", hint="write host, user@host or user@host:port")
    alias = parsed["v6"] or parsed["host"]
    given = [f"{key} {parsed[key]}" for key in ("user", "port") if parsed[key]]
    settings, left_out = look_up(alias, given, files.configs)
    if settings.get("proxycommand") is not None:
        raise NodeError(
            f"{alias}: ProxyCommand is not supported: {settings['proxycommand']}",
            hint="name the machine in between by ProxyJump in ~/.ssh/config instead",
        )
    hostname = settings["hostname"]
    port = _number(alias, settings, "port", _PORT)
    if not 0 < port <= _MAX_PORT:
        raise NodeError(f"{alias}: there is no port {port}", hint="ports are 1 to 65535")
    key_name = hostname if port == _PORT else f"[{hostname}]:{port}"
    jump = settings.get("proxyjump", "none")
    return Hop(
        alias=alias,
        hostname=hostname,
        port=port,
        user=settings.get("user") or getpass.getuser(),
        key_name=settings.get("hostkeyalias", key_name).lower(),
        known_hosts=_known_hosts(settings, files),
        identity_files=tuple(
            _expanded(text) for text in settings.get("identityfile", ()) if text.lower() != "none"
        ),
        identities_only=settings.get("identitiesonly", "no").lower() == "yes",
        agent_socket=_agent_socket(settings.get("identityagent"), files.agent_socket),
        connect_timeout_s=_number(alias, settings, "connecttimeout", 10),
        family=_FAMILIES.get(settings.get("addressfamily", "any").lower(), socket.AF_UNSPEC),
        jumps=() if jump.lower() == "none" else tuple(part.strip() for part in jump.split(",")),
        unchecked=tuple(_unchecked(settings)),
        not_honoured=(*left_out, *_ignored(alias, settings)),
    )


def _ignored(alias: str, settings: Mapping[str, Any]) -> list[str]:
    """Return the settings that have no effect and might be missed."""
    named = [
        f"{alias}: {key} {value}"
        for key, value in settings.items()
        if key not in _HONOURED | _WITHOUT_EFFECT
    ]
    named += [f"{alias}: {each} (host keys are always checked)" for each in _unchecked(settings)]
    return named


def _unchecked(settings: Mapping[str, Any]) -> Iterator[str]:
    strict = settings.get("stricthostkeychecking", "yes").lower()
    if strict not in ("yes", "ask"):
        yield f"StrictHostKeyChecking {strict}"
    files = settings.get("userknownhostsfile", "").split()
    if files and all(path in _NO_FILE for path in files):
        yield f"UserKnownHostsFile {' '.join(files)}"


def _known_hosts(settings: Mapping[str, Any], files: SshFiles) -> tuple[str, ...]:
    """Return the user's files and the system's, each group as configured or else by default."""
    user = settings.get("userknownhostsfile", "").split()
    system = settings.get("globalknownhostsfile", "").split()
    return (
        *([_expanded(path) for path in user if path not in _NO_FILE] or files.known_hosts),
        *([_expanded(path) for path in system if path not in _NO_FILE] or files.system_known_hosts),
    )


def _agent_socket(configured: str | None, running: str | None) -> str | None:
    if configured is None or configured == "SSH_AUTH_SOCK":
        return running
    if configured.lower() == "none":
        return None
    return _expanded(configured)


def _number(alias: str, settings: Mapping[str, Any], key: str, default: int) -> int:
    text = settings.get(key)
    if text is None:
        return default
    if not str(text).isdecimal():
        raise NodeError(f"{alias}: {key} {text!r} in the SSH config is not a number")
    return int(text)


def _expanded(path: str) -> str:
    return str(Path(os.path.expandvars(path)).expanduser())
