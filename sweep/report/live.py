"""Progress on a terminal, redrawn in place; plain lines where there is none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from sweep.model.states import LaunchState
from sweep.report.plain import open_console, plain_table
from sweep.report.progress import LaunchLine, Now, Progress
from sweep.report.text import visible

_STYLES = {
    LaunchState.DONE: "green",
    LaunchState.FAILED: "red",
    LaunchState.RUNNING: "cyan",
    LaunchState.INTERRUPTED: "yellow",
    LaunchState.NOT_RUN: "dim",
    LaunchState.PLANNED: "dim",
}


class View(Protocol):
    """Something that shows progress again and again."""

    def show(self, progress: Progress) -> None:
        """Show the sweep as it is now."""
        ...

    def pause(self) -> None:
        """Give the terminal back for a question or a message."""
        ...


def duration(seconds: float | None) -> str:
    """Return a duration for people: 0.8 s, 42 s, 3 min 05 s, 2 h 07 min."""
    if seconds is None:
        return "–"
    if seconds < 9.95:  # noqa: PLR2004 - below, a digit after the point says something
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:  # noqa: PLR2004
        return f"{whole} s"
    if whole < 3600:  # noqa: PLR2004
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def doing(now: Now) -> str:
    """Return what a running launch does, in one line."""
    parts = [now.phase or "starting"]
    if now.trial:
        done = f"{now.windows} of at most {now.max_windows} windows done"
        parts = [now.trial, done, parts[0]]
    if now.milestone:
        parts.append(now.milestone.replace("_", " "))
    if now.note:
        parts.append(f"waiting: {now.note}")
    if now.phase_for_s is not None:
        parts.append(f"for {duration(now.phase_for_s)}")
    return ", ".join(parts)


def eta(progress: Progress) -> str:
    """Return what is known of the time left."""
    if not progress.now or not progress.driver_alive:
        return ""
    return "time left unknown" if progress.eta_s is None else f"{duration(progress.eta_s)} left"


def changes(before: Progress | None, after: Progress) -> list[str]:
    """Return a plain line for everything that became different."""
    lines = []
    if before is None:
        lines.append(f"sweep {after.sweep_id}: {len(after.launches)} launches")
    if after.stage and (before is None or before.stage != after.stage):
        lines.append(f"driver: {after.stage}")
    total = len(after.launches)
    old = {line.launch_id: line for line in before.launches} if before else {}
    for position, line in enumerate(after.launches, start=1):
        earlier = old.get(line.launch_id)
        if (earlier is not None and earlier.state == line.state) or (
            earlier is None and line.state is LaunchState.PLANNED
        ):
            continue
        lines.append(f"launch {position}/{total} {named(after, line)}: {_ended(line)}")
    old_now = {now.launch_id: now for now in before.now} if before else {}
    for now in after.now:
        earlier_now = old_now.get(now.launch_id)
        if earlier_now is None or _moved(earlier_now, now):
            left = eta(after)
            lines.append(f"  {named(after, now)}: {doing(now)}{f'; {left}' if left else ''}")
    return lines


def named(progress: Progress, launch: LaunchLine | Now) -> str:
    """Return what a launch is called: its label, with its node where there are several."""
    several = len({line.node for line in progress.launches}) > 1
    return f"{launch.node}: {launch.label}" if several else launch.label


def _moved(before: Now, after: Now) -> bool:
    """Whether a plain line is due: not for each of a window's short phases."""
    loud = ("trial", "windows", "milestone", "note")
    if any(getattr(before, name) != getattr(after, name) for name in loud):
        return True
    return after.trial is None and before.phase != after.phase


def _ended(line: LaunchLine) -> str:
    text = line.state.value.replace("_", " ")
    if line.state.is_finished and line.duration_s is not None:
        text += f" after {duration(line.duration_s)}"
    if line.failure:
        text += f" ({line.failure.failure_class}: {line.failure.message})"
    return text


class _PlainView:
    def __init__(self, console: Console) -> None:
        self._console = console
        self._before: Progress | None = None

    def show(self, progress: Progress) -> None:
        for line in changes(self._before, progress):
            self._console.print(Text(line), soft_wrap=True)
        self._before = progress

    def pause(self) -> None:
        pass


class _LiveView:
    def __init__(self, live: Live) -> None:
        self._live = live

    def show(self, progress: Progress) -> None:
        if not self._live.is_started:
            self._live.start()
        self._live.update(overview(progress), refresh=True)

    def pause(self) -> None:
        self._live.stop()


@contextmanager
def view() -> Iterator[View]:
    """Give what suits standard output: a live table on a terminal, plain lines otherwise."""
    console = Console()
    if not console.is_terminal:
        yield _PlainView(console)
        return
    live = Live(console=console, auto_refresh=False, transient=False)
    try:
        yield _LiveView(live)
    finally:
        live.stop()


def overview(progress: Progress) -> Group:
    """Return the whole sweep as a table with what runs now below it."""
    table = plain_table(("#", "launch", "state", "time", "trials"), right={"#", "time"})
    for position, line in enumerate(progress.launches, start=1):
        style = _STYLES[line.state]
        trials = ", ".join(f"{n} {state.replace('_', ' ')}" for state, n in line.trials.items())
        failure = f" {line.failure.failure_class}" if line.failure else ""
        table.add_row(
            str(position),
            Text(named(progress, line)),
            Text(f"{line.state.value.replace('_', ' ')}{failure}", style=style),
            duration(line.duration_s) if line.duration_s is not None else "",
            Text(trials, style="dim"),
        )
    head = Text(f"{progress.sweep_id}: ", style="bold")
    head.append(f"{progress.finished} of {len(progress.launches)} launches ended. ", style="")
    head.append(f"Driver {progress.driver}", style="" if progress.driver_alive else "yellow")
    if progress.stage:
        head.append(f", {progress.stage}")
    below = [Text(f"▸ {named(progress, now)}: {doing(now)}", style="cyan") for now in progress.now]
    if progress.now:
        below.append(Text(eta(progress)))
    if progress.note:
        below.append(Text(f"note: {progress.note}", style="yellow"))
    return Group(head, table, *below)


def reasons(progress: Progress, line: LaunchLine) -> list[str]:
    """Return a plain line for each reason why a launch, or trials of it, did not end well."""
    told = [f"{name}: {message}" for name, message in line.trial_failures.items()]
    if line.failure:
        told.insert(0, f"{line.failure.failure_class}: {line.failure.message}")
    return [f"{named(progress, line)}: {text}" for text in told]


def show_once(progress: Progress) -> None:
    """Print the whole sweep once."""
    console = open_console()
    console.print(overview(progress))
    for line in progress.launches:
        for text in reasons(progress, line):
            console.print(Text(text, style=_STYLES[line.state]))


def show_list(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print a line per sweep, which the terminal wraps: an id stays whole, to be copied."""
    console = Console()
    for line in listed(rows):
        console.print(Text(line), soft_wrap=True)


def listed(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a header and a line per sweep, in columns."""
    if not rows:
        return ["no sweeps"]
    cells = [("sweep", "created", "state", "trials"), *map(_listed, rows)]
    widths = [max(len(row[at]) for row in cells) for at in range(3)]
    return [
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]])
        for row in cells
    ]


def _listed(row: Mapping[str, Any]) -> tuple[str, str, str, str]:
    created = f"{row['created_utc'][:19]}Z" if row["created_utc"] else ""
    if row["problem"] is not None:
        return row["sweep_id"], created, "cannot be read", visible(row["problem"])
    code = row["exit_code"]
    state = "running" if row["running"] else "not ended" if code is None else f"exit {code}"
    trials = ", ".join(f"{n} {name.replace('_', ' ')}" for name, n in row["trials"].items())
    return row["sweep_id"], created, state, trials
