"""The simulated server's file of cycles, read by the reader of real ones."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from sweep.agent import cycles as wire
from sweep.simulator.calibration import Phases, Speculation
from sweep.simulator.counters import Counters
from sweep.simulator.cycles import FIELDS, FILE, FORMAT, CycleLog
from sweep.simulator.main import load_calibration
from sweep.simulator.scheduler import Ask, Scheduler

PHASES = Phases(1.0, 20.0, 0.5, 0.25)
CHAIN = Speculation(5, 1, 6)


def read(directory: Path) -> wire.CycleFile:
    """The file as the controller reads it."""
    return wire.decode((directory / FILE).read_text())


@pytest.fixture
def log(tmp_path: Path) -> CycleLog:
    """A log of a server that holds one step count."""
    return CycleLog(str(tmp_path), "simulator 1", holds_several=False)


def test_it_writes_the_shared_format(log: CycleLog, tmp_path: Path) -> None:
    """Version, name and fields are those that the reader knows."""
    assert (wire.VERSION, wire.file_name(0)) == (FORMAT, FILE)
    assert set(FIELDS) <= set(wire.FIELDS)
    armed = read(tmp_path).armed
    assert armed is not None
    assert (armed.rank, armed.ranks, armed.clock, armed.missing) == (0, 1, "simulated", ())
    assert armed.engine_version == "simulator 1"


def test_one_request_has_a_line_for_each_cycle(log: CycleLog, tmp_path: Path) -> None:
    """In seconds; after the last one nothing follows, so that its interval is not known."""
    log.enter(1, 38)
    log.cycle(1, 100.0, PHASES, CHAIN, accepted=2, tokens=3, last=False)
    log.cycle(1, 100.02175, PHASES, CHAIN, accepted=0, tokens=1, last=True)
    log.leave(1)
    found = read(tmp_path)
    columns = {name: found.columns[name] for name in FIELDS}
    assert columns == {
        "n": [1, 2], "start_s": [100.0, 100.02175], "requests": [1, 1], "context_tokens": [38, 41],
        "steps": [5, 5], "draft_tokens": [6, 6], "draft_s": [0.001, 0.001],
        "verify_s": [0.02, 0.02], "extend_s": [0.0005, 0.0005], "other_s": [0.00025, None],
        "cycle_s": [0.02175, None], "accepted": [2, 0],
    }  # fmt: skip
    assert found.columns["host_cycle_s"] == [None, None]
    assert found.damaged == 0


def test_a_batch_has_one_line_a_cycle_and_loses_no_count(log: CycleLog, tmp_path: Path) -> None:
    """The request that has run longest sets the pace; the others' counts wait for it."""
    log.enter(1, 10)
    log.enter(2, 20)
    log.cycle(1, 5.0, PHASES, CHAIN, accepted=1, tokens=2, last=False)
    log.cycle(2, 5.0, PHASES, CHAIN, accepted=3, tokens=4, last=False)
    log.cycle(1, 6.0, PHASES, CHAIN, accepted=0, tokens=1, last=True)
    log.leave(1)
    log.cycle(2, 6.0, PHASES, CHAIN, accepted=2, tokens=3, last=True)
    log.leave(2)
    found = read(tmp_path).columns
    assert found["requests"] == [1, 2, 1]
    assert found["accepted"] == [1, 3, 2]
    assert found["context_tokens"] == [30, 36, 24]
    assert found["cycle_s"] == [0.02175, 0.02175, None]


def test_cycles_agree_with_the_answers_own_counts(log: CycleLog, tmp_path: Path) -> None:
    """As many as the answer reports, with as many accepted, one after the other."""
    speculation = Speculation(5, 1, 6)
    slow = load_calibration("reference")
    fast = replace(
        slow, draft_ms={"fixed": 0.01, "per_step": 0.0}, verify_ms={"1": 0.2}, extend_ms=0.01
    )
    scheduler = Scheduler(
        fast, speculation, (), Counters(speculation, profile_every=None, lifetime_cycles=0),
        seed="1", max_running=2, chunk_tokens=1, cycles=log,
    )  # fmt: skip
    meta = list(scheduler.run(Ask("a prompt", 60, 0.0)))[-1].meta
    found = read(tmp_path).columns
    assert len(found["n"]) == meta["spec_verify_ct"]
    assert sum(value or 0 for value in found["accepted"]) == meta["spec_num_correct_drafts"]
    starts = [value or 0.0 for value in found["start_s"]]
    intervals = [after - before for before, after in pairwise(starts)]
    assert intervals == pytest.approx([value or 0.0 for value in found["cycle_s"][:-1]], abs=1e-7)
    assert found["cycle_s"][-1] is None
