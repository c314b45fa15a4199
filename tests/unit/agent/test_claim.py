"""Locks of the node, ports, and who may open them."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from sweep.agent import claim, port, procs
from sweep.agent.gpus import Gpu
from sweep.agent.holder import KEPT_S, Holder


def holder(**changes: Any) -> Holder:
    """This process as an owner."""
    own = procs.read(os.getpid())
    assert own is not None
    own_holder = Holder(
        user="ann", host="laptop", sweep="s1", directory="/d", nonce="none-such", pid=own.pid,
        start_ticks=own.start_ticks, boot_id=procs.boot_id(), since_utc="2026-01-01T00:00:00Z",
    )  # fmt: skip
    return replace(own_holder, **changes)


def test_all_locks_or_none(tmp_path: Path) -> None:
    """A claim that meets a held lock lets go of those that it had taken."""
    folder = str(tmp_path)
    first, second, third = (claim.Claim(holder()) for _ in range(3))
    assert first.take(folder, ["b"]) is None
    held = second.take(folder, ["a", "b"])
    assert held is not None
    assert held.resource == "b"
    assert "sweep s1 of ann on laptop" in held.reason
    assert third.take(folder, ["a"]) is None
    first.release()
    third.release()
    assert second.take(folder, ["a", "b"]) is None
    second.release()


def test_resources_are_sorted_and_a_node_without_gpus_is_one() -> None:
    """Everybody takes the locks in the same order."""
    gpus = [Gpu(number, uuid, "x", None, None, None, "1") for number, uuid in ((0, "Z"), (1, "A"))]
    assert claim.resources(gpus) == ["gpu-A", "gpu-Z"]
    assert claim.resources([]) == ["node"]


def test_a_dead_owner_whose_processes_live_holds(tmp_path: Path) -> None:
    """The lock itself is free, but what the owner started is not gone."""
    gone = subprocess.Popen([sys.executable, "-c", "pass"])
    gone.wait()
    with subprocess.Popen(["sleep", "60"]) as left:
        server = procs.read(left.pid)
        assert server is not None
        dead = replace(holder(), pid=gone.pid, processes=[list(server.identity)])
        path = tmp_path / "sweep-node.lock"
        path.write_text(json.dumps(asdict(dead)))
        held = claim.Claim(holder()).take(str(tmp_path), ["node"])
        assert held is not None
        assert f"pid {left.pid}" in held.reason
        assert "`sweep resume s1`" in held.reason
        assert [entry["alive"] for entry in claim.list_held(str(tmp_path))] == [False]
        left.kill()
    assert claim.list_held(str(tmp_path)) == []
    assert claim.Claim(holder()).take(str(tmp_path), ["node"]) is None


def test_what_a_dead_owner_had_is_inherited(tmp_path: Path) -> None:
    """While it is cleaned up nobody gets it, and afterwards it is kept for its sweep; what others
    have, or have by now, is theirs."""
    folder = str(tmp_path)
    gone = subprocess.Popen([sys.executable, "-c", "pass"])
    gone.wait()
    dead = holder(pid=gone.pid, nonce="dead")
    for name, owner in (("a", dead), ("b", dead), ("c", replace(dead, nonce="other"))):
        (tmp_path / f"sweep-{name}.lock").write_text(json.dumps(asdict(owner)))
    taker = claim.Claim(holder(sweep="s2"))
    assert taker.take(folder, ["b"]) is None
    inherited = claim.inherit(folder, "dead")
    assert inherited is not None
    waiting = claim.Claim(holder(sweep="s2"))
    assert waiting.take(folder, ["c"]) is None
    assert waiting.take(folder, ["a"]) is not None
    inherited.release(keep=True)
    held = claim.Claim(holder(sweep="s2")).take(folder, ["a"])
    assert held is not None
    assert "between two launches" in held.reason
    assert claim.inherit(folder, "dead") is None
    assert claim.Claim(holder()).take(folder, ["a"]) is None


def test_a_living_owner_is_not_inherited_from(tmp_path: Path) -> None:
    """Nor is one that is about to be given back."""
    living = claim.Claim(holder(nonce="mine"))
    assert living.take(str(tmp_path), ["a"]) is None
    assert claim.inherit(str(tmp_path), "mine") is None
    living.release()


def test_an_owner_of_another_boot_is_gone(tmp_path: Path) -> None:
    """Its pids belong to others now."""
    own = holder()
    old = replace(own, boot_id="another", processes=[[own.pid, own.start_ticks]])
    (tmp_path / "sweep-node.lock").write_text(json.dumps(asdict(old)))
    assert claim.list_held(str(tmp_path)) == []
    assert claim.Claim(own).take(str(tmp_path), ["node"]) is None


def test_between_launches_a_claim_is_kept_for_its_own_sweep(tmp_path: Path) -> None:
    """T38: nobody slips in between two launches; the owner is named, and the same sweep goes on."""
    folder = str(tmp_path)
    first = claim.Claim(holder())
    assert first.take(folder, ["a", "b"]) is None
    first.release(keep=True)
    for other in ({"sweep": "s2"}, {"user": "bob"}, {"host": "pc"}):
        held = claim.Claim(holder(**other)).take(folder, ["b"])
        assert held is not None
        assert held.reason.startswith("sweep s1 of ann on laptop, between two launches")
    assert claim.Claim(holder(sweep="s2")).take(folder, ["c"]) is None
    told = {entry["resource"]: entry["alive"] for entry in claim.list_held(folder)}
    assert (told["a"], told["b"]) == (False, False)
    again = claim.Claim(holder())
    assert again.take(folder, ["a", "b"]) is None
    again.release()
    assert claim.Claim(holder(sweep="s2")).take(folder, ["a", "b"]) is None


@pytest.mark.parametrize(
    "changes",
    [{"kept_until_s": -1.0}, {"kept_until_s": KEPT_S + 5.0}, {"boot_id": "another"}],
    ids=["over", "longer than anybody keeps", "another boot"],
)
def test_what_is_kept_lapses(tmp_path: Path, changes: dict[str, Any]) -> None:
    """A sweep whose driver died keeps nothing for long, whatever the file says."""
    ahead_s = changes.get("kept_until_s", 30.0)
    kept = holder(**changes | {"kept_until_s": time.monotonic() + ahead_s})
    (tmp_path / "sweep-node.lock").write_text(json.dumps(asdict(kept)))
    assert claim.list_held(str(tmp_path)) == []
    assert claim.Claim(holder(sweep="s2")).take(str(tmp_path), ["node"]) is None


def test_a_sweep_that_ends_lets_go(tmp_path: Path) -> None:
    """Of what it keeps, and of nothing that others hold or keep."""
    folder = str(tmp_path)
    for name, sweep, keep in (("a", "s1", True), ("b", "s2", True), ("c", "s1", None)):
        taken = claim.Claim(holder(sweep=sweep))
        assert taken.take(folder, [name]) is None
        if keep:
            taken.release(keep=True)
        else:
            running = taken
    assert claim.let_go(folder, "s1") == ["a"]
    assert claim.let_go(folder, "s1") == []
    assert [entry["resource"] for entry in claim.list_held(folder)] == ["b", "c"]
    running.release()


@pytest.mark.parametrize("content", ["", "{", "[]", '{"user": 1}', "\x00" * 50])
def test_a_lock_file_that_says_nothing_is_free(tmp_path: Path, content: str) -> None:
    """What cannot be read names no owner."""
    (tmp_path / "sweep-node.lock").write_text(content)
    assert claim.list_held(str(tmp_path)) == []
    assert claim.Claim(holder()).take(str(tmp_path), ["node"]) is None


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    """It is told before a launch, and by the launch that cannot claim."""
    assert claim.unusable(str(tmp_path)) is None
    missing = str(tmp_path / "none")
    assert claim.unusable(missing) == f"{missing}, where claims are kept, is not a directory"
    with pytest.raises(claim.ClaimError, match="none, where claims are kept, is not a directory"):
        claim.Claim(holder()).take(missing, ["node"])


def test_lock_files_are_for_every_user(tmp_path: Path) -> None:
    """Whatever the umask, others may open them; a link is not followed."""
    before = os.umask(0o077)
    try:
        os.close(claim.open_shared(str(tmp_path / "x")))
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == 0o666
    (tmp_path / "link").symlink_to(tmp_path / "x")
    with pytest.raises(claim.ClaimError, match="link"):
        claim.open_shared(str(tmp_path / "link"))


AS_NOBODY = """
import os, sys
sys.path.insert(0, sys.argv[1])
from sweep.agent import claim
from sweep.agent.holder import Holder
os.setgid(65534)
os.setuid(65534)
own = Holder("bob", "pc", "s2", "/d", "n", os.getpid(), 1, "b", "now")
held = claim.Claim(own).take(sys.argv[2], ["node"])
print(held.reason if held else "free")
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_two_users_share_the_locks(tmp_path: Path) -> None:
    """Another user reads who holds the claim, and takes it once it is free."""
    shared = tmp_path / "lock"
    shared.mkdir()
    shared.chmod(0o1777)
    for parent in shared.parents:
        if parent.stat().st_uid == os.geteuid() and parent != Path("/"):
            parent.chmod(parent.stat().st_mode | 0o011)
    root = Path(claim.__file__).parents[2]
    command = ["/usr/bin/env", sys.executable, "-c", AS_NOBODY, str(root), str(shared)]

    def ask() -> str:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    own = claim.Claim(holder())
    assert own.take(str(shared), ["node"]) is None
    assert "sweep s1 of ann on laptop" in ask()
    own.release()
    assert ask() == "free"


def test_the_directory_is_the_same_for_every_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory that only some may write does not serve; the variable overrides."""
    monkeypatch.setenv(claim.DIRECTORY_VARIABLE, "/chosen")
    assert claim.directory() == "/chosen"
    monkeypatch.delenv(claim.DIRECTORY_VARIABLE)
    assert Path(claim.directory()).stat().st_mode & 0o1002 == 0o1002


def test_ports_rotate(tmp_path: Path) -> None:
    """Each pick is another port, and the last one used is remembered on the node."""
    picks = [port.pick(str(tmp_path)) for _ in range(5)]
    assert len(set(picks)) == 5
    assert all(20000 <= pick < 32000 for pick in picks)
    assert int((tmp_path / "sweep-port").read_text()) == picks[-1]
    (tmp_path / "sweep-port").write_text("31999\n")
    assert 20000 <= port.pick(str(tmp_path)) < 20100
