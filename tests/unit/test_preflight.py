"""Asking nodes before anything is started on them, and refusing to start."""

from __future__ import annotations

import datetime as dt
import json
import sys
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from fakes.clock import FakeClock
from fakes.engine import FakeEngine
from fakes.facts import REACHED, claim, facts, gpu, machine, model
from fakes.node import FakeNode
from fakes.sweeps import small_experiment

from sweep.check.facts import Facts
from sweep.check.line import Group, Level
from sweep.model.errors import NodeError, UnusableError
from sweep.model.experiment import NodeSpec
from sweep.nodes.inspections import Inspections
from sweep.ports import Completed, Node
from sweep.preflight import (
    Silent,
    _asked_gpus,
    ask_all,
    check_all,
    inspect,
    require_answers,
    require_usable,
)

EXPERIMENT = small_experiment()
MODELS = {EXPERIMENT.engine.model: model()}
ANSWER = {**facts(gpu(0), gpu(1), models=MODELS).answer}


def checked(*found: Facts | Silent, sweep_id: str | None = None) -> tuple[Group, ...]:
    """The lines about nodes whose models are there."""
    return check_all(found, EXPERIMENT, FakeEngine(), sweep_id)


def answering(**changes: Any) -> FakeNode:
    """A node whose agent answers this."""
    node = FakeNode(FakeClock())
    said = json.dumps({**ANSWER, **changes}).encode()
    for python in ("python3", sys.executable):
        node.programs[python] = lambda *_: Completed(0, said, b"")
    return node


def test_a_usable_node_is_not_refused() -> None:
    """Warnings keep nothing from starting."""
    found = facts(gpu(0), models=MODELS, clock_ahead_s=1e6)
    groups = checked(found)
    assert any(line.level is Level.WARNING for line in groups[0].lines)
    require_usable(groups)


def test_everything_that_is_wrong_is_told_at_once() -> None:
    """Every error of every node, with its node and its remedy; exit code 3."""
    wrong = facts(gpu_error="driver mismatch", models={"m.gguf": model(path=None, kind="missing")})
    held = facts(
        spec=NodeSpec("m"), boot_id="other", models=MODELS, claims=[claim("node", "theirs")]
    )
    with pytest.raises(UnusableError) as raised:
        require_usable(checked(wrong, held))
    assert raised.value.exit_code == 3
    first, *lines = raised.value.message.splitlines()
    assert first == "nothing was started, for 3 errors:"
    assert [line.split(": ")[:2] for line in lines] == [
        ["  n", "GPUs"],
        ["  n", "model"],
        ["  m", "claims"],
    ]
    assert "set node.on_busy: wait" in lines[2]


def test_what_our_own_sweep_holds_refuses_nothing() -> None:
    """A resume attaches to it."""
    held = facts(models=MODELS, claims=[claim("node", "ours")])
    require_usable(checked(held, sweep_id="ours"))
    with pytest.raises(UnusableError, match="node is held"):
        require_usable(checked(held, sweep_id="another"))


def test_nodes_that_are_one_machine_are_refused() -> None:
    """Told once, beside the lines of each."""
    twice = [facts(models=MODELS), facts(models=MODELS, spec=NodeSpec("alias"))]
    groups = checked(*twice)
    assert [group.title for group in groups] == ["n", "alias", "all nodes"]
    with pytest.raises(UnusableError, match="n and alias are one machine: name it once"):
        require_usable(groups)


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, NodeError("lost")])
def test_nothing_stays_on_the_node_however_it_ends(interruption: Any) -> None:
    """Whether a signal or the link ended it."""
    node = answering()

    def end(*_: Any) -> Completed:
        raise interruption

    node.programs["python3"] = end
    with pytest.raises((KeyboardInterrupt, UnusableError)):
        inspect(node, NodeSpec("n"), EXPERIMENT, FakeEngine(), Inspections(FakeClock()))
    assert node.files == {}


@pytest.mark.parametrize("method", ["put", "run", "remove_tree"])
def test_a_node_that_refuses_is_unusable_before_start(method: str) -> None:
    """Exit code 3, not the 1 of a sweep that had begun."""
    node = FakeNode(FakeClock())
    node.broken = {method}
    with pytest.raises(UnusableError, match=f"{method} failed") as raised:
        inspect(node, NodeSpec(), EXPERIMENT, FakeEngine(), Inspections(FakeClock()))
    assert raised.value.exit_code == 3


def test_what_failed_first_is_what_is_told() -> None:
    """Cleaning up fails as well on a node that has gone; nothing is cleaned where nothing is."""
    node = answering()
    node.broken = {"run", "remove_tree"}
    with pytest.raises(UnusableError, match="run failed"):
        inspect(node, NodeSpec(), EXPERIMENT, FakeEngine(), Inspections(FakeClock()))
    node.broken = {"put", "remove_tree"}
    with pytest.raises(UnusableError, match="put failed"):
        inspect(node, NodeSpec(), EXPERIMENT, FakeEngine(), Inspections(FakeClock()))


def test_a_python_that_is_too_old_is_said() -> None:
    """Its own complaint, and what is needed."""
    node = FakeNode(FakeClock())
    node.programs["python3"] = lambda *_: Completed(1, b"", b"SyntaxError: future feature\n")
    with pytest.raises(UnusableError, match="SyntaxError: future feature") as raised:
        inspect(node, NodeSpec("n"), EXPERIMENT, FakeEngine(), Inspections(FakeClock()))
    assert "\n" not in raised.value.message
    assert "Python 3.9 or newer as `python3`" in str(raised.value.hint)


@pytest.mark.parametrize(
    ("ended", "why"),
    [
        (Completed(127, b"", b""), "python3: not found"),
        (Completed(127, b"", b"sh: 1: exec: python3: not found"), "python3: not found"),
        (Completed(1, b"", b""), "exit code 1: it said nothing"),
        (Completed(None, b"", b""), "the connection broke while it ran"),
    ],
)
def test_an_agent_that_says_nothing_is_explained(ended: Completed, why: str) -> None:
    """Never a colon with nothing after it."""
    node = FakeNode(FakeClock())
    node.programs["python3"] = lambda *_: ended
    with pytest.raises(UnusableError) as raised:
        inspect(node, NodeSpec("n"), EXPERIMENT, FakeEngine(), Inspections(FakeClock()))
    assert raised.value.message == f"fake: the agent cannot inspect the node: {why}"
    assert node.files == {}


def test_what_is_asked_lies_in_a_file() -> None:
    """Command lines are public, and the server's environment may hold secrets; nothing stays."""
    engine = replace(EXPERIMENT.engine, env={"HF_TOKEN": "secret"})
    experiment = replace(EXPERIMENT, engine=engine)
    node = answering()
    asked: list[Any] = []

    def note(argv: Any, timeout_s: float) -> Completed:
        asked.append((argv, json.loads(bytes(node.files[argv[-1]]))))
        return Completed(0, json.dumps(ANSWER).encode(), b"")

    node.programs["python3"] = note
    inspect(node, NodeSpec("n"), experiment, FakeEngine(), Inspections(FakeClock()))
    argv, document = asked[0]
    assert not any("secret" in word for word in argv)
    assert document["env"] == {"HF_TOKEN": "secret"}
    assert document["models"] == [experiment.engine.model]
    assert node.files == {}


def test_how_a_node_was_reached_and_its_clock() -> None:
    """Clocks are compared where there are two."""
    clock = FakeClock()
    now_s = dt.datetime.fromisoformat(clock.utc()).timestamp()
    node = answering(machine=machine(utc_s=now_s - 100))
    here = inspect(node, NodeSpec(), EXPERIMENT, FakeEngine(), Inspections(clock))
    assert (here.reached, here.clock_ahead_s) == (None, None)
    node.reached_by = REACHED
    there = inspect(node, NodeSpec("n"), EXPERIMENT, FakeEngine(), Inspections(clock))
    assert there.reached == REACHED
    assert there.clock_ahead_s == pytest.approx(-100)


def test_an_interruption_stops_what_is_asked() -> None:
    """The node is told to end its inspection, whose directory is removed; no other one begins."""
    node, inspections = answering(), Inspections(FakeClock())
    told: list[str] = []

    def stopped(*_: Any) -> Completed:
        inspections.stop()
        told.extend(path.rpartition("/")[2] for path in node.files)
        return Completed(1, b"", b"")

    node.programs["python3"] = stopped
    with pytest.raises(UnusableError, match="exit code 1"):
        inspect(node, NodeSpec("n"), EXPERIMENT, FakeEngine(), inspections)
    assert "stop" in told
    assert node.files == {}
    with pytest.raises(UnusableError, match="fake: interrupted"):
        inspect(node, NodeSpec("n"), EXPERIMENT, FakeEngine(), inspections)
    assert node.files == {}


def test_an_identity_holds_the_gpus_in_the_order_asked() -> None:
    """T37: other GPUs, or another one under the same index, are another identity."""

    def identity(*gpus: int | str) -> Any:
        spec = NodeSpec("n", gpus)
        return Facts(spec, ANSWER, [], "/w", _asked_gpus(spec, ANSWER)).identity

    assert identity(1, "GPU-0")["gpus"] == ["GPU-1", "GPU-0"]
    assert identity(0) == identity("GPU-0") != identity(1)


def test_every_node_is_asked_and_every_error_told() -> None:
    """Two of three cannot be inspected: one error names both, in the order of the file; a check
    goes on with the third."""
    names = ["a", "b", "c"]
    experiment = small_experiment(nodes=tuple(map(NodeSpec, names)))
    nodes = {name: answering() for name in names}
    nodes["a"].broken = {"put"}

    def refuse() -> Node:
        raise NodeError("c: unknown host key", hint="trust it")

    factories: dict[str, Any] = {name: partial(nodes.__getitem__, name) for name in names}
    asked = ask_all(experiment, FakeEngine(), factories | {"c": refuse}, FakeClock())
    with pytest.raises(UnusableError) as raised:
        require_answers(asked)
    assert raised.value.message.splitlines()[1:] == [
        "  a: node: fake: put failed: mend the fake",
        "  c: node: unknown host key: trust it",
    ]
    groups = check_all(asked, experiment, FakeEngine(), None)
    assert [(group.title, len(group.lines) > 1) for group in groups] == [
        ("a", False),
        ("b", True),
        ("c", False),
    ]
    nodes["a"].broken = set()
    two = small_experiment(nodes=experiment.nodes[:2])
    both = require_answers(ask_all(two, FakeEngine(), factories, FakeClock()))
    assert [each.node for each in both] == ["a", "b"]
