"""Throughput against draft steps, with intervals, the baseline's band and the failures."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.markers import CARETUP

from sweep.analysis.verdict import Verdict
from sweep.analysis.wording import known, number, ratio
from sweep.model.states import TrialState
from sweep.plots.facets import (
    LINE_DODGE,
    Facet,
    Panel,
    draw_panels,
    facets,
    finding,
    left_out,
    line_names,
)
from sweep.plots.style import BAND, INK, SMALL_SIZE, SURFACE, dress, say, values

NOTE = (
    "Bars: 95 % intervals, resampled by prompt and by window. Band: the baseline without "
    "speculation. Crosses: what did not end ok, and why."
)

ACROSS_NOTE = " Lines across: what has no steps."
CUT_NOTE = " Arrows: the interval goes on."
MAX_REACH = 3.0
"""How far intervals are drawn, as a multiple of the largest throughput of a panel; with two windows
they can reach beyond any axis."""

_ACROSS = (":", "-.", (0, (1, 4)), (0, (6, 2, 1, 2, 1, 2)))
"""Lines of what has no steps."""
_EDGE = 0.2
"""Share of the width in which a label no longer fits when centred."""


def throughput(frame: pd.DataFrame, verdict: Verdict) -> Figure:
    """Draw the output throughput [tokens/s] of every configuration over its draft steps."""
    found = facets(frame, verdict)
    note = NOTE + (CUT_NOTE if any(_is_cut(facet) for facet in found) else "")
    note += ACROSS_NOTE if any(len(_without_steps(facet)) for facet in found) else ""
    lost = left_out(frame[frame["state"] != TrialState.OK.value])
    sheet = draw_panels(found, _title(found), note + lost)
    for panel in sheet.panels:
        _draw(panel, alone=len(found) == 1)
    return sheet.finish({})


def _rated(facet: Facet) -> pd.DataFrame:
    rows = facet.rows
    return rows[(rows["state"] == TrialState.OK.value) & rows["output_tok_s"].notna()]


def _without_steps(facet: Facet) -> pd.DataFrame:
    rated = _rated(facet)
    return rated[~rated["is_baseline"] & rated["num_steps"].isna()]


def _ceiling(facet: Facet) -> float:
    """Up to where intervals are drawn [tokens/s]."""
    rates = _rated(facet)["output_tok_s"]
    return MAX_REACH * float(rates.max()) if len(rates) else 0.0


def _is_cut(facet: Facet) -> bool:
    return bool((_rated(facet)["output_tok_s_hi"] > _ceiling(facet)).fillna(False).any())


def _title(found: Sequence[Facet]) -> str:
    if len(found) == 1:
        return f"Output throughput: {finding(found[0].place)}"
    places = [facet.place for facet in found if facet.place]
    clear = sum(place.is_clear for place in places)
    title = f"Output throughput: a clear lead in {clear} of {len(found)} panels"
    gains = [
        (place.leading.speedup, place.leading.label)
        for place in places
        if place.leading and place.leading.speedup is not None and not place.leading.is_baseline
    ]
    if gains:
        gain, label = max(gains)
        title += f"; at best {ratio(gain)} the baseline, by {label}"
    return title


def _draw(panel: Panel, *, alone: bool) -> None:
    axes = panel.axes
    axes.set_ylabel("output throughput [tokens/s]")
    if not alone:
        dress(axes, f"{panel.facet.title}: {finding(panel.facet.place)}")
    drawn = _draw_baselines(panel)
    drawn = _draw_without_steps(panel) or drawn
    ceiling = _ceiling(panel.facet)
    for name, look, rows in panel.lines("output_tok_s"):
        x = rows["num_steps"].astype(float) + panel.shift(name, LINE_DODGE)
        y = rows["output_tok_s"]
        below = (y - rows["output_tok_s_lo"]).fillna(0.0).astype(float)
        above = (rows["output_tok_s_hi"].clip(upper=ceiling) - y).fillna(0.0).astype(float)
        cut = (rows["output_tok_s_hi"] > ceiling).fillna(False).astype(bool) & y.notna()
        axes.errorbar(
            x, values(y), yerr=[below, above], label=name, color=look.colour,
            marker=look.marker, markersize=5, linewidth=1.6, elinewidth=1, capsize=2.5,
        )  # fmt: skip
        if cut.any():
            axes.plot(
                x[cut], [ceiling] * int(cut.sum()), color=look.colour, marker=CARETUP,
                linestyle="none",
            )  # fmt: skip
        drawn = True
    if not drawn:
        say(axes, "no configuration gave a throughput")
        return
    axes.margins(y=0.16)
    axes.set_ylim(bottom=max(0.0, axes.get_ylim()[0]))
    _mark_leading(panel)


def _draw_baselines(panel: Panel) -> bool:
    rated, ceiling = _rated(panel.facet), _ceiling(panel.facet)
    ok = rated[rated["is_baseline"]]
    # A variant's first line is its chain: its baseline has that colour.
    lines = reversed(list(panel.looks.items()))
    colours = {name.split(", ")[0]: look.colour for name, look in lines}
    for variant, same in ok.groupby("variant", sort=False):
        plural = variant != "default"
        colour = colours.get(str(variant), BAND) if plural else BAND
        label = f"baseline, {variant}" if plural else "baseline"
        lo, hi = same["output_tok_s_lo"].min(), same["output_tok_s_hi"].max()
        # One band: those of several arms would lie on each other.
        if known(lo) and known(hi) and not plural:
            panel.axes.axhspan(
                float(lo), min(float(hi), ceiling), color=colour, alpha=0.18, linewidth=0
            )
        panel.axes.axhline(
            float(same["output_tok_s"].mean()), color=colour, linewidth=1.4, linestyle="--",
            label=label,
        )  # fmt: skip
    return len(ok) > 0


def _draw_without_steps(panel: Panel) -> bool:
    """Draw what has no steps, such as n-grams, across all of them."""
    rows = _without_steps(panel.facet)
    for position, row in enumerate(rows.to_dict("records")):
        panel.axes.axhline(
            float(row["output_tok_s"]), color=INK, linewidth=1.4, label=row["configuration"],
            linestyle=_ACROSS[position % len(_ACROSS)],
        )  # fmt: skip
    return len(rows) > 0


def _mark_leading(panel: Panel) -> None:
    place = panel.facet.place
    if place is None or place.leading is None or place.leading.is_baseline:
        return
    rows = panel.facet.speculating
    best = rows[(rows["trial_id"] == place.leading.trial_id) & rows["output_tok_s"].notna()]
    for row in best.to_dict("records"):
        x = float(row["num_steps"]) + panel.shift(line_names(best)[0], LINE_DODGE)
        y = float(row["output_tok_s"])
        panel.axes.plot(
            x, y, marker="o", markersize=13, markerfacecolor="none", markeredgecolor=INK,
            markeredgewidth=1.3, linestyle="none",
        )  # fmt: skip
        top = float(row["output_tok_s_hi"]) if known(row["output_tok_s_hi"]) else y
        top = min(top, _ceiling(panel.facet))
        low, high = panel.axes.get_xlim()
        place_in_width = (x - low) / (high - low)
        side = "left" if place_in_width < _EDGE else "right" if place_in_width > 1 - _EDGE else ""
        panel.axes.annotate(
            f"{'ahead' if place.tied else 'leads'}: {number(y)} tok/s", (x, max(top, y)),
            xytext=(0, 9), textcoords="offset points", ha=side or "center", fontsize=SMALL_SIZE,
            color=INK, fontweight="bold", zorder=10,
            bbox={"facecolor": SURFACE, "edgecolor": "none", "pad": 1.5, "alpha": 0.85},
        )  # fmt: skip
