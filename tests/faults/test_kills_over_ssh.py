"""SIGKILL for every process of a sweep on a node behind SSH, in a load, in a window and while its
server stops: nothing is loaded twice but what lost its agent, and nothing recorded changes."""

from __future__ import annotations

from collections import Counter
from functools import partial
from itertools import count

import pytest
from fakes.machine import Lines, Machine, Result, descendants, eventually, finished, gone, kill
from faults.remote import node_behind_ssh, remote_node

from sweep.agent import claim, procs

MOMENTS = ("load", "measure", "stop")
LONG_ENOUGH = {"load": "--unready 2", "measure": "--rate 100", "stop": "--term-after 2"}


def matrix(*victims: str) -> list[tuple[int, str, str]]:
    """(draft length, who is killed, when): a launch for each, moment by moment."""
    steps = count(1)
    return [(next(steps), victim, moment) for moment in MOMENTS for victim in victims]


def slowed(cases: list[tuple[int, str, str]]) -> dict[str, str]:
    """The fake server's options that make each launch's moment last."""
    return {f"s{steps}": LONG_ENOUGH[moment] for steps, _, moment in cases}


def undisturbed(machine: Machine, cases: list[tuple[int, str, str]]) -> list[Result]:
    """What a sweep of the same launches measures on this machine."""
    machine.serve_with("--rate 2000")
    file = machine.experiment([steps for steps, _, _ in cases], name="here")
    assert machine.inline_to_end("submit", file) == 0
    return list(machine.outcome().values())


def require_prefix(before: Lines, machine: Machine) -> None:
    """What was recorded is there as it was, byte for byte."""
    after = machine.lines()
    assert {place: after.get(place) for place in before} == before


def grown(machine: Machine, lines: int) -> bool:
    """Whether more lines are recorded than there were."""
    return len(machine.lines()) > lines


def below_driver(machine: Machine, name: str) -> procs.Identity | None:
    """A process of the driver's whose name begins so."""
    for process in descendants(machine.driver()[0]):
        if procs.name_of(process.pid).startswith(name):
            return process.identity
    return None


def test_driver_agent_and_server_killed(machine: Machine) -> None:
    """A driver comes back to the same server. A dead agent costs its launch a new attempt, and so
    does, in the next run, a dead server; neither does when all was measured."""
    cases = matrix("driver", "agent", "server")
    expected = undisturbed(machine, cases)
    first = len(machine.starts())
    machine.serve_with("--rate 2000", **slowed(cases))
    with node_behind_ssh(machine):
        file = machine.experiment(
            [steps for steps, _, _ in cases], name="there", node=remote_node(machine)
        )
        driving = machine.inline("submit", file)
        machine.wait_for_sweep(2)
        for steps, victim, moment in cases:
            machine.wait_for_phase(steps, moment)
            agent, server = machine.agent(steps), machine.server(steps)
            if victim == "driver":
                driving.kill()
                driving.join()
                before = machine.lines()
                assert procs.alive(agent)
                assert procs.alive(server)
                driving = machine.inline("resume")
                eventually(partial(grown, machine, len(before)))
                require_prefix(before, machine)
            elif victim == "agent":
                kill(agent)
                gone(server)
            else:
                kill(server)
        driving.join(60)
        assert driving.exitcode == 0, machine.inline_log()
    starts = Counter(start["steps"] for start in machine.starts()[first:])
    ended_early = {2: 2, 3: 2, 5: 2, 6: 2}
    assert starts == {steps: 1 for steps, _, _ in cases} | ended_early
    assert list(machine.outcome().values()) == expected
    machine.require_quiet()


@pytest.mark.ray
def test_actor_and_raylet_killed(machine: Machine) -> None:
    """A dead lane, and a dead Ray, are replaced and attach through a connection of their own; the
    launch never notices."""
    cases = matrix("ray::LaneActor", "raylet")
    expected = undisturbed(machine, cases)
    first = len(machine.starts())
    by_steps = slowed(cases)
    by_steps["s1"] = "--unready 8"  # until Ray is up and its actor reads
    machine.serve_with("--rate 2000", **by_steps)
    with node_behind_ssh(machine):
        file = machine.experiment(
            [steps for steps, _, _ in cases], name="there", node=remote_node(machine)
        )
        following = machine.start("submit", file)
        machine.wait_for_sweep(2)
        for steps, victim, moment in cases:
            machine.wait_for_phase(steps, moment)
            kill(eventually(partial(below_driver, machine, victim)))
        ended = finished(following, 120)
    assert ended.code == 0, ended.text
    log = (machine.directory / "driver.log").read_text()
    assert log.count("attaching again") == len(cases), log
    starts = Counter(start["steps"] for start in machine.starts()[first:])
    assert starts == {steps: 1 for steps, _, _ in cases}
    assert list(machine.outcome().values()) == expected
    machine.require_quiet()


def test_a_laptop_closed_for_longer_than_the_launch_takes(machine: Machine) -> None:
    """The agent ends alone: server stopped, claim held by nobody who lives, nothing started after
    it. Resume takes its launch as if it had been followed, and goes on with the next."""
    cases = [(1, "controller", "load"), (2, "nobody", "")]
    expected = undisturbed(machine, cases)
    first = len(machine.starts())
    machine.serve_with("--rate 2000", s1="--unready 2")
    with node_behind_ssh(machine) as server:
        file = machine.experiment([1, 2], name="there", node=remote_node(machine))
        driving = machine.inline("submit", file)
        machine.wait_for_sweep(2)
        machine.wait_for_phase(1, "load")
        agent = machine.agent(1)
        driving.kill()
        driving.join()
        server.close()
        before = machine.lines()
        gone(agent)
        assert [held for held in claim.list_held(str(machine.claims)) if held["alive"]] == []
        assert len(machine.starts()) == first + 1
        assert machine.lines() == before
        server.start()
        assert machine.inline_to_end("resume") == 0, machine.inline_log()
        assert list((machine.root / "node").iterdir()) == []
    require_prefix(before, machine)
    assert [start["steps"] for start in machine.starts()[first:]] == [1, 2]
    assert {row.attempt for row in machine.attempts()} == {1}
    assert list(machine.outcome().values()) == expected
    machine.require_quiet()
