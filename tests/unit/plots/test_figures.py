"""Tests of the figures: every size draws without a warning, says its finding, hides nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import matplotlib as mpl
import numpy as np
import pytest
from fakes.records import BASELINE, RecordBuilder, TrialPlan, count, experiment, steps, workload
from matplotlib.figure import Figure

from sweep.analysis.frame import make_frame
from sweep.analysis.timeline import attempt_lines
from sweep.analysis.verdict import verdict
from sweep.model.plan import Role
from sweep.model.states import Failure
from sweep.plots.accept_length import accept_length
from sweep.plots.style import looks, plain, render
from sweep.plots.throughput import throughput
from sweep.plots.timeline import timeline


def figures(builder: RecordBuilder) -> dict[str, Figure]:
    """All figures of what a builder collected."""
    record = builder.record()
    frame = make_frame(record, count)
    judged = verdict(frame, builder.experiment)
    return {
        "throughput": throughput(frame, judged),
        "accept_length": accept_length(frame, judged),
        "timeline": timeline(attempt_lines(record)),
    }


def texts(figure: Figure) -> set[str]:
    """Every text that is drawn, tick labels included."""
    figure.draw_without_rendering()
    return {
        item.get_text()
        for axes in figure.axes
        for item in axes.findobj(mpl.text.Text)
        if isinstance(item, mpl.text.Text)
    }


def one_point() -> RecordBuilder:
    """One configuration and nothing to compare it with."""
    code = workload()
    builder = RecordBuilder(experiment(code))
    builder.launch(steps(3), TrialPlan(code, cycles=40, accepted=60, drafted=120))
    return builder


def two_workloads() -> RecordBuilder:
    """Six configurations at two workloads between two baselines, one of them failed."""
    code, chat = workload(), workload("chat")
    builder = RecordBuilder(experiment(code, chat))
    builder.launch(BASELINE, TrialPlan(code), TrialPlan(chat), role=Role.BASELINE_FIRST)
    for number in range(1, 7):
        if number == 5:
            failure = Failure("load_timeout", "no token in 900 s")
            builder.failed_launch(steps(number), code, chat, failure=failure)
            continue
        plan = TrialPlan(
            code, time_s=lambda w, p: 0.6 + 0.01 * w + 0.02 * p, cycles=40, accepted=20 * number
        )
        builder.launch(steps(number), plan, dataclasses.replace(plan, workload=chat))
    builder.launch(BASELINE, TrialPlan(code), TrialPlan(chat), role=Role.BASELINE_LAST)
    return builder


def many_lines() -> RecordBuilder:
    """Twenty steps in four variants."""
    code = workload(prompts=2)
    builder = RecordBuilder(experiment(code))
    for variant in ("default", "low-latency", "ring", "decode-attention"):
        base = dataclasses.replace(BASELINE, variant=variant)
        builder.launch(base, TrialPlan(code), arm=variant)
        for number in range(1, 21):
            plan = TrialPlan(code, time_s=lambda w, _: 0.6 + 0.01 * w, cycles=40, accepted=40)
            builder.launch(steps(number, variant=variant), plan, arm=variant)
    return builder


def all_failed() -> RecordBuilder:
    """Nothing ended ok, for every kind of reason."""
    code = workload()
    builder = RecordBuilder(experiment(code))
    builder.failed_launch(BASELINE, code, failure=Failure("oom", "out of memory"))
    builder.failed_launch(steps(1), code, failure=Failure("nccl_hang", "silent"))
    builder.not_run(steps(2), code)
    builder.skip(steps(3, topk=2, num_draft_tokens=8), "the pool is too small")
    return builder


def only_skipped() -> RecordBuilder:
    """No launch at all."""
    builder = RecordBuilder(experiment())
    builder.skip(steps(3, topk=2, num_draft_tokens=8), "the pool is too small")
    return builder


def empty() -> RecordBuilder:
    """Nothing planned."""
    return RecordBuilder(experiment())


def without_steps() -> RecordBuilder:
    """A configuration that has no number of steps."""
    code = workload()
    builder = RecordBuilder(experiment(code))
    builder.launch(steps(3, num_steps=None), TrialPlan(code))
    return builder


@pytest.mark.parametrize(
    "build",
    [one_point, two_workloads, all_failed, only_skipped, empty, without_steps],
)
def test_every_size_renders(build: Callable[[], RecordBuilder]) -> None:
    """No warning (overlap, collapsed axes), a title, and bytes of both kinds."""
    for name, figure in figures(build()).items():
        drawn = render(figure, name)
        assert figure.get_suptitle(), name
        assert drawn.png.startswith(b"\x89PNG"), name
        assert "<svg" in drawn.svg, name


def test_nothing_is_clipped() -> None:
    """Everything that the largest figure draws lies inside the page."""
    for name, figure in figures(many_lines()).items():
        figure.draw_without_rendering()
        drawn = figure.get_tightbbox()
        assert drawn.x0 >= 0, name
        assert drawn.y0 >= 0, name
        assert drawn.x1 <= figure.get_figwidth(), name
        assert drawn.y1 <= figure.get_figheight(), name


def test_failures_are_named_and_leave_a_gap() -> None:
    """A failed configuration is a cross with its class, and no point of the line."""
    figure = figures(two_workloads())["throughput"]
    assert "load_timeout" in texts(figure)
    drawn = [np.asarray(line.get_ydata(), dtype=float) for line in figure.axes[0].get_lines()]
    values = next(line for line in drawn if line.size == 6)
    assert np.isnan(values).tolist() == [False] * 4 + [True, False]
    assert np.nanmin(values) > 80


def test_titles_are_findings() -> None:
    """The title says what the figure shows."""
    found = figures(two_workloads())
    assert found["throughput"].get_suptitle().startswith("Output throughput: a clear lead in 0 of")
    assert "of 10 rows" in found["accept_length"].get_suptitle()
    assert "loading" in found["timeline"].get_suptitle()
    assert figures(all_failed())["accept_length"].get_suptitle() == (
        "Accept length: none was measured"
    )


def test_a_baseline_alone_is_no_lead_in_a_title() -> None:
    """The title says that only the baseline ended ok."""
    code = workload()
    builder = RecordBuilder(experiment(code))
    builder.launch(BASELINE, TrialPlan(code))
    builder.failed_launch(steps(1), code, failure=Failure("oom", "out of memory"))
    assert figures(builder)["throughput"].get_suptitle() == (
        "Output throughput: only the baseline ended ok"
    )


def test_intervals_beyond_the_axis_are_cut_and_marked() -> None:
    """Two windows far apart give a huge interval; it ends at three times the largest point."""
    code = workload(prompts=1)
    builder = RecordBuilder(experiment(code))
    builder.launch(BASELINE, TrialPlan(code))
    builder.launch(steps(1), TrialPlan(code, windows=2, time_s=lambda w, _: 0.1 + 3.0 * w))
    record = builder.record()
    assert make_frame(record, count)["output_tok_s_hi"].max() > 10_000
    figure = figures(builder)["throughput"]
    largest = 101 / 1.1
    assert 3 * largest < figure.axes[0].get_ylim()[1] < 4 * largest
    assert "Arrows: the interval goes on." in figure.get_supxlabel().replace("\n", " ")
    assert "Arrows" not in figures(two_workloads())["throughput"].get_supxlabel()


@pytest.mark.parametrize(("accepted", "above", "below"), [(60, 1, 0), (4, 0, 1)])
def test_the_title_counts_rows_on_both_sides_of_break_even(
    accepted: int, above: int, below: int
) -> None:
    """The title of accept length counts, and judges nothing without intervals."""
    code = workload()
    builder = RecordBuilder(experiment(code))
    builder.launch(BASELINE, TrialPlan(code))
    time_s = 0.5 if above else 1.5
    plan = TrialPlan(code, time_s=lambda *_: time_s, cycles=40, accepted=accepted)
    builder.launch(steps(2), plan)
    assert figures(builder)["accept_length"].get_suptitle() == (
        f"Accept length is above break-even in {above} of 1 rows, below in {below}"
    )


def test_rows_that_cannot_be_drawn_are_counted() -> None:
    """A figure over steps says how many rows it leaves to the table."""
    figure = figures(without_steps())["accept_length"]
    assert "1 row without a number of steps" in figure.get_supxlabel()


def test_what_has_no_steps_has_its_throughput_across_all_of_them() -> None:
    """At its own height, under its own name."""
    figure = figures(without_steps())["throughput"]
    assert "Lines across" in figure.get_supxlabel()
    frame = make_frame(without_steps().record(), count)
    (row,) = frame[frame["num_steps"].isna()].to_dict("records")
    lines = {str(line.get_label()): line for line in figure.axes[0].get_lines()}
    assert set(np.asarray(lines[row["configuration"]].get_ydata())) == {row["output_tok_s"]}


def test_time_line_shows_failures() -> None:
    """Failed launches carry their class on the time line."""
    shown = texts(figures(all_failed())["timeline"])
    assert {"✕ oom", "✕ nccl_hang", "baseline", "1 step"} <= shown


def test_svg_is_the_same_for_the_same_data() -> None:
    """Reports of unchanged data do not change."""
    first, second = (render(figures(one_point())["throughput"], "x") for _ in range(2))
    assert first.svg == second.svg


def test_looks_differ_in_colour_and_marker() -> None:
    """Up to 42 lines are told apart."""
    assert len(set(looks(42))) == 42


def test_foreign_text_is_drawn_as_it_is() -> None:
    """Dollar signs start no formula, control characters are not drawn."""
    assert plain("a $x$\x1b[1m\n") == r"a \$x\$ [1m "
