"""The probe on servers in the shapes of SGLang's versions, from attaching to the file."""

from __future__ import annotations

import importlib.util
import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from fakes import sglang_decoding
from fakes.device import FakeDevice

from sweep.agent import cycles
from sweep.probe import attaching, reading, writing
from sweep.probe.attaching import PHASES, Attached
from sweep.probe.recording import Recorder

_NUMBERS = itertools.count()
DRAFT_S, VERIFY_S, EXTEND_S = (
    sglang_decoding.DRAFT_S, sglang_decoding.VERIFY_S, sglang_decoding.EXTEND_S,
)  # fmt: skip


@pytest.fixture
def sglang() -> Iterator[ModuleType]:
    """A copy of the fake classes that nobody has patched yet."""
    name = f"sglang_copy_{next(_NUMBERS)}"
    spec = importlib.util.spec_from_file_location(name, str(sglang_decoding.__file__))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[name]


class Bench:
    """A scheduler of fake classes on a fake device, with the probe attached."""

    def __init__(self, sglang: ModuleType, worker: str, tmp_path: Path, **options: Any) -> None:
        self.device = FakeDevice()
        self.sglang = sglang
        self.worker = getattr(sglang, worker)(self.device)
        self.scheduler = sglang.Scheduler(self.worker, self.device, **options)
        self._path = tmp_path
        self._requests: list[Any] = []

    def attach(self) -> Attached:
        """Attach, on the device's clock."""
        found = attaching.find(self.scheduler, self.worker)
        descriptor, _ = writing.create(str(self._path), 0, 1)
        header = attaching.header(self.worker, "fake", found)
        self.writer = writing.Writer(descriptor, header | {"rank": 0, "ranks": 1}, None)
        self.recorder = Recorder(
            self.device,
            self.device.now,
            self.writer,
            frozenset(found),
            whole=not header["missing"],
        )
        attached = Attached(self.recorder, self.writer, self.device.now)
        attached.install(found)
        return attached

    def requests(self, *lengths: int, rid: str = "r") -> list[Any]:
        """Requests of so many tokens after the prefill; 2, 0, 1 of their drafts are accepted."""
        made = [
            self.sglang.Req(f"{rid}{number}", 30, tokens, itertools.cycle((2, 0, 1)))
            for number, tokens in enumerate(lengths)
        ]
        self._requests += made
        return made

    def serve(self, *lengths: int) -> None:
        """Serve such requests to their end."""
        self.scheduler.serve(self.requests(*lengths))

    def finish(self) -> cycles.CycleFile:
        """What the controller reads in the end."""
        self.device.wait()
        self.device.sleep(2.0)
        self.recorder.settle()
        self.writer.close()
        return cycles.decode((self._path / "cycles.0.jsonl").read_text())

    def engines_counts(self) -> tuple[int, int]:
        """Cycles and accepted tokens of the requests, as the engine would tell its clients."""
        return (
            sum(req.spec_verify_ct for req in self._requests),
            sum(req.spec_num_correct_drafts for req in self._requests),
        )


def of_fields(*fields: str) -> Callable[[Bench], None]:
    """Results with other fields."""

    def change(bench: Bench) -> None:
        bench.worker.fields = fields

    return change


SHAPES: list[Any] = [
    pytest.param("EAGLEWorkerOf046", {}, None, id="0.4.6 V1"),
    pytest.param("EAGLEWorkerOf053", {}, of_fields("num_accepted_tokens"), id="0.5.3 V1"),
    pytest.param(
        "EAGLEWorkerOf053", {}, of_fields("num_accepted_tokens", "accept_length_per_req_cpu"),
        id="0.5.9 V1",
    ),
    pytest.param(
        "EAGLEWorkerOf053", {}, of_fields("num_accepted_drafts", "num_accepted_drafts_per_req_cpu"),
        id="0.5.11 V1",
    ),
    pytest.param(
        "EAGLEWorkerOf053", {}, of_fields("num_correct_drafts", "num_correct_drafts_per_req_cpu"),
        id="0.5.12 V1",
    ),
    pytest.param("EAGLEWorkerV2", {}, None, id="V2"),
    pytest.param("EAGLEWorkerV2", {"overlap": True}, None, id="V2 with overlap"),
    pytest.param("StandaloneWorkerV2", {"overlap": True}, None, id="standalone V2 with overlap"),
]  # fmt: skip


@pytest.mark.parametrize(("worker", "options", "change"), SHAPES)
def test_phases_and_counts_of_each_version(
    worker: str,
    options: dict[str, Any],
    change: Callable[[Bench], None] | None,
    sglang: ModuleType,
    tmp_path: Path,
) -> None:
    """Three requests of different lengths: phases are the device's, counts are the client's."""
    bench = Bench(sglang, worker, tmp_path, **options)
    if change is not None:
        change(bench)
    bench.attach()
    bench.serve(40, 25, 60)
    bench.serve(30)
    found = bench.finish()
    assert found.errors == ()
    assert found.armed is not None
    assert found.armed.hooks == PHASES
    assert found.armed.worker == worker
    columns = found.columns
    assert (sum(map(int, of(columns["requests"]))), sum(map(int, of(columns["accepted"])))) == (
        bench.engines_counts()
    )
    for name, seconds in (("draft_s", DRAFT_S), ("verify_s", VERIFY_S)):
        assert of(columns[name]) == pytest.approx([seconds] * len(columns["n"]), rel=0.25)
    extended = [value for value in of(columns["extend_s"]) if value > 1e-6]
    assert extended == pytest.approx([EXTEND_S] * len(extended), rel=0.25)
    assert len(extended) >= len(columns["n"]) - 2  # V1 extends nothing once all have ended
    assert set(columns["steps"]) == {5}
    assert set(columns["draft_tokens"]) == {6}
    assert columns["context_tokens"][0] == 90
    assert bench.device.marks == 0


def test_n_grams_are_looked_up_and_verified(sglang: ModuleType, tmp_path: Path) -> None:
    """The target's own call verifies, when it is told to; what is left is the rest."""
    bench = Bench(sglang, "NGRAMWorker", tmp_path, overlap=True)
    bench.attach()
    bench.serve(40, 25)
    bench.serve(30)
    found = bench.finish()
    assert found.errors == ()
    assert found.armed is not None
    assert (found.armed.hooks, found.armed.missing) == (
        ("cycle", "draft", "verify", "accepted"), (),
    )  # fmt: skip
    columns = found.columns
    assert (sum(map(int, of(columns["requests"]))), sum(map(int, of(columns["accepted"])))) == (
        bench.engines_counts()
    )
    count = len(columns["n"])
    assert of(columns["draft_s"]) == pytest.approx([DRAFT_S] * count, rel=0.25)
    assert of(columns["verify_s"]) == pytest.approx([VERIFY_S] * count, rel=0.25)
    assert set(columns["extend_s"]) == {None}
    left = [value for value in columns["other_s"] if value is not None]
    assert len(left) > count / 2
    assert max(left) < DRAFT_S
    assert set(columns["draft_tokens"]) == {6}


def of(column: list[float | None]) -> list[float]:
    """A column in which every value is known."""
    assert None not in column
    return [value for value in column if value is not None]


def test_the_length_of_a_cycle_is_the_distance_to_the_next(
    sglang: ModuleType, tmp_path: Path
) -> None:
    """Only the last before a prefill, and the last of all, have none."""
    bench = Bench(sglang, "EAGLEWorkerV2", tmp_path)
    bench.attach()
    bench.serve(40)
    bench.serve(40)
    columns = bench.finish().columns
    unknown = [n for n, value in zip(columns["n"], columns["cycle_s"], strict=True) if not value]
    assert unknown == [20, 40]
    known = [value for value in columns["cycle_s"] if value]
    assert known == pytest.approx([DRAFT_S + VERIFY_S + EXTEND_S] * 38, rel=0.02)


def test_steps_that_change_are_seen(sglang: ModuleType, tmp_path: Path) -> None:
    """Adaptive speculation switches between cycles; zero steps draft nothing."""
    bench = Bench(sglang, "EAGLEWorkerV2", tmp_path)
    bench.attach()
    bench.serve(20)
    bench.worker.speculative_num_steps, bench.worker.speculative_num_draft_tokens = 0, 1
    bench.serve(20)
    columns = bench.finish().columns
    assert columns["steps"] == [5] * 10 + [0] * 10
    assert columns["draft_tokens"] == [6] * 10 + [1] * 10
    assert of(columns["draft_s"])[10:] == pytest.approx([0.0] * 10, abs=1e-9)


def test_health_checks_count_for_nobody(sglang: ModuleType, tmp_path: Path) -> None:
    """Their cycles are left out, and those that they share are not theirs."""
    bench = Bench(sglang, "EAGLEWorkerV2", tmp_path)
    bench.attach()
    bench.scheduler.serve(bench.requests(6, rid="HEALTH_CHECK_"))
    shared = bench.requests(6, rid="HEALTH_CHECK_") + bench.requests(6)
    bench.scheduler.serve(shared)
    columns = bench.finish().columns
    assert columns["requests"] == [1, 1, 1]
    assert columns["accepted"] == [2, 0, 1]


def test_the_first_v2_extends_inside_verification(sglang: ModuleType, tmp_path: Path) -> None:
    """The handshake names the missing phase, though the class inherits a method of its name."""
    bench = Bench(sglang, "EAGLEWorkerV2Of053", tmp_path, overlap=True)
    bench.attach()
    bench.serve(20)
    found = bench.finish()
    assert found.armed is not None
    assert found.armed.missing == ("extend",)
    assert set(found.columns["extend_s"]) == {None}
    assert of(found.columns["verify_s"]) == pytest.approx([VERIFY_S + EXTEND_S] * 10, rel=0.25)
    assert of(found.columns["accepted"]) == [2, 0, 1] * 3 + [2]


@pytest.mark.parametrize(
    ("renamed", "missing"),
    [
        ({"_draft_extend_for_decode": "_extend_after"}, ("extend",)),
        ({"draft": "propose"}, ("draft",)),
        ({"verify": "check"}, ("verify",)),
    ],
)
def test_a_renamed_phase_is_named(
    renamed: dict[str, str], missing: tuple[str, ...], sglang: ModuleType, tmp_path: Path
) -> None:
    """The server works as before, and the handshake says what to look for."""
    for old, new in renamed.items():
        for kind in (sglang.EagleDraftWorker, sglang.EAGLEWorkerV2):
            if old in vars(kind):
                setattr(kind, new, vars(kind)[old])
                delattr(kind, old)
    worker = sglang.EAGLEWorkerV2(FakeDevice())
    header = attaching.header(worker, "fake", {**attaching.find(None, worker), "accepted": None})
    assert tuple(header["missing"]) == missing


def test_where_nothing_is_drafted_nothing_is_missing(sglang: ModuleType) -> None:
    """Without speculation there is no worker; with pipelines, only the last stage drafts."""
    assert attaching.header(None, "cuda", ())["missing"] == []
    stage = sglang.EAGLEWorkerV2(FakeDevice())
    stage._draft_worker = None
    found = attaching.find(None, stage)
    assert set(found) == {"cycle", "verify"}
    assert attaching.header(stage, "cuda", {**found, "accepted": None})["missing"] == []


@pytest.mark.parametrize(
    ("device", "drafts", "clock"),
    [("xpu:0", True, None), ("cpu", False, "wall"), ("xpu", False, None)],
)
def test_where_nothing_can_be_timed_the_file_says_so(
    device: str, drafts: bool, clock: str | None, sglang: ModuleType, tmp_path: Path
) -> None:
    """On a device without a clock, and in a server without speculation, nothing is wrapped."""
    bench = Bench(sglang, "EAGLEWorkerV2", tmp_path)
    originals = [dict(vars(kind)) for kind in kinds(sglang)]
    bench.scheduler.device = device
    bench.scheduler.draft_worker = bench.worker if drafts else None
    assert attaching.attach(bench.scheduler, str(tmp_path), 100) is None
    assert [dict(vars(kind)) for kind in kinds(sglang)] == originals
    found = cycles.decode((tmp_path / "cycles.0.jsonl").read_text())
    assert found.armed is not None
    assert found.armed.clock == clock
    assert found.armed.missing == ()
    assert [error.where for error in found.errors] == ([] if clock else ["clock"])


def test_a_worker_without_phases(sglang: ModuleType, tmp_path: Path) -> None:
    """Nothing is wrapped, and the handshake says why."""
    bench = Bench(sglang, "DFlashWorker", tmp_path)
    originals = dict(vars(sglang.DFlashWorker))
    bench.scheduler.device = "cpu"
    assert attaching.attach(bench.scheduler, str(tmp_path), 100) is None
    assert dict(vars(sglang.DFlashWorker)) == originals
    found = cycles.decode((tmp_path / "cycles.0.jsonl").read_text())
    assert found.armed is not None
    assert found.armed.worker == "DFlashWorker"
    assert found.armed.missing == ("draft", "verify", "extend")


class Broken(FakeDevice):
    """A device whose clock fails in one of its methods, from some call on."""

    def __init__(self, method: str, after: int) -> None:
        super().__init__()
        self._method, self._left = method, after

    def _maybe_fail(self, method: str) -> None:
        if method == self._method:
            self._left -= 1
            if self._left < 0:
                raise RuntimeError("no clock")

    def record(self) -> Any:
        """Fail, or record."""
        self._maybe_fail("record")
        return super().record()

    def ready(self, mark: Any) -> bool:
        """Fail, or tell."""
        self._maybe_fail("ready")
        return super().ready(mark)


@pytest.mark.parametrize("after", range(12))
@pytest.mark.parametrize("method", ["record", "ready"])
def test_a_failing_hook_is_taken_out_and_the_server_goes_on(
    method: str, after: int, sglang: ModuleType, tmp_path: Path
) -> None:
    """Wherever it fails: one line says so, and every method is the server's own again."""
    bench = Bench(sglang, "EAGLEWorkerV2", tmp_path, overlap=True)
    originals = [dict(vars(kind)) for kind in kinds(sglang)]
    bench.device = Broken(method, after)
    for part in (bench.worker, bench.worker.draft_worker):
        part.device = bench.device
    bench.scheduler._fake = bench.device
    attached = bench.attach()
    assert [dict(vars(kind)) for kind in kinds(sglang)] != originals
    bench.serve(40)
    bench.device.wait()
    for _ in range(4):
        bench.writer.turn(bench.recorder.settle, attached.failed)
        bench.device.sleep(0.5)
    assert bench.engines_counts() == (20, 20)
    assert [dict(vars(kind)) for kind in kinds(sglang)] == originals
    (error,) = bench.finish().errors
    assert error.message == "RuntimeError: no clock"


def kinds(sglang: ModuleType) -> list[type]:
    """Classes that get hooks."""
    return [sglang.EAGLEWorkerV2, sglang.EagleDraftWorker, sglang.Scheduler]


def test_results_that_cannot_be_read_cost_the_counts_only(
    sglang: ModuleType, tmp_path: Path
) -> None:
    """Phases go on without accepted tokens."""
    bench = Bench(sglang, "EAGLEWorkerV2", tmp_path)
    bench.attach()
    requests = bench.requests(20)
    del requests[0].rid
    bench.scheduler.serve(requests)
    found = bench.finish()
    assert [error.where for error in found.errors] == ["accepted"]
    assert found.columns["accepted"] == [None] * 10
    assert found.columns["requests"] == [1] * 10
    assert of(found.columns["verify_s"]) == pytest.approx([VERIFY_S] * 10, rel=0.25)


def test_the_servers_own_exception_passes(sglang: ModuleType, tmp_path: Path) -> None:
    """It is raised as it was, and the next cycle is timed again."""
    bench = Bench(sglang, "EAGLEWorkerV2", tmp_path)
    bench.attach()
    batch = sglang.Batch(bench.requests(40), "decode")
    batch.all = None  # the fake worker fails on it
    with pytest.raises(TypeError):
        bench.scheduler._turn(batch)
    bench.serve(20)
    found = bench.finish()
    assert found.errors == ()
    assert len(found.columns["n"]) == 10


def test_a_full_disk_takes_the_probe_out(sglang: ModuleType, tmp_path: Path) -> None:
    """An error that cannot even be noted is said in the log, and the hooks are gone."""
    bench = Bench(sglang, "EAGLEWorkerV2", tmp_path)
    originals = [dict(vars(kind)) for kind in kinds(sglang)]
    attached = bench.attach()
    bench.writer._descriptor = 10**6
    attached.failed("write", OSError("no space left"))
    assert [dict(vars(kind)) for kind in kinds(sglang)] == originals


def test_someone_elses_wrapper_stays(sglang: ModuleType, tmp_path: Path) -> None:
    """A hook that was laid over ours is not removed with it."""
    bench = Bench(sglang, "EAGLEWorkerV2", tmp_path)
    attached = bench.attach()
    ours = sglang.EAGLEWorkerV2.verify

    def theirs(self: Any, *args: Any, **kwargs: Any) -> Any:
        return ours(self, *args, **kwargs)

    sglang.EAGLEWorkerV2.verify = theirs
    attached.failed("draft", RuntimeError("x"))
    assert sglang.EAGLEWorkerV2.verify is theirs
    bench.serve(10)
    assert bench.engines_counts()[0] == 5


def test_batches_without_requests_have_a_size(sglang: ModuleType) -> None:
    """ModelWorkerBatch, which V2 was given up to 0.5.12, has lengths only."""
    reqs = [sglang.Req("r", 30, 1, iter(())), sglang.Req("s", 12, 1, iter(()))]
    batch = sglang.Batch(reqs, "decode", with_reqs=False)
    assert (reading.batch_size(batch), reading.context_tokens(batch)) == (2, 42)
    batch.seq_lens_sum, batch.seq_lens_cpu = None, sglang.Tensor([30, 12], "cpu")
    assert reading.context_tokens(batch) == 42
    batch.seq_lens_cpu = None
    assert reading.context_tokens(batch) is None
