"""Accept length against draft steps, with the length at which speculation breaks even."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from sweep.analysis.verdict import Verdict
from sweep.model.states import TrialState
from sweep.plots.facets import LINE_DODGE, Panel, draw_panels, facets, left_out
from sweep.plots.style import MUTED, SURFACE, say, values

NOTE = (
    "Solid: accept length, bonus token included. Dashed, hollow: break-even at {}. Speculation "
    "pays where solid is above dashed."
)


def accept_length(frame: pd.DataFrame, verdict: Verdict) -> Figure:
    """Draw accept length and break-even [tokens/cycle] over draft steps."""
    found = facets(frame, verdict)
    sheet = draw_panels(found, _title(frame), NOTE.format(_cycle(frame)) + left_out(frame))
    has_break_even = [_draw(panel) for panel in sheet.panels]
    sample = Line2D([], [], color=MUTED, marker="o", linestyle="--", markerfacecolor=SURFACE)
    return sheet.finish({"break-even": sample} if any(has_break_even) else {})


def _title(frame: pd.DataFrame) -> str:
    ok = frame[(frame["state"] == TrialState.OK.value) & frame["accept_length"].notna()]
    if ok.empty:
        return "Accept length: none was measured"
    judged = ok[ok["break_even_accept_length"].notna()]
    if judged.empty:
        return f"Accept length reaches {ok['accept_length'].max():.2f}; break-even is not known"
    above = int((judged["accept_length"] > judged["break_even_accept_length"]).sum())
    below = int((judged["accept_length"] < judged["break_even_accept_length"]).sum())
    return f"Accept length is above break-even in {above} of {len(judged)} rows, below in {below}"


def _cycle(frame: pd.DataFrame) -> str:
    """Whose cycle the break-even rests on."""
    with_it = frame[frame["break_even_accept_length"].notna()]
    measured = int(with_it["speedup_by_cycle"].notna().sum())
    if not measured:
        return "the cycle time seen by the client"
    if measured == len(with_it):
        return "the cycle time measured in the engine"
    return (
        f"the cycle time measured in the engine ({measured} of {len(with_it)} rows) or seen by the "
        "client"
    )


def _draw(panel: Panel) -> bool:
    """Fill a panel; return whether it shows a break-even."""
    axes = panel.axes
    axes.set_ylabel("accept length [tokens/cycle]")
    drawn = False
    for name, look, rows in panel.lines("accept_length"):
        drawn = True
        x = rows["num_steps"].astype(float) + panel.shift(name, LINE_DODGE)
        axes.plot(
            x, values(rows["accept_length"]), label=name, color=look.colour,
            marker=look.marker, markersize=5, linewidth=1.6,
        )  # fmt: skip
        axes.plot(
            x, values(rows["break_even_accept_length"]), color=look.colour, marker=look.marker,
            markersize=5, linewidth=1.2, linestyle="--", markerfacecolor=SURFACE,
        )  # fmt: skip
    if drawn:
        axes.margins(y=0.1)
    else:
        say(axes, "no accept length was reported")
    return drawn and bool(panel.facet.rows["break_even_accept_length"].notna().any())
