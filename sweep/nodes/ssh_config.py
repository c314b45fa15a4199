"""The user's SSH config files: their text with includes followed, and a host's settings.

paramiko matches sections and expands tokens. What it leaves out or gets wrong is done here:
`Include` is followed, commands of `Match exec` are never run, criteria that it does not know do
not match, and whatever is left out is named.
"""

from __future__ import annotations

import glob
import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import paramiko

from sweep.model.errors import NodeError

_INCLUDE_DEPTH = 16
_NEVER = "Host !*"
_ALWAYS = ("host *", "match all")
_LINE = re.compile(r"(\w+)(?:\s*=\s*|\s+)(.+)")
_COMMENT = re.compile(r'\s+#[^"]*$')
_CRITERIA = {"all", "canonical", "final", "host", "originalhost", "user", "localuser"}


@dataclass(frozen=True)
class SshFiles:
    """Where a user's SSH settings lie. `agent_socket` None: no agent runs."""

    configs: tuple[str, ...]
    known_hosts: tuple[str, ...]
    """The first one is where the user adds keys."""
    system_known_hosts: tuple[str, ...]
    identities: tuple[str, ...]
    agent_socket: str | None = None

    @classmethod
    def of_user(cls, environment: Mapping[str, str]) -> SshFiles:
        """Return the places that OpenSSH uses for this user."""
        ssh = Path(environment.get("HOME") or Path.home()) / ".ssh"
        return cls(
            configs=(str(ssh / "config"), "/etc/ssh/ssh_config"),
            known_hosts=(str(ssh / "known_hosts"), str(ssh / "known_hosts2")),
            system_known_hosts=("/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2"),
            identities=tuple(str(ssh / f"id_{kind}") for kind in ("ed25519", "ecdsa", "rsa")),
            agent_socket=environment.get("SSH_AUTH_SOCK") or None,
        )


def look_up(
    alias: str, given: Iterable[str], configs: Iterable[str]
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return a host's settings by keyword in lower case, and the sections that were left out.

    `given`: lines that come before every file, as options of a command line would. A setting
    that stands in several places has its first value; `identityfile` is a list of all.
    """
    lines = list(given)
    left_out: list[str] = []
    for config in configs:
        reading = _Reading(Path(config).parent)
        lines += ["Match all", *reading.lines(Path(config))]
        left_out += reading.left_out
    try:
        settings = paramiko.SSHConfig.from_text("\n".join(lines)).lookup(alias)
    except (paramiko.SSHException, ValueError, KeyError) as error:
        files = ", ".join(configs)
        raise NodeError(f"{alias}: the SSH config ({files}) cannot be used: {error}") from error
    return dict(settings), tuple(left_out)


@dataclass
class _Reading:
    """Lines of one config file and its includes, and what was left out of them."""

    directory: Path
    """What the paths of includes are relative to."""
    left_out: list[str] = field(default_factory=list)

    def lines(self, path: Path, outer: str | None = None, depth: int = 0) -> Iterator[str]:
        """Yield the lines of a file with its includes in their places.

        `outer` is the header of the section that includes the file. After each include the
        section's header is said again, because the included file may have ended in another.
        """
        if depth > _INCLUDE_DEPTH:
            raise NodeError(f"{path}: Include is nested more than {_INCLUDE_DEPTH} files deep")
        header, reading = outer or "Match all", True
        for number, line in _numbered(path):
            where = f"{path}:{number}: {line}"
            parsed = _LINE.fullmatch(line)
            if parsed is None:
                raise NodeError(f"{where}: not `keyword value`")
            key, value = parsed[1].lower(), parsed[2]
            if key in ("host", "match"):
                # Two conditions at once, the file's and the section's, cannot be said flat.
                reading = outer is None or outer.lower() in _ALWAYS
                header = self._header(where, key, value, reading=reading)
                yield header
            elif not reading:
                continue
            elif key == "include":
                for included in self._included(where, value):
                    yield from self.lines(included, header, depth + 1)
                yield header
            else:
                yield f"{parsed[1]} {value}"

    def _header(self, where: str, key: str, value: str, *, reading: bool) -> str:
        reason = None if reading else "a section in a file that is included in a section"
        if key == "match":
            words = _words(where, value)
            unknown = sorted({word.lstrip("!").lower() for word in _criteria(words)} - _CRITERIA)
            if unknown:
                reason = f"not evaluated: {', '.join(unknown)}"
        if reason is None:
            return f"{key.capitalize()} {value}"
        self.left_out.append(f"{where} ({reason})")
        return _NEVER

    def _included(self, where: str, value: str) -> list[Path]:
        found: list[Path] = []
        for pattern in _words(where, value):
            absolute = self.directory / Path(os.path.expandvars(pattern)).expanduser()
            found += [Path(name) for name in sorted(glob.glob(str(absolute)))]  # noqa: PTH207 - Path.glob takes no absolute patterns
        return found


def _numbered(path: Path) -> Iterator[tuple[int, str]]:
    """Yield number and text of the lines that say something; a missing file has none."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return
    except OSError as error:
        raise NodeError(f"cannot read {path}: {error.strerror or error}") from error
    for number, line in enumerate(text.splitlines(), 1):
        bare = _COMMENT.sub("", line.strip())
        if bare and not bare.startswith("#"):
            yield number, bare


def _words(where: str, value: str) -> list[str]:
    try:
        return shlex.split(value)
    except ValueError as error:
        raise NodeError(f"{where}: {error}") from error


def _criteria(words: list[str]) -> Iterator[str]:
    """Yield the criteria of a Match line without their parameters."""
    rest = iter(words)
    for word in rest:
        yield word
        if word.lstrip("!").lower() not in ("all", "canonical", "final"):
            next(rest, None)
