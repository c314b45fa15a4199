"""Tests of durations and places in time."""

from __future__ import annotations

import dataclasses

import pytest
from fakes.records import BASELINE, RecordBuilder, TrialPlan, experiment, steps, workload

from sweep.analysis.timeline import attempt_lines, load_s, phase_spans, trial_wall_s
from sweep.model.states import Failure


def test_stages_of_two_launches() -> None:
    """Stages follow each other, and a failed launch shows where it ended."""
    code = workload()
    builder = RecordBuilder(experiment(code))
    builder.launch(BASELINE, TrialPlan(code, windows=1))
    builder.failed_launch(steps(1), code, failure=Failure("oom", "out of memory"))
    first, second = attempt_lines(builder.record())
    assert [span.stage for span in first.spans] == ["wait", "load", "warm-up", "measure", "stop"]
    assert first.spans[0].start_s == 0.0
    assert first.spans[1].end_s - first.spans[1].start_s == pytest.approx(8.2)
    assert second.spans[0].start_s == pytest.approx(first.spans[-1].end_s + 1.0)
    assert second.failure == Failure("oom", "out of memory")


def test_places_within_a_boot_ignore_steps_of_the_time_of_day() -> None:
    """A clock that jumps by an hour between launches does not move the second one."""
    code = workload()
    builder = RecordBuilder(experiment(code))
    builder.launch(BASELINE, TrialPlan(code, windows=1))
    builder.launch(steps(1), TrialPlan(code, windows=1))
    record = builder.record()
    late = record.launches[1].attempts[0]
    events = tuple(
        {**event, "utc": str(event["utc"]).replace("T03", "T04")} for event in late.events
    )
    launches = (
        record.launches[0],
        dataclasses.replace(
            record.launches[1], attempts=(dataclasses.replace(late, events=events),)
        ),
    )
    plain = attempt_lines(record)[1].spans[0].start_s
    moved = attempt_lines(dataclasses.replace(record, launches=launches))[1].spans[0].start_s
    assert moved == pytest.approx(plain)


def test_attempts_without_events_have_no_spans() -> None:
    """An attempt of which nothing was heard is a line without spans."""
    code = workload()
    builder = RecordBuilder(experiment(code))
    builder.launch(BASELINE, TrialPlan(code))
    record = builder.record()
    silent = dataclasses.replace(record.launches[0].attempts[0], events=())
    launches = (dataclasses.replace(record.launches[0], attempts=(silent,)),)
    lines = attempt_lines(dataclasses.replace(record, launches=launches))
    assert [line.spans for line in lines] == [()]


def test_durations_need_both_ends() -> None:
    """Half of a pair of events gives no duration."""
    started = {"event": "server_started", "t_s": 5.0, "utc": "2026-01-01T00:00:00Z"}
    assert load_s([started]) is None
    assert load_s([started, {**started, "event": "first_token", "t_s": 9.5}]) == 4.5
    assert trial_wall_s([{**started, "trial": "a"}], "a") is None
    assert phase_spans([]) == ()
