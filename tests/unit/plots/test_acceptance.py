"""Tests of the figure of acceptance by position: its lines are the table's p_k and their ratios."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from fakes.records import BASELINE, RecordBuilder, TrialPlan, count, experiment, steps, workload
from matplotlib.figure import Figure

from sweep.analysis.frame import make_frame
from sweep.analysis.verdict import verdict
from sweep.model.states import Failure
from sweep.plots.acceptance import acceptance
from sweep.plots.style import render


def drawn(shares: dict[int, Sequence[float]], *, cycles: int = 40) -> Figure | None:
    """The figure of chains with these p_k, 15 answers of `cycles` cycles each, and one that
    failed."""
    code = workload()
    builder = RecordBuilder(experiment(code))
    builder.launch(BASELINE, TrialPlan(code))
    for number in shares:
        builder.launch(steps(number), TrialPlan(code, cycles=cycles, accepted=60))
    builder.failed_launch(steps(9), code, failure=Failure("oom", "out of memory"))
    record = builder.record()
    frame = make_frame(record, count)
    for number, own in shares.items():
        for position, share in enumerate(own, start=1):
            frame.loc[frame["num_steps"] == number, f"p_{position}"] = share
    return acceptance(frame, verdict(frame, record.experiment))


def lines(figure: Figure, side: int) -> dict[float, list[float]]:
    """Width of each line of one of the axes → its values [%]."""
    return {
        line.get_linewidth(): np.asarray(line.get_ydata(), dtype=float).tolist()
        for line in figure.axes[side].get_lines()
        if line.get_linestyle() != "None"
    }


def test_the_longest_chain_is_thick_and_others_thin() -> None:
    """Left the shares of all cycles, right of those that accepted every position before."""
    figure = drawn({2: [0.7, 0.4], 3: [0.8, 0.4, 0.3]})
    assert figure is not None
    assert lines(figure, 0) == {0.7: pytest.approx([70, 40]), 2.0: pytest.approx([80, 40, 30])}
    assert lines(figure, 1)[2.0] == pytest.approx([80, 50, 75])
    assert (
        figure.get_supxlabel()
        .replace("\n", " ")
        .endswith("1 row without acceptance by position (oom).")
    )


def test_the_title_names_a_position_that_stands_out() -> None:
    """Half of 480 cycles against 66 % on average is no chance; the mark says so too."""
    figure = drawn({3: [0.8, 0.4, 0.3]})
    assert figure is not None
    assert figure.get_suptitle().replace("\n", " ") == (
        "Draft acceptance (3 steps): weakest at position 2, accepted in 50 % of the cycles that "
        "reach it; fewer than half of all cycles accept position 2"
    )
    texts = [text.get_text() for text in figure.axes[1].texts]
    assert texts == ["weakest: 50 % at position 2"]


def test_no_position_is_blamed_for_chance() -> None:
    """An even draft is told as even."""
    figure = drawn({3: [0.8, 0.63, 0.51]})
    assert figure is not None
    assert figure.get_suptitle().replace("\n", " ") == (
        "Draft acceptance (3 steps): no position stands out, each is accepted in 79 to 81 % of "
        "the cycles that reach it"
    )
    assert not figure.axes[1].texts


def test_positions_that_hardly_a_cycle_reached_are_gaps() -> None:
    """Of 600 cycles 6 reached the third position."""
    figure = drawn({3: [0.5, 0.01, 0.0]})
    assert figure is not None
    right = lines(figure, 1)[2.0]
    assert right[:2] == pytest.approx([50, 2])
    assert np.isnan(right[2])
    few = drawn({2: [0.5, 0.2]}, cycles=1)
    assert few is not None
    assert "too few cycles" in few.get_suptitle()


def test_no_figure_without_positions() -> None:
    """Nothing reported p_k."""
    assert drawn({}) is None
    assert drawn({3: []}) is None


def test_long_names_and_many_lines_are_not_clipped() -> None:
    """Everything lies inside the page, and both formats are made."""
    code = workload(prompts=2)
    builder = RecordBuilder(experiment(code))
    for variant in ("default", "a-variant-with-quite-a-long-name", "$x$", "ring"):
        for number in range(1, 11):
            plan = TrialPlan(code, cycles=40, accepted=60)
            builder.launch(steps(number, variant=variant), plan, arm=variant)
    record = builder.record()
    frame = make_frame(record, count)
    for position in range(1, 11):
        frame[f"p_{position}"] = (0.7**position) * (frame["num_steps"] >= position)
    figure = acceptance(frame, verdict(frame, record.experiment))
    assert figure is not None
    assert render(figure, "x").png.startswith(b"\x89PNG")
    box = figure.get_tightbbox()
    assert min(box.x0, box.y0) >= 0
    assert box.x1 <= figure.get_figwidth()
    assert box.y1 <= figure.get_figheight()


def test_each_workload_has_one_panel() -> None:
    """Whatever the concurrency, the text decides what is accepted."""
    code = workload(prompts=1, concurrency=(1, 4))
    chat = workload("chat", prompts=1, concurrency=(1, 4))
    builder = RecordBuilder(experiment(code, chat))
    places = [TrialPlan(item, n, cycles=40) for item in (code, chat) for n in item.concurrency]
    builder.launch(steps(1), *places)
    record = builder.record()
    frame = make_frame(record, count).assign(p_1=0.5)
    figure = acceptance(frame, verdict(frame, record.experiment))
    assert figure is not None
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert [title for title in titles if title] == ["code, concurrency 1", "chat, concurrency 1"]


def test_equal_lines_stand_beside_each_other() -> None:
    """What two variants accept alike hides neither."""
    code = workload(prompts=1)
    builder = RecordBuilder(experiment(code))
    for variant in ("default", "ring"):
        builder.launch(steps(2, variant=variant), TrialPlan(code, cycles=40), arm=variant)
    record = builder.record()
    frame = make_frame(record, count).assign(p_1=0.5, p_2=0.3)
    figure = acceptance(frame, verdict(frame, record.experiment))
    assert figure is not None
    first, second = (
        np.asarray(line.get_xdata(), dtype=float) for line in figure.axes[0].get_lines()
    )
    assert (second - first).tolist() == pytest.approx([0.07, 0.07])
    assert ((first + second) / 2).tolist() == pytest.approx([1, 2])
