"""Logging in with keys: those of the ssh-agent, and files that no passphrase protects."""

from __future__ import annotations

import base64
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import paramiko
from paramiko.agent import AgentSSH

from sweep.model.errors import NodeError
from sweep.nodes.ssh_route import Hop

_AGENT_TIMEOUT_S = 60.0
"""An agent may ask its user to confirm, or wait for a touch of a hardware key."""


class LoginRefusedError(NodeError):
    """The machine answers, and refuses every key offered to it."""


class LinkLostError(Exception):
    """There is no connection, or no longer; the text says why."""


class UnknownNameError(LinkLostError):
    """The name of a machine does not resolve."""


@dataclass(frozen=True)
class _Offer:
    """A key to try, and what to call it in messages."""

    label: str
    key: paramiko.PKey


class _Agent(AgentSSH):
    """The agent behind a socket, which need not be that of the environment."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.connection.settimeout(_AGENT_TIMEOUT_S)
        try:
            self.connection.connect(path)
            self._connect(self.connection)  # type: ignore[attr-defined]  # not in the stubs
        except (OSError, paramiko.SSHException):
            self.connection.close()
            raise


def log_in(transport: paramiko.Transport, hop: Hop, default_identities: Sequence[str]) -> None:
    """Authenticate; raises LoginRefusedError with every key tried, or LinkLostError."""
    notes: list[str] = []
    agent = _reachable_agent(hop.agent_socket, notes)
    try:
        keys = agent.get_keys() if agent else ()
        for offer in _offers(hop, default_identities, keys, notes):
            if _accepted(transport, hop, offer, notes):
                return
    finally:
        if agent:
            agent.connection.close()
    if not transport.is_active() and not notes:
        raise LinkLostError(f"the connection to {hop.address} ended during the login")
    tried = "; ".join(notes) or "there is no agent and no key file"
    raise LoginRefusedError(
        f"{hop.alias}: {hop.user}@{hop.address} refuses the login: {tried}", hint=_hint(hop, notes)
    )


def _hint(hop: Hop, notes: Sequence[str]) -> str:
    if any("passphrase" in note for note in notes):
        return "unlock the key once by `ssh-add FILE` in a running ssh-agent, then try again"
    if any("ended the login" in note for note in notes):
        return (
            f"too many keys were offered: give `Host {hop.alias}` in ~/.ssh/config an "
            "IdentityFile and `IdentitiesOnly yes`"
        )
    shown = f"ssh -v -p {hop.port} {hop.user}@{hop.alias}"
    return f"only keys are offered, no password; `{shown}` shows what ssh would do"


def _accepted(transport: paramiko.Transport, hop: Hop, offer: _Offer, notes: list[str]) -> bool:
    """Offer one key; a refusal is noted."""
    try:
        further = transport.auth_publickey(hop.user, offer.key)
    except (paramiko.SSHException, OSError, EOFError) as error:
        if "timeout" in str(error).lower() or (not transport.is_active() and not notes):
            raise LinkLostError(f"the login at {hop.address} got no answer: {error}") from error
        if not transport.is_active():
            notes.append(f"the machine ended the login after {offer.label}")
            tried = "; ".join(notes)
            raise LoginRefusedError(
                f"{hop.alias}: {hop.user}@{hop.address} refuses the login: {tried}",
                hint=_hint(hop, notes),
            ) from error
        notes.append(f"{offer.label}: {error}")
        return False
    if further:
        notes.append(f"{offer.label} was accepted, but {', '.join(further)} is wanted as well")
        return False
    return True


def _reachable_agent(path: str | None, notes: list[str]) -> _Agent | None:
    if path is None:
        return None
    try:
        return _Agent(path)
    except (OSError, paramiko.SSHException) as error:
        notes.append(f"the ssh-agent at {path} does not answer: {error}")
        return None


def _offers(
    hop: Hop,
    default_identities: Sequence[str],
    agent_keys: Sequence[paramiko.PKey],
    notes: list[str],
) -> Iterator[_Offer]:
    """Yield each key once: configured ones, by the agent where it has them, then the others.

    Configured ones come first, so that an agent full of keys does not use up the attempts.
    """
    by_blob = {key.asbytes(): key for key in agent_keys}
    offered: set[bytes] = set()
    from_agent = [
        _Offer(f"{key.get_name()} of the agent", key)
        for key in agent_keys
        if not hop.identities_only
    ]
    if not hop.identity_files:
        yield from from_agent
        offered |= {offer.key.asbytes() for offer in from_agent}
    defaults = [path for path in default_identities if Path(path).exists()]
    for path in hop.identity_files or defaults:
        offer = _offer_of_file(path, by_blob, notes)
        if offer is not None and offer.key.asbytes() not in offered:
            offered.add(offer.key.asbytes())
            yield offer
    if hop.identity_files:
        yield from (offer for offer in from_agent if offer.key.asbytes() not in offered)


def _offer_of_file(
    path: str, by_blob: Mapping[bytes, paramiko.PKey], notes: list[str]
) -> _Offer | None:
    """Return the key of a file, the agent's where it holds it; None, with a note: unusable."""
    in_agent = by_blob.get(_public_blob(path))
    if in_agent is not None:
        return _Offer(f"{path} (by the agent)", in_agent)
    try:
        return _Offer(path, paramiko.PKey.from_path(path))
    except FileNotFoundError:
        notes.append(f"{path} does not exist")
    except TypeError:
        notes.append(f"{path} is protected by a passphrase")
    except (OSError, ValueError, paramiko.SSHException) as error:
        notes.append(f"{path} cannot be read: {error}")
    return None


def _public_blob(path: str) -> bytes:
    """Return the public half that lies beside a key file; nothing when there is none."""
    public = Path(path) if path.endswith(".pub") else Path(path + ".pub")
    try:
        return base64.b64decode(public.read_text(encoding="utf-8").split()[1])
    except (OSError, ValueError, IndexError):
        return b""
