"""Every error that sweep shows to a person.

SweepError                 base; exit code 1
├── UsageError             the command line or the file is wrong; exit code 2
│   └── SpecError          the experiment file has problems, all of them at once
├── UnusableError          node, lock or results directory unusable before start; exit code 3
│   └── SweepLockedError   another driver runs this sweep
├── NodeError              a node did not do what was asked, after start
│   ├── NodeUnreachableError  there was no connection to it for as long as was allowed
│   └── WireVersionError   the agent on the node speaks another version
├── StoreError             the sweep's database cannot be read or written
└── InterruptedSweep       SIGINT or SIGTERM; exit code 130
"""

from __future__ import annotations

from dataclasses import dataclass


class SweepError(Exception):
    """What happened, where, and what to do next (`hint`); shown without a traceback."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(SweepError):
    """The command line or a file given on it is wrong."""

    exit_code = 2


@dataclass(frozen=True)
class Problem:
    """One thing wrong with an experiment file; line and column count from 1."""

    message: str
    line: int | None = None
    column: int | None = None
    hint: str | None = None
    path: tuple[str | int, ...] = ()
    """Keys and indices of what is wrong, given where line and column are not known yet."""


class SpecError(UsageError):
    """An experiment file with problems; `problems` holds all of them in file order."""

    def __init__(self, source: str, problems: tuple[Problem, ...]) -> None:
        count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        super().__init__(f"{source}: {count}, nothing was started")
        self.source = source
        self.problems = problems


class UnusableError(SweepError):
    """Node, lock or results directory unusable before anything was started."""

    exit_code = 3


class SweepLockedError(UnusableError):
    """Another driver process runs this sweep."""


class NodeError(SweepError):
    """A node did not do what was asked of it."""


class NodeUnreachableError(NodeError):
    """There was no connection to a node for as long as was allowed; what runs there goes on."""


class WireVersionError(NodeError):
    """The agent beside a launch speaks another version of the file formats."""


class StoreError(SweepError):
    """The sweep's database cannot be read or written."""


class InterruptedSweep(SweepError):
    """The sweep was stopped by a signal, its servers stopped and its state kept."""

    exit_code = 130
