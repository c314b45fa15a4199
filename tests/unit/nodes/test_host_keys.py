"""Host keys: known, unknown, changed, revoked, in every way that known_hosts writes names."""

from __future__ import annotations

import base64
import hmac
from pathlib import Path

import pytest

from sweep.model.errors import NodeError
from sweep.nodes.host_keys import HostKey, KnownKey, check_host_key, known_keys

OURS = HostKey("ssh-ed25519", b"our key")
OTHER = HostKey("ssh-ed25519", b"another key")
RSA = HostKey("ssh-rsa", b"rsa key")


def entry(names: str, key: HostKey = OURS, marker: str = "") -> str:
    """A line of known_hosts."""
    return f"{marker} {names} {key.kind} {base64.b64encode(key.blob).decode()} comment".strip()


def keys_of(tmp_path: Path, name: str, *lines: str) -> list[HostKey]:
    """The keys that a file has for a name."""
    path = tmp_path / "known_hosts"
    path.write_text("\n".join(lines) + "\n")
    return [known.key for known in known_keys(name, [str(path)])]


def test_the_fingerprint_is_that_of_openssh() -> None:
    """`ssh-keygen -l` of this key prints the same."""
    blob = base64.b64decode("AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl")
    shown = HostKey("ssh-ed25519", blob).fingerprint
    assert shown == "SHA256:+DiY3wvvV6TuJJhbpZisF/zLDA0zPMSvHdkr4UvCOqU"


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("host", "host", True),
        ("HOST", "host", True),
        ("host", "host2", False),
        ("other,host", "host", True),
        ("*.lab", "gpu.lab", True),
        ("gpu?", "gpu1", True),
        ("gpu?", "gpu12", False),
        ("*.lab,!gpu.lab", "gpu.lab", False),
        ("[host]:2222", "[host]:2222", True),
        ("host", "[host]:2222", False),
        ("[h]", "h", False),
    ],
)
def test_names_are_patterns(tmp_path: Path, pattern: str, name: str, *, matches: bool) -> None:
    """With * and ? and !, lists, and brackets that stand for themselves."""
    assert keys_of(tmp_path, name, entry(pattern)) == ([OURS] if matches else [])


def test_hashed_names_are_found(tmp_path: Path) -> None:
    """As HashKnownHosts writes them: HMAC-SHA1 of the name with a salt."""
    salt = b"0123456789abcdefghij"
    digest = hmac.digest(salt, b"[host]:2222", "sha1")
    hashed = f"|1|{base64.b64encode(salt).decode()}|{base64.b64encode(digest).decode()}"
    assert keys_of(tmp_path, "[host]:2222", entry(hashed)) == [OURS]
    assert keys_of(tmp_path, "host", entry(hashed)) == []


def test_damaged_lines_and_missing_files_have_no_keys(tmp_path: Path) -> None:
    """A torn line must not hide the others."""
    lines = ["# comment", "", "host", "host ssh-ed25519", "host ssh-ed25519 !!!", "|1|x|y a b"]
    assert keys_of(tmp_path, "host", *lines, entry("host")) == [OURS]
    assert known_keys("host", [str(tmp_path / "missing")]) == ()


def check(offered: HostKey, *known: KnownKey) -> None:
    """Check a key of the machine `gpu`."""
    check_host_key("gpu", "[gpu.lab]:2222", offered, known, add_to="/home/me/.ssh/known_hosts")


def at(key: HostKey, line: int = 3, marker: str = "") -> KnownKey:
    """A key in a file."""
    return KnownKey(key, "/home/me/.ssh/known_hosts", line, marker)


def test_a_known_key_is_taken() -> None:
    """Also when the host has keys of other kinds."""
    check(OURS, at(RSA), at(OURS))


def test_an_unknown_key_is_refused_with_the_exact_remedy() -> None:
    """Kind, fingerprint, and the command that adds this very key."""
    with pytest.raises(NodeError) as caught:
        check(OURS)
    assert caught.value.message == (
        "gpu: the host key of [gpu.lab]:2222 is not known: "
        f"ssh-ed25519 {OURS.fingerprint}"
    )  # fmt: skip
    assert caught.value.hint is not None
    assert caught.value.hint.endswith(
        "echo '[gpu.lab]:2222 ssh-ed25519 b3VyIGtleQ==' >> /home/me/.ssh/known_hosts"
    )


@pytest.mark.parametrize(
    ("unchecked", "seen"),
    [
        (("StrictHostKeyChecking no",), "StrictHostKeyChecking no of the SSH config is seen and"),
        (
            ("StrictHostKeyChecking no", "UserKnownHostsFile /dev/null"),
            "StrictHostKeyChecking no and UserKnownHostsFile /dev/null of the SSH config are seen",
        ),
    ],
)
def test_settings_that_would_take_any_key_are_told_with_the_refusal(
    unchecked: tuple[str, ...], seen: str
) -> None:
    """`ssh` connects with them: the user must hear why sweep does not, and what to do."""
    for known, remedy in (((), "echo '[gpu.lab]:2222"), ((at(OTHER),), "ssh-keygen -R")):
        with pytest.raises(NodeError, match="every host key") as caught:
            check_host_key("gpu", "[gpu.lab]:2222", OURS, known, add_to="/k", unchecked=unchecked)
        assert seen in caught.value.message
        assert remedy in str(caught.value.hint)


@pytest.mark.parametrize("known", [OTHER, RSA], ids=["same kind", "another kind"])
def test_a_changed_key_is_refused_with_both_fingerprints(known: HostKey) -> None:
    """A key of another kind than the known one is no better than a changed one."""
    with pytest.raises(NodeError, match="has changed") as caught:
        check(OURS, at(known))
    assert known.fingerprint in caught.value.message
    assert OURS.fingerprint in caught.value.message
    assert "/home/me/.ssh/known_hosts:3" in caught.value.message
    assert "ssh-keygen -R '[gpu.lab]:2222' -f /home/me/.ssh/known_hosts" in str(caught.value.hint)


def test_a_revoked_key_is_refused_although_it_is_known() -> None:
    """@revoked outweighs a plain line."""
    with pytest.raises(NodeError, match=r"is revoked by /home/me/\.ssh/known_hosts:9"):
        check(OURS, at(OURS), at(OURS, 9, "revoked"))


def test_certificate_authorities_are_named() -> None:
    """They are not honoured, which the message says."""
    with pytest.raises(NodeError, match="@cert-authority line is not honoured"):
        check(OURS, at(OTHER, 1, "cert-authority"))


def test_markers_are_read(tmp_path: Path) -> None:
    """The marker comes before the names."""
    path = tmp_path / "known_hosts"
    path.write_text(entry("*", RSA, "@cert-authority") + "\n" + entry("h", OURS, "@revoked") + "\n")
    assert [(known.marker, known.line) for known in known_keys("h", [str(path)])] == [
        ("cert-authority", 1),
        ("revoked", 2),
    ]
