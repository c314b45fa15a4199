"""Host keys against known_hosts files: known, unknown, changed or revoked."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from sweep.model.errors import NodeError


@dataclass(frozen=True)
class HostKey:
    """A public key. `kind` as in known_hosts, such as ssh-ed25519."""

    kind: str
    blob: bytes

    def __str__(self) -> str:
        """Kind and fingerprint, as messages show them."""
        return f"{self.kind} {self.fingerprint}"

    @property
    def fingerprint(self) -> str:
        """SHA-256, written as OpenSSH writes it."""
        digest = base64.b64encode(hashlib.sha256(self.blob).digest()).decode().rstrip("=")
        return f"SHA256:{digest}"


@dataclass(frozen=True)
class KnownKey:
    """A key and where it stands. `marker`: empty, revoked or cert-authority."""

    key: HostKey
    path: str
    line: int
    marker: str = ""


def known_keys(name: str, paths: Iterable[str]) -> tuple[KnownKey, ...]:
    """Return every line about a host, marked ones too; files that are missing have none.

    `name` is the host as known_hosts has it: `host`, or `[host]:port` away from port 22.
    """
    return tuple(known for path in paths for known in _lines_about(name, path))


def check_host_key(
    alias: str,
    name: str,
    offered: HostKey,
    known: Iterable[KnownKey],
    *,
    add_to: str,
    unchecked: Sequence[str] = (),
) -> None:
    """Raise NodeError unless the offered key is known. A changed key is always refused.

    `add_to`: the file that the remedy for an unknown key adds it to. `unchecked`: settings of the
    user's by which `ssh` takes any key, of which the refusal says that they are not followed.
    """
    lines = tuple(known)
    shown = str(offered)
    for line in lines:
        if line.marker == "revoked" and line.key == offered:
            raise NodeError(
                f"{alias}: the host key of {name} is revoked by {line.path}:{line.line}: {shown}",
                hint="do not connect; ask who runs the machine",
            )
    plain = [line for line in lines if not line.marker]
    if any(line.key == offered for line in plain):
        return
    seen = _not_followed(unchecked)
    if plain:
        changed = f"{_changed(alias, name, shown, plain)}{seen}"
        raise NodeError(changed, hint=_changed_hint(name, plain))
    unknown = f"{_unknown(alias, name, shown, lines)}{seen}"
    raise NodeError(unknown, hint=_unknown_hint(name, offered, add_to))


def _not_followed(unchecked: Sequence[str]) -> str:
    if not unchecked:
        return ""
    verb = "is" if len(unchecked) == 1 else "are"
    return (
        f" ({' and '.join(unchecked)} of the SSH config {verb} seen and not followed: sweep checks "
        "every host key)"
    )


def _changed(alias: str, name: str, shown: str, plain: Iterable[KnownKey]) -> str:
    old = ", ".join(f"{line.key} in {line.path}:{line.line}" for line in plain)
    return f"{alias}: the host key of {name} has changed: known is {old}; now it shows {shown}"


def _changed_hint(name: str, plain: Iterable[KnownKey]) -> str:
    paths = sorted({line.path for line in plain})
    removals = "; ".join(f"ssh-keygen -R {shlex.quote(name)} -f {shlex.quote(p)}" for p in paths)
    return (
        "another machine may be answering, so nothing was sent; only if whoever runs the machine "
        f"confirms the new fingerprint, forget the old key: {removals}"
    )


def _unknown(alias: str, name: str, shown: str, lines: Iterable[KnownKey]) -> str:
    authority = any(line.marker == "cert-authority" for line in lines)
    note = "; its @cert-authority line is not honoured" if authority else ""
    return f"{alias}: the host key of {name} is not known: {shown}{note}"


def _unknown_hint(name: str, offered: HostKey, add_to: str) -> str:
    entry = f"{name} {offered.kind} {base64.b64encode(offered.blob).decode()}"
    return (
        "compare the fingerprint with `ssh-keygen -lf /etc/ssh/ssh_host_*_key.pub` on the machine "
        f"itself, then: echo {shlex.quote(entry)} >> {shlex.quote(add_to)}"
    )


def _lines_about(name: str, path: str) -> Iterator[KnownKey]:
    try:
        text = Path(path).read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return
    except OSError as error:
        raise NodeError(f"cannot read {path}: {error.strerror or error}") from error
    for number, line in enumerate(text.splitlines(), 1):
        fields = line.split()
        marker = fields.pop(0)[1:] if fields and fields[0].startswith("@") else ""
        if len(fields) < 3 or fields[0].startswith("#") or not _names(fields[0], name):  # noqa: PLR2004 - names, kind, key
            continue
        try:
            blob = base64.b64decode(fields[2], validate=True)
        except binascii.Error:
            continue
        yield KnownKey(HostKey(fields[1], blob), path, number, marker)


def _names(patterns: str, name: str) -> bool:
    """Whether the first field of a line is about `name`: hashed, or patterns with * ? and !."""
    if patterns.startswith("|1|"):
        return _hashed(patterns, name)
    found = False
    for pattern in patterns.lower().split(","):
        if _like(pattern.removeprefix("!"), name):
            if pattern.startswith("!"):
                return False
            found = True
    return found


def _like(pattern: str, name: str) -> bool:
    # Brackets stand for themselves here, so fnmatch would be wrong.
    expression = re.escape(pattern).replace(r"\*", ".*").replace(r"\?", ".")
    return re.fullmatch(expression, name) is not None


def _hashed(field: str, name: str) -> bool:
    try:
        salt, digest = (base64.b64decode(part) for part in field.split("|")[2:4])
    except ValueError:
        return False
    return hmac.compare_digest(hmac.digest(salt, name.encode(), "sha1"), digest)
