"""Panels of lines over draft steps: one for each node, workload and concurrency."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sweep.analysis.prediction import Line
from sweep.analysis.verdict import Verdict
from sweep.plots.facets import LEGEND_COLUMNS, LEGEND_ROW_IN, PANEL_WIDTH_IN
from sweep.plots.style import Look, add_legend, dress, new_figure


@dataclass(frozen=True)
class Place:
    """Lines of one place, and the axes kept for them from top to bottom."""

    lines: tuple[Line, ...]
    axes: tuple[Axes, ...]


def by_place(lines: Sequence[Line], verdict: Verdict) -> list[Line]:
    """Order lines by their places, the objective's first."""
    order = [(place.node, place.workload, place.concurrency) for place in verdict.places]
    return sorted(lines, key=lambda line: order.index(line.place))


def first_place(lines: Sequence[Line]) -> list[Line]:
    """Return the lines of the first line's place, of which a title speaks."""
    return [line for line in lines if line.place == lines[0].place]


def title_of(lines: Sequence[Line], text: str) -> str:
    """Return what is said of the first place, with its name where there are others."""
    if len(first_place(lines)) == len(lines):
        return text
    _, workload, concurrency = lines[0].place
    return f"{workload}, concurrency {concurrency}: {text[0].lower()}{text[1:]}"


@dataclass(frozen=True)
class PlaceSheet:
    """A figure of places; `legend` are the axes kept for their legend."""

    figure: Figure
    places: tuple[Place, ...]
    legend: Axes

    def finish(self, styles: Mapping[str, Look], extra: Mapping[str, Any]) -> Figure:
        """Put one legend for all places below them, lines in the order of `styles`; `extra`:
        labels → what to draw beside them."""
        entries: dict[str, Any] = {}
        for place in self.places:
            handles, labels = place.axes[0].get_legend_handles_labels()
            entries |= dict(zip(labels, handles, strict=True))
        ordered = {name: entries[name] for name in styles if name in entries}
        columns = LEGEND_COLUMNS * min(len(self.places), 2)
        add_legend(self.legend, ordered | dict(extra), columns)
        return self.figure


def draw_places(
    lines: Sequence[Line],
    title: str,
    note: str,
    *,
    height_in: float,
    ratios: Sequence[float] = (1,),
) -> PlaceSheet:
    """Return a figure with a place for each node, workload and concurrency of the lines, never
    none, each with axes above each other in these ratios of height."""
    grouped: dict[tuple[str, str, int], list[Line]] = {}
    for line in lines:
        grouped.setdefault(line.place, []).append(line)
    columns = min(len(grouped), 2)
    rows = math.ceil(len(grouped) / columns)
    names = {line.name for line in lines}
    legend_in = LEGEND_ROW_IN * math.ceil((len(names) + 2) / (LEGEND_COLUMNS * columns))
    width_in = PANEL_WIDTH_IN * (1.5 if columns == 1 else columns)
    figure = new_figure(width_in, rows * height_in + legend_in + 0.95, title, note)
    grid = figure.add_gridspec(rows + 1, columns, height_ratios=[*[height_in] * rows, legend_in])
    several = len({node for node, _, _ in grouped}) > 1
    places = []
    for index, ((node, workload, concurrency), own) in enumerate(grouped.items()):
        cell = grid[divmod(index, columns)].subgridspec(
            len(ratios), 1, hspace=0.03, height_ratios=list(ratios)
        )
        top = figure.add_subplot(cell[0])
        others = [figure.add_subplot(cell[at], sharex=top) for at in range(1, len(ratios))]
        where = f"{node}: " if several else ""
        dress(top, f"{where}{workload}, concurrency {concurrency}")
        places.append(Place(tuple(own), (top, *others)))
    return PlaceSheet(figure, tuple(places), figure.add_subplot(grid[rows, :]))
