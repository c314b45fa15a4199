"""Acceptance by position: how far into a draft cycles get, and where the draft fails."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from sweep.analysis.glossary import SHARE_COLUMN, SHARE_PREFIX
from sweep.analysis.verdict import Verdict
from sweep.analysis.wording import counted, known, listed
from sweep.model.states import TrialState
from sweep.plots.facets import LINE_DODGE, MAX_DODGE, Facet, facets, line_names
from sweep.plots.pairs import Band, draw_pairs
from sweep.plots.style import INK, SMALL_SIZE, SURFACE, Look, looks

PANEL_IN = 3.3
LEAST_CYCLES = 30
"""Fewer cycles say too little of a position: no point there."""
CLEARLY = 3.0
"""Standard errors (binomial) below the mean of all positions at which one is called the weakest."""
_MOST_TICKS = 24
_HALF = 50.0
_EDGE = 0.25
"""Share of the width in which a label no longer fits when centred."""

NOTE = (
    "Thick: the longest draft of each line, thin: its shorter ones. Left: 1 + the sum of a line is "
    f"its accept length. Right: positions that fewer than {LEAST_CYCLES} cycles reached are left "
    "out."
)


@dataclass(frozen=True)
class _Draft:
    """Acceptance of one configuration by position: shares [%] of all cycles, and of the cycles
    that accepted every position before (NaN: too few)."""

    name: str
    label: str
    trial_id: str
    steps: int
    reached: NDArray[np.float64]
    passed: NDArray[np.float64]
    cycles: NDArray[np.float64]
    """That accepted every position before; NaN: not known."""

    @property
    def lowest(self) -> int | None:
        """Index of the position with the lowest `passed`; None: all are unknown."""
        return None if np.isnan(self.passed).all() else int(np.nanargmin(self.passed))

    @property
    def weakest(self) -> int | None:
        """Index of `lowest` where it is below what chance makes of an even draft."""
        lowest = self.lowest
        if lowest is None or np.isnan(self.cycles[lowest]):
            return None
        has = ~np.isnan(self.passed)
        mean = float(np.average(self.passed[has], weights=self.cycles[has])) / 100.0
        error = (mean * (1.0 - mean) / self.cycles[lowest]) ** 0.5
        return lowest if self.passed[lowest] / 100.0 < mean - CLEARLY * error else None


def acceptance(frame: pd.DataFrame, verdict: Verdict) -> Figure | None:
    """Draw acceptance over position [% of cycles]; None where no position is known."""
    panels = _panels(facets(frame, verdict))
    if not panels:
        return None
    names = list(dict.fromkeys(draft.name for _, drafts in panels for draft in drafts))
    styles = dict(zip(names, looks(len(names)), strict=True))
    legend = {
        name: Line2D([], [], color=look.colour, marker=look.marker, markersize=5, linewidth=2)
        for name, look in styles.items()
    }
    told = _told(*panels[0])
    note = NOTE + _missing([facet for facet, _ in panels])
    bands = [Band(facet.title, PANEL_IN) for facet, _ in panels]
    sheet = draw_pairs(bands, _title(told), note, legend)
    for (facet, drafts), (left, right) in zip(panels, sheet.pairs, strict=True):
        _draw(left, right, drafts, styles)
        told = _told(facet, drafts)
        _mark_weakest(right, told, _shift(names.index(told.name), len(names)))
    return sheet.figure


def _panels(found: Sequence[Facet]) -> list[tuple[Facet, list[_Draft]]]:
    """What a draft is accepted for is the text's: each workload once, at the first place that has
    values, the objective's before others."""
    panels: dict[object, tuple[Facet, list[_Draft]]] = {}
    for facet in found:
        drafts = _drafts(facet)
        if drafts and facet.place:
            panels.setdefault((facet.place.node, facet.place.workload), (facet, drafts))
    return list(panels.values())


def _missing(shown: list[Facet]) -> str:
    """Say how many rows have no acceptance by position, and why; empty: none."""
    rows = pd.concat([facet.speculating for facet in shown])
    rows = rows[(rows["state"] != TrialState.OK.value) | rows[f"{SHARE_PREFIX}1"].isna()]
    if rows.empty:
        return ""
    why = rows["failure_class"].fillna(rows["state"]).replace(TrialState.OK.value, "not reported")
    return f" {counted(len(rows), 'row')} without acceptance by position ({listed(list(why))})."


def _drafts(facet: Facet) -> list[_Draft]:
    rows = facet.speculating
    rows = rows[rows["state"] == TrialState.OK.value].sort_values("num_steps", kind="stable")
    found = [
        _draft(row, name)
        for row, name in zip(rows.to_dict("records"), line_names(rows), strict=True)
    ]
    return [draft for draft in found if draft.reached.size]


def _draft(row: Any, name: str) -> _Draft:
    shares = [
        float(value) for column, value in row.items()
        if SHARE_COLUMN.fullmatch(str(column)) and known(value)
    ]  # fmt: skip
    reached = np.array(shares)
    before = np.array([1.0, *shares[:-1]]) if shares else reached
    cycles = before * (float(row["cycles"]) if known(row["cycles"]) else np.nan)
    enough = (before > 0) & ~(cycles < LEAST_CYCLES)
    passed = np.full(reached.shape, np.nan)
    passed[enough] = reached[enough] / before[enough]
    return _Draft(
        name, str(row["configuration"]), str(row["trial_id"]), int(row["num_steps"]),
        100.0 * reached, 100.0 * passed, cycles,
    )  # fmt: skip


def _longest(drafts: list[_Draft]) -> dict[str, _Draft]:
    """Name of each line → its longest draft; drafts come by their steps."""
    return {draft.name: draft for draft in drafts}


def _told(facet: Facet, drafts: list[_Draft]) -> _Draft:
    """The longest draft of the line that leads, else of the first line."""
    longest = _longest(drafts)
    leading = facet.place.leading.trial_id if facet.place and facet.place.leading else None
    names = [draft.name for draft in drafts if draft.trial_id == leading]
    return longest[names[0]] if names else max(longest.values(), key=lambda draft: draft.steps)


def _title(draft: _Draft) -> str:
    title = f"Draft acceptance ({draft.label}): "
    lowest, weakest = draft.lowest, draft.weakest
    if lowest is None:
        return f"{title}too few cycles to tell where the draft fails"
    if weakest is not None:
        title += f"weakest at position {weakest + 1}, accepted in {draft.passed[weakest]:.0f} %"
    elif draft.passed.size == 1:
        title += f"accepted in {draft.passed[0]:.0f} %"
    else:
        title += (
            f"no position stands out, each is accepted in {draft.passed[lowest]:.0f} to "
            f"{np.nanmax(draft.passed):.0f} %"
        )
    title += " of the cycles that reach it"
    below = np.flatnonzero(draft.reached < _HALF)
    if below.size:
        title += f"; fewer than half of all cycles accept position {int(below[0]) + 1}"
    return title


def _draw(left: Axes, right: Axes, drafts: list[_Draft], styles: dict[str, Look]) -> None:
    longest = _longest(drafts)
    for draft in drafts:
        if draft is not longest[draft.name]:
            look = styles[draft.name]
            shift = _shift(list(styles).index(draft.name), len(styles))
            _line(left, right, draft, shift, color=look.colour, linewidth=0.7, alpha=0.55)
    for name, draft in longest.items():
        look = styles[name]
        shift = _shift(list(styles).index(name), len(styles))
        _line(
            left, right, draft, shift, color=look.colour, marker=look.marker, markersize=5,
            linewidth=2,
        )  # fmt: skip
    deepest = max(draft.reached.size for draft in drafts)
    for axes in (left, right):
        axes.set_xlim(0.6, deepest + 0.4)
        axes.set_ylim(0, 103)
        axes.set_xticks(range(1, deepest + 1, -(-deepest // _MOST_TICKS)))
        axes.set_xlabel("position in the draft")
    left.set_ylabel("accepted, of all cycles [%]")
    right.set_ylabel("accepted, of the cycles that reach it [%]")


def _shift(index: int, count: int) -> float:
    """How far a line stands beside its positions: variants often accept exactly alike."""
    return (index - (count - 1) / 2) * min(LINE_DODGE, MAX_DODGE / count)


def _line(left: Axes, right: Axes, draft: _Draft, shift: float, **look: Any) -> None:
    positions = np.arange(1, draft.reached.size + 1) + shift
    left.plot(positions, draft.reached, **look)
    right.plot(positions, draft.passed, **look)


def _mark_weakest(axes: Axes, draft: _Draft, shift: float) -> None:
    weakest = draft.weakest
    if weakest is None:
        return
    value = float(draft.passed[weakest])
    low, high = axes.get_xlim()
    place = (weakest + 1 - low) / (high - low)
    axes.annotate(
        f"weakest: {value:.0f} % at position {weakest + 1}", (weakest + 1, value),
        xytext=(0, -16), textcoords="offset points", va="top",
        ha="left" if place < _EDGE else "right" if place > 1 - _EDGE else "center",
        fontsize=SMALL_SIZE, color=INK, fontweight="bold", zorder=10,
        bbox={"facecolor": SURFACE, "edgecolor": "none", "pad": 1.5, "alpha": 0.85},
    )  # fmt: skip
    axes.plot(
        weakest + 1 + shift, value, marker="o", markersize=13, markerfacecolor="none",
        markeredgecolor=INK, markeredgewidth=1.3, linestyle="none",
    )  # fmt: skip
