"""Loading an experiment file: text in, Experiment out, or all that is wrong with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from sweep.model.errors import Problem, SpecError
from sweep.model.experiment import Experiment
from sweep.spec.build import build_experiment
from sweep.spec.checks import Checker
from sweep.spec.overrides import apply_override
from sweep.spec.shape import check_shape
from sweep.spec.unbuilt import refuse_unbuilt
from sweep.spec.yaml_tree import MAX_BYTES, Tree, parse, problem_at


def decode_text(data: bytes, source: str) -> str:
    """Return the text of an experiment file's bytes. Raises SpecError: too large, or not UTF-8."""
    if len(data) > MAX_BYTES:
        raise SpecError(source, (Problem(f"the file is larger than {MAX_BYTES} bytes", 1, 1),))
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        before = data[: error.start]
        line = before.count(b"\n") + 1
        column = len(before.rpartition(b"\n")[2].decode("utf-8")) + 1
        message = f"not UTF-8 text: byte 0x{data[error.start]:02x} at offset {error.start}"
        problem = Problem(message, line, column, "save the file as UTF-8")
        raise SpecError(source, (problem,)) from error


def load_experiment(
    text: str,
    source: str,
    *,
    base: Path,
    read_text: Callable[[Path], str],
    overrides: Sequence[str] = (),
    engine_problems: Callable[[Experiment], Iterable[Problem]] | None = None,
) -> Experiment:
    """Return the experiment that `text` describes. Raises SpecError with every problem at once.

    `source` names the file in messages; `base` is its directory, absolute, from which relative
    paths count; `read_text` reads prompt files and may raise OSError or UnicodeDecodeError;
    `overrides` are the texts after `--set`; `engine_problems` is what an engine finds wrong, asked
    when the file is otherwise right.
    """
    tree = parse(text)
    if tree.problems and tree.value is None:
        raise SpecError(source, tuple(tree.problems))
    if not tree.marks:
        raise SpecError(
            source, (Problem("the file is empty", 1, 1, "`sweep schema` shows the keys"),)
        )
    if not isinstance(tree.value, dict):
        problem = Problem("the file must be a mapping of keys to values", 1, 1)
        raise SpecError(source, (*tree.problems, problem))
    for override in overrides:
        apply_override(tree, override)
    experiment = _experiment(tree, base, read_text)
    if experiment is not None and not tree.problems and engine_problems is not None:
        tree.problems += [_placed(problem, tree) for problem in engine_problems(experiment)]
    if tree.problems or experiment is None:
        raise SpecError(source, _in_file_order(tree.problems))
    return experiment


def _experiment(tree: Tree, base: Path, read_text: Callable[[Path], str]) -> Experiment | None:
    refuse_unbuilt(tree)
    file, wrong = check_shape(tree)
    if file is None:
        return None
    prompts = Checker(file, tree, wrong, base, read_text).check()
    return build_experiment(file, prompts, base)


def _placed(problem: Problem, tree: Tree) -> Problem:
    """Return an engine's problem with the place of its path."""
    if not problem.path:
        return problem
    mark = tree.mark(problem.path)
    return problem_at(mark, problem.message, problem.hint)


def _in_file_order(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """Return the problems once each by place; those of overrides come last."""
    last = 1 << 30
    return tuple(
        sorted(dict.fromkeys(problems), key=lambda item: (item.line or last, item.column or last))
    )
