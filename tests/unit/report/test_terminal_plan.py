"""The plan on a terminal."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import Any

from sweep.report.terminal_plan import command, commands, expected
from sweep.spec.describe import LaunchRow
from sweep.spec.estimate import Estimate

PROGRAM = ("python", "-m", "server", "--port", "0", "--model", "m x")
SPECULATION = ("--steps", "2", "--fast")


def row(position: int, **changes: Any) -> LaunchRow:
    """A planned launch of the same server."""
    fields: dict[str, Any] = {
        "launch_id": f"l{position}",
        "label": "baseline",
        "role": "main",
        "arm": "default",
        "node": "local",
        "trials": 1,
        "argv": PROGRAM,
        "env": {},
        "unset": (),
        "path_first": (),
    } | changes
    return LaunchRow(position=position, **fields)


def test_a_command_is_what_a_shell_takes() -> None:
    """Variables first, each word quoted where it must be."""
    whole = command(row(1, env={"A": "b c"}, unset=("GONE",)))
    assert whole == "env -u GONE 'A=b c' python -m server --port 0 --model 'm x'"
    assert shlex.split(command(row(1))) == list(PROGRAM)


def test_secrets_are_blanked() -> None:
    """A plan is read over shoulders and pasted into tickets."""
    assert "hunter2" not in command(row(1, env={"HF_TOKEN": "hunter2"}))


def test_only_what_differs_from_the_first_is_repeated() -> None:
    """Forty launches of one server differ by a flag or a variable."""
    rows = [
        row(1, env={"A": "1"}),
        row(2, env={"A": "1"}, argv=(*PROGRAM, *SPECULATION)),
        row(3, env={"A": "2"}),
        row(4, env={"A": "1"}),
        row(5, unset=("A",)),
    ]
    assert commands(rows) == [
        "1: env A=1 python -m server --port 0 --model 'm x'",
        "2: as 1, with --steps 2 --fast",
        "3: as 1, with A=2, without A=1",
        "4: as 1",
        "5: as 1, with -u A, without A=1",
    ]


def test_what_is_expected_is_a_duration() -> None:
    """Half a minute is not "about 0 min"."""
    assert expected(Estimate(24.0, True, "loads")) == "at least 24 s"
    assert expected(Estimate(4000.0, False, "all")) == "about 1 h 06 min"


def test_a_plan_without_launches_has_no_commands() -> None:
    """Everything asked may be invalid."""
    assert commands([]) == []


def test_directories_come_first_in_path() -> None:
    """As a shell on the node takes it, which has the login's own PATH; or before the file's."""
    own = row(1, path_first=("/opt/a b/bin", "/x"))
    assert command(own).startswith("env 'PATH=/opt/a b/bin:/x':$PATH ")
    given = row(1, path_first=("/x",), env={"A": "1", "PATH": "/usr/bin"})
    assert command(given).startswith("env A=1 PATH=/x:/usr/bin ")
    assert commands([row(1), replace(own, position=2)])[1] == (
        "2: as 1, with 'PATH=/opt/a b/bin:/x':$PATH"
    )
