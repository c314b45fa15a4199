"""What was checked before a sweep, on a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from sweep.check.line import CheckLine, Group, Level, of_level
from sweep.report.live import duration
from sweep.report.text import visible

_STYLES = {Level.OK: "green", Level.WARNING: "yellow", Level.ERROR: "bold red"}


def show(groups: Sequence[Group], seconds: float) -> None:
    """Print every group, and the counts."""
    console = Console()
    width = max(len(visible(line.subject)) for group in groups for line in group.lines)
    for group in groups:
        console.print(Text(visible(group.title), style="bold"))
        console.print(_table(group.lines, min(width, 24)))
    console.print(Text(_summary(groups, seconds)))


def _table(lines: Sequence[CheckLine], subject_width: int) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(width=9, no_wrap=True)
    table.add_column(width=subject_width)
    table.add_column(ratio=1)
    for line in lines:
        finding = Text(visible(line.finding))
        if line.remedy is not None:
            finding.append(f"\n→ {visible(line.remedy)}", style="italic")
        level = Text(f"  {line.level.value}", style=_STYLES[line.level])
        table.add_row(level, Text(visible(line.subject)), finding)
    return table


def _summary(groups: Sequence[Group], seconds: float) -> str:
    counts = [
        f"{count} {level.value}{'' if count == 1 else 's'}"
        for level in (Level.ERROR, Level.WARNING)
        if (count := len(of_level(groups, level)))
    ]
    found = ", ".join(counts) or "nothing stands in the way"
    return f"{found}; looked at in {duration(seconds)}"
