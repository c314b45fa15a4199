"""What verification costs against the tokens that it verifies, with the fit and its residuals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from sweep.analysis.cost_model import Affine
from sweep.analysis.prediction import Line, find_lines
from sweep.analysis.verdict import Verdict
from sweep.plots.facets import facets, line_looks
from sweep.plots.places import Place, by_place, draw_places, first_place, title_of
from sweep.plots.style import INK, MUTED, SURFACE, Look, dress

PANEL_IN = 4.4
_CURVE_POINTS = 200
_MS_PER_S = 1000.0

NOTE = (
    "Marks: means of the rows whose cycles were timed. Lines: the weighted fit, dashed beyond what "
    "was measured. Diamonds: a step of the baseline, which verifies nothing and is not in the fit. "
    "Below: measured - fitted."
)
UNFITTED_NOTE = " Marks without a line: fewer than three step counts were timed."


def verify_cost(frame: pd.DataFrame, verdict: Verdict) -> Figure | None:
    """Draw verification [ms/cycle] over the tokens of a cycle; None when nothing was fitted."""
    lines = by_place([line for line in find_lines(frame) if _measured(line)], verdict)
    if not any(line.costs for line in lines):
        return None
    note = NOTE + ("" if all(line.costs for line in lines) else UNFITTED_NOTE)
    styles = line_looks(facets(frame, verdict))
    sheet = draw_places(lines, _title(lines), note, height_in=PANEL_IN, ratios=(3, 1))
    for place in sheet.places:
        _draw(place, styles)
    sample = Line2D(
        [], [], color=MUTED, marker="D", linestyle="none", markerfacecolor=SURFACE, markersize=6
    )
    has_baseline = any(line.baseline_tok_s for line in lines)
    return sheet.finish(styles, {"a baseline's step": sample} if has_baseline else {})


def _measured(line: Line) -> list[tuple[float, float]]:
    """Tokens and milliseconds of the rows that can be fitted."""
    return [
        (line.concurrency * (step.steps + 1), step.measured.verify_ms)
        for step in line.steps
        if step.measured.verify_ms is not None
    ]


def _title(lines: Sequence[Line]) -> str:
    fitted = [line for line in lines if line.costs is not None]
    own = first_place(fitted)
    curves = [line.costs.verify for line in own if line.costs is not None]
    affine = [curve for curve in curves if isinstance(curve, Affine)]
    if affine:
        fixed = _range([curve.fixed_ms for curve in affine])
        each = _range([curve.per_unit_ms for curve in affine])
        text = f"Verification costs {fixed} ms plus {each} ms for each token"
    else:
        text = "Verification flattens as experts saturate"
    if affine and len(affine) < len(curves):
        text += f"; {len(curves) - len(affine)} of {len(curves)} lines flatten as experts saturate"
    worst = max(
        abs(step.verify_residual_ms) / step.measured.verify_ms
        for line in own
        for step in line.steps
        if step.verify_residual_ms is not None and step.measured.verify_ms
    )
    return title_of(fitted, f"{text}; the fit is off by {worst:.1%} at most")


def _range(found: Sequence[float]) -> str:
    low, high = f"{min(found):z.2f}", f"{max(found):z.2f}"
    return low if low == high else f"{low} to {high}"


def _draw(place: Place, styles: dict[str, Look]) -> None:
    above, below = place.axes
    for line in place.lines:
        look = styles[line.name]
        tokens, ms = np.array(_measured(line)).T
        above.plot(tokens, ms, label=line.name, **_marks(look))
        if line.costs is not None:
            _curve(above, line, look, tokens)
            residuals = [
                (line.costs.tokens(step.steps), step.verify_residual_ms)
                for step in line.steps
                if step.verify_residual_ms is not None
            ]
            below.plot(*np.array(residuals).T, **_marks(look))
        if line.baseline_tok_s:
            above.plot(
                line.concurrency, _MS_PER_S / line.baseline_tok_s,
                color=look.colour, marker="D", markerfacecolor=SURFACE, markersize=6,
            )  # fmt: skip
    above.set_xlim(left=0)
    above.set_ylim(bottom=0)
    above.set_ylabel("verify [ms/cycle]")
    above.tick_params(labelbottom=False)
    dress(below)
    below.axhline(0.0, color=INK, linewidth=1.0)
    below.margins(y=0.25)
    below.set_ylabel("residual [ms]")
    below.set_xlabel("tokens verified in a cycle: batch × (steps + 1)")
    below.xaxis.set_major_locator(MaxNLocator(integer=True))


def _marks(look: Look) -> dict[str, Any]:
    return {
        "color": look.colour, "marker": look.marker, "linestyle": "none", "markersize": 5.5,
    }  # fmt: skip


def _curve(axes: Axes, line: Line, look: Look, tokens: np.ndarray[Any, Any]) -> None:
    assert line.costs is not None
    first, last = float(tokens.min()), float(tokens.max())
    for begin, end, style in ((0.0, first, "--"), (first, last, "-")):
        x = np.linspace(begin, end, _CURVE_POINTS)
        y = [line.costs.verify.at(float(n)) for n in x]
        axes.plot(x, y, color=look.colour, linewidth=1.5, linestyle=style)
