"""T38: two sweeps that want the same node, as two people would start them."""

from __future__ import annotations

import pytest
from fakes.machine import Machine, eventually, finished, gone, kill

pytestmark = pytest.mark.ray
SLOW = "--rate 40"
"""A window takes 4 s."""


def test_a_sweep_that_waits_comes_after_the_whole_other_one(machine: Machine) -> None:
    """It does not slip in between two launches, and begins as soon as the last one is over."""
    machine.serve_with("--rate 400", s1=SLOW)
    first = machine.start("submit", machine.experiment([1, 2, 3], name="first"))
    machine.wait_for_phase(1, "measure")
    node = {"on_busy": "wait"}
    second = machine.start("submit", machine.experiment([4], name="second", node=node))
    eventually(lambda: machine.directory.name.startswith("second"))
    eventually(lambda: machine.events(4, "claim_wait"))
    (waited,) = machine.events(4, "claim_wait")
    assert "sweep first-" in waited["owner"]
    ends = [finished(first), finished(second)]
    assert [ended.code for ended in ends] == [0, 0], ends
    assert [start["steps"] for start in machine.starts()] == [1, 2, 3, 4]
    machine.require_quiet()


def test_a_sweep_without_a_driver_keeps_its_node_for_a_while(machine: Machine) -> None:
    """Another one is refused and told whose it is; after a resume to the end it may start at
    once."""
    machine.serve_with("--rate 400", s1=SLOW)
    other = machine.experiment([4], name="second")
    file = machine.experiment([1, 2], name="first")
    following = machine.start("submit", file)
    machine.wait_for_phase(1, "measure")
    agent = machine.agent(1)
    kill(machine.driver())
    assert finished(following).code == 1
    refused = machine.run("submit", other)
    assert refused.code == 3
    assert "node is held: sweep first-" in refused.text
    gone(agent, 60)
    refused = machine.run("submit", other)
    assert refused.code == 3
    assert "between two launches" in refused.text
    assert machine.run("resume", "first").code == 0
    assert machine.run("submit", other).code == 0
    assert [start["steps"] for start in machine.starts()] == [1, 2, 4]
    machine.require_quiet()


def test_a_sweep_that_was_killed_whole_holds_nothing_for_long(machine: Machine) -> None:
    """With driver, agent and server dead its claim is void; with the server alive it is not."""
    machine.serve_with("--rate 400", s1=SLOW)
    following = machine.start("submit", machine.experiment([1, 2], name="first"))
    machine.wait_for_phase(1, "measure")
    server = machine.server(1)
    kill(machine.driver())
    kill(machine.agent(1))
    assert finished(following).code == 1
    other = machine.experiment([4], name="second")
    refused = machine.run("submit", other)
    assert refused.code == 3
    assert f"its server still runs (pid {server[0]}" in refused.text
    kill(server)
    gone(server)
    assert machine.run("submit", other).code == 0
    assert machine.run("clean", "first").code == 0
    machine.require_quiet()
