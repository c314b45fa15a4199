"""What was checked, on a terminal."""

from __future__ import annotations

import pytest

from sweep.check.line import Group, error, ok, warning
from sweep.report import terminal_check


def shown(capsys: pytest.CaptureFixture[str], *groups: Group) -> str:
    """What is printed, without the padding of lines."""
    terminal_check.show(groups, 2.04)
    return "\n".join(line.rstrip() for line in capsys.readouterr().out.splitlines())


def test_lines_by_group(capsys: pytest.CaptureFixture[str]) -> None:
    """Level, subject, finding; the remedy below; the counts at the end."""
    groups = [
        Group("plan", (ok("plan", "4 launches"),)),
        Group("gpu-a", (error("GPUs", "GPU 3 is used", "wait"), warning("clock", "late"))),
    ]
    assert shown(capsys, *groups) == (
        "plan\n"
        "  ok       plan   4 launches\n"
        "gpu-a\n"
        "  error    GPUs   GPU 3 is used\n"
        "                  → wait\n"
        "  warning  clock  late\n"
        "1 error, 1 warning; looked at in 2.0 s"
    )


def test_nothing_in_the_way(capsys: pytest.CaptureFixture[str]) -> None:
    """Said in words."""
    text = shown(capsys, Group("n", (ok("a", "b"),)))
    assert text.splitlines()[-1] == "nothing stands in the way; looked at in 2.0 s"


def test_what_a_node_says_is_shown_safely(capsys: pytest.CaptureFixture[str]) -> None:
    """A process may be named by terminal escapes or markup."""
    text = shown(capsys, Group("n\x1b[2J", (ok("[red]a", "b\x1b]0;x\x07[/bold]"),)))
    assert "\x1b" not in text
    assert "[red]a" in text
    assert "b[/bold]" in text
