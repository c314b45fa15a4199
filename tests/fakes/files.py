"""Experiment files for tests, and loading them without a disk."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from sweep.model.errors import Problem, SpecError
from sweep.model.experiment import Experiment
from sweep.spec.load import load_experiment

BASE = Path("/lab/experiments")

ENGINE = "engine: {kind: llama.cpp, model: m.gguf}\n"
WORKLOADS = "workloads:\n  - {name: code, prompts: [a, b, c], concurrency: [1, 2]}\n"
SWEEP = "sweep: {num_steps: {from: 1, to: 3}}\n"
SMALL = "name: small\n" + ENGINE + WORKLOADS
"""The least that is an experiment."""


def reader(files: Mapping[str, str | bytes]) -> Callable[[Path], str]:
    """Return a reader of files named by their path below BASE."""

    def read(path: Path) -> str:
        for name, content in files.items():
            if path == BASE / name:
                return content if isinstance(content, str) else content.decode("utf-8")
        raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(path))

    return read


def load(
    text: str,
    overrides: Sequence[str] = (),
    files: Mapping[str, str | bytes] | None = None,
    engine_problems: Callable[[Experiment], Iterable[Problem]] | None = None,
) -> Experiment:
    """Load an experiment whose directory holds `files`."""
    return load_experiment(
        text,
        "test.yaml",
        base=BASE,
        read_text=reader(files or {}),
        overrides=overrides,
        engine_problems=engine_problems,
    )


def problems_of(
    text: str, overrides: Sequence[str] = (), files: Mapping[str, str | bytes] | None = None
) -> tuple[Problem, ...]:
    """Return what is wrong with a file; nothing when it can be loaded."""
    try:
        load(text, overrides, files)
    except SpecError as error:
        return error.problems
    return ()


def only_problem(text: str, overrides: Sequence[str] = ()) -> Problem:
    """Return the one thing that is wrong with a file; there must be exactly one."""
    (problem,) = problems_of(text, overrides)
    return problem
