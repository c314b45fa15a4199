"""Predicted against measured throughput over draft steps, with the optimum of the prediction."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from sweep.analysis.prediction import Line, find_lines
from sweep.analysis.verdict import Verdict
from sweep.analysis.wording import counted, number
from sweep.plots.facets import MAX_STEP_TICKS, STEPS_LABEL, facets, line_looks
from sweep.plots.places import Place, by_place, draw_places, first_place, title_of
from sweep.plots.style import BAND, INK, MUTED, SMALL_SIZE, SURFACE, Look

PANEL_IN = 3.6
_EDGE = 0.2
"""Share of the width in which a label no longer fits when centred."""

NOTE = (
    "Decode rate of one stream, without prefill and queueing. Lines: accept length by the longest "
    "chain's acceptance ÷ cycle by the fitted costs. Marks: measured. Ring: the predicted optimum."
)


def predicted(frame: pd.DataFrame, verdict: Verdict) -> Figure | None:
    """Draw predicted and measured decode rate [tokens/s]; None when nothing is predicted."""
    rated = [line for line in find_lines(frame) if line.optimum is not None]
    lines = by_place(rated, verdict)
    if not lines:
        return None
    styles = line_looks(facets(frame, verdict))
    sheet = draw_places(lines, _title(lines), NOTE, height_in=PANEL_IN)
    for place in sheet.places:
        _draw(place, styles)
    extra = {
        "predicted": Line2D([], [], color=MUTED, linewidth=1.5),
        "measured": Line2D([], [], color=MUTED, marker="o", linestyle="none"),
    }
    if any(line.baseline_tok_s for line in lines):
        extra["baseline"] = Line2D([], [], color=BAND, linewidth=1.4, linestyle="--")
    return sheet.finish(styles, extra)


def _best(lines: Sequence[Line]) -> Line:
    return max(lines, key=_rate)


def _rate(line: Line) -> float:
    return (line.optimum.decode_tok_s if line.optimum else None) or 0.0


def _title(lines: Sequence[Line]) -> str:
    line = _best(first_place(lines))
    best = line.optimum
    assert best is not None
    text = f"Predicted best: {counted(best.steps, 'step')} of {line.name}, "
    text += f"{number(_rate(line))} tok/s"
    measured = best.measured.decode_tok_s
    text += f"; measured {number(measured)}" if measured else "; not measured"
    return title_of(lines, text)


def _draw(place: Place, styles: dict[str, Look]) -> None:
    (axes,) = place.axes
    for rate in {line.baseline_tok_s for line in place.lines if line.baseline_tok_s}:
        axes.axhline(rate, color=BAND, linewidth=1.4, linestyle="--", zorder=1)
    for line in place.lines:
        look = styles[line.name]
        steps = [step for step in line.steps if step.decode_tok_s is not None]
        axes.plot(
            [step.steps for step in steps], [step.decode_tok_s or 0.0 for step in steps],
            color=look.colour, linewidth=1.5,
        )  # fmt: skip
        launched = [step for step in line.steps if step.measured.decode_tok_s is not None]
        axes.plot(
            [step.steps for step in launched],
            [step.measured.decode_tok_s or 0.0 for step in launched],
            label=line.name, color=look.colour, marker=look.marker, markersize=5.5,
            linestyle="none",
        )  # fmt: skip
    counts = [step.steps for line in place.lines for step in line.steps]
    axes.set_xlim(min(counts) - 0.6, max(counts) + 0.6)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=MAX_STEP_TICKS, integer=True))
    axes.set_xlabel(STEPS_LABEL)
    axes.set_ylabel("decode rate [tok/s]")
    axes.margins(y=0.14)
    _mark(axes, _best(place.lines))


def _mark(axes: Axes, line: Line) -> None:
    best = line.optimum
    assert best is not None
    x, y = best.steps, _rate(line)
    axes.plot(
        x, y, marker="o", markersize=13, markerfacecolor="none", markeredgecolor=INK,
        markeredgewidth=1.3, linestyle="none",
    )  # fmt: skip
    low, high = axes.get_xlim()
    share = (x - low) / (high - low)
    side = "left" if share < _EDGE else "right" if share > 1 - _EDGE else "center"
    axes.annotate(
        f"optimum: {counted(best.steps, 'step')}, {number(y)} tok/s",
        (x, max(y, best.measured.decode_tok_s or 0.0)), xytext=(0, 10),
        textcoords="offset points", ha=side, fontsize=SMALL_SIZE, color=INK, fontweight="bold",
        zorder=10, bbox={"facecolor": SURFACE, "edgecolor": "none", "pad": 1.5, "alpha": 0.85},
    )  # fmt: skip
