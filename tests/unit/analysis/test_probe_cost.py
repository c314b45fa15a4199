"""What the probe costs: the difference to the same configuration without it."""

from __future__ import annotations

import pandas as pd
import pytest
from fakes.records import BASELINE, RecordBuilder, TrialPlan, count, experiment, steps, workload

from sweep.analysis.bottleneck import findings
from sweep.analysis.frame import make_frame
from sweep.analysis.probe_cost import is_slowed, probe_costs
from sweep.analysis.verdict import verdict
from sweep.model.plan import Role

ITEM = workload(prompts=2)
SPEC = experiment(ITEM)


def builder(
    *, with_s: float, without_s: float, noise_s: float = 0.0, last_s: float = 2.0
) -> RecordBuilder:
    """A baseline, one step with the probe and without it, and two steps; 101 tokens an answer."""

    def measured(time_s: float) -> TrialPlan:
        return TrialPlan(ITEM, time_s=lambda window, _: time_s + window * noise_s)

    found = RecordBuilder(SPEC)
    found.launch(BASELINE, TrialPlan(ITEM, time_s=lambda *_: 2.0), role=Role.BASELINE_FIRST)
    found.launch(steps(1), measured(with_s), role=Role.MAIN)
    found.launch(steps(1), measured(without_s), role=Role.UNPROFILED)
    found.launch(steps(2), TrialPlan(ITEM, time_s=lambda *_: 0.95), role=Role.MAIN)
    found.launch(BASELINE, TrialPlan(ITEM, time_s=lambda *_: last_s), role=Role.BASELINE_LAST)
    return found


def table(**times: float) -> pd.DataFrame:
    """The table of such a sweep."""
    return make_frame(builder(**times).record(), count)


def test_the_difference_stands_in_the_row_with_the_probe() -> None:
    """101 tokens in 1.1 s against 101 in 1.0 s, and nowhere else."""
    frame = table(with_s=1.0, without_s=0.9)
    rows = frame.set_index(["num_steps", "role"])["probe_difference_tok_s"]
    assert rows[1, "main"] == pytest.approx(101 / 1.1 - 101 / 1.0)
    assert rows.notna().sum() == 1
    assert "probe_slows" in frame[frame["num_steps"] == 1].iloc[0]["flags"].split()


def test_a_sentence_says_it_with_its_interval() -> None:
    """Where windows differ by more than the two sides, nothing can be told apart."""
    (clear,) = probe_costs(table(with_s=1.0, without_s=0.9))
    assert "1 step, code at concurrency 1 makes 91.8 tok/s with it and 101 without" in clear
    assert "a difference of -9.18 tok/s or -9.1% (95 % interval -9.18 to -9.18," in clear
    assert "told apart" not in clear
    noisy = table(with_s=1.0, without_s=0.99, noise_s=0.1)
    (unclear,) = probe_costs(noisy)
    assert unclear.endswith(
        "It cannot be told apart from none. Each was launched once, so what launches differ by is "
        "in it."
    )
    assert "probe_slows" not in " ".join(noisy["flags"])
    assert probe_costs(noisy)[0] in findings(noisy)


def test_a_node_that_changed_by_more_is_named_in_the_probes_place() -> None:
    """The baseline alone lost a fifth from first to last: nine percent may be the node's."""
    frame = table(with_s=1.0, without_s=0.9, last_s=2.6)
    (told,) = probe_costs(frame)
    assert "From first to last the baseline alone changed by -22.2%: it may be the node's." in told
    assert "probe_slows" not in " ".join(frame["flags"])


def test_what_was_measured_without_the_probe_does_not_rank() -> None:
    """It is the fastest of all, and neither leads nor is pooled with the row that has the probe."""
    frame = table(with_s=1.0, without_s=0.5)
    judged = verdict(frame, SPEC)
    assert [place.leading and place.leading.label for place in judged.places] == ["2 steps"]
    rows = frame.set_index(["num_steps", "role"])
    assert rows["output_tok_s"][1, "main"] == pytest.approx(101 / 1.1)
    assert rows["vs_best"][2, "main"] == 1.0
    assert pd.isna(rows["vs_best"][1, "unprofiled"])
    assert rows["speedup"][1, "unprofiled"] == pytest.approx(2.1 / 0.6)


@pytest.mark.parametrize(
    ("difference", "hi", "slowed"),
    [(-6.0, -1.0, True), (-6.0, 1.0, False), (-6.0, None, False), (-4.0, -1.0, False)],
)
def test_slow_is_more_than_five_percent_and_sure(
    difference: float, hi: float | None, slowed: bool
) -> None:
    """Of 100 tok/s without it, and more than a drift of the node, either way."""
    assert is_slowed(difference, hi, 100.0) is slowed
    assert not is_slowed(difference, hi, 100.0, drift=0.07)
    assert not is_slowed(difference, hi, 100.0, drift=-0.07)
