"""The probe on the cycles of SGLang's releases: their own code, with the heavy parts stubbed."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from fakes import sglang_server, sglang_sources
from fakes.device import FakeDevice
from fakes.sglang_decoding import DRAFT_S, EXTEND_S, STEPS, VERIFY_S, Req
from fakes.sglang_sources import ACCEPTED, FILES, Scheduler

from sweep.agent import cycles
from sweep.probe import attaching, writing
from sweep.probe.recording import Recorder

pytestmark = [
    pytest.mark.sglang,
    pytest.mark.skipif(sglang_server.missing() is not None, reason=str(sglang_server.missing())),
]
V1_UNTIL, V2_SINCE = "0.5.12.post1", "0.5.9"
"""Of the releases whose sources there are."""
_RELEASES = sglang_server.RELEASES
CASES = [
    *itertools.product(_RELEASES[: _RELEASES.index(V1_UNTIL) + 1], ["EAGLEWorker"]),
    *itertools.product(_RELEASES[_RELEASES.index(V2_SINCE) :], ["EAGLEWorkerV2"]),
]
REQUESTS, CYCLES = 3, 20


def measured(scheduler: Any, device: FakeDevice, directory: Path) -> cycles.CycleFile:
    """What the probe writes of some cycles."""
    worker = scheduler.draft_worker
    found = attaching.find(scheduler, worker)
    descriptor, _ = writing.create(str(directory), 0, 1)
    header = attaching.header(worker, "fake", found) | {"rank": 0, "ranks": 1}
    writer = writing.Writer(descriptor, header, None)
    whole = not header["missing"]
    recorder = Recorder(device, device.now, writer, frozenset(found), whole=whole)
    attached = attaching.Attached(recorder, writer, device.now)
    attached.install(found)
    reqs = [Req(f"r{n}", 30, 1, iter(())) for n in range(REQUESTS)]
    for _ in range(CYCLES):
        scheduler.cycle(reqs)
        device.sleep(0.0002)
    device.wait()
    device.sleep(2.0)
    recorder.settle(at_once=True)
    writer.close()
    return cycles.decode((directory / "cycles.0.jsonl").read_text())


@pytest.mark.parametrize(("release", "worker"), CASES)
def test_every_phase_of_a_releases_own_cycle(release: str, worker: str, tmp_path: Path) -> None:
    """Each phase takes what its stub takes, and each request gets what it was given."""
    device = FakeDevice()
    subject = sglang_sources.worker(sglang_server.release(release), worker, device)
    found = measured(Scheduler(subject), device, tmp_path)
    assert found.errors == ()
    assert found.armed is not None
    assert (found.armed.worker, found.armed.missing) == (worker, ())
    columns = found.columns
    for name, seconds in (("draft_s", DRAFT_S), ("verify_s", VERIFY_S), ("extend_s", EXTEND_S)):
        assert columns[name] == pytest.approx([seconds] * CYCLES, rel=0.25)
    whole = [value for value in columns["cycle_s"] if value is not None]
    assert len(whole) == CYCLES - 1
    assert whole == pytest.approx([DRAFT_S + VERIFY_S + EXTEND_S] * len(whole), rel=0.25)
    assert columns["accepted"] == [ACCEPTED * REQUESTS] * CYCLES
    assert set(columns["requests"]) == {REQUESTS}
    assert set(columns["steps"]) == {STEPS}
    assert device.marks == 0


@pytest.mark.parametrize(("release", "worker"), CASES)
def test_a_phase_that_has_another_name_is_missed(release: str, worker: str, tmp_path: Path) -> None:
    """A release that renames one is told by the handshake, and goes on serving."""
    device = FakeDevice()
    subject = sglang_sources.worker(sglang_server.release(release), worker, device)
    drafting = type(vars(subject).get("_draft_worker", subject))
    name = next(name for name in ("_draft_extend_for_decode", "forward_draft_extend_after_decode")
                if name in vars(drafting))  # fmt: skip
    method = getattr(drafting, name)
    delattr(drafting, name)
    other = drafting.__getattr__
    drafting.__getattr__ = lambda self, asked: method if asked == name else other(self, asked)
    found = measured(Scheduler(subject), device, tmp_path)
    assert found.armed is not None
    assert found.armed.missing == ("extend",)
    assert len(found.columns["n"]) == CYCLES


def test_the_releases_have_both_workers() -> None:
    """V1 is gone since 0.5.13."""
    assert set(FILES) == {worker for _, worker in CASES}
    newer = sglang_server.release("0.5.13.post1") / "sglang" / "srt" / "speculative"
    assert not (newer / FILES["EAGLEWorker"]).exists()
