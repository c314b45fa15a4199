"""Tests of the heat map: a number in each cell that has one, a reason in each that has none."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from fakes.records import BASELINE, RecordBuilder, TrialPlan, count, experiment, steps, workload
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from sweep.analysis.frame import make_frame
from sweep.analysis.verdict import verdict
from sweep.model.states import Failure
from sweep.plots.heat_map import heat_map
from sweep.plots.style import render


def steady(decode_s: float, growth: float) -> Callable[[int, int], float]:
    """The same time for every prompt, longer by a share from window to window."""
    return lambda window, _: decode_s * (1 + growth * window)


def grid(
    tokens: Sequence[int] = (4,), *, topks: Sequence[int] = (1, 2), baseline: bool = True
) -> RecordBuilder:
    """Three step counts, one of which failed as a tree; trees are faster, most at 2 steps."""
    code = workload()
    builder = RecordBuilder(experiment(code))
    if baseline:
        builder.launch(BASELINE, TrialPlan(code))
    for number in (1, 2, 3):
        for topk in topks:
            for size in (number + 1,) if topk == 1 else tokens:
                own = steps(number, topk=topk, num_draft_tokens=size)
                if topk == 2 and number == 3:
                    failure = Failure("load_timeout", "no token")
                    builder.failed_launch(own, code, failure=failure)
                    continue
                decode_s = 1.0 if topk == 1 else 0.7 - 0.1 * number + 0.01 * size
                plan = TrialPlan(
                    code, time_s=steady(decode_s, 0.001), cycles=40,
                    accepted=60,
                )  # fmt: skip
                builder.launch(own, plan)
    return builder


def drawn(builder: RecordBuilder) -> Figure | None:
    """The heat map of what a builder collected."""
    record = builder.record()
    frame = make_frame(record, count)
    return heat_map(frame, verdict(frame, record.experiment))


def cells(figure: Figure, panel: int = 0) -> dict[tuple[int, int], str]:
    """Centre of each cell → its text, lines joined."""
    found: dict[tuple[int, int], str] = {}
    for text in figure.axes[panel].texts:
        x, y = text.get_position()
        at = (round(x), round(y))
        found[at] = f"{found.get(at, '')} {text.get_text()}".replace("\n", " ").strip()
    return found


def frames(figure: Figure) -> dict[tuple[int, int], str]:
    """Centre of each framed cell → how its frame is drawn."""
    return {
        (
            round(patch.get_x() + patch.get_width() / 2),
            round(patch.get_y() + patch.get_height() / 2),
        ): str(patch.get_linestyle())
        for patch in figure.axes[0].patches
        if isinstance(patch, Rectangle) and not patch.get_fill()
    }


def legend(figure: Figure) -> list[str]:
    """Labels of the legend."""
    found = figure.axes[-1].get_legend()
    assert found is not None
    return [text.get_text() for text in found.get_texts()]


def test_cells_hold_speed_ups_and_reasons() -> None:
    """1.1 s of the baseline against 0.1 s + decoding; the best is framed and named."""
    figure = drawn(grid())
    assert figure is not None
    assert cells(figure) == {
        (0, 0): "1.00", (1, 0): "1.00", (2, 0): "1.00",
        (0, 1): "1.49", (1, 1): "1.72", (2, 1): "load timeout",
    }  # fmt: skip
    assert frames(figure) == {(1, 1): "-"}
    assert legend(figure) == ["best of its panel", "no speed-up, and why"]
    assert figure.get_suptitle().replace("\n", " ") == (
        "Speed-up over steps and topk: 2 steps, topk 2, 4 tokens is best at 1.72× [1.71, 1.72]"
    )


def test_of_several_draft_tokens_a_cell_shows_the_best_and_says_which() -> None:
    """Fewer tokens are faster here."""
    figure = drawn(grid(tokens=(6, 4)))
    assert figure is not None
    assert cells(figure)[1, 1] == "1.72 4 tokens"


def test_with_one_topk_the_other_axis_is_draft_tokens() -> None:
    """Cells that the plan does not have stay empty."""
    builder = grid(tokens=(4, 6), topks=(2,))
    builder.launch(steps(1, topk=2, num_draft_tokens=8), TrialPlan(workload()))
    figure = drawn(builder)
    assert figure is not None
    assert figure.axes[0].get_ylabel() == "draft tokens [per cycle]"
    assert [text.get_text() for text in figure.axes[0].get_yticklabels()] == ["4", "6", "8"]
    assert cells(figure)[1, 1] == "1.67"
    assert (1, 2) not in cells(figure)
    assert legend(figure)[-1] == "not in the plan"


def test_what_is_tied_with_the_leading_one_is_framed_and_counted() -> None:
    """Two cells whose windows differ by more than they do from each other."""
    code = workload()
    builder = RecordBuilder(experiment(code))
    builder.launch(BASELINE, TrialPlan(code))
    for number, topk in ((1, 1), (1, 2), (2, 1), (2, 2)):
        decode_s = 0.5 + 0.2 * (topk == 1) + 0.001 * number
        plan = TrialPlan(code, time_s=steady(decode_s, 0.03))
        builder.launch(steps(number, topk=topk, num_draft_tokens=4), plan)
    figure = drawn(builder)
    assert figure is not None
    assert frames(figure) == {
        (0, 1): "-",
        (1, 1): "--",
    }
    assert legend(figure) == ["best of its panel", "tied with the one that leads"]
    assert "not to be told apart from 1 other" in figure.get_suptitle().replace("\n", " ")


def test_no_map_of_what_is_no_grid() -> None:
    """One topk, or as many tokens as steps; without a baseline there is no speed-up."""
    assert drawn(grid(topks=(1,))) is None
    assert drawn(grid(topks=(2,))) is None
    assert drawn(grid(baseline=False)) is None


def test_ten_step_counts_and_five_pools_are_not_clipped() -> None:
    """Everything lies inside the page, and both formats are made."""
    code = workload(prompts=2)
    builder = RecordBuilder(experiment(code))
    for variant in ("default", "a-variant-with-quite-a-long-name"):
        base = dataclasses.replace(BASELINE, variant=variant)
        builder.launch(base, TrialPlan(code), arm=variant)
        for number in range(1, 11):
            for size in (4, 8, 16, 32, 64):
                own = steps(number, topk=2, num_draft_tokens=size, variant=variant)
                if size > 2 * number**2:
                    builder.skip(own, "the pool is too small")
                else:
                    plan = TrialPlan(code, time_s=steady(0.5 + 0.01 * size, 0.0))
                    builder.launch(own, plan, arm=variant)
    figure = drawn(builder)
    assert figure is not None
    assert render(figure, "x").png.startswith(b"\x89PNG")
    box = figure.get_tightbbox()
    assert min(box.x0, box.y0) >= 0
    assert box.x1 <= figure.get_figwidth()
    assert box.y1 <= figure.get_figheight()
    assert cells(figure)[0, 4] == "skipped invalid"
