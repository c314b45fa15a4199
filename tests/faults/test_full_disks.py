"""Disks that fill up under a launch: an error with what to do, nothing lost, and resume goes on."""

from __future__ import annotations

from fakes.machine import Machine, Result, eventually, finished
from faults.disks import disk
from faults.remote import node_behind_ssh, remote_node

from sweep.agent import procs, wire

SIZE_MIB = 300
"""Above what a sweep wants to be free before it starts."""


def undisturbed(machine: Machine) -> list[Result]:
    """What the same launches measure on this machine with space enough."""
    machine.serve_with("--rate 2000")
    assert machine.inline_to_end("submit", machine.experiment([1, 2], name="here")) == 0
    return list(machine.outcome().values())


def test_the_nodes_disk_full_in_a_window(machine: Machine) -> None:
    """The server is stopped, the sweep pauses and says which disk; what was recorded stays."""
    expected = undisturbed(machine)
    machine.serve_with("--rate 2000", s1="--rate 40")
    with disk(machine.root / "node", SIZE_MIB) as full, node_behind_ssh(machine):
        file = machine.experiment([1, 2], name="there", node=remote_node(machine))
        driving = machine.inline("submit", file)
        machine.wait_for_sweep(2)
        machine.wait_for_phase(1, "measure")
        server = machine.server(1)
        eventually(lambda: [key for key in machine.lines() if key[2] == wire.REQUESTS_FILE])
        full.fill()
        driving.join(60)
        assert driving.exitcode == 1, machine.inline_log()
        assert not procs.alive(server)
        before = machine.lines()
        note = str(machine.last_run().note)
        assert f"gpu-a: cannot write {full.path}" in note
        assert "the disk is full" in note
        assert "free space on that disk, then go on with `sweep resume`" in note
        states = [result.state for result in machine.outcome().values()]
        assert states == ["interrupted", "not_run"]
        written = [path.read_bytes() for path in full.path.rglob("*.jsonl")]
        assert {data[-1:] for data in written} == {b"\n"}
        full.free()
        machine.serve_with("--rate 2000")
        assert machine.inline_to_end("resume") == 0, machine.inline_log()
        after = machine.lines()
        assert {place: after.get(place) for place in before} == before
    assert list(machine.outcome().values()) == expected
    machine.require_quiet()


def test_the_controllers_disk_full_in_a_window(machine: Machine) -> None:
    """The driver ends; the launch goes on without it, and resume ingests the rest."""
    expected = undisturbed(machine)
    first = len(machine.starts())
    machine.serve_with("--rate 2000", s1="--rate 30")
    machine.results = machine.root / "small"
    machine.environment["SWEEP_RESULTS"] = str(machine.results)
    with disk(machine.results, SIZE_MIB) as full, node_behind_ssh(machine):
        file = machine.experiment([1, 2], name="there", node=remote_node(machine))
        following = machine.start("submit", file)
        machine.wait_for_sweep()
        machine.wait_for_phase(1, "measure")
        full.fill()
        ended = finished(following)
        assert ended.code == 1
        assert f"the disk of {machine.directory} is full" in ended.text
        assert "free space there" in ended.text
        assert f"sweep resume {machine.directory.name}" in ended.text
        before = machine.lines()
        full.free()
        machine.serve_with("--rate 2000")
        assert machine.inline_to_end("resume") == 0, machine.inline_log()
        after = machine.lines()
        assert {place: after.get(place) for place in before} == before
        assert list(machine.outcome().values()) == expected
        assert [start["steps"] for start in machine.starts()[first:]] == [1, 2]
        assert {row.attempt for row in machine.attempts()} == {1}
        machine.require_quiet()
