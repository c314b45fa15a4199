"""All lines of a node, and of nodes together."""

from __future__ import annotations

from typing import Any

import pytest
from fakes.facts import facts, gpu, model
from fakes.sweeps import small_experiment

from sweep.check.facts import Facts
from sweep.check.line import Group, Level, error, of_level, ok, warning
from sweep.check.node import check_node, together
from sweep.model.experiment import NodeSpec
from sweep.ports import Installation

EXPERIMENT = small_experiment()
INSTALLED = Installation(("m.gguf",))


def levels(group: Group) -> set[Level]:
    """The levels that occur."""
    return {line.level for line in group.lines}


def test_a_usable_node() -> None:
    """Everything is told, and nothing is wrong."""
    found = facts(gpu(0), models={"m.gguf": model()})
    group = check_node(found, EXPERIMENT, INSTALLED, None)
    assert group.title == "n"
    assert levels(group) == {Level.OK}
    subjects = list(dict.fromkeys(line.subject for line in group.lines))
    assert subjects == [
        "SSH", "Python", "clock", "GPUs", "claims", "engine", "model", "disk", "memory",
        "/dev/shm", "ports", "limits",
    ]  # fmt: skip


def test_every_error_is_told_at_once() -> None:
    """The GPUs' and the model's."""
    found = facts(gpu_error="x", models={"m.gguf": model(path=None, kind="missing")})
    group = check_node(found, EXPERIMENT, INSTALLED, None)
    wrong = [line.subject for line in group.lines if line.level is Level.ERROR]
    assert wrong == ["GPUs", "model"]


@pytest.mark.parametrize(
    ("name", "level"),
    [("paths", Level.ERROR), ("workdir", Level.ERROR), ("version", Level.ERROR),
     ("models", Level.WARNING), ("storage", Level.WARNING), ("packages", Level.WARNING),
     ("session", Level.WARNING), ("compilers", Level.WARNING), ("caches", Level.WARNING)],
)  # fmt: skip
def test_what_a_node_does_not_tell(name: str, level: Level) -> None:
    """A group of facts that hangs is a line, not a failure; without some nothing can start."""
    told: dict[str, Any] = {"models": {"m.gguf": model()}, name: None}
    found = facts(files=("m.gguf", "/bin/server"), **told, unknown={name: "no answer"})
    group = check_node(found, EXPERIMENT, INSTALLED, None)
    (line,) = [line for line in group.lines if line.level is not Level.OK]
    assert (line.level, line.finding) == (level, "not told: no answer")


def test_gpus_that_do_not_answer_are_told_once() -> None:
    """By the line about GPUs."""
    found = facts(gpu_error="no answer", unknown={"gpu": "no answer"}, models={"m.gguf": model()})
    group = check_node(found, EXPERIMENT, INSTALLED, None)
    assert len([line for line in group.lines if line.level is not Level.OK]) == 1


def test_two_names_of_one_machine_are_an_error() -> None:
    """Their lanes would wait for each other; other GPUs, or other machines, are no harm."""
    twice = [facts(gpu(0)), facts(gpu(0), gpu(1), spec=NodeSpec("alias"))]
    (line,) = together(twice)
    assert (line.level, line.finding) == (Level.ERROR, "n and alias are one machine")
    assert list(together([facts(gpu(0)), facts(gpu(1), spec=NodeSpec("alias"))])) == []
    assert list(together([facts(), facts(spec=NodeSpec("m"), boot_id="other")])) == []


def test_tokenizers_that_do_not_agree_are_an_error() -> None:
    """One of the nodes has another model, and rows of both would be compared."""

    def node(name: str, tokens: list[int]) -> Facts:
        version = {"line": "v1", "returncode": 0, "details": {"token_ids": {"code": [tokens]}}}
        return facts(spec=NodeSpec(name), boot_id=name, version=version)

    assert list(together([node("a", [1, 2]), node("b", [1, 2])])) == []
    (line,) = together([node("a", [1, 2]), node("b", [1, 2]), node("c", [1])])
    assert line.level is Level.ERROR
    assert "render the prompts differently" in line.finding


def test_lines_by_level() -> None:
    """Each with the title of its group."""
    bad, odd = error("a", "x", "do y"), warning("b", "z")
    groups = [Group("n", (bad, ok("c", "w"))), Group("m", (odd,))]
    assert of_level(groups, Level.ERROR) == [("n", bad)]
    assert of_level(groups, Level.WARNING) == [("m", odd)]
    assert bad.sentence == "a: x: do y"
    assert odd.sentence == "b: z"
