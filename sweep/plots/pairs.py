"""Figures with two axes side by side for each panel, and one legend below."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sweep.plots.facets import LEGEND_ROW_IN, PANEL_WIDTH_IN
from sweep.plots.style import add_legend, dress, new_figure

WIDTH_IN = 2 * PANEL_WIDTH_IN
LEGEND_COLUMNS = 4
_OTHER_IN = 1.0
"""Height of title and note."""


@dataclass(frozen=True)
class Band:
    """A panel to be drawn: its title and its height [in]."""

    title: str
    height_in: float


@dataclass(frozen=True)
class PairedSheet:
    """A figure of pairs of axes, from top to bottom, left and right."""

    figure: Figure
    pairs: tuple[tuple[Axes, Axes], ...]


def draw_pairs(
    bands: Sequence[Band], title: str, note: str, legend: Mapping[str, Any], *, sharey: bool = False
) -> PairedSheet:
    """Return a figure with two dressed axes for each band; `legend`: labels → what to draw."""
    legend_in = LEGEND_ROW_IN * max(1, math.ceil(len(legend) / LEGEND_COLUMNS))
    heights = [band.height_in for band in bands]
    figure = new_figure(WIDTH_IN, sum(heights) + legend_in + _OTHER_IN, title, note)
    grid = figure.add_gridspec(len(bands) + 1, 2, height_ratios=[*heights, legend_in])
    pairs = []
    for position, band in enumerate(bands):
        left = figure.add_subplot(grid[position, 0])
        right = figure.add_subplot(grid[position, 1], sharey=left if sharey else None)
        dress(left, band.title)
        dress(right)
        pairs.append((left, right))
    add_legend(figure.add_subplot(grid[len(bands), :]), legend, LEGEND_COLUMNS)
    return PairedSheet(figure, tuple(pairs))
