"""Tests of the figures of cost and prediction: marks are measured, lines are fitted."""

from __future__ import annotations

from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from fakes.records import experiment, workload
from fakes.tables import baseline, chain, table
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sweep.analysis.verdict import verdict
from sweep.plots.predicted import predicted
from sweep.plots.style import render
from sweep.plots.verify_cost import verify_cost

SHARES = (0.8, 0.6, 0.3, 0.1, 0.05, 0.02)


def true(steps: int, **cells: Any) -> dict[str, Any]:
    """A chain whose verification takes 10 ms and 1 ms for each token: 3 steps are best."""
    return chain(steps, verify_ms=10.0 + (steps + 1), shares=SHARES) | cells


def drawn(*rows: dict[str, Any]) -> dict[str, Figure | None]:
    """Both figures of these rows."""
    frame = table(rows)
    judged = verdict(frame, experiment(workload()))
    return {"verify_cost": verify_cost(frame, judged), "predicted": predicted(frame, judged)}


def figures(*rows: dict[str, Any]) -> tuple[Figure, Figure]:
    """Both figures of these rows, which exist."""
    cost, rate = drawn(*rows).values()
    assert cost is not None
    assert rate is not None
    return cost, rate


def points(axes: Axes, marker: str) -> list[tuple[float, float]]:
    """What is drawn with a marker."""
    return [
        (float(x), float(y))
        for line in axes.get_lines()
        if line.get_marker() == marker
        for x, y in zip(
            np.atleast_1d(line.get_xdata()), np.atleast_1d(line.get_ydata()), strict=True
        )
    ]


def test_marks_are_measured_and_the_curve_is_the_fit() -> None:
    """Tokens and milliseconds of each row, its residual below, and the baseline's step."""
    cost, _ = figures(
        baseline(100.0), true(1), chain(2, verify_ms=14.0, shares=SHARES), true(4), true(6)
    )
    above, below = cost.axes[:2]
    assert points(above, "o") == [(2, 12), (3, 14), (5, 15), (7, 17)]
    assert points(above, "D") == [(1, 10.0)]
    residuals = dict(points(below, "o"))
    curves = [line for line in above.get_lines() if line.get_linestyle() == "-"]
    (curve,) = [line for line in curves if line.get_marker() == "None"]
    ends = np.asarray(curve.get_ydata())[[0, -1]]
    assert ends == pytest.approx([12 - residuals[2], 17 - residuals[7]])
    assert residuals[3] > 0.5
    assert above.get_ylim()[0] == 0


def test_a_step_of_the_baseline_is_one_token_of_each_request() -> None:
    """At eight requests of 50 tokens/s each it verifies 8 tokens in 20 ms."""
    rows = [true(steps, concurrency=8) for steps in (1, 2, 3)]
    cost, _ = figures(baseline(50.0, concurrency=8), *rows)
    assert points(cost.axes[0], "D") == [(8, 20.0)]
    assert [x for x, _ in points(cost.axes[0], "o")] == [16, 24, 32]


def test_titles_are_findings() -> None:
    """Costs with the worst residual, and the optimum with what was measured there."""
    cost, rate = figures(true(1), true(2), true(3, decode_tok_s=180.0), true(4))
    assert cost.get_suptitle().replace("\n", " ") == (
        "Verification costs 10.00 ms plus 1.00 ms for each token; the fit is off by 0.0% at most"
    )
    assert rate.get_suptitle().replace("\n", " ") == (
        "Predicted best: 3 steps of default, 182 tok/s; measured 180"
    )
    _, rate = figures(true(1), true(2), true(6))
    assert rate.get_suptitle().endswith("not measured")


def test_predictions_are_a_line_over_all_steps_and_marks_are_of_those_launched() -> None:
    """Three launches, six predictions, and a ring at the optimum among those not launched."""
    _, rate = figures(baseline(90.0), true(1), true(2, decode_tok_s=170.0), true(6))
    axes = rate.axes[0]
    (curve,) = [line for line in axes.get_lines() if len(np.atleast_1d(line.get_xdata())) == 6]
    assert np.asarray(curve.get_ydata())[2] == pytest.approx(2700 / 14.8)
    marks = points(axes, "o")
    assert [x for x, _ in marks] == [1, 2, 6, 3]
    assert marks[1] == (2, 170.0)
    assert marks[3][1] == pytest.approx(2700 / 14.8)
    shown = {text.get_text() for text in axes.findobj(mpl.text.Text)}
    assert "optimum: 3 steps, 182 tok/s" in shown
    assert 90.0 in [np.atleast_1d(line.get_ydata())[0] for line in axes.get_lines()]


def test_a_refused_fit_has_marks_and_no_line() -> None:
    """The figure says why; where every fit is refused there is none."""
    refused = [true(steps, variant="ring") for steps in (1, 2)]
    cost, rate = figures(true(1), true(2), true(3), *refused)
    assert "fewer than three step counts were timed" in cost.get_supxlabel().replace("\n", " ")
    assert points(cost.axes[0], "s") == [(2, 12), (3, 13)]
    assert not points(cost.axes[1], "s")
    assert not points(rate.axes[0], "s")
    assert drawn(*refused, baseline()) == {"verify_cost": None, "predicted": None}
    assert drawn() == {"verify_cost": None, "predicted": None}


def test_the_place_of_the_objective_comes_first() -> None:
    """Its title speaks of that place, by name, and every place has its panel."""
    rows = [
        true(steps, workload=name, concurrency=c)
        for name, c in (("chat", 1), ("code", 4), ("code", 1))
        for steps in (1, 2, 3)
    ]
    for figure, axes in zip(figures(*rows), (2, 1), strict=True):
        assert figure.get_suptitle().startswith("code, concurrency 1: ")
        titles = [panel.get_title(loc="left") for panel in figure.axes[: 3 * axes : axes]]
        assert titles[0] == "code, concurrency 1"
        assert set(titles) == {"code, concurrency 1", "chat, concurrency 1", "code, concurrency 4"}


def test_many_lines_are_not_clipped() -> None:
    """Twelve variants with long names at three places lie inside the page, and render."""
    rows = [
        true(steps, variant=f"a variant of a very long name, number {n}", concurrency=c)
        for n in range(12)
        for c in (1, 8, 32)
        for steps in (1, 2, 4, 6)
    ]
    for name, figure in zip(("verify_cost", "predicted"), figures(*rows), strict=True):
        figure.draw_without_rendering()
        box = figure.get_tightbbox()
        assert box.x0 >= 0, name
        assert box.y0 >= 0, name
        assert box.x1 <= figure.get_figwidth(), name
        assert box.y1 <= figure.get_figheight(), name
        assert render(figure, name).png.startswith(b"\x89PNG")
