"""One run on two nodes: their lanes work at the same time, and one that pauses stops no other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fakes.inline_lanes import InlineLanes
from fakes.node import Call, Hold, Script, Step, fails, good, load
from fakes.sweeps import Crashed, SmallSweep, small_experiment

from sweep.agent import wire
from sweep.model.errors import NodeError
from sweep.model.experiment import Axes, Budget, NodeSpec, Variant
from sweep.ports import Node

VARIANTS = (Variant("default"), Variant("tuned", env={"A": "1"}))
EXPERIMENT = small_experiment(
    nodes=(NodeSpec("a"), NodeSpec("b")), axes=Axes(num_steps=(1, 2), variants=VARIANTS)
)
"""Node a runs the default arm, 4 launches; node b its baselines around the tuned arm's 4."""
ON_A, ON_B = 4, 6


def two_nodes(root: Path, script: Script = good, **changes: Any) -> SmallSweep:
    """The sweep of EXPERIMENT."""
    sweep = SmallSweep(root, script, replace(EXPERIMENT, **changes))
    assert [launch.node for launch in sweep.plan.launches] == ["a"] * ON_A + ["b"] * ON_B
    return sweep


def on_second(break_it: Callable[[SmallSweep], None]) -> Callable[[SmallSweep], Script]:
    """A script during whose second launch on b something happens to the node."""

    def make(sweep: SmallSweep) -> Script:
        def script(doc: wire.LaunchDoc) -> list[Step]:
            first, *steps = good(doc)
            if len(sweep.nodes["b"].started) == 1:
                return [first, Call(lambda: break_it(sweep)), *steps]
            return [first, *steps]

        return script

    return make


def test_lanes_work_at_the_same_time(tmp_path: Path) -> None:
    """Each node runs its own launches in plan order, while the other runs its own."""
    sweep = two_nodes(tmp_path)
    assert sweep.run().exit_code == 0
    assert sweep.launches() == ["done"] * (ON_A + ON_B)
    assert sweep.trials() == ["ok"] * 2 * (ON_A + ON_B)
    assert sweep.nodes["a"].started == sweep.directories()[:ON_A]
    assert sweep.nodes["b"].started == sweep.directories()[ON_A:]
    started = [task.launch_id for task in sweep.tasks]
    order = [launch.launch_id for launch in sweep.plan.launches]
    assert {order.index(launch) for launch in started[:4]} == {0, 1, ON_A, ON_A + 1}
    assert {row.node: row.fetched is not None for row in sweep.database.attempts()} == {
        "a": True, "b": True,
    }  # fmt: skip


def dirty(sweep: SmallSweep) -> None:
    """Something stays on b."""
    sweep.nodes["b"].left = ["pid 7 lives"]


def refuses(sweep: SmallSweep) -> None:
    """Nothing on b can be read any more."""
    sweep.nodes["b"].broken = {"read"}


def silent(sweep: SmallSweep) -> None:
    """The link to b is down for longer than is borne."""
    sweep.nodes["b"].silent = True


@pytest.mark.parametrize(
    ("break_it", "second", "reason", "note"),
    [
        (dirty, "done", "node_dirty", "node b is not clean: pid 7 lives"),
        (refuses, "running", "node_error", "b: read failed (mend the fake)"),
        (silent, "running", "node_error", "b: no connection"),
    ],
)
def test_a_node_that_breaks_stops_no_other(
    tmp_path: Path, break_it: Callable[[SmallSweep], None], second: str, reason: str, note: str
) -> None:
    """Its later launches are not run, with the reason; the other node's are all there."""
    sweep = two_nodes(tmp_path)
    sweep.nodes["b"].script = on_second(break_it)(sweep)
    result = sweep.run()
    assert (result.exit_code, result.note) == (1, note)
    assert sweep.launches() == ["done"] * ON_A + ["done", second] + ["not_run"] * 4
    assert sweep.reasons()[ON_A + 2 :] == [reason] * 4
    assert sweep.nodes["a"].started == sweep.directories()[:ON_A]


@pytest.mark.parametrize(
    ("script", "first", "reason"),
    [
        (fails("claim_timeout", "claim", detail="held by bob"), "failed", "claim_timeout"),
        (fails("server_exit", "load"), "failed", "baseline_failed"),
    ],
)
def test_a_node_whose_first_baseline_fails_stops_no_other(
    tmp_path: Path, script: Script, first: str, reason: str
) -> None:
    """A claim that cannot be had, or a baseline that fails, concerns one node."""
    sweep = two_nodes(tmp_path)
    sweep.nodes["b"].script = script
    assert sweep.run().exit_code == 1
    assert sweep.launches() == ["done"] * ON_A + [first] + ["not_run"] * (ON_B - 1)
    assert sweep.reasons()[ON_A + 1 :] == [reason] * (ON_B - 1)
    sweep.nodes["b"].script = good
    assert sweep.run().exit_code == 0
    assert sweep.launches() == ["done"] * (ON_A + ON_B)
    assert len(sweep.nodes["a"].started) == ON_A


def test_a_node_that_cannot_be_made_stops_no_other(tmp_path: Path) -> None:
    """A host that the SSH settings lead nowhere: one lane fails, once, and the driver goes on."""
    sweep = two_nodes(tmp_path)

    def refuse() -> Node:
        raise NodeError("b: ProxyJump leads back to b", hint="correct it")

    result = sweep.run(wrap=lambda _: InlineLanes(sweep.factories | {"b": refuse}, sweep.clock))
    assert (result.exit_code, result.note) == (1, "b: ProxyJump leads back to b (correct it)")
    assert sweep.launches() == ["done"] * ON_A + ["running"] + ["not_run"] * (ON_B - 1)


def test_the_budget_counts_the_launches_of_all_nodes(tmp_path: Path) -> None:
    """Five launches are five, wherever they run."""
    sweep = two_nodes(tmp_path, budget=Budget(launches=5))
    assert sweep.run().note == "the budget of 5 launches is used up"
    assert sum(len(node.started) for node in sweep.nodes.values()) == 5
    assert all(len(node.started) >= 2 for node in sweep.nodes.values())


def holds(doc: wire.LaunchDoc) -> list[Step]:
    """A launch that goes on until someone stops it."""
    return [*load(doc), Hold()]


def both_run(sweep: SmallSweep) -> Callable[[], str | None]:
    """A stop once a launch runs on each node."""
    return lambda: "SIGTERM" if all(node.running() for node in sweep.nodes.values()) else None


def test_a_stop_reaches_every_node(tmp_path: Path) -> None:
    """Both servers are stopped, nothing else is started."""
    sweep = two_nodes(tmp_path, holds)
    assert sweep.run(stop=both_run(sweep)).exit_code == 130
    assert [node.running() for node in sweep.nodes.values()] == [[], []]
    expected = ["interrupted"] + ["not_run"] * (ON_A - 1)
    assert sweep.launches() == expected + ["interrupted"] + ["not_run"] * (ON_B - 1)


def test_a_stop_without_a_driver_reaches_the_nodes_that_answer(tmp_path: Path) -> None:
    """What runs on the other one stays open, and the note says so."""
    sweep = two_nodes(tmp_path, holds)
    with pytest.raises(Crashed):
        sweep.run(crash_after=6)
    assert all(node.running() for node in sweep.nodes.values())
    sweep.nodes["a"].broken = {"run", "read"}
    result = sweep.run(stop=lambda: "cancel")
    assert result.exit_code == 130
    assert "a: read failed" in (result.note or "")
    assert sweep.nodes["b"].running() == []
    assert (sweep.launches()[0], sweep.launches()[ON_A]) == ("running", "interrupted")
    sweep.nodes["a"].broken = set()
    assert sweep.run(stop=lambda: "cancel").exit_code == 130
    assert sweep.nodes["a"].running() == []


def test_a_silent_node_delays_a_stop_for_a_bounded_time(tmp_path: Path) -> None:
    """Its launch stays open for resume; three minutes are above what a living node takes."""
    sweep = two_nodes(tmp_path, holds)
    seen_s: list[float] = []

    def stop() -> str | None:
        if not all(node.running() for node in sweep.nodes.values()):
            return None
        sweep.nodes["b"].silent = True
        seen_s.append(sweep.clock.monotonic_s())
        return "SIGTERM"

    result = sweep.run(stop=stop)
    assert result.exit_code == 130
    assert 180.0 <= sweep.clock.monotonic_s() - seen_s[0] < 190.0
    assert "b did not answer for 180 s after the stop" in (result.note or "")
    assert (sweep.launches()[0], sweep.launches()[ON_A]) == ("interrupted", "running")


def test_a_node_is_left_when_nothing_is_to_be_done_there(tmp_path: Path) -> None:
    """Once, when its own files are fetched, whatever the other one still does."""
    sweep = two_nodes(tmp_path)
    assert sweep.run().exit_code == 0
    (first, first_s), (last, last_s) = sweep.left
    assert (first, last) == ("a", "b")
    assert first_s < last_s


def test_what_runs_on_a_node_that_the_file_no_longer_names_is_stopped_there(
    tmp_path: Path,
) -> None:
    """The rest goes on meanwhile; nothing is started on the node that is gone."""
    sweep = two_nodes(tmp_path)
    with pytest.raises(Crashed):
        sweep.run(crash_after=6)
    running = sweep.nodes["b"].running()
    assert len(running) == 1
    sweep.submit(replace(EXPERIMENT, nodes=(NodeSpec("a"),)))
    assert {launch.node for launch in sweep.plan.launches} == {"a"}
    assert sweep.run().exit_code == 0
    assert sweep.launches() == ["done"] * 8
    assert sweep.nodes["b"].running() == []
    assert sweep.nodes["b"].stopped == sweep.nodes["b"].started == running
