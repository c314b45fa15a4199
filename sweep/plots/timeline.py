"""When each launch loaded, measured and stopped, and where time went between them."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.collections import PatchCollection
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from sweep.analysis.timeline import STAGES, AttemptLine
from sweep.model.states import LaunchState
from sweep.plots.style import (
    ALERT,
    RULE,
    SMALL_SIZE,
    SURFACE,
    abridged,
    add_legend,
    dress,
    new_figure,
    plain,
    say,
)

STAGE_LOOKS = {
    "wait": ("#b9c0c9", ""),
    "load": ("#e69f00", "///"),
    "warm-up": ("#56b4e9", "..."),
    "measure": ("#0072b2", ""),
    "stop": ("#6b7280", "xxx"),
}
"""Colour and hatch: either alone tells stages apart."""

MAX_HEIGHT_IN = 18.0
ROW_IN = 0.27
DENSE_ROW_IN = 0.17
MANY_ROWS = 40
BAR = 0.66
"""Height of a bar, of a row."""
_LONGEST_LABEL = 44
_ROOM_FOR_CLASS = 1.16
_BROKEN = (LaunchState.FAILED, LaunchState.INTERRUPTED)


def timeline(lines: Sequence[AttemptLine]) -> Figure:
    """Draw every attempt as a bar of stages over the time since the first event of the sweep."""
    row_in = _row_in(lines)
    height_in = min(max(len(lines) * row_in, 1.2) + 1.7, MAX_HEIGHT_IN)
    figure = new_figure(
        8.4, height_in, _title(lines), "Blank: between launches. Crosses: failures."
    )
    grid = figure.add_gridspec(2, 1, height_ratios=[height_in - 1.0, 0.2])
    axes = figure.add_subplot(grid[0])
    dress(axes)
    axes.grid(visible=False, axis="y")
    axes.grid(axis="x", color=RULE, linewidth=0.7)
    if not any(line.spans for line in lines):
        say(axes, "no launch has begun")
        axes.set_xticks([])
        return figure
    end_s = max(line.spans[-1].end_s for line in lines if line.spans)
    unit, seconds = _unit(end_s)
    _draw_stages(axes, lines, seconds)
    _name_failures(axes, lines, seconds)
    _label_rows(axes, lines)
    room = _ROOM_FOR_CLASS if any(line.state in _BROKEN for line in lines) else 1.01
    axes.set_xlim(0, end_s / seconds * room)
    axes.set_xlabel(f"time since the first event [{unit}]")
    entries = {
        stage: Patch(facecolor=colour, hatch=hatch, edgecolor=SURFACE, linewidth=0)
        for stage, (colour, hatch) in STAGE_LOOKS.items()
    }
    add_legend(figure.add_subplot(grid[1]), entries, len(entries))
    return figure


def _draw_stages(axes: Axes, lines: Sequence[AttemptLine], seconds: float) -> None:
    # In narrow rows a hatch is noise, and drawing thousands takes seconds.
    is_hatched = len(lines) <= MANY_ROWS
    for stage, (colour, hatch) in STAGE_LOOKS.items():
        bars = [
            Rectangle(
                (span.start_s / seconds, row - BAR / 2), (span.end_s - span.start_s) / seconds, BAR
            )
            for row, line in enumerate(lines)
            for span in line.spans
            if span.stage == stage
        ]
        axes.add_collection(
            PatchCollection(
                bars,
                facecolor=colour,
                hatch=hatch if is_hatched else "",
                edgecolor=SURFACE,
                linewidth=0,
            )
        )


def _name_failures(axes: Axes, lines: Sequence[AttemptLine], seconds: float) -> None:
    for row, line in enumerate(lines):
        if line.state not in _BROKEN:
            continue
        end = line.spans[-1].end_s / seconds if line.spans else 0.0
        why = line.failure.failure_class if line.failure else line.state.value
        axes.annotate(
            f"✕ {plain(why)}", (end, row), xytext=(4, 0), textcoords="offset points",
            va="center", fontsize=SMALL_SIZE - 0.5, color=ALERT,
        )  # fmt: skip


def _label_rows(axes: Axes, lines: Sequence[AttemptLine]) -> None:
    room = int((MAX_HEIGHT_IN - 1.7) / _row_in(lines))
    every = -(-len(lines) // room) if len(lines) > room else 1
    nodes = len({line.node for line in lines}) > 1
    shown = range(0, len(lines), every)
    axes.set_yticks(list(shown), [_label(lines[row], nodes=nodes) for row in shown])
    size = SMALL_SIZE if len(lines) <= MANY_ROWS else SMALL_SIZE - 1.5
    axes.tick_params(axis="y", length=0, labelsize=size)
    axes.set_ylim(len(lines) - 0.4, -0.6)


def _row_in(lines: Sequence[AttemptLine]) -> float:
    return ROW_IN if len(lines) <= MANY_ROWS else DENSE_ROW_IN


def _label(line: AttemptLine, *, nodes: bool) -> str:
    text = f"{line.node}: {line.label}" if nodes else line.label
    shown = abridged(text, _LONGEST_LABEL)
    return f"{shown} (attempt {line.attempt})" if line.attempt > 1 else shown


def _title(lines: Sequence[AttemptLine]) -> str:
    spans = [span for line in lines for span in line.spans]
    total_s = max((span.end_s for span in spans), default=0.0)
    if total_s <= 0:
        return "Time line: nothing has run yet"
    share = {
        stage: sum(span.end_s - span.start_s for span in spans if span.stage == stage) / total_s
        for stage in STAGES
    }
    unit, seconds = _unit(total_s)
    lanes = len({line.node for line in lines if line.spans})
    parts = f"{share['load'] / lanes:.0%} of it loading, {share['measure'] / lanes:.0%} measuring"
    return f"The sweep took {total_s / seconds:.1f} {unit}: {parts}"


def _unit(total_s: float) -> tuple[str, float]:
    """The unit of the time axis and its seconds."""
    if total_s < 180:  # noqa: PLR2004  three of the larger unit read better than 180 of the smaller
        return "s", 1.0
    if total_s < 3 * 3600:
        return "min", 60.0
    return "h", 3600.0
