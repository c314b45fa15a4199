"""Leaving a node while others work, and what nodes may share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from fakes.launching import wait_for
from fakes.node import Die, load
from fakes.sweeps import SmallSweep, small_experiment

from sweep.driver.departures import Departures
from sweep.model.experiment import Axes, NodeSpec, Variant
from sweep.ports import Completed
from sweep.store.sweep_db import NodeRow

EXPERIMENT = small_experiment(
    nodes=(NodeSpec("a"), NodeSpec("b")),
    axes=Axes(num_steps=(1,), variants=(Variant("default"), Variant("tuned", env={"A": "1"}))),
)
DIRECTORY = "/w/small-1"


def departures(sweep: SmallSweep, *, workdir_of_b: str, keep: bool = False) -> Departures:
    """What leaves the nodes of a sweep that has run."""
    rows = {"a": NodeRow(None, "/w"), "b": NodeRow(None, workdir_of_b)}
    sweep.database.set_plan(EXPERIMENT, sweep.plan, rows)
    specs = {spec.name: spec for spec in EXPERIMENT.nodes}
    return Departures(sweep.database, specs, sweep.factories, sweep.clock, keep=keep)


@pytest.fixture
def sweep(tmp_path: Path) -> SmallSweep:
    """A sweep that ended on nodes a and b."""
    found = SmallSweep(tmp_path, experiment=EXPERIMENT)
    found.run()
    with_test(found)
    assert there(found) == ["a", "b"]
    return found


def with_test(sweep: SmallSweep) -> None:
    """Let the nodes tell whether a path is there."""
    for node in sweep.nodes.values():

        def test(argv: Sequence[str], _: float, exists: object = node.exists) -> Completed:
            assert callable(exists)
            return Completed(0 if exists(argv[-1]) else 1, b"", b"")

        node.programs["test"] = test


def there(sweep: SmallSweep) -> list[str]:
    """Nodes on which the sweep's directory still is."""
    return [name for name, node in sweep.nodes.items() if node.exists(DIRECTORY)]


def test_a_node_is_left_while_another_works(sweep: SmallSweep) -> None:
    """Its directory goes at once when it is no other's."""
    leaving = departures(sweep, workdir_of_b="/other")
    leaving.begin("a")
    wait_for(lambda: there(sweep) == ["b"])
    leaving.begin("b")
    leaving.end()
    assert there(sweep) == []


def test_what_another_node_may_share_stays_until_it_is_left(sweep: SmallSweep) -> None:
    """Homes are often on one file system: a launch of b may stand in the directory of a."""
    leaving = departures(sweep, workdir_of_b="/w")
    leaving.begin("a")
    leaving.begin("b")
    wait_for(lambda: there(sweep) == ["a"])
    leaving.end()
    assert there(sweep) == []


def test_what_is_to_be_kept_stays(sweep: SmallSweep) -> None:
    """`keep: true` keeps every directory."""
    leaving = departures(sweep, workdir_of_b="/other", keep=True)
    leaving.begin("a")
    leaving.begin("b")
    leaving.end()
    assert there(sweep) == ["a", "b"]


def test_what_was_not_fetched_stays(tmp_path: Path) -> None:
    """An agent that died left no outcome: its files are for `clean` to remove."""
    sweep = SmallSweep(tmp_path, experiment=EXPERIMENT)
    sweep.nodes["a"].script = lambda doc: [*load(doc), Die()]
    sweep.run()
    with_test(sweep)
    leaving = departures(sweep, workdir_of_b="/other")
    leaving.begin("a")
    leaving.begin("b")
    leaving.end()
    assert there(sweep) == ["a"]


def test_a_silent_node_is_told_and_holds_nobody_up(
    sweep: SmallSweep, capsys: pytest.CaptureFixture[str]
) -> None:
    """The other one is clean."""
    sweep.nodes["a"].silent = True
    leaving = departures(sweep, workdir_of_b="/other")
    leaving.begin("a")
    leaving.begin("b")
    leaving.end()
    assert there(sweep) == ["a"]
    assert "a: no connection" in capsys.readouterr().err
