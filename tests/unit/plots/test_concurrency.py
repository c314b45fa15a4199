"""Tests of the figure over concurrency: lines are the table's, the title says where it crosses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import matplotlib as mpl
import numpy as np
import pytest
from fakes.records import BASELINE, RecordBuilder, TrialPlan, count, experiment, steps, workload
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from sweep.analysis.frame import make_frame
from sweep.analysis.verdict import verdict
from sweep.model.experiment import Workload
from sweep.model.states import Failure
from sweep.plots.concurrency import MOST_LINES, concurrency
from sweep.plots.style import render


def steady(decode_s: float) -> Callable[[int, int], float]:
    """The same time for every prompt, a little longer from window to window."""
    return lambda window, _: decode_s * (1 + 0.001 * window)


def plans(
    items: Sequence[Workload], decode_s: Mapping[int, float], *, windows: int = 3
) -> list[TrialPlan]:
    """At each concurrency answers of 101 tokens after 0.1 s + decoding, steadily."""
    return [
        TrialPlan(
            item, number, windows, time_s=steady(own), cycles=40,
            accepted=60,
        )
        for item in items
        for number, own in decode_s.items()
    ]  # fmt: skip


def drawn(
    decode_s: Mapping[int, float], *, names: Sequence[str] = ("code",), windows: int = 3,
    baseline: bool = True,
) -> Figure | None:  # fmt: skip
    """The figure of one chain with these times [s] by concurrency; the baseline takes 1 s."""
    items = [workload(name) for name in names]
    builder = RecordBuilder(experiment(*items))
    if baseline:
        ones = dict.fromkeys(decode_s, 1.0)
        builder.launch(BASELINE, *plans(items, ones, windows=windows))
    builder.launch(steps(3), *plans(items, decode_s, windows=windows))
    return figure_of(builder)


def figure_of(builder: RecordBuilder) -> Figure | None:
    """The figure of what a builder collected."""
    record = builder.record()
    frame = make_frame(record, count)
    return concurrency(frame, verdict(frame, record.experiment))


@pytest.mark.parametrize(
    ("decode_s", "finding"),
    [
        ({1: 0.5, 4: 0.8, 8: 1.5}, "Speculation stops paying between concurrency 4 and 8"),
        ({1: 0.5, 4: 1.0, 8: 1.5}, "Speculation stops paying between concurrency 1 and 8"),
        ({1: 0.5, 4: 0.8}, "Speculation pays at concurrency 1 and 4, all that were measured"),
        ({1: 0.5, 4: 1.0}, "Speculation pays at concurrency 1; whether at 4 is open"),
        ({1: 1.5, 4: 1.4}, "Speculation does not pay at concurrency 1 and 4"),
        ({1: 1.5, 4: 0.8}, "Speculation pays at concurrency 4, not at 1"),
    ],
)
def test_the_title_says_where_speculation_pays(decode_s: dict[int, float], finding: str) -> None:
    """By the interval of the best configuration's speed-up."""
    figure = drawn(decode_s)
    assert figure is not None
    assert figure.get_suptitle() == finding


def test_without_intervals_nothing_is_claimed() -> None:
    """One window says nothing of how windows differ."""
    figure = drawn({1: 0.5, 4: 1.5}, windows=1)
    assert figure is not None
    assert figure.get_suptitle() == "Whether speculation pays is open at every concurrency"


def test_lines_are_the_table_and_the_crossing_is_shaded() -> None:
    """Left tokens/s of chain and baseline, right their ratio."""
    figure = drawn({1: 0.5, 4: 0.8, 8: 1.5})
    assert figure is not None
    left = [np.asarray(line.get_ydata(), dtype=float) for line in figure.axes[0].get_lines()]
    whole = [line.tolist() for line in left if line.size == 3]
    assert whole[0] == pytest.approx([101 / 1.1] * 3, rel=0.002)
    assert whole[1] == pytest.approx([101 / 0.6, 101 / 0.9, 101 / 1.6], rel=0.002)
    right = [np.asarray(line.get_ydata(), dtype=float) for line in figure.axes[1].get_lines()]
    assert right[0].tolist() == pytest.approx([1.1 / 0.6, 1.1 / 0.9, 1.1 / 1.6], rel=0.002)
    (shade,) = (patch for patch in figure.axes[1].patches if isinstance(patch, Rectangle))
    assert (shade.get_x(), shade.get_x() + shade.get_width()) == (4, 8)
    ticks = [label.get_text() for label in figure.axes[1].get_xticklabels()]
    assert ticks == ["1", "4", "8"]


def test_workloads_have_panels_and_findings_of_their_own() -> None:
    """Equal findings are said once."""
    figure = drawn({1: 0.5, 4: 0.8}, names=("code", "chat"))
    assert figure is not None
    assert figure.get_suptitle().startswith("Speculation pays at concurrency 1 and 4")
    assert [axes.get_title(loc="left") for axes in figure.axes[::2][:2]] == ["code", "chat"]
    builder = RecordBuilder(experiment(workload("code"), workload("chat")))
    both = (workload("code"), workload("chat"))
    builder.launch(BASELINE, *plans(both, {1: 1.0, 4: 1.0}))
    builder.launch(steps(3), *plans(both[:1], {1: 0.5, 4: 0.5}), *plans(both[1:], {1: 1.5, 4: 1.5}))
    figure = figure_of(builder)
    assert figure is not None
    assert figure.get_suptitle().replace("\n", " ") == (
        "code: speculation pays at concurrency 1 and 4, all that were measured; "
        "chat: speculation does not pay at concurrency 1 and 4"
    )


def test_what_is_missing_is_said() -> None:
    """A failure is named at its concurrency, a line has a gap there; no baseline is no 1.0."""
    code = workload(concurrency=(1, 4))
    builder = RecordBuilder(experiment(code))
    builder.launch(BASELINE, *plans([code], {1: 1.0, 4: 1.0}))
    builder.launch(steps(3), *plans([code], {1: 0.5, 4: 0.6}))
    failure = Failure("oom", "out of memory")
    builder.failed_launch(steps(4), code, failure=failure)
    builder.failed_launch(steps(5), code, failure=failure)
    figure = figure_of(builder)
    assert figure is not None
    assert [text.get_text() for text in figure.axes[0].texts] == ["✕ 2 oom", "✕ 2 oom"]
    alone = drawn({1: 0.5, 4: 0.8}, baseline=False)
    assert alone is not None
    assert [text.get_text() for text in alone.axes[1].texts] == [
        "no speed-up: no baseline ended ok"
    ]


def test_the_best_few_are_drawn_and_nothing_is_clipped() -> None:
    """Of twelve configurations five, the leading ones of every concurrency among them."""
    code = workload(prompts=2)
    builder = RecordBuilder(experiment(code))
    builder.launch(BASELINE, *plans([code], {1: 1.0, 2: 1.0, 16: 1.0}))
    name = "a-variant-with-quite-a-long-name-that-goes-on"
    for number in range(1, 13):
        decode_s = {1: 1.0 - 0.05 * number, 2: 0.9, 16: 0.5 + 0.1 * number}
        builder.launch(steps(number, variant=name), *plans([code], decode_s), arm="default-arm")
    figure = figure_of(builder)
    assert figure is not None
    assert render(figure, "x").png.startswith(b"\x89PNG")
    shown = [text.get_text() for text in figure.axes[-1].findobj(mpl.text.Text)]
    configurations = [text for text in shown if isinstance(text, str) and "step" in text]
    assert len(configurations) == MOST_LINES
    assert any(text.startswith("1 step,") for text in configurations)
    assert any(text.startswith("12 steps,") for text in configurations)
    box = figure.get_tightbbox()
    assert min(box.x0, box.y0) >= 0
    assert box.x1 <= figure.get_figwidth()
    assert box.y1 <= figure.get_figheight()


def test_no_figure_with_one_concurrency() -> None:
    """Nor with a second one at which nothing ended ok."""
    assert drawn({1: 0.5}) is None
    code = workload(concurrency=(4,))
    builder = RecordBuilder(experiment(code))
    builder.launch(steps(3), TrialPlan(code, 1))
    builder.failed_launch(steps(4), code, failure=Failure("oom", "out of memory"))
    assert figure_of(builder) is None
