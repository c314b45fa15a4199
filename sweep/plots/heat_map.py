"""Speed-up over draft steps and topk, or draft steps and draft tokens, a number in each cell."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from matplotlib.patheffects import withStroke

from sweep.analysis.glossary import ARGUMENT_PREFIX
from sweep.analysis.verdict import Verdict
from sweep.analysis.wording import bounds, counted, known, ratio
from sweep.model.states import TrialState
from sweep.plots.facets import LEGEND_ROW_IN, PANEL_WIDTH_IN, STEPS_LABEL, Facet, facets
from sweep.plots.style import (
    ALERT,
    BAND,
    INK,
    RULE,
    SURFACE,
    TEXT_SIZE,
    add_legend,
    dress,
    new_figure,
    plain,
)

CELL_IN = 0.5
"""Height of a row of cells."""
CELL_WIDTH_IN = 0.62
"""Least width of a cell, in which its words fit."""
LEGEND_COLUMNS = 4
MOST_PANELS = 12
_OTHER_IN = 0.75
"""Height of a panel without its cells."""
_NARROW = 6
"""Step counts with which two panels fit beside each other."""
_REASON_SIZE = 7.0
_DARK = 0.18
"""Relative luminance below which white has more contrast than black (WCAG 2, 1.4.3)."""
_WHITE, _BLACK = "#ffffff", "#000000"
_COLOURS = LinearSegmentedColormap.from_list("speedup", ["#f4efe3", "#8fb8d4", "#0a3a66"])
"""Its lightness falls all the way, so that it reads in grey; a page does not change it."""

NOTE = (
    "Throughput against the baseline of the same arm; below 1.00 speculation does not pay. Several "
    "draft tokens at one cell: the best of them."
)


@dataclass(frozen=True)
class _Cell:
    """The best row of a cell; `speedup` None: there is none, and `note` says why."""

    trial_id: str
    speedup: float | None
    note: str


@dataclass(frozen=True)
class _Map:
    """The rows of one panel, and the column of its vertical axis."""

    title: str
    facet: Facet
    rows: pd.DataFrame
    across: str

    @property
    def steps(self) -> list[int]:
        return sorted({int(count) for count in self.rows["num_steps"]})

    @property
    def levels(self) -> list[int]:
        return sorted({int(level) for level in self.rows[self.across]})

    @property
    def best(self) -> str:
        """Id of the trial with the largest speed-up."""
        return str(self.rated["trial_id"].iloc[0])

    @property
    def tied(self) -> frozenset[str]:
        """Ids of trials that cannot be told apart from the one that leads at the place."""
        place = self.facet.place
        return frozenset(one.trial_id for one in place.tied) if place else frozenset()

    @property
    def cells(self) -> dict[tuple[int, int], _Cell]:
        """Steps and level of each cell that the plan has → what stands there."""
        rows: dict[tuple[int, int], list[Any]] = {}
        for row in self.rows.sort_values("speedup", ascending=False).to_dict("records"):
            rows.setdefault((int(row["num_steps"]), int(row[self.across])), []).append(row)
        return {at: _cell_of(own, self.across) for at, own in rows.items()}

    @property
    def rated(self) -> pd.DataFrame:
        """Rows with a speed-up, the best first."""
        rows = self.rows[(self.rows["state"] == TrialState.OK.value) & self.rows["speedup"].notna()]
        return rows.sort_values("speedup", ascending=False, kind="stable")


_AXES = {"topk": "topk [branches]", "effective_num_draft_tokens": "draft tokens [per cycle]"}


def heat_map(frame: pd.DataFrame, verdict: Verdict) -> Figure | None:
    """Draw the speed-up of grids of steps and topk or draft tokens; None where there is none."""
    maps = [found for facet in facets(frame, verdict) for found in _maps(facet)]
    if not maps:
        return None
    more = len(maps) - MOST_PANELS
    maps = maps[:MOST_PANELS]
    note = NOTE + (f" {counted(more, 'more panel')}: see the table." if more > 0 else "")
    columns = 2 if len(maps) > 1 and max(len(one.steps) for one in maps) <= _NARROW else 1
    rows = math.ceil(len(maps) / columns)
    heights = [
        _OTHER_IN
        + CELL_IN * max(len(one.levels) for one in maps[at * columns : (at + 1) * columns])
        for at in range(rows)
    ]
    most = max(len(one.steps) for one in maps)
    width_in = max(PANEL_WIDTH_IN * (1.5 if columns == 1 else 2), CELL_WIDTH_IN * most + 1.0)
    figure = new_figure(width_in, sum(heights) + LEGEND_ROW_IN + 0.95, _title(maps), note)
    grid = figure.add_gridspec(rows + 1, columns, height_ratios=[*heights, LEGEND_ROW_IN])
    rates = pd.concat([one.rated["speedup"] for one in maps]).astype(float)
    # A single value has no range of its own: it takes the middle.
    least = 0.01
    norm = Normalize(rates.min() - least, rates.max() + least)
    for index, one in enumerate(maps):
        _draw(figure.add_subplot(grid[divmod(index, columns)]), one, norm)
    add_legend(figure.add_subplot(grid[rows, :]), _legend(maps), LEGEND_COLUMNS)
    return figure


def _legend(maps: list[_Map]) -> dict[str, Patch]:
    """What occurs in the maps beside numbers."""
    shown = [(one, cell) for one in maps for cell in one.cells.values()]
    entries = {"best of its panel": Patch(facecolor=SURFACE, edgecolor=INK, linewidth=2.4)}
    if any(cell.trial_id in one.tied and cell.trial_id != one.best for one, cell in shown):
        entries["tied with the one that leads"] = Patch(
            facecolor=SURFACE, edgecolor=INK, linewidth=1.2, linestyle="--"
        )
    if any(cell.speedup is None for _, cell in shown):
        entries["no speed-up, and why"] = Patch(
            facecolor=SURFACE, edgecolor=BAND, hatch="////", linewidth=0
        )
    if any(len(one.cells) < len(one.steps) * len(one.levels) for one in maps):
        entries["not in the plan"] = Patch(facecolor=SURFACE, edgecolor=RULE, linewidth=0.8)
    return entries


def _maps(facet: Facet) -> list[_Map]:
    rows = facet.speculating
    names = [_name(row) for row in rows.to_dict("records")]
    found = []
    for name, own in rows.groupby(pd.Series(names, index=rows.index, dtype=object), sort=False):
        for across in _AXES:
            grid = own[own[across].notna()]
            one = _Map(f"{facet.title}: {name}", facet, grid, across)
            if _is_grid(grid, across) and len(one.rated):
                found.append(one)
                break
    return found


def _is_grid(rows: pd.DataFrame, across: str) -> bool:
    """Whether both axes vary, and not merely together as a chain's do."""
    at_once = rows.groupby("num_steps")[across].nunique()
    return len(at_once) > 1 and bool((at_once > 1).any())


def _name(row: Any) -> str:
    arguments = [
        f"{name.removeprefix(ARGUMENT_PREFIX)}={value}"
        for name, value in row.items()
        if str(name).startswith(ARGUMENT_PREFIX) and known(value)
    ]
    return ", ".join([str(row["variant"]), *arguments])


def _title(maps: list[_Map]) -> str:
    first = [one for one in maps if one.facet is maps[0].facet]
    rows = pd.concat([one.rated for one in first]).sort_values("speedup", ascending=False)
    best: Any = rows.iloc[0]
    title = f"Speed-up over steps and {_AXES[first[0].across].split(' [')[0]}: "
    title += f"{best['configuration']} is best at {ratio(best['speedup'])}"
    title += bounds(best["speedup_lo"], best["speedup_hi"])
    place = first[0].facet.place
    ties = {standing.trial_id for standing in place.tied} if place else set()
    tied = int(rows["trial_id"].isin(ties).sum())
    if place and place.leading and place.leading.trial_id == best["trial_id"] and tied:
        title += f", not to be told apart from {counted(tied, 'other')}"
    return title


def _cell_of(rows: list[Any], across: str) -> _Cell:
    """What a cell shows of its rows, the fastest first."""
    rated = [row for row in rows if row["state"] == TrialState.OK.value and known(row["speedup"])]
    row = (rated or rows)[0]
    if rated:
        tokens = row["effective_num_draft_tokens"]
        several = across == "topk" and len(rows) > 1 and known(tokens)
        return _Cell(
            str(row["trial_id"]), float(row["speedup"]), f"{tokens} tokens" if several else ""
        )
    why = row["failure_class"] if known(row["failure_class"]) else row["state"]
    why = "no_baseline" if why == TrialState.OK.value else str(why)
    return _Cell(str(row["trial_id"]), None, plain(why).replace("_", "\n"))


def _draw(axes: Axes, one: _Map, norm: Normalize) -> None:
    dress(axes, one.title)
    axes.grid(visible=False)
    cells, best, tied = one.cells, one.best, one.tied
    for x, count in enumerate(one.steps):
        for y, level in enumerate(one.levels):
            cell = cells.get((count, level))
            if cell is None:
                _fill(axes, (x, y), facecolor=SURFACE, edgecolor=RULE, linewidth=0.8)
            elif cell.speedup is None:
                _draw_missing(axes, (x, y), cell.note)
            else:
                _draw_rated(axes, (x, y), cell.speedup, cell.note, norm)
                if cell.trial_id == best:
                    _frame(axes, (x, y), linewidth=2.6)
                elif cell.trial_id in tied:
                    _frame(axes, (x, y), linewidth=1.2, linestyle="--")
    _scale(axes, one)


def _scale(axes: Axes, one: _Map) -> None:
    axes.set_xlim(-0.5, len(one.steps) - 0.5)
    axes.set_ylim(-0.5, len(one.levels) - 0.5)
    axes.set_xticks(range(len(one.steps)), [str(count) for count in one.steps])
    axes.set_yticks(range(len(one.levels)), [str(level) for level in one.levels])
    axes.tick_params(length=0)
    for side in ("left", "bottom"):
        axes.spines[side].set_visible(False)
    axes.set_xlabel(STEPS_LABEL)
    axes.set_ylabel(_AXES[one.across])


def _draw_rated(
    axes: Axes, at: tuple[int, int], speedup: float, note: str, norm: Normalize
) -> None:
    shade = float(norm(speedup))
    _fill(axes, at, facecolor=_COLOURS(shade), edgecolor=SURFACE, linewidth=1.2)
    colour = _WHITE if _luminance(_COLOURS(shade)) < _DARK else _BLACK
    x, y = at
    axes.text(
        x, y + (0.14 if note else 0.0), f"{speedup:.2f}", ha="center", va="center",
        fontsize=TEXT_SIZE, color=colour,
    )  # fmt: skip
    if not note:
        return
    axes.text(x, y - 0.24, note, ha="center", va="center", fontsize=_REASON_SIZE, color=colour)


def _luminance(colour: tuple[float, ...]) -> float:
    """Relative luminance [0 to 1] of an sRGB colour. Source: WCAG 2, definitions."""
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4  # noqa: PLR2004  sRGB
        for part in colour[:3]
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _draw_missing(axes: Axes, at: tuple[int, int], why: str) -> None:
    _fill(axes, at, facecolor=SURFACE, edgecolor=BAND, linewidth=0.0, hatch="////")
    axes.text(
        *at, why, ha="center", va="center", fontsize=_REASON_SIZE, color=ALERT, linespacing=0.95,
        bbox={"facecolor": SURFACE, "edgecolor": "none", "pad": 1.0, "alpha": 0.9},
    )  # fmt: skip


def _fill(axes: Axes, at: tuple[int, int], **look: Any) -> None:
    axes.add_patch(Rectangle((at[0] - 0.5, at[1] - 0.5), 1, 1, **look))


def _frame(axes: Axes, at: tuple[int, int], *, linewidth: float, linestyle: str = "-") -> None:
    inset = 0.06
    axes.add_patch(
        Rectangle(
            (at[0] - 0.5 + inset, at[1] - 0.5 + inset), 1 - 2 * inset, 1 - 2 * inset,
            fill=False, edgecolor=INK, zorder=5, linewidth=linewidth, linestyle=linestyle,
            path_effects=[withStroke(linewidth=linewidth + 2.2, foreground=SURFACE)],
        )
    )  # fmt: skip
