"""What a cycle is made of: its phases in milliseconds and as shares, a bar per configuration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from sweep.analysis.bottleneck import bottleneck, timed_rows
from sweep.analysis.phases import PHASES
from sweep.analysis.trace import WHOLE
from sweep.analysis.traced import NAMES
from sweep.analysis.verdict import Verdict
from sweep.analysis.wording import known, number
from sweep.plots.facets import PANEL_WIDTH_IN, Facet, facets
from sweep.plots.style import (
    INK,
    LONGEST_NAME,
    MUTED,
    RULE,
    SMALL_SIZE,
    SURFACE,
    abridged,
    add_legend,
    dress,
    new_figure,
)

WIDTH_IN = 2 * PANEL_WIDTH_IN
BAR_IN = 0.27
PANEL_IN = 0.75
"""Height of a panel without its bars: title and axis."""
LEAST_LABELLED = 0.12
"""Share of a cycle whose part of the bar has room for a figure."""
_THICKNESS = 0.72
_ROOM = 1.16
"""Of the longest bar, so that figures fit beside it."""

# Neighbours differ in grey, and by their hatching where there is room for it.
_LOOKS = {
    "draft": ("#e69f00", "////"),
    "verify": ("#0072b2", ""),
    "extend": ("#cc79a7", "...."),
    "other": (RULE, "xxxx"),
}
_LABELS = {
    "draft": "draft steps", "verify": "target verify", "extend": "draft extend", "other": "other",
}  # fmt: skip

_INSIDE = {
    "communication": "#d55e00", "attention": "#56b4e9", "experts": "#009e73", "dense": "#b7d5c8",
    "other": "#8b939e", "idle": SURFACE,
}  # fmt: skip
_INSIDE_THICKNESS = 0.13
_INSIDE_NOTE = (
    " Thin bars: what verification (without steps named in the trace: the whole cycle) spent its "
    "time on by the server's own profiler, which ran outside the measured windows."
)

NOTE = (
    "Means over the cycles of the complete windows, as the instrument inside the engine timed "
    "them. Upright line: the cycle at which speculation would break even (accept length × the "
    "baseline's time per token); bars that end left of it pay."
)


def phases(frame: pd.DataFrame, verdict: Verdict) -> Figure | None:
    """Draw the phases of a cycle [ms] and their shares; None when no cycle was measured."""
    found = bottleneck(timed_rows(frame))
    panels = [facet for facet in facets(frame, verdict) if len(_bars(facet))]
    if found is None or not panels:
        return None
    heights = [PANEL_IN + BAR_IN * len(_bars(facet)) for facet in panels]
    traced = any(_is_traced(row) for facet in panels for row in _bars(facet).to_dict("records"))
    legend_in = 0.6 if traced else 0.25
    note = NOTE + (_INSIDE_NOTE if traced else "")
    figure = new_figure(WIDTH_IN, sum(heights) + legend_in + 1.0, found.sentence, note)
    grid = figure.add_gridspec(
        len(panels) + 1, 2, height_ratios=[*heights, legend_in], width_ratios=[3, 2]
    )
    for position, facet in enumerate(panels):
        left = figure.add_subplot(grid[position, 0])
        right = figure.add_subplot(grid[position, 1], sharey=left)
        _draw(left, right, facet, last=position == len(panels) - 1)
    entries: dict[str, Any] = {
        _LABELS[name]: Patch(facecolor=colour, hatch=hatch, edgecolor=SURFACE, linewidth=0.0)
        for name, (colour, hatch) in _LOOKS.items()
    }
    entries["break-even"] = Line2D([], [], color=INK, linestyle="none", marker="|", markersize=11)
    if traced:
        entries |= {
            f"in verify: {NAMES[kind]}": Patch(facecolor=colour, edgecolor=MUTED, linewidth=0.5)
            for kind, colour in _INSIDE.items()
        }
    columns = len(_LOOKS) + 1
    add_legend(figure.add_subplot(grid[len(panels), :]), entries, columns)
    return figure


def _bars(facet: Facet) -> pd.DataFrame:
    return timed_rows(facet.rows).sort_values("num_steps", kind="stable")


def _draw(left: Axes, right: Axes, facet: Facet, *, last: bool) -> None:
    rows = _bars(facet).to_dict("records")
    dress(left, facet.title)
    dress(right)
    for at, row in enumerate(rows):
        _bar(left, at, [_part(row, name) for name in PHASES])
        _bar(right, at, [100.0 * _part(row, name) / row["cycle_ms"] for name in PHASES])
        _inside(left, at, row)
        _mark(left, at, row)
        _shares(right, at, row)
    left.set_yticks(
        range(len(rows)), [abridged(str(row["configuration"]), LONGEST_NAME) for row in rows]
    )
    left.set_ylim(len(rows) - 0.5, -0.5)
    left.set_xlim(0, _ROOM * max(max(row["cycle_ms"], _break_even_ms(row) or 0.0) for row in rows))
    right.set_xlim(0, 100)
    right.tick_params(axis="y", labelleft=False)
    for axes in (left, right):
        axes.grid(visible=False, axis="y")
        axes.grid(axis="x", color=RULE, linewidth=0.7)
        axes.tick_params(axis="y", length=0)
    if last:
        left.set_xlabel("time of a cycle [ms]")
        right.set_xlabel("share of the cycle [%]")


def _part(row: Any, name: str) -> float:
    # The rest is a difference: where there is none, it may fall a little below nothing.
    return max(0.0, float(row[f"{name}_ms"])) if known(row[f"{name}_ms"]) else 0.0


def _bar(axes: Axes, at: int, parts: Sequence[float]) -> None:
    begin = 0.0
    for name, width in zip(PHASES, parts, strict=True):
        colour, hatch = _LOOKS[name]
        axes.barh(
            at, width, left=begin, height=_THICKNESS, color=colour, hatch=hatch,
            edgecolor=SURFACE, linewidth=0.0,
        )  # fmt: skip
        begin += width


def _is_traced(row: Any) -> bool:
    return known(row["trace_scope"]) and known(row["verify_ms"])


def _inside(axes: Axes, at: int, row: Any) -> None:
    """Draw what verification consists of below its part of the bar."""
    if not _is_traced(row):
        return
    whole = row["trace_scope"] == WHOLE
    begin = 0.0 if whole else _part(row, "draft")
    length = float(row["cycle_ms"]) if whole else _part(row, "verify")
    for kind, colour in _INSIDE.items():
        width = length * float(row[f"trace_{kind}_share"])
        axes.barh(
            at + _THICKNESS / 2 + _INSIDE_THICKNESS / 2, width, left=begin,
            height=_INSIDE_THICKNESS, color=colour, edgecolor=MUTED, linewidth=0.4,
        )  # fmt: skip
        begin += width


def _break_even_ms(row: Any) -> float | None:
    """The cycle whose accept length would just pay [ms]."""
    gain = row["speedup_by_cycle"]
    return float(row["cycle_ms"]) * float(gain) if known(gain) else None


def _mark(axes: Axes, at: int, row: Any) -> None:
    limit_ms, cycle_ms = _break_even_ms(row), float(row["cycle_ms"])
    if limit_ms is not None:
        reach = _THICKNESS / 2 + 0.08
        ends = [at - reach, at + reach]
        axes.plot([limit_ms, limit_ms], ends, color=SURFACE, linewidth=3.4)
        axes.plot([limit_ms, limit_ms], ends, color=INK, linewidth=1.6)
    axes.annotate(
        f"{number(cycle_ms)} ms", (max(cycle_ms, limit_ms or 0.0), at), xytext=(5, 0),
        textcoords="offset points", va="center", fontsize=SMALL_SIZE, color=MUTED,
    )  # fmt: skip


def _shares(axes: Axes, at: int, row: Any) -> None:
    begin = 0.0
    for name in PHASES:
        share = _part(row, name) / float(row["cycle_ms"])
        if share >= LEAST_LABELLED:
            hatched = bool(_LOOKS[name][1])
            paper = {"facecolor": SURFACE, "edgecolor": "none", "pad": 1.2, "alpha": 0.85}
            axes.text(
                100.0 * (begin + share / 2), at, f"{share:.1%}", ha="center", va="center",
                fontsize=SMALL_SIZE, color=INK if hatched else SURFACE,
                bbox=paper if hatched else None,
            )  # fmt: skip
        begin += share
