"""What was checked before a sweep, on a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
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
        for line in group.lines:
            for text in _told(line, min(width, 24)):
                # The terminal wraps, not we: commands and paths stay whole, to be copied.
                console.print(text, soft_wrap=True)
    console.print(Text(_summary(groups, seconds)))


def _told(line: CheckLine, subject_width: int) -> list[Text]:
    """Return what a line found, and below it what to do."""
    first = Text(f"  {line.level.value:<9}", style=_STYLES[line.level])
    subject = f"{visible(line.subject):<{subject_width}}  "
    finding, *more = [part for part in visible(line.finding).splitlines() if part.strip()] or [""]
    first.append(f"{subject}{finding}", style="default not bold")
    indent = " " * len(f"  {'':<9}{subject}")
    told = [first, *(Text(f"{indent}{part}") for part in more)]
    if line.remedy is not None:
        told.append(Text(f"{indent}→ {visible(line.remedy)}", style="italic"))
    return told


def _summary(groups: Sequence[Group], seconds: float) -> str:
    counts = [
        f"{count} {level.value}{'' if count == 1 else 's'}"
        for level in (Level.ERROR, Level.WARNING)
        if (count := len(of_level(groups, level)))
    ]
    found = ", ".join(counts) or "nothing stands in the way"
    return f"{found}; looked at in {duration(seconds)}"
