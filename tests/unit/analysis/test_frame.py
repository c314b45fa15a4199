"""Tests of the table: right values, nulls, rows that failed, comparisons."""

from __future__ import annotations

import dataclasses
from typing import Any

import pandas as pd
import pytest
from fakes.records import (
    BASELINE,
    RecordBuilder,
    TrialPlan,
    count,
    experiment,
    failed_request,
    steps,
    workload,
)

from sweep.analysis.frame import make_frame
from sweep.analysis.glossary import FLAGS, entry
from sweep.model.experiment import Axes, Drafting, EngineSpec, Repeats, Variant
from sweep.model.plan import Role
from sweep.model.record import SweepRecord
from sweep.model.states import Failure, TrialState


def frame_of(builder: RecordBuilder) -> pd.DataFrame:
    """The table of what a builder collected."""
    return make_frame(builder.record(), count)


def row_of(frame: pd.DataFrame, name: str, **where: Any) -> Any:
    """The first row of a configuration."""
    rows = frame[frame["configuration"] == name]
    for column, value in where.items():
        rows = rows[rows[column] == value]
    return rows.iloc[0]


def change_requests(record: SweepRecord, **changes: Any) -> SweepRecord:
    """The record with fields of every request of its first launch replaced."""
    launch = record.launches[0]
    attempt = launch.attempts[0]
    requests = tuple(dataclasses.replace(item, **changes) for item in attempt.requests)
    attempts = (dataclasses.replace(attempt, requests=requests),)
    launches = (dataclasses.replace(launch, attempts=attempts), *record.launches[1:])
    return dataclasses.replace(record, launches=launches)


def test_rates_and_latencies_by_hand() -> None:
    """Five requests of 101 tokens, each 0.1 s to the first and 1 s more, in three windows."""
    code = workload()
    builder = RecordBuilder(experiment(code))
    builder.launch(BASELINE, TrialPlan(code))
    row = row_of(frame_of(builder), "baseline")
    assert row["windows"] == 3
    assert row["requests_ok"] == 15
    assert row["requests_error"] == 0
    assert row["output_tokens"] == 1515
    assert row["output_tok_s"] == pytest.approx(5 * 101 / 5.5)
    assert row["decode_tok_s"] == pytest.approx(100.0)
    assert row["ttft_s_p50"] == pytest.approx(0.1)
    assert row["tpot_s_p50"] == pytest.approx(0.01)
    assert row["load_s"] == pytest.approx(8.0)
    assert row["wall_s"] == pytest.approx(3 * (1.2 + 5.5))
    assert row["started_utc"] == "2026-01-02T03:04:13.400000Z"
    assert row["engine_version"] == "b6000"


def test_throughput_is_the_ratio_of_sums_over_windows() -> None:
    """Windows of 5.5 s and 10.5 s give tokens over 16 s, not the mean of two rates."""
    code = workload()
    builder = RecordBuilder(experiment(code))
    builder.launch(
        BASELINE, TrialPlan(code, windows=2, time_s=lambda window, _: 1.0 if window == 0 else 2.0)
    )
    row = row_of(frame_of(builder), "baseline")
    assert row["output_tok_s"] == pytest.approx(2 * 505 / 16.0)
    assert "few_windows" in row["flags"].split()


def test_overlapping_requests_share_the_window() -> None:
    """Five streams at once, sent together: the window is as long as the slowest of them."""
    code = workload(concurrency=(5,))
    builder = RecordBuilder(experiment(code))
    builder.launch(BASELINE, TrialPlan(code, concurrency=5))
    record = change_requests(builder.record(), sent_s=100.0)
    row = row_of(make_frame(record, count), "baseline")
    assert row["output_tok_s"] == pytest.approx(505 / 1.1)
    assert row["decode_tok_s"] == pytest.approx(100.0)


def test_comparisons_with_the_arms_baseline() -> None:
    """A speed-up, break-even and the share of the best come from the same place and arm."""
    code = workload()
    builder = RecordBuilder(experiment(code))
    builder.launch(BASELINE, TrialPlan(code), role=Role.BASELINE_FIRST)
    builder.launch(
        steps(2), TrialPlan(code, time_s=lambda *_: 0.5, cycles=40, accepted=60, drafted=80)
    )
    builder.launch(BASELINE, TrialPlan(code), role=Role.BASELINE_LAST)
    frame = frame_of(builder)
    row = row_of(frame, "2 steps")
    assert row["speedup"] == pytest.approx(1.1 / 0.6)
    assert row["speedup_vs_default"] == pytest.approx(1.1 / 0.6)
    assert row["accept_length"] == pytest.approx(2.5)
    assert row["acceptance_rate"] == pytest.approx(0.75)
    # A cycle of 2.5 tokens at 200 tokens/s takes 12.5 ms, a baseline token 10 ms.
    assert row["break_even_accept_length"] == pytest.approx(1.25)
    assert row["vs_best"] == 1.0
    assert row["same_as_baseline_share"] == 1.0
    base = row_of(frame, "baseline", role="baseline_last")
    assert (base["speedup"], base["speedup_lo"], base["speedup_hi"]) == (1.0, 1.0, 1.0)
    assert base["vs_best"] == pytest.approx(0.6 / 1.1)
    assert base["drift"] == pytest.approx(1.0)
    for column in ("accept_length", "cycles", "break_even_accept_length"):
        assert pd.isna(base[column]), column


def test_a_better_environment_is_not_better_speculation() -> None:
    """Each arm has its own baseline; the default arm's is printed beside it."""
    code = workload()
    builder = RecordBuilder(experiment(code))
    builder.launch(BASELINE, TrialPlan(code))
    tuned = dataclasses.replace(BASELINE, variant="tuned")
    builder.launch(tuned, TrialPlan(code, time_s=lambda *_: 0.7), arm="tuned-arm")
    fast = steps(2, variant="tuned")
    builder.launch(fast, TrialPlan(code, time_s=lambda *_: 0.7), arm="tuned-arm")
    frame = frame_of(builder)
    row = row_of(frame, "2 steps, tuned")
    assert row["speedup"] == pytest.approx(1.0)
    assert row["speedup_vs_default"] == pytest.approx(1.1 / 0.8)
    assert row_of(frame, "baseline, tuned")["speedup_vs_default"] == pytest.approx(1.1 / 0.8)


def test_a_variant_is_compared_with_the_same_configuration_of_the_default() -> None:
    """Steps, tokens and arguments must be equal; the default itself, and what has no counterpart,
    has none; the launches of each side are pooled."""
    code = workload()
    builder = RecordBuilder(experiment(code))
    quick = TrialPlan(code, time_s=lambda *_: 0.5)
    slow, slower = (TrialPlan(code, time_s=lambda *_: 0.9), TrialPlan(code, time_s=lambda *_: 1.9))
    tuned = dataclasses.replace(BASELINE, variant="tuned")
    for role, plan in ((Role.BASELINE_FIRST, slow), (Role.BASELINE_LAST, slower)):
        builder.launch(BASELINE, plan, role=role)
        builder.launch(tuned, quick, role=role, arm="tuned")
    builder.launch(steps(2), slow)
    builder.launch(steps(2, args={"x": 1}), slower)
    for own in (steps(2), steps(2, args={"x": 1}), steps(3)):
        builder.launch(dataclasses.replace(own, variant="tuned"), quick, arm="tuned")
    frame = frame_of(builder).set_index(["configuration", "role"])
    found = frame["vs_default_variant"].dropna().to_dict()
    assert found == {
        ("baseline, tuned", "baseline_first"): pytest.approx(1.5 / 0.6),
        ("baseline, tuned", "baseline_last"): pytest.approx(1.5 / 0.6),
        ("2 steps, tuned", "main"): pytest.approx(1.0 / 0.6),
        ("2 steps, tuned, x=1", "main"): pytest.approx(2.0 / 0.6),
    }
    row: Any = frame.loc[("2 steps, tuned", "main")]
    assert row["vs_default_variant_lo"] <= row["vs_default_variant"] <= row["vs_default_variant_hi"]


def test_workloads_concurrencies_and_nodes_have_their_own_baselines() -> None:
    """A baseline of another workload, concurrency or node is none."""
    code, chat = workload(), workload("chat")
    builder = RecordBuilder(experiment(code, chat))
    builder.launch(BASELINE, TrialPlan(code), node="node-b")
    builder.launch(BASELINE, TrialPlan(chat), TrialPlan(code, concurrency=2))
    builder.launch(steps(1), TrialPlan(code))
    row = row_of(frame_of(builder), "1 step")
    for column in ("speedup", "speedup_lo", "speedup_vs_default", "same_as_baseline_share"):
        assert pd.isna(row[column]), column
    assert row["vs_best"] == 1.0


def test_errors_are_counted_and_left_out_of_latencies() -> None:
    """3 of 20 requests answer 500: 17 ok, 3 errors, and no latency of an error."""
    code = workload(prompts=20)
    builder = RecordBuilder(experiment(code))
    failure = Failure("request_errors", "3 of 20 requests failed")
    builder.launch(steps(1), TrialPlan(code, windows=1, state=TrialState.PARTIAL, failure=failure))
    record = builder.record()
    attempt = record.launches[0].attempts[0]
    trial = record.trials[0].trial.trial_id
    broken = tuple(
        failed_request(item.n, trial, item.prompt, item.sent_s, first_s=5.0) if n < 3 else item
        for n, item in enumerate(attempt.requests)
    )
    attempts = (dataclasses.replace(attempt, requests=broken),)
    launches = (dataclasses.replace(record.launches[0], attempts=attempts),)
    row = make_frame(dataclasses.replace(record, launches=launches), count).iloc[0]
    assert (row["requests_ok"], row["requests_error"]) == (17, 3)
    assert row["state"] == "partial"
    assert row["failure_class"] == "request_errors"
    assert row["ttft_s_p50"] == pytest.approx(0.1)
    assert row["output_tokens"] == 17 * 101
    # The window lasts from the first request sent, although that one failed.
    assert row["output_tok_s"] == pytest.approx(17 * 101 / 22.0)
    assert "errors" in row["flags"].split()
    assert pd.isna(row["vs_best"])


@pytest.mark.parametrize(("end", "errors"), [("stopped", 0), ("server_exit", 1)])
def test_a_request_that_our_own_stop_cut_did_not_fail(end: str, errors: int) -> None:
    """A cut request is no error of a trial that was stopped, and is one when the server died."""
    code = workload()
    builder = RecordBuilder(experiment(code))
    builder.launch(steps(1), TrialPlan(code, state=TrialState.INTERRUPTED))
    record = builder.record()
    attempt = record.launches[0].attempts[0]
    cut = dataclasses.replace(attempt.requests[-1], status=None, error="stopped")
    events = tuple(
        {**event, "end": end} if event["event"] == "trial_end" else event
        for event in attempt.events
    )
    attempts = (
        dataclasses.replace(attempt, events=events, requests=(*attempt.requests[:-1], cut)),
    )
    launches = (dataclasses.replace(record.launches[0], attempts=attempts),)
    row = make_frame(dataclasses.replace(record, launches=launches), count).iloc[0]
    assert (row["requests_ok"], row["requests_error"]) == (14, errors)
    assert ("errors" in row["flags"].split()) is (errors > 0)


def test_short_outputs_are_flagged_and_counted_as_they_are() -> None:
    """200 answers of one token while 256 were asked give one token each, and a flag."""
    code = workload(prompts=200, max_tokens=256)
    builder = RecordBuilder(experiment(code))
    changes = {"output_tokens": 1, "first_chunk_tokens": 1, "last_s": 0.1, "end_s": 0.1}
    builder.launch(steps(1), TrialPlan(code, windows=1, time_s=lambda *_: 0.0, changes=changes))
    row = frame_of(builder).iloc[0]
    assert row["output_tokens"] == 200
    assert row["output_tok_s"] == pytest.approx(10.0)
    assert "short_output" in row["flags"].split()
    assert pd.isna(row["tpot_s_p50"])
    assert pd.isna(row["decode_tok_s"])


def test_empty_answers_have_no_first_token() -> None:
    """Answers without text count their time to the end, and have no latency."""
    code = workload(prompts=4)
    builder = RecordBuilder(experiment(code))
    changes = {
        "output_tokens": 0, "first_s": None, "last_s": None, "end_s": 0.5, "text_sha256": None,
        "first_chunk_tokens": None,
    }  # fmt: skip
    builder.launch(steps(1), TrialPlan(code, windows=1, time_s=lambda *_: 0.4, changes=changes))
    row = frame_of(builder).iloc[0]
    assert row["output_tokens"] == 0
    assert row["output_tok_s"] == 0.0
    assert pd.isna(row["ttft_s_p50"])


@pytest.mark.parametrize(("accepted", "flagged"), [(2, True), (3, False)])
def test_ineffective_speculation_is_flagged(accepted: int, flagged: bool) -> None:
    """Accept lengths up to 1.05 say that draft and target may not match."""
    code = workload()
    builder = RecordBuilder(experiment(code))
    builder.launch(steps(3), TrialPlan(code, cycles=40, accepted=accepted, drafted=120))
    row = frame_of(builder).iloc[0]
    assert ("speculation_ineffective" in row["flags"].split()) is flagged


def test_other_flags() -> None:
    """One prompt, cached prompt tokens, estimated cycles and other text are flagged."""
    code = workload(prompts=1)
    builder = RecordBuilder(experiment(code, engine=EngineSpec("simulator", "model")))
    builder.launch(BASELINE, TrialPlan(code))
    builder.launch(
        steps(1),
        TrialPlan(
            code,
            text=lambda _: "other",
            changes={"cached_tokens": 15, "meta": {"cycles": 2, "accepted": 1, "estimated": True}},
        ),
    )
    row = row_of(frame_of(builder), "1 step")
    wanted = {"one_prompt", "cached_prompt", "cycles_estimated", "output_differs", "simulated"}
    assert set(row["flags"].split()) == wanted
    assert row["same_as_baseline_share"] == 0.0
    assert wanted <= set(FLAGS)


@pytest.mark.parametrize(
    ("most", "relative_ci", "flagged"),
    [(3, 0.24, True), (3, 0.25, False), (4, 0.24, False)],
)
def test_windows_that_ran_out_before_the_interval_was_narrow(
    most: int, relative_ci: float, flagged: bool
) -> None:
    """Rates of 9, 10 and 11 have a half-width of 4.303 × 1 ÷ √3 ÷ 10 = 0.248 of their mean."""
    repeats = Repeats(min=3, max=most, relative_ci=relative_ci)
    code = workload(prompts=1, repeats=repeats)
    builder = RecordBuilder(experiment(code))
    builder.launch(steps(1), TrialPlan(code, time_s=lambda w, _: 101 / (9 + w) - 0.1))
    assert ("wide_interval" in frame_of(builder).iloc[0]["flags"].split()) is flagged


def test_an_unconfirmed_flush_is_flagged() -> None:
    """A flush that the engine refused makes the cache's state unknown."""
    code = workload()
    builder = RecordBuilder(experiment(code))
    builder.launch(steps(1), TrialPlan(code))
    record = builder.record()
    attempt = record.launches[0].attempts[0]
    events = tuple(
        {**event, "confirmed": False} if event["event"] == "flush" else event
        for event in attempt.events
    )
    attempts = (dataclasses.replace(attempt, events=events),)
    launches = (dataclasses.replace(record.launches[0], attempts=attempts),)
    row = make_frame(dataclasses.replace(record, launches=launches), count).iloc[0]
    assert "cache_unknown" in row["flags"].split()


def test_failed_skipped_and_unstarted_rows_stay_with_nulls() -> None:
    """Every row of the plan is in the table, and what was not measured is null, not 0."""
    code = workload(concurrency=(1, 4))
    builder = RecordBuilder(experiment(code))
    builder.failed_launch(steps(8), code, failure=Failure("oom", "CUDA out of memory"))
    builder.not_run(steps(9), code)
    builder.skip(steps(1, topk=2, num_draft_tokens=8), "pool 2 is less than 7")
    frame = frame_of(builder)
    assert list(frame["state"]) == [
        "failed", "failed", "not_run", "skipped_invalid", "skipped_invalid"
    ]  # fmt: skip
    assert list(frame["concurrency"]) == [1, 4, 1, 1, 4]
    assert frame.iloc[0]["failure_class"] == "oom"
    assert frame.iloc[0]["started_utc"] == "2026-01-02T03:04:04.000Z"
    assert frame.iloc[3]["reason"] == "pool 2 is less than 7"
    measured = ("windows", "requests_ok", "output_tokens", "output_tok_s", "accept_length")
    for column in (*measured, "load_s", "ttft_s_p50", "speedup", "cycle_ms"):
        assert frame[column].isna().all(), column
    assert frame["attempt"].tolist()[:2] == [1, 1]
    assert frame["attempt"].isna().tolist()[2:] == [True, True, True]


def test_a_failed_trial_keeps_its_counts_and_has_no_rate() -> None:
    """A server that did not speculate gives counts, but no throughput of speculation."""
    code = workload()
    builder = RecordBuilder(experiment(code))
    failure = Failure("speculation_inactive", "no draft token in 15 requests")
    builder.launch(BASELINE, TrialPlan(code))
    builder.launch(steps(1), TrialPlan(code, state=TrialState.FAILED, failure=failure))
    row = row_of(frame_of(builder), "1 step")
    assert row["output_tokens"] == 1515
    for column in ("output_tok_s", "speedup", "vs_best"):
        assert pd.isna(row[column]), column


def test_unknown_token_counts_give_null_not_a_partial_sum() -> None:
    """One answer without a token count makes sums and rates unknown."""
    code = workload()
    builder = RecordBuilder(experiment(code))
    builder.launch(steps(1), TrialPlan(code, cycles=40, accepted=60))
    row = make_frame(change_requests(builder.record(), output_tokens=None), count).iloc[0]
    assert pd.isna(row["output_tokens"])
    assert pd.isna(row["output_tok_s"])
    assert pd.isna(row["drafted_tokens"])
    assert pd.isna(row["acceptance_rate"])
    assert row["accept_length"] == pytest.approx(2.5)


def test_an_answer_without_a_draft_does_not_blank_the_counts() -> None:
    """One of 15 answers without counts: sums are of the other 14, and a flag says so."""
    code = workload()
    builder = RecordBuilder(experiment(code))
    builder.launch(steps(2), TrialPlan(code, cycles=40, accepted=60, drafted=80))
    record = builder.record()
    attempt = record.launches[0].attempts[0]
    requests = (dataclasses.replace(attempt.requests[0], meta={}), *attempt.requests[1:])
    attempts = (dataclasses.replace(attempt, requests=requests),)
    launches = (dataclasses.replace(record.launches[0], attempts=attempts),)
    row = make_frame(dataclasses.replace(record, launches=launches), count).iloc[0]
    assert row["cycles"] == 14 * 40
    assert row["accepted_tokens"] == 14 * 60
    assert row["drafted_tokens"] == 14 * 80
    assert row["accept_length"] == pytest.approx(2.5)
    assert row["acceptance_rate"] == pytest.approx(0.75)
    assert row["output_tokens"] == 1515
    assert "some_undrafted" in row["flags"].split()
    whole = frame_of(builder).iloc[0]
    assert "some_undrafted" not in whole["flags"].split()
    none = make_frame(change_requests(record, meta={}), count).iloc[0]
    for column in ("cycles", "accepted_tokens", "drafted_tokens", "accept_length"):
        assert pd.isna(none[column]), column
    assert "some_undrafted" not in none["flags"].split()


def test_incomplete_windows_are_in_no_rate() -> None:
    """Without a complete window there is no throughput, and the answers are still counted."""
    code = workload()
    builder = RecordBuilder(experiment(code))
    builder.launch(steps(1), TrialPlan(code, state=TrialState.PARTIAL))
    record = builder.record()
    attempt = record.launches[0].attempts[0]
    events = tuple(event for event in attempt.events if event["event"] != "window")
    attempts = (dataclasses.replace(attempt, events=events),)
    launches = (dataclasses.replace(record.launches[0], attempts=attempts),)
    row = make_frame(dataclasses.replace(record, launches=launches), count).iloc[0]
    assert row["requests_ok"] == 15
    assert row["windows"] == 0
    assert pd.isna(row["output_tok_s"])


def test_gaps_give_itl_percentiles_over_gaps() -> None:
    """Percentiles are over all gaps of answered requests, by linear interpolation."""
    code = workload(prompts=2)
    builder = RecordBuilder(experiment(code))
    builder.launch(steps(1), TrialPlan(code, windows=1))
    record = builder.record()
    key = (record.launches[0].launch.launch_id, 1)
    row = make_frame(record, count, {key: {0: [0.01, 0.02], 1: [0.03], 99: [7.0]}}).iloc[0]
    assert row["itl_s_p50"] == pytest.approx(0.02)
    assert row["itl_s_p99"] == pytest.approx(0.0298)


def test_swept_arguments_and_requested_draft_tokens_are_columns() -> None:
    """Numbers stay numbers; what the file asks stands beside what the engine runs."""
    code = workload()
    spec = experiment(code, axes=Axes(num_steps=(1,), num_draft_tokens=(8,)))
    builder = RecordBuilder(spec)
    builder.launch(steps(1, args={"ubatch-size": 64}), TrialPlan(code))
    builder.launch(steps(2, num_draft_tokens=8), TrialPlan(code))
    frame = frame_of(builder)
    assert str(frame["arg_ubatch-size"].dtype) == "Int64"
    assert frame["arg_ubatch-size"].iloc[0] == 64
    assert pd.isna(frame["arg_ubatch-size"].iloc[1])
    assert frame["num_draft_tokens"].tolist() == [8, 8]
    assert frame["effective_num_draft_tokens"].tolist() == [2, 8]


def test_draft_tokens_are_those_that_the_variant_asks() -> None:
    """A variant with an algorithm of its own has its own."""
    code = workload()
    other = Variant("other", drafting=Drafting("ngram", num_draft_tokens=(6,)))
    builder = RecordBuilder(experiment(code, axes=Axes(variants=(Variant("default"), other))))
    builder.launch(steps(2), TrialPlan(code))
    builder.launch(steps(2, num_draft_tokens=6, variant="other"), TrialPlan(code))
    requested = frame_of(builder)["num_draft_tokens"]
    assert pd.isna(requested.iloc[0])
    assert requested.iloc[1] == 6


def test_prompt_hash_follows_the_prompts_only() -> None:
    """The same prompts under another name or length rule have the same hash; others do not."""
    one, two, three = workload(), workload(max_tokens=7), workload(prompts=3)
    builder = RecordBuilder(experiment(one))
    for number, item in enumerate((one, two, three), start=1):
        builder.launch(steps(number), TrialPlan(item))
    hashes = frame_of(builder)["prompt_hash"].tolist()
    assert hashes[0] == hashes[1] != hashes[2]


def test_columns_are_the_same_for_every_sweep_and_have_entries() -> None:
    """An empty sweep has the same columns, every one with a definition."""
    code = workload()
    empty = make_frame(RecordBuilder(experiment(code)).record(), count)
    builder = RecordBuilder(experiment(code))
    builder.launch(steps(2, args={"x": "y"}), TrialPlan(code))
    full = frame_of(builder)
    assert len(empty) == 0
    assert set(full.columns) - set(empty.columns) == {"p_1", "p_2", "arg_x"}
    for name in full.columns:
        assert entry(name).definition.endswith("."), name
    with pytest.raises(KeyError):
        entry("p_0")


DESIGNED = """
sweep_id launch_id role attempt node engine engine_version configuration_id is_baseline
arm variant algorithm num_steps topk num_draft_tokens effective_num_draft_tokens workload
concurrency state failure_class flags windows output_tok_s output_tok_s_lo output_tok_s_hi
decode_tok_s decode_tok_s_lo decode_tok_s_hi ttft_s_p50 tpot_s_p50 itl_s_p50 itl_s_p99
output_tokens cycles drafted_tokens accepted_tokens accept_length acceptance_rate draft_ms verify_ms
extend_ms other_ms cycle_ms break_even_accept_length speedup speedup_lo speedup_hi
speedup_vs_default speedup_vs_default_lo speedup_vs_default_hi same_as_baseline_share load_s wall_s
prompt_hash started_utc"""


def test_the_table_has_the_promised_columns() -> None:
    """Readers of exported tables rely on these names."""
    empty = make_frame(RecordBuilder(experiment()).record(), count)
    assert set(DESIGNED.split()) <= set(empty.columns)
