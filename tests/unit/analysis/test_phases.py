"""Tests of what the instrument gives a row: columns, doubts, and what follows from a cycle."""

from __future__ import annotations

import dataclasses
from typing import Any

import pandas as pd
import pytest
from fakes.cycles import PHASES_S, armed, cycles_of, recording
from fakes.records import BASELINE, RecordBuilder, TrialPlan, count, experiment, steps, workload

from sweep.agent.wire import RequestRecord
from sweep.analysis.cautions import find_warnings
from sweep.analysis.cycles import CyclesOf, Recorded
from sweep.analysis.frame import make_frame
from sweep.analysis.glossary import FLAGS, INSTRUMENT_FLAGS
from sweep.model.experiment import EngineSpec
from sweep.model.plan import ServerCommand
from sweep.model.record import SweepRecord
from sweep.ports import Counters

PROFILED = ServerCommand(("serve", "--port", "0"), 2, {"EAGLE3_PROFILE": "1"})


def builder(**plan: Any) -> RecordBuilder:
    """A baseline at 100 tokens/s, and 3 steps with 40 cycles of 12.5 ms for 100 tokens."""
    code = workload()
    found = RecordBuilder(experiment(code))
    found.launch(BASELINE, TrialPlan(code), command=PROFILED)
    fields: dict[str, Any] = {"cycles": 40, "accepted": 60, "drafted": 120} | plan
    found.launch(steps(3), TrialPlan(code, time_s=lambda *_: 0.5, **fields), command=PROFILED)
    return found


def row_of(record: SweepRecord, cycles: CyclesOf | None, counting: Any = count) -> Any:
    """The row of 3 steps."""
    frame = make_frame(record, counting, None, cycles)
    return frame[frame["configuration"] == "3 steps"].iloc[0]


def of_launch(record: SweepRecord, recorded: Recorded) -> CyclesOf:
    """The same recording for every launch."""
    return {(launch.launch.launch_id, 1): recorded for launch in record.launches}


def test_phases_by_hand() -> None:
    """Means in milliseconds that add up to the cycle, context, and the instrument's own rate."""
    record = builder().record()
    row = row_of(record, cycles_of(record))
    assert row["timed_cycles"] == 15 * 40
    assert row["draft_ms"] == pytest.approx(1.0)
    assert row["verify_ms"] == pytest.approx(10.0)
    assert row["extend_ms"] == pytest.approx(0.5)
    assert row["other_ms"] == pytest.approx(1.0)
    assert row["cycle_ms"] == pytest.approx(12.5)
    assert row["host_cycle_ms"] == pytest.approx(2.0)
    assert pd.isna(row["host_draft_ms"])
    assert pd.isna(row["rank_spread_ms"])
    assert row["context_tokens"] == pytest.approx(100 + 38 / 2)  # 0 to 38: the last has no interval
    assert row["verified_tokens"] == 4
    assert row["phase_clock"] == "cuda"
    assert row["instrument_tok_s"] == pytest.approx(200.0)
    assert row["decode_tok_s"] == pytest.approx(200.0)
    assert row["instrument_accept_length"] == pytest.approx(2.5)
    assert pd.isna(row["instrument_note"])
    assert not set(row["flags"].split()) & set(INSTRUMENT_FLAGS)


def test_what_follows_from_the_measured_cycle() -> None:
    """τ* = 12.25 ÷ 10 ms, τ ÷ τ* = 2.04; without drafting 2.5 × 10 ÷ 11.25; 4 × 10 ÷ 10."""
    record = builder().record()
    row = row_of(record, cycles_of(record, PHASES_S | {"other_s": 0.00075}))
    assert row["cycle_ms"] == pytest.approx(12.25)
    assert row["break_even_accept_length"] == pytest.approx(1.225)
    assert row["speedup_by_cycle"] == pytest.approx(2.5 / 1.225)
    assert row["draft_headroom"] == pytest.approx(25 / 11.25)
    assert row["verify_headroom"] == pytest.approx(25 / 2.25)
    assert row["extend_headroom"] == pytest.approx(25 / 11.75)
    assert row["other_headroom"] == pytest.approx(25 / 11.5)
    assert row["batching_efficiency"] == pytest.approx(4.0)


def test_the_reference_case() -> None:
    """29.9 ÷ 11.1 = 2.69 to break even, 6 tokens 2.3 times cheaper together than one by one."""
    code = workload()
    found = RecordBuilder(experiment(code))
    found.launch(BASELINE, TrialPlan(code, time_s=lambda *_: 1.11), command=PROFILED)
    plan = TrialPlan(code, time_s=lambda *_: 47 * 0.0299, cycles=47, accepted=53)
    found.launch(steps(3), plan, command=PROFILED)
    record = found.record()
    phases_s = {"draft_s": 0.00087, "verify_s": 0.0287, "extend_s": 0.00029, "other_s": 0.00004}
    row = row_of(record, cycles_of(record, phases_s, draft_tokens=6))
    assert row["break_even_accept_length"] == pytest.approx(2.69, abs=0.005)
    assert row["speedup_by_cycle"] == pytest.approx((1 + 53 / 47) * 11.1 / 29.9)
    assert row["batching_efficiency"] == pytest.approx(2.32, abs=0.01)
    assert row["draft_headroom"] == pytest.approx(0.814, abs=0.001)
    assert not set(row["flags"].split()) & set(INSTRUMENT_FLAGS)


def test_an_instrument_that_disagrees_is_flagged_and_nothing_rests_on_it() -> None:
    """Cycles 8 % too short: the break-even is that of the client's own cycle again."""
    record = builder().record()
    row = row_of(record, cycles_of(record, PHASES_S | {"verify_s": 0.009}))
    assert "instrument_disagrees" in row["flags"].split()
    assert row["instrument_note"].startswith("tok/s of a stream: 217 by the instrument, 200 by")
    assert row["verify_ms"] == pytest.approx(9.0)
    assert row["break_even_accept_length"] == pytest.approx(1.25)
    for column in ("speedup_by_cycle", "verify_headroom", "batching_efficiency"):
        assert pd.isna(row[column]), column


def test_counts_of_answers_that_disagree_are_flagged() -> None:
    """The instrument saw 40 accepted where the answers say 60."""
    record = builder().record()
    row = row_of(record, cycles_of(record, accepted=lambda row: row["accepted"] * 0.5))
    assert "instrument_disagrees" in row["flags"].split()
    assert "accept length: 1.75 by the instrument, 2.50 by the client" in row["instrument_note"]


def test_missing_cycles_are_flagged() -> None:
    """Every tenth cycle is not in the file."""
    record = builder().record()
    whole = cycles_of(record)
    thin = {
        key: Recorded(
            tuple(
                dataclasses.replace(
                    item,
                    columns={
                        name: column[item.columns["n"] % 10 != 0]
                        for name, column in item.columns.items()
                    },
                )
                for item in recorded.recordings
            )
        )
        for key, recorded in whole.items()
    }
    row = row_of(record, thin)
    assert "cycles_missing" in row["flags"].split()
    assert "540 of 600 cycles were recorded" in row["instrument_note"]
    assert row["timed_cycles"] == 540


def test_a_profiler_in_the_engines_own_sources_is_flagged() -> None:
    """Its cost is in every figure, and nobody may believe that the installation is as released."""
    record = builder().record()
    patched = armed(patched=("/opt/sglang/eagle_worker.py",))
    found = {
        key: Recorded(
            tuple(dataclasses.replace(item, armed=patched) for item in recorded.recordings)
        )
        for key, recorded in cycles_of(record).items()
    }
    row = row_of(record, found)
    assert "engine_patched" in row["flags"].split()
    assert row["instrument_note"] == "a profiler made by hand is in /opt/sglang/eagle_worker.py"
    assert row["verify_ms"] == pytest.approx(10.0)


@pytest.mark.parametrize(
    ("recorded", "flag", "note"),
    [
        (Recorded(), "phases_not_loaded", "no decoding process reported"),
        (Recorded((recording([]),)), "phases_idle", "saw no cycle"),
        (Recorded(problems=("version 9",)), "phases_incompatible", "version 9"),
    ],
)
def test_an_instrument_that_gave_nothing_says_why(recorded: Recorded, flag: str, note: str) -> None:
    """Flag, note, a warning that has both, empty phases, and the client's own break-even."""
    record = builder().record()
    frame = make_frame(record, count, None, of_launch(record, recorded))
    row = frame[frame["configuration"] == "3 steps"].iloc[0]
    assert flag in row["flags"].split()
    assert note in row["instrument_note"]
    for column in ("timed_cycles", "draft_ms", "verify_ms", "cycle_ms", "instrument_tok_s"):
        assert pd.isna(row[column]), column
    assert row["break_even_accept_length"] == pytest.approx(1.25)
    (warning,) = [text for text in find_warnings(frame) if text.startswith(flag)]
    assert FLAGS[flag] in warning
    assert note in warning
    base = frame[frame["is_baseline"]].iloc[0]
    assert not set(base["flags"].split()) & set(INSTRUMENT_FLAGS)


def test_a_phase_without_a_hook_is_empty_and_the_others_stay() -> None:
    """A cycle without its extension still has a verification."""
    record = builder().record()
    *_, (key, recorded) = cycles_of(record, extend_s=None, other_s=None).items()
    first = dataclasses.replace(recorded.recordings[0], armed=armed(missing=("extend",)))
    row = row_of(record, {key: Recorded((first,))})
    assert "phases_incompatible" in row["flags"].split()
    assert "no extend found" in row["instrument_note"]
    assert row["verify_ms"] == pytest.approx(10.0)
    assert pd.isna(row["extend_ms"])
    assert pd.isna(row["extend_headroom"])
    assert row["draft_headroom"] == pytest.approx(25 / 11.5)


def test_what_was_not_asked_or_not_fetched_is_no_doubt() -> None:
    """No flag of a launch that was to time nothing, nor of one whose files are not here."""
    code = workload()
    plain = RecordBuilder(experiment(code))
    plain.launch(steps(3), TrialPlan(code))
    record = plain.record()
    for cycles in (None, {}, of_launch(record, Recorded())):
        row = row_of(record, cycles)
        assert not set(row["flags"].split()) & set(INSTRUMENT_FLAGS)
        assert pd.isna(row["verify_ms"])
    asked = builder().record()
    assert not set(row_of(asked, {})["flags"].split()) & set(INSTRUMENT_FLAGS)


def test_ranks_are_compared() -> None:
    """The largest difference between means of a phase; times shown are the first rank's."""
    record = builder().record()
    first, slow = cycles_of(record), cycles_of(record, PHASES_S | {"verify_s": 0.0103})
    both = {key: Recorded((*first[key].recordings, *slow[key].recordings)) for key in first}
    row = row_of(record, both)
    assert row["rank_spread_ms"] == pytest.approx(0.3)
    assert row["verify_ms"] == pytest.approx(10.0)


def test_a_stage_that_drafts_nothing_is_passed_over() -> None:
    """The first rank of a pipeline may have no worker: times are those of the first that has."""
    record = builder().record()
    stage = recording([], armed=armed(worker=None, hooks=(), ranks=2))
    cycles = {
        key: Recorded((stage, *recorded.recordings)) for key, recorded in cycles_of(record).items()
    }
    row = row_of(record, cycles)
    assert row["verify_ms"] == pytest.approx(10.0)
    assert not set(row["flags"].split()) & set(INSTRUMENT_FLAGS)


def with_histogram(record: RequestRecord) -> Counters:
    """Counts whose answers also say how deep each cycle went: 10, 10, 10 and 10 of 40."""
    return dataclasses.replace(count(record), cycles_by_accepted=(10, 10, 10, 10))


def test_acceptance_by_position_is_the_engines_own_count() -> None:
    """p_1 + p_2 + p_3 = τ - 1; beyond the steps of a row there is none."""
    record = builder().record()
    row = row_of(record, None, with_histogram)
    assert [row[f"p_{k}"] for k in (1, 2, 3)] == pytest.approx([0.75, 0.5, 0.25])
    assert row["accept_length"] == pytest.approx(1 + 0.75 + 0.5 + 0.25)


def test_acceptance_by_position_falls_back_on_single_requests() -> None:
    """60 of 40 cycles by turns 1 and 2: every cycle accepted one, half of them two, none three."""
    record = builder().record()
    row = row_of(record, cycles_of(record))
    assert [row[f"p_{k}"] for k in (1, 2, 3)] == pytest.approx([1.0, 0.5, 0.0])
    assert pd.isna(row_of(record, None)["p_1"])


def test_notes_keep_no_secret() -> None:
    """An engine's message may repeat its command line."""
    code = workload()
    found = RecordBuilder(experiment(code, engine=EngineSpec("sglang", "m")))
    command = dataclasses.replace(PROFILED, argv=("serve", "--api-key", "s3cret-key"))
    found.launch(steps(3), TrialPlan(code, cycles=40, accepted=60), command=command)
    record = found.record()
    recorded = Recorded(problems=("bad file of s3cret-key",))
    assert "s3cret" not in row_of(record, of_launch(record, recorded))["instrument_note"]
