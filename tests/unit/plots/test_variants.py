"""Tests of variants against the default: marks are ratios of equal configurations, in per cent."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from fakes.records import BASELINE, RecordBuilder, TrialPlan, count, experiment, steps, workload
from matplotlib.figure import Figure

from sweep.analysis.frame import make_frame
from sweep.analysis.verdict import verdict
from sweep.model.plan import Role
from sweep.model.states import Failure
from sweep.plots.style import render
from sweep.plots.variants import MOST_PANELS, MOST_ROWS, variants

VERIFY_MS = {"default": 20.0, "ring": 15.0}


def sweep(names: tuple[str, ...] = ("default", "ring"), *, windows: int = 3) -> RecordBuilder:
    """Baseline and two chains in each variant; those but the default decode in half the time."""
    code = workload()
    builder = RecordBuilder(experiment(code))
    for name in names:
        slow = 1.0 if name == "default" else 0.5

        def plan(decode_s: float, slow: float = slow) -> TrialPlan:
            return TrialPlan(
                code, windows=windows, time_s=lambda w, _: decode_s * slow * (1 + 0.01 * w),
                cycles=40, accepted=60,
            )  # fmt: skip

        base = dataclasses.replace(BASELINE, variant=name)
        builder.launch(base, plan(1.2), role=Role.BASELINE_FIRST, arm=name)
        for number in (1, 2):
            builder.launch(steps(number, variant=name), plan(0.9), arm=name)
        builder.launch(base, plan(1.2), role=Role.BASELINE_LAST, arm=name)
    return builder


def drawn(builder: RecordBuilder, *, timed: bool = True) -> Figure | None:
    """The figure of what a builder collected, verification timed as VERIFY_MS says."""
    record = builder.record()
    frame = make_frame(record, count)
    if timed:
        own = frame["variant"].map(VERIFY_MS)
        frame["verify_ms"] = own.where(~frame["is_baseline"].astype(bool)).astype("Float64")
    return variants(frame, verdict(frame, record.experiment))


def marks(figure: Figure, side: int) -> dict[float, float]:
    """Row of each mark → its difference [%]."""
    found = {}
    for line in figure.axes[side].get_lines():
        x, y = (np.asarray(data, dtype=float) for data in (line.get_xdata(), line.get_ydata()))
        if x.size == 1 and line.get_marker() in ("o", "s"):
            found[float(y[0])] = float(x[0])
    return found


def test_marks_are_differences_to_the_same_configuration() -> None:
    """15 against 20 ms, 0.1 + 0.45 against 0.1 + 0.9 s; baselines have no verification."""
    figure = drawn(sweep())
    assert figure is not None
    assert marks(figure, 0) == {1.0: pytest.approx(-25), 2.0: pytest.approx(-25)}
    ratio = (0.1 + 0.9 * 1.01) / (0.1 + 0.45 * 1.01)
    baseline = (0.1 + 1.2 * 1.01) / (0.1 + 0.6 * 1.01)
    assert marks(figure, 1) == {
        0.0: pytest.approx(100 * (baseline - 1)),
        1.0: pytest.approx(100 * (ratio - 1)),
        2.0: pytest.approx(100 * (ratio - 1)),
    }
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert labels == ["baseline", "1 step", "2 steps"]
    assert figure.get_suptitle().replace("\n", " ") == (
        "Against default, ring has +82.0 % tokens/s and -25.0 % verify time "
        "(median of 2 configurations)"
    )


def test_throughput_has_its_paired_interval() -> None:
    """From the table; a configuration with one window has none."""
    figure = drawn(sweep())
    assert figure is not None
    bars = [bar for box in figure.axes[1].containers for bar in box.lines[2]]  # type: ignore[attr-defined]
    (segment,) = bars[1].get_segments()
    record = sweep().record()
    frame = make_frame(record, count)
    (row,) = frame[(frame["num_steps"] == 1) & (frame["variant"] == "ring")].to_dict("records")
    ends = [100 * (row[f"vs_default_variant{end}"] - 1) for end in ("_lo", "_hi")]
    assert segment[:, 0].tolist() == pytest.approx(ends)
    assert ends[0] < 100 * (row["vs_default_variant"] - 1) < ends[1]
    alone = drawn(sweep(windows=1))
    assert alone is not None
    bars = [bar for box in alone.axes[1].containers for bar in box.lines[2]]  # type: ignore[attr-defined]
    # The baseline was launched twice, which makes two windows.
    assert len(bars) == 1


def test_failures_are_named_on_either_side() -> None:
    """A variant's by its class, the default's as the default's."""
    builder = sweep()
    code, failure = workload(), Failure("oom", "out of memory")
    builder.launch(steps(3), TrialPlan(code), arm="default")
    builder.failed_launch(steps(3, variant="ring"), code, failure=failure, arm="ring")
    builder.failed_launch(steps(4), code, failure=failure, arm="default")
    builder.launch(steps(4, variant="ring"), TrialPlan(code), arm="ring")
    figure = drawn(builder)
    assert figure is not None
    assert [text.get_text() for text in figure.axes[1].texts] == ["oom", "default: oom"]
    assert set(marks(figure, 1)) == {0.0, 1.0, 2.0}


def test_without_timed_cycles_the_throughput_stands_alone() -> None:
    """The left side says why it is empty, the title speaks of tokens/s only."""
    figure = drawn(sweep(), timed=False)
    assert figure is not None
    assert [text.get_text() for text in figure.axes[0].texts] == [
        "no verification was timed in both variants"
    ]
    assert "verify" not in figure.get_suptitle()


def test_no_figure_without_pairs() -> None:
    """One variant, or none called default."""
    assert drawn(sweep(("default",))) is None
    assert drawn(sweep(("ring", "low-latency"))) is None


def test_ten_steps_of_four_variants_are_not_clipped() -> None:
    """Everything lies inside the page, and both formats are made."""
    code = workload(prompts=2)
    builder = RecordBuilder(experiment(code))
    for position, name in enumerate(("default", "ring", "$x$", "a-variant-with-quite-a-long-name")):
        for number in range(1, 11):
            plan = TrialPlan(code, changes={"end_s": 1.1, "last_s": 1.1 + 0.1 * position})
            builder.launch(steps(number, variant=name, args={"y" * 20: 1}), plan, arm=name)
    figure = drawn(builder)
    assert figure is not None
    assert render(figure, "x").png.startswith(b"\x89PNG")
    assert len(marks(figure, 1)) == 20
    box = figure.get_tightbbox()
    assert min(box.x0, box.y0) >= 0
    assert box.x1 <= figure.get_figwidth()
    assert box.y1 <= figure.get_figheight()


def test_of_many_configurations_the_fastest_are_shown() -> None:
    """The others are counted; the baseline stays."""
    builder = sweep()
    code = workload(prompts=1)
    for number in range(3, 3 + MOST_ROWS):
        for name in ("default", "ring"):
            plan = TrialPlan(code, changes={"last_s": 1.1 + 0.1 * number})
            builder.launch(steps(number, variant=name), plan, arm=name)
    figure = drawn(builder)
    assert figure is not None
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert labels == ["baseline", *(str(item) for item in labels[1:])]
    assert len(labels) == MOST_ROWS
    assert {"1 step", "3 steps"} <= set(labels)
    assert f"{2 + MOST_ROWS} steps" not in labels
    assert "3 slower configurations: see the table." in figure.get_supxlabel()


def test_places_beyond_the_first_few_are_counted() -> None:
    """Four panels, the objective's first."""
    code = workload(prompts=1, concurrency=tuple(range(1, MOST_PANELS + 2)))
    builder = RecordBuilder(experiment(code))
    for name in ("default", "ring"):
        places = [TrialPlan(code, number) for number in code.concurrency]
        builder.launch(steps(1, variant=name), *places, arm=name)
    figure = drawn(builder)
    assert figure is not None
    assert len(figure.axes) == 2 * MOST_PANELS + 1
    assert "1 more panel: see the table." in figure.get_supxlabel()
