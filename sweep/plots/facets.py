"""Panels of a figure: one for each node, workload and concurrency, with a strip of failures."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from sweep.analysis.lines import line_name
from sweep.analysis.verdict import PlaceVerdict, Verdict, ranking_rows
from sweep.analysis.wording import counted
from sweep.model.states import TrialState
from sweep.plots.style import ALERT, SMALL_SIZE, Look, add_legend, dress, looks, new_figure

PANEL_WIDTH_IN = 5.6
PANEL_HEIGHT_IN = 3.6
STRIP_ROW_IN = 0.2
LEGEND_ROW_IN = 0.22
LEGEND_COLUMNS = 2
"""Entries in a row of the legend, per panel in a row."""
STEPS_LABEL = "draft steps per cycle"
MAX_STEP_TICKS = 24
LINE_DODGE = 0.07
STRIP_DODGE = 0.17
MAX_DODGE = 0.6
"""Distance between two lines' marks at the same number of steps, and most in all [steps]."""


@dataclass(frozen=True)
class Facet:
    """The rows of one panel; skipped rows belong to no node and are in every one."""

    title: str
    rows: pd.DataFrame
    place: PlaceVerdict | None

    @property
    def speculating(self) -> pd.DataFrame:
        """Rows with a number of draft steps."""
        return self.rows[~self.rows["is_baseline"] & self.rows["num_steps"].notna()]

    @property
    def lost(self) -> pd.DataFrame:
        """Speculating rows that did not end ok, with their class or state as `why`."""
        rows = self.speculating
        rows = rows[rows["state"] != TrialState.OK.value]
        return rows.assign(why=rows["failure_class"].fillna(rows["state"]))


@dataclass(frozen=True)
class Panel:
    """Axes of a facet and the looks of the figure's lines, by name."""

    facet: Facet
    axes: Axes
    looks: Mapping[str, Look]

    def shift(self, name: str, dodge: float) -> float:
        """How far the marks of a line stand beside their number of steps [steps]."""
        last = len(self.looks) - 1
        width = min(dodge * last, MAX_DODGE)
        return width * (list(self.looks).index(name) / last - 0.5) if last else 0.0

    def lines(self, column: str) -> list[tuple[str, Look, pd.DataFrame]]:
        """Name, look and rows of each line that has a value in `column`, by number of steps.

        A row that did not end ok has no value there: the line has a gap.
        """
        rows = self.facet.speculating.sort_values("num_steps", kind="stable")
        rows = rows.assign(**{column: rows[column].where(rows["state"] == TrialState.OK.value)})
        groups = rows.groupby(np.array(line_names(rows), dtype=object), sort=False)
        lines = {str(name): own for name, own in groups}
        return [
            (name, look, lines[name])
            for name, look in self.looks.items()
            if name in lines and lines[name][column].notna().any()
        ]


@dataclass(frozen=True)
class Sheet:
    """A figure of panels; `legend` are the axes kept for their legend."""

    figure: Figure
    panels: tuple[Panel, ...]
    legend: Axes

    def finish(self, extra: Mapping[str, Any]) -> Figure:
        """Put one legend for all panels below them; `extra`: labels → what to draw beside."""
        entries: dict[str, Any] = {}
        for panel in self.panels:
            handles, labels = panel.axes.get_legend_handles_labels()
            entries |= dict(zip(labels, handles, strict=True))
        for panel in self.panels:
            for name in line_names(panel.facet.lost):
                cross = Line2D([], [], color=panel.looks[name].colour, marker="x", linestyle="none")
                entries.setdefault(name, cross)
        add_legend(self.legend, entries | dict(extra), LEGEND_COLUMNS * min(len(self.panels), 2))
        return self.figure


def facets(frame: pd.DataFrame, verdict: Verdict) -> list[Facet]:
    """Split a table into panels, the objective's first; never none."""
    places = {(place.node, place.workload, place.concurrency): place for place in verdict.places}
    frame = ranking_rows(frame)
    homeless = frame[frame["node"].isna()]
    found = []
    for (node, workload, concurrency), place in places.items():
        at = (frame["workload"] == workload) & (frame["concurrency"] == concurrency)
        own = frame[at & (frame["node"] == node)]
        skipped = homeless[at.loc[homeless.index]]
        title = f"{workload}, concurrency {concurrency}"
        if len({key[0] for key in places}) > 1:
            title = f"{node}: {title}"
        found.append(Facet(title, pd.concat([own, skipped]), place))
    return found or [Facet("nothing was launched", frame, None)]


def line_names(rows: pd.DataFrame) -> list[str]:
    """Name of the line that each row belongs to: everything of its configuration but the steps."""
    return [line_name(row) for row in rows.to_dict("records")]


def line_looks(found: Sequence[Facet]) -> dict[str, Look]:
    """How each line of a sweep is drawn, by name: the same in every figure."""
    names = list(dict.fromkeys(name for facet in found for name in line_names(facet.speculating)))
    return dict(zip(names, looks(len(names)), strict=True))


def finding(place: PlaceVerdict | None) -> str:
    """The finding of a panel in a few words."""
    return "nothing to rank" if place is None else place.finding


def draw_panels(found: Sequence[Facet], title: str, note: str) -> Sheet:
    """Return a figure with a panel, and where needed a strip of failures, for each facet."""
    styles = line_looks(found)
    columns = min(len(found), 2)
    rows = math.ceil(len(found) / columns)
    strips = [len(set(facet.lost["why"])) * STRIP_ROW_IN for facet in found]
    heights = [
        PANEL_HEIGHT_IN + max(strips[row * columns : (row + 1) * columns]) for row in range(rows)
    ]
    legend_in = LEGEND_ROW_IN * math.ceil((2 * len(styles) + 1) / (LEGEND_COLUMNS * columns))
    width_in = PANEL_WIDTH_IN * (1.5 if columns == 1 else columns)
    figure = new_figure(width_in, sum(heights) + legend_in + 0.95, title, note)
    grid = figure.add_gridspec(rows + 1, columns, height_ratios=[*heights, legend_in])
    panels = []
    for index, facet in enumerate(found):
        row, column = divmod(index, columns)
        cell = grid[row, column].subgridspec(
            2, 1, hspace=0.02,
            height_ratios=[PANEL_HEIGHT_IN, max(heights[row] - PANEL_HEIGHT_IN, 0.01)],
        )  # fmt: skip
        panel = Panel(facet, figure.add_subplot(cell[0]), styles)
        dress(panel.axes, facet.title)
        if strips[index]:
            _draw_strip(panel, figure.add_subplot(cell[1], sharex=panel.axes))
        else:
            panel.axes.set_xlabel(STEPS_LABEL)
        _set_steps(panel)
        panels.append(panel)
    return Sheet(figure, tuple(panels), figure.add_subplot(grid[rows, :]))


def _set_steps(panel: Panel) -> None:
    steps = panel.facet.speculating["num_steps"]
    if steps.empty:
        panel.axes.set_xticks([])
        return
    low, high = int(steps.min()), int(steps.max())
    panel.axes.set_xlim(low - 0.6, high + 0.6)
    if high - low < MAX_STEP_TICKS:
        panel.axes.set_xticks(range(low, high + 1))
    else:
        panel.axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def _draw_strip(panel: Panel, axes: Axes) -> None:
    lost = panel.facet.lost
    classes = list(dict.fromkeys(lost["why"]))
    for row, name in zip(lost.to_dict("records"), line_names(lost), strict=True):
        at = float(row["num_steps"]) + panel.shift(name, STRIP_DODGE)
        axes.plot(
            at, classes.index(row["why"]), marker="x", markersize=5, markeredgewidth=1.5,
            color=panel.looks[name].colour, linestyle="none",
        )  # fmt: skip
    dress(axes)
    axes.set_ylim(len(classes) - 0.4, -0.6)
    axes.set_yticks(range(len(classes)), classes)
    axes.tick_params(axis="y", length=0, labelcolor=ALERT, labelsize=SMALL_SIZE)
    axes.spines["left"].set_visible(False)
    axes.set_xlabel(STEPS_LABEL)
    panel.axes.tick_params(axis="x", labelbottom=False, length=0)
    panel.axes.spines["bottom"].set_visible(False)


def left_out(frame: pd.DataFrame) -> str:
    """Say how many rows a figure over draft steps cannot show; empty: none."""
    rows = frame[~frame["is_baseline"] & frame["num_steps"].isna()]
    if rows.empty:
        return ""
    return f" {counted(len(rows), 'row')} without a number of steps: see the table."
