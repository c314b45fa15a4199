"""Tests of the figure of phases: bars are the table's figures, in the order of steps."""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
import pytest
from fakes.records import count
from fakes.timed import timed_sweep
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from sweep.analysis.frame import make_frame
from sweep.analysis.verdict import verdict
from sweep.plots.phases import phases
from sweep.plots.style import render

FAST = {"draft_s": 0.002, "verify_s": 0.016, "extend_s": 0.001, "other_s": 0.001}
SLOW = {"draft_s": 0.004, "verify_s": 0.024, "extend_s": 0.001, "other_s": 0.001}


def drawn(*numbers: int, variants: tuple[str, ...] = ("default",)) -> Figure:
    """The figure of chains that are slower from 3 steps on."""
    costs = {number: FAST if number < 3 else SLOW for number in numbers}
    record, cycles = timed_sweep(costs, variants=variants)
    frame = make_frame(record, count, None, cycles)
    figure = phases(frame, verdict(frame, record.experiment))
    assert figure is not None
    return figure


def bars(figure: Figure, panel: int) -> dict[int, list[float]]:
    """Position of each bar → the widths of its parts, from left to right."""
    found: dict[int, list[float]] = {}
    for patch in figure.axes[panel].patches:
        assert isinstance(patch, Rectangle)
        found.setdefault(round(patch.get_y() + patch.get_height() / 2), []).append(
            patch.get_width()
        )
    return found


def test_a_bar_is_the_cycle_in_milliseconds_and_in_per_cent() -> None:
    """Draft, verify, extend and other add up; configurations come by their steps."""
    figure = drawn(4, 1)
    figure.draw_without_rendering()
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert labels == ["1 step", "4 steps"]
    assert bars(figure, 0) == {
        0: pytest.approx([2.0, 16.0, 1.0, 1.0]),
        1: pytest.approx([4.0, 24.0, 1.0, 1.0]),
    }
    assert bars(figure, 1) == {
        0: pytest.approx([10.0, 80.0, 5.0, 5.0]),
        1: pytest.approx([100 * part / 30 for part in (4, 24, 1, 1)]),
    }
    shown = {text.get_text() for axes in figure.axes for text in axes.findobj(mpl.text.Text)}
    assert {"20.0 ms", "30.0 ms", "80.0%", "13.3%"} <= shown
    assert "10.0%" not in shown


def test_the_line_stands_at_the_cycle_that_breaks_even() -> None:
    """2.5 tokens a cycle × 10 ms of the baseline's: 25 ms, which one bar passes."""
    figure = drawn(1, 3)
    lines = [np.asarray(line.get_xdata(), dtype=float) for line in figure.axes[0].get_lines()]
    assert {round(float(at), 6) for line in lines for at in line} == {25.0}
    assert max(figure.axes[0].get_xlim()) > 30


def test_the_title_is_the_finding() -> None:
    """And the figure renders in both formats."""
    figure = drawn(1, 2)
    assert figure.get_suptitle() == "Verify takes 80 % of the cycle"
    made = render(figure, "phases")
    assert made.png.startswith(b"\x89PNG")
    assert "<svg" in made.svg


def test_many_bars_are_not_clipped() -> None:
    """Forty configurations with long names lie inside the page."""
    figure = drawn(*range(1, 21), variants=("default", "a-variant-with-quite-a-long-name"))
    figure.draw_without_rendering()
    box = figure.get_tightbbox()
    assert box.x0 >= 0
    assert box.y0 >= 0
    assert box.x1 <= figure.get_figwidth()
    assert box.y1 <= figure.get_figheight()
    assert len(bars(figure, 0)) == 40


def test_no_figure_without_cycles() -> None:
    """Nothing was timed, nothing is drawn."""
    record, _ = timed_sweep({1: FAST})
    frame = make_frame(record, count)
    assert phases(frame, verdict(frame, record.experiment)) is None
