"""Workers, batches, results and schedulers in the shapes that SGLang's versions gave them.

Only what the probe sees is here: names, arguments, fields, order of calls. The work goes to a
FakeDevice, so that what a phase takes is known exactly.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from fakes.device import FakeDevice

DRAFT_S, VERIFY_S, EXTEND_S, PREFILL_S = 0.001, 0.026, 0.0005, 0.08
STEPS = 5


class Mode:
    """ForwardMode."""

    def __init__(self, name: str) -> None:
        self.name = name

    def is_decode(self) -> bool:
        """A decode batch."""
        return self.name == "decode"

    def is_extend(self) -> bool:
        """A prefill."""
        return self.name == "extend"

    def is_idle(self) -> bool:
        """A dummy."""
        return self.name == "idle"


class Tensor:
    """A tensor that complains when its values are read on the device."""

    def __init__(self, values: Sequence[int], device: str = "cuda:0") -> None:
        self._values = list(values)
        self.device = device
        self.shape = (len(self._values),)

    def tolist(self) -> list[int]:
        """Its values."""
        assert self.device == "cpu", "a synchronisation with the device"
        return list(self._values)

    def sum(self) -> int:
        """Their sum."""
        return sum(self.tolist())

    def cpu(self) -> Tensor:
        """A copy on the host, made by the server."""
        return Tensor(self._values, "cpu")


@dataclass
class Req:
    """A request; `accepts` yields the accepted draft tokens of each of its cycles."""

    rid: str
    length: int
    remaining: int
    accepts: Iterator[int]
    is_retracted: bool = False
    spec_verify_ct: int = 0
    spec_num_correct_drafts: int = 0

    def finished(self) -> bool:
        """Whether it has all its tokens."""
        return self.remaining <= 0


class Batch:
    """ScheduleBatch, or ModelWorkerBatch when there are no requests in it."""

    def __init__(self, reqs: list[Req], mode: str, *, with_reqs: bool = True) -> None:
        self.all = list(reqs)
        self.forward_mode = Mode(mode)
        self.seq_lens = Tensor([req.length for req in reqs])
        self.seq_lens_sum = sum(req.length for req in reqs)
        if with_reqs:
            self.reqs = list(reqs)


def take(batch: Batch) -> list[int]:
    """What the target accepts for each request of a batch."""
    return [next(req.accepts) for req in batch.all]


class _Phases:
    """Work of the phases, by the device."""

    speculative_num_steps = STEPS
    speculative_num_draft_tokens = STEPS + 1
    device: FakeDevice

    def _draft(self) -> None:
        self.device.submit(DRAFT_S)

    def _verify(self) -> None:
        self.device.submit(VERIFY_S)

    def _extend(self) -> None:
        self.device.submit(EXTEND_S)


class TpModelWorker:
    """The target's worker, whose method the oldest drafting worker inherits."""

    def forward_batch_generation(self, batch: Any) -> Any:
        """The target's own forward."""
        raise AssertionError("not the drafting worker's cycle")


class _SpecV1(_Phases, TpModelWorker):
    """Spec V1: synchronises in verification, which also settles the requests."""

    def __init__(self, device: FakeDevice) -> None:
        self.device = device

    def _decode(self, batch: Batch) -> list[int]:
        spec_info = self.draft(batch)
        accepted = self.verify(batch, spec_info)
        if any(not req.finished() for req in batch.all):
            extend: Any = getattr(self, "forward_draft_extend_after_decode")  # noqa: B009
            extend(batch)
        return accepted

    def draft(self, batch: Batch) -> object:
        """Propose."""
        self._draft()
        return object()

    def verify(self, batch: Batch, spec_info: object) -> list[int]:
        """Accept, and settle the requests: V1 does it here."""
        self._verify()
        self.device.wait()
        accepted = take(batch)
        for req, number in zip(batch.all, accepted, strict=True):
            settle(req, number)
        return accepted


class EAGLEWorkerOf046(_SpecV1):
    """0.4.6 to 0.5.2: the cycle has a name of its own and returns a tuple."""

    def forward_batch_speculative_generation(self, batch: Batch) -> tuple[Any, ...]:
        """One cycle, or a prefill."""
        if batch.forward_mode.is_extend():
            self.device.submit(PREFILL_S)
            return None, None, 0, 0, False
        accepted = self._decode(batch)
        return None, None, 0, sum(accepted), True

    def forward_draft_extend_after_decode(self, batch: Batch) -> None:
        """Extend the draft."""
        self._extend()


class EAGLEWorkerOf053(_SpecV1):
    """0.5.3 to 0.5.12: a result, with a field for the sum and from 0.5.7 one per request."""

    fields: tuple[str, ...] = ("num_accepted_tokens",)

    def forward_batch_generation(self, batch: Batch) -> SimpleNamespace:
        """One cycle, or a prefill."""
        if batch.forward_mode.is_extend():
            self.device.submit(PREFILL_S)
            return SimpleNamespace(accept_lens=None, **dict.fromkeys(self.fields, 0))
        accepted = self._decode(batch)
        values: list[Any] = [sum(accepted), accepted]
        return SimpleNamespace(
            accept_lens=None, **dict(zip(self.fields, values[: len(self.fields)], strict=True))
        )

    def forward_draft_extend_after_decode(self, batch: Batch) -> None:
        """Extend the draft."""
        self._extend()


class EagleDraftWorker(_Phases):
    """The drafting half of spec V2."""

    def __init__(self, device: FakeDevice) -> None:
        self.device = device
        self.draft_worker = TpModelWorker()

    def draft(self, batch: Batch, *, with_topology: bool = False) -> object:
        """Propose."""
        self._draft()
        return object()

    def _draft_extend_for_decode(
        self, batch: Batch, batch_result: Any, *, kv_loc_plan: Any = None
    ) -> None:
        self._extend()


class EAGLEWorkerV2(_Phases):
    """Spec V2: never waits for the device."""

    def __init__(self, device: FakeDevice) -> None:
        self.device = device
        self._draft_worker = EagleDraftWorker(device)

    @property
    def draft_worker(self) -> EagleDraftWorker:
        """Who drafts."""
        return self._draft_worker

    def forward_batch_generation(
        self, batch: Batch, on_publish: Any = None, grammar_barrier: Any = None
    ) -> SimpleNamespace:
        """One cycle, or a prefill."""
        if batch.forward_mode.is_extend():
            self.device.submit(PREFILL_S)
            return SimpleNamespace(accept_lens=None)
        if self.speculative_num_steps:
            self.draft_worker.draft(batch)
        result = self.verify(batch, grammar_barrier=grammar_barrier)
        self.draft_worker._draft_extend_for_decode(batch, result, kv_loc_plan=None)
        return result

    def verify(self, batch: Batch, grammar_barrier: Any = None) -> SimpleNamespace:
        """Accept; who got how much is on the device."""
        self._verify()
        lengths = [number + 1 for number in take(batch)]
        return SimpleNamespace(accept_lens=Tensor(lengths), num_correct_drafts_per_req_cpu=None)


class StandaloneWorkerV2(EAGLEWorkerV2):
    """Has nothing of its own that the probe hooks."""


class EAGLEWorkerV2Of053(EAGLEWorkerOf053):
    """The first spec V2: it extends the draft inside verification, and inherits what it does not
    call."""

    def forward_batch_generation(self, model_worker_batch: Batch) -> Any:
        """One cycle, or a prefill."""
        if model_worker_batch.forward_mode.is_extend():
            self.device.submit(PREFILL_S)
            return SimpleNamespace(accept_lens=None)
        self.draft(model_worker_batch)
        return self.verify(model_worker_batch, None)

    def verify(self, batch: Batch, pre_draft_allocate_lens: Any) -> Any:
        """Accept, and extend the draft."""
        self._verify()
        self._extend()
        return SimpleNamespace(accept_lens=Tensor([number + 1 for number in take(batch)]))


class NgramTarget(_Phases):
    """The target, which verifies when it is told to."""

    def __init__(self, device: FakeDevice) -> None:
        self.device = device

    def forward_batch_generation(self, batch: Batch, *, is_verify: bool = False) -> Any:
        """A verification, or a prefill."""
        self.device.submit(VERIFY_S if is_verify else PREFILL_S)
        return object()


class NGRAMWorker:
    """Looks up on the host what it drafts, lets the target verify, and has no draft to extend."""

    def __init__(self, device: FakeDevice) -> None:
        self.device = device
        self.target_worker = NgramTarget(device)
        self.draft_token_num = STEPS + 1

    @property
    def draft_worker(self) -> None:
        """Nobody drafts."""
        return

    def _prepare_for_speculative_decoding(self, batch: Batch) -> None:
        if batch.forward_mode.is_decode():
            self.device.submit(DRAFT_S)

    def forward_batch_generation(self, batch: Batch) -> SimpleNamespace:
        """One cycle, or a prefill."""
        self._prepare_for_speculative_decoding(batch)
        if batch.forward_mode.is_extend():
            self.target_worker.forward_batch_generation(batch)
            return SimpleNamespace(accept_lens=None)
        self.target_worker.forward_batch_generation(batch, is_verify=True)
        lengths = [number + 1 for number in take(batch)]
        return SimpleNamespace(accept_lens=Tensor(lengths), num_correct_drafts_per_req_cpu=None)


class DFlashWorker(_Phases):
    """Has no phases that the probe knows."""

    def __init__(self, device: FakeDevice) -> None:
        self.device = device

    def forward_batch_generation(self, batch: Batch) -> SimpleNamespace:
        """One cycle, or a prefill."""
        self._verify()
        return SimpleNamespace(accept_lens=None, num_correct_drafts=0)


def settle(req: Req, accepted: int) -> None:
    """Give a request what a cycle brought it, as SGLang counts."""
    req.spec_verify_ct += 1
    req.spec_num_correct_drafts += accepted
    req.remaining -= accepted + 1
    req.length += accepted + 1


class Scheduler:
    """The loop that calls a worker, without overlap or with it."""

    def __init__(self, worker: Any, device: FakeDevice, *, overlap: bool = False) -> None:
        self.draft_worker = worker
        self.device = "cuda"
        self.tp_rank = 0
        self.tp_size = 1
        self._fake = device
        self._overlap = overlap
        self._queue: deque[tuple[Batch, Any]] = deque()

    def run_batch(self, batch: Batch) -> Any:
        """Call the worker."""
        if isinstance(self.draft_worker, EAGLEWorkerOf046):
            self.draft_worker.forward_batch_speculative_generation(batch)
            return SimpleNamespace(next_token_ids=None)
        return self.draft_worker.forward_batch_generation(batch)

    def process_batch_result(self, batch: Batch, result: Any, launch_done: Any = None) -> None:
        """Settle the requests of a V2 batch; V1 has done it."""
        lengths = getattr(result, "accept_lens", None)
        if not batch.forward_mode.is_decode() or lengths is None:
            return
        self._fake.wait()
        result.accept_lens = lengths.cpu()
        per_request = [length - 1 for length in result.accept_lens.tolist()]
        if hasattr(result, "num_correct_drafts_per_req_cpu"):
            result.num_correct_drafts_per_req_cpu = per_request
            result.num_correct_drafts = sum(per_request)
        else:  # up to 0.5.6, with the bonus
            result.num_accepted_tokens = sum(result.accept_lens.tolist())
        for req, accepted in zip(batch.all, per_request, strict=True):
            if not req.finished() and not req.is_retracted:
                settle(req, accepted)

    def serve(self, reqs: Sequence[Req]) -> None:
        """Prefill, then decode until every request has ended."""
        self._turn(Batch(list(reqs), "extend"))
        while True:
            alive = [req for req in reqs if not req.finished()]
            if not alive:
                break
            self._turn(Batch(alive, "decode"))
        while self._queue:
            self.process_batch_result(*self._queue.popleft())

    def _turn(self, batch: Batch) -> None:
        self._queue.append((batch, self.run_batch(batch)))
        if len(self._queue) > (1 if self._overlap else 0):
            self.process_batch_result(*self._queue.popleft())
