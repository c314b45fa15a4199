"""Tests of the verdict: who leads, who is tied, drift, failures, and nothing to judge."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pytest
from fakes.records import BASELINE, RecordBuilder, TrialPlan, count, experiment, steps, workload

from sweep.analysis.frame import make_frame
from sweep.analysis.verdict import Verdict, verdict
from sweep.model.experiment import Constraint, Objective
from sweep.model.plan import Role
from sweep.model.states import Failure


def judge(builder: RecordBuilder) -> Verdict:
    """The verdict on what a builder collected."""
    return verdict(make_frame(builder.record(), count), builder.experiment)


def _by_window(times: Sequence[float], window: int, _prompt: int) -> float:
    return times[window]


def _always(time_s: float, _window: int, _prompt: int) -> float:
    return time_s


def test_a_clear_lead_is_named_with_its_interval_and_limits() -> None:
    """Steady times apart from each other: one configuration leads, in one launch each."""
    code = workload()
    builder = RecordBuilder(experiment(code))
    builder.launch(BASELINE, TrialPlan(code), role=Role.BASELINE_FIRST)
    builder.launch(steps(1), TrialPlan(code, time_s=lambda w, _: 0.8 + 0.001 * w))
    builder.launch(steps(2), TrialPlan(code, time_s=lambda w, _: 0.5 + 0.001 * w))
    found = judge(builder)
    assert found.places[0].is_clear
    assert found.places[0].leading is not None
    assert found.places[0].leading.label == "2 steps"
    assert found.summary == (
        "code at concurrency 1: 2 steps leads with 168 tok/s, 1.83× [1.82, 1.84] its baseline. "
        "Each configuration was launched once, so the difference between launches is not known."
    )
    builder.launch(BASELINE, TrialPlan(code), role=Role.BASELINE_LAST)
    assert "Each configuration but the baseline was launched once" in judge(builder).summary


def test_one_percent_under_three_percent_noise_has_no_winner() -> None:
    """Three configurations that differ by less than their noise are tied."""
    code = workload()
    builder = RecordBuilder(experiment(code))
    builder.launch(BASELINE, TrialPlan(code, time_s=lambda *_: 2.0))
    noise = (0.97, 1.03, 1.02, 0.98)
    for number in (1, 2, 3):
        times = [(1 + 0.01 * number) * noise[(window + number) % 4] for window in range(4)]
        plan = TrialPlan(code, windows=4, time_s=partial(_by_window, times))
        builder.launch(steps(number), plan)
    place = judge(builder).places[0]
    assert not place.is_clear
    assert len(place.tied) == 2
    assert "no clear winner" in place.sentence
    assert "baseline" not in {standing.label for standing in place.tied}


@pytest.mark.parametrize(("last_s", "warned"), [(1.08, True), (1.03, False)])
def test_drift_between_baselines(last_s: float, warned: bool) -> None:
    """Baselines that differ by 8 % warn, by 3 % not."""
    code = workload()
    builder = RecordBuilder(experiment(code))
    builder.launch(
        BASELINE, TrialPlan(code, time_s=lambda w, _: 1 + 0.001 * w), role=Role.BASELINE_FIRST
    )
    builder.launch(
        BASELINE,
        TrialPlan(code, time_s=lambda w, _: last_s + 0.001 * w),
        role=Role.BASELINE_LAST,
    )
    frame = make_frame(builder.record(), count)
    assert frame["flags"].tolist() == ["", "drifted" if warned else ""]
    warnings = judge(builder).warnings
    drifts = [text for text in warnings if text.startswith("Drift")]
    assert bool(drifts) is warned
    assert not any(text.startswith("drifted") for text in warnings)
    if warned:
        assert "changed by -6.8%" in drifts[0]


def test_drift_without_an_interval_is_told_as_such() -> None:
    """One window each: a change of 8 % is flagged and warned of, its certainty is not known."""
    code = workload()
    builder = RecordBuilder(experiment(code))
    for role, time_s in ((Role.BASELINE_FIRST, 1.0), (Role.BASELINE_LAST, 1.1)):
        builder.launch(
            BASELINE, TrialPlan(code, windows=1, time_s=partial(_always, time_s)), role=role
        )
    flags = make_frame(builder.record(), count)["flags"].tolist()
    assert ["drifted" in own.split() for own in flags] == [False, True]
    (told,) = [text for text in judge(builder).warnings if text.startswith("Drift")]
    assert "changed by -8.3% (no interval)" in told


def test_drift_within_noise_is_no_drift() -> None:
    """A change of 8 % between windows that differ by 20 % says nothing."""
    code = workload()
    builder = RecordBuilder(experiment(code))
    builder.launch(
        BASELINE, TrialPlan(code, time_s=lambda w, _: 1 + 0.2 * w), role=Role.BASELINE_FIRST
    )
    builder.launch(
        BASELINE, TrialPlan(code, time_s=lambda w, _: 1.1 + 0.2 * w), role=Role.BASELINE_LAST
    )
    assert not any(text.startswith("Drift") for text in judge(builder).warnings)
    assert "drifted" not in " ".join(make_frame(builder.record(), count)["flags"])


def test_a_lead_of_the_baseline_is_said() -> None:
    """When speculation loses, the best of it is named with how much it loses."""
    code = workload()
    builder = RecordBuilder(experiment(code))
    builder.launch(BASELINE, TrialPlan(code), role=Role.BASELINE_FIRST)
    builder.launch(steps(5), TrialPlan(code, time_s=lambda *_: 1.2))
    sentence = judge(builder).places[0].sentence
    assert "decoding without speculation leads with 91.8 tok/s" in sentence
    assert "the best with speculation is 5 steps with 77.7 tok/s, 0.85×" in sentence


@pytest.mark.parametrize("metric", ["output_tok_s", "decode_tok_s"])
@pytest.mark.parametrize("times", [(1.0, 2.0), (2.0, 1.0)])
def test_a_baseline_is_worth_what_its_launches_measured_together(
    metric: str, times: tuple[float, float]
) -> None:
    """Two launches of a baseline give the ratio of their sums, not the luckier of the two."""
    code = workload()
    builder = RecordBuilder(experiment(code, objective=Objective(metric)))
    for role, time_s in zip((Role.BASELINE_FIRST, Role.BASELINE_LAST), times, strict=True):
        builder.launch(BASELINE, TrialPlan(code, time_s=partial(_always, time_s)), role=role)
    builder.launch(steps(1), TrialPlan(code, time_s=lambda *_: 4.0))
    leading = judge(builder).places[0].leading
    assert leading is not None
    assert leading.is_baseline
    # 101 tokens in 1.1 s and in 2.1 s; decoding alone, 100 tokens in 1 s and in 2 s.
    wanted = {"output_tok_s": 202 / 3.2, "decode_tok_s": 200 / 3.0}
    assert leading.value == pytest.approx(wanted[metric])


@pytest.mark.parametrize(("at_least", "leads"), [(64.0, "1 step"), (63.0, "baseline")])
def test_constraints_hold_for_the_launches_of_a_baseline_together(
    at_least: float, leads: str
) -> None:
    """A baseline of 92 and 48 tok/s, 63.1 together, does not pass a limit by its better launch."""
    code = workload()
    limit = Constraint("output_tok_s", at_least=at_least)
    objective = Objective("tpot_s_p50", constraints=(limit,))
    builder = RecordBuilder(experiment(code, objective=objective))
    for role, time_s in ((Role.BASELINE_FIRST, 1.0), (Role.BASELINE_LAST, 2.0)):
        builder.launch(BASELINE, TrialPlan(code, time_s=partial(_always, time_s)), role=role)
    builder.launch(steps(1), TrialPlan(code, time_s=lambda *_: 0.9))
    leading = judge(builder).places[0].leading
    assert leading is not None
    assert leading.label == leads


@pytest.mark.parametrize("metric", ["speedup", "speedup_vs_default"])
def test_a_speedup_over_a_baseline_can_lead(metric: str) -> None:
    """A baseline's speed-up is exactly 1, so that one whose interval is above 1 is a winner."""
    code = workload()
    builder = RecordBuilder(experiment(code, objective=Objective(metric)))
    builder.launch(BASELINE, TrialPlan(code), role=Role.BASELINE_FIRST)
    builder.launch(steps(2), TrialPlan(code, time_s=lambda w, _: 0.5 + 0.001 * w))
    place = judge(builder).places[0]
    assert place.is_clear
    assert place.leading is not None
    assert place.leading.label == "2 steps"


def test_all_failed() -> None:
    """Nothing is ranked, and every class is told with its reason."""
    code = workload()
    builder = RecordBuilder(experiment(code))
    builder.failed_launch(BASELINE, code, failure=Failure("oom", "out of memory on GPU 3"))
    builder.failed_launch(steps(2), code, failure=Failure("oom", "out of memory on GPU 3"))
    found = judge(builder)
    assert found.places[0].leading is None
    assert found.summary == (
        "code at concurrency 1: nothing to rank (2 failed). "
        "No trial of the objective ended ok; see the reasons below."
    )
    assert "2 trials failed with oom: baseline and 2 steps. out of memory on GPU 3" in (
        found.warnings
    )


def test_a_baseline_alone_leads_nothing() -> None:
    """When no speculation ended ok, only the baseline did, and that is no comparison."""
    code = workload()
    builder = RecordBuilder(experiment(code))
    builder.launch(BASELINE, TrialPlan(code), role=Role.BASELINE_FIRST)
    builder.failed_launch(steps(2), code, failure=Failure("oom", "out of memory"))
    builder.launch(BASELINE, TrialPlan(code), role=Role.BASELINE_LAST)
    found = judge(builder)
    place = found.places[0]
    assert place.leading is None
    assert not place.is_clear
    assert place.finding == "only the baseline ended ok"
    assert place.sentence == (
        "code at concurrency 1: only the baseline ended ok, with 91.8 tok/s; "
        "nothing could be compared."
    )
    assert "No trial" not in found.summary


def test_a_constraint_that_nobody_meets_is_named() -> None:
    """Trials that ended ok and miss the limit are counted, and not said to have failed."""
    code = workload()
    limit = Constraint("ttft_s_p50", at_most=0.05)
    builder = RecordBuilder(experiment(code, objective=Objective(constraints=(limit,))))
    builder.launch(BASELINE, TrialPlan(code))
    builder.launch(steps(1), TrialPlan(code))
    found = judge(builder)
    assert found.places[0].leading is None
    assert found.places[0].finding == "none meets ttft_s_p50 ≤ 0.05"
    assert found.summary.startswith(
        "code at concurrency 1: 2 trials ended ok and none meets ttft_s_p50 ≤ 0.05."
    )
    assert "No trial" not in found.summary


def test_a_missing_baseline_is_said() -> None:
    """Without a baseline the lead has a throughput and no speed-up."""
    code = workload()
    builder = RecordBuilder(experiment(code))
    builder.launch(steps(2), TrialPlan(code))
    found = judge(builder)
    assert "only 2 steps ended ok, with 91.8 tok/s." in found.summary
    assert any(text.startswith("No baseline ended ok for code") for text in found.warnings)


def test_an_empty_plan_and_one_that_was_only_skipped() -> None:
    """No rows, or only rows that belong to no node, are no error."""
    builder = RecordBuilder(experiment())
    assert judge(builder).summary == "The plan is empty. Nothing was measured."
    builder.skip(steps(1, topk=2, num_draft_tokens=8), "the pool is too small")
    found = judge(builder)
    assert found.places == ()
    assert "none of which belongs to a node" in found.summary
    assert found.warnings == (
        "Skipped without a launch: 1 step, topk 2, 8 tokens. the pool is too small",
    )


def test_an_unfinished_sweep_is_said() -> None:
    """Trials that were not run are counted and named."""
    code = workload()
    builder = RecordBuilder(experiment(code))
    builder.launch(BASELINE, TrialPlan(code))
    builder.not_run(steps(3), code)
    assert "1 trial not run: 3 steps." in judge(builder).warnings


def test_one_prompt_is_said() -> None:
    """The second sentence names what one prompt cannot show."""
    code = workload(prompts=1)
    builder = RecordBuilder(experiment(code))
    builder.launch(BASELINE, TrialPlan(code))
    assert "with one prompt" in judge(builder).summary


def test_ineffective_speculation_warns() -> None:
    """An accept length of 1.00 throughout points at draft and target."""
    code = workload()
    builder = RecordBuilder(experiment(code))
    builder.launch(BASELINE, TrialPlan(code))
    builder.launch(steps(2), TrialPlan(code, cycles=100, accepted=0, drafted=200))
    warnings = [text for text in judge(builder).warnings if "speculation_ineffective" in text]
    assert len(warnings) == 1
    assert "draft and target may not match" in warnings[0]


def test_the_objective_comes_first_and_constraints_exclude() -> None:
    """The place of the objective leads the verdict; a row over a limit cannot."""
    code, chat = workload(), workload("chat")
    limit = Constraint("ttft_s_p50", at_most=0.2)
    spec = experiment(code, chat, objective=Objective(workload="chat", constraints=(limit,)))
    builder = RecordBuilder(spec)
    builder.launch(BASELINE, TrialPlan(code), TrialPlan(chat))
    slow_start = TrialPlan(chat, time_s=lambda *_: 0.5, changes={"first_s": 0.3})
    builder.launch(steps(4), TrialPlan(code, time_s=lambda *_: 0.5), slow_start)
    found = judge(builder)
    assert [place.workload for place in found.places] == ["chat", "code"]
    leads = [place.leading.label for place in found.places if place.leading]
    assert leads == ["baseline", "4 steps"]


def test_nodes_are_never_ranked_together() -> None:
    """Two nodes give two verdicts for the same workload."""
    code = workload()
    builder = RecordBuilder(experiment(code))
    builder.launch(BASELINE, TrialPlan(code), node="node-a")
    builder.launch(steps(1), TrialPlan(code, time_s=lambda *_: 1.5), node="node-a")
    builder.launch(steps(2), TrialPlan(code, time_s=lambda *_: 0.5), node="node-b")
    found = judge(builder)
    assert {place.node: place.leading.label for place in found.places if place.leading} == {
        "node-a": "baseline",
        "node-b": "2 steps",
    }


def test_warnings_name_the_node_where_there_are_several() -> None:
    """The same configuration of two nodes is two rows, of which one may be doubtful."""
    code = workload()
    builder = RecordBuilder(experiment(code))
    for node in ("node-a", "node-b"):
        if node == "node-a":
            builder.launch(BASELINE, TrialPlan(code), node=node)
        builder.launch(steps(1), TrialPlan(code), node=node)
    (missing,) = [text for text in judge(builder).warnings if text.startswith("No baseline")]
    assert missing.endswith("no speed-up is known of 1 step on node-b.")
