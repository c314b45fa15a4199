"""Speculative workers with the cycle of a released SGLang, and everything around it stubbed.

Classes are compiled from the release's own text; whatever they name and is not given here is
Anything. Draft, verification and extension are replaced by work of known length on a FakeDevice,
so that what runs between them is the release's own code.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

from fakes.device import FakeDevice
from fakes.sglang_decoding import DRAFT_S, EXTEND_S, STEPS, VERIFY_S, Batch, Mode

from sweep.probe.hooks import LOOKUP

ACCEPTED = 2
"""Draft tokens accepted for each request in each cycle."""
FILES = {"EAGLEWorker": "eagle_worker.py", "EAGLEWorkerV2": "eagle_worker_v2.py"}
DRAFTING = "EagleDraftWorker"
_LISTS = (
    "accept_length_per_req_cpu", "num_accepted_drafts_per_req_cpu",
    "num_correct_drafts_per_req_cpu",
)  # fmt: skip
_DECORATORS = ("property", "staticmethod", "contextlib.contextmanager")


class Anything:
    """An object, class, function or context for whatever is asked of it; false and empty."""

    def __getattr__(self, name: str) -> Anything:
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything()

    def __call__(self, *args: object, **kwargs: object) -> Anything:
        """Return the like."""
        return Anything()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def __bool__(self) -> bool:
        return False

    def __gt__(self, other: object) -> bool:
        return False

    def __iter__(self) -> Iterator[Any]:
        return iter(())


class Blank:
    """A base class that has every attribute."""

    def __getattr__(self, name: str) -> Anything:
        if name.startswith("__") or name in _NEVER:
            raise AttributeError(name)
        return Anything()


_NEVER = ("draft_worker", "forward_batch_speculative_generation", *LOOKUP)
"""What a worker has by itself or not at all."""


class Globals(dict[str, Any]):
    """Names of a module: the given ones, Python's, and Anything."""

    def __missing__(self, name: str) -> Any:
        if name.startswith("__"):
            raise KeyError(name)
        return getattr(builtins, name, None) or Anything()


class DecodeBatch(Batch):
    """A batch of requests that are decoding, with any other field."""

    is_extend_in_batch = False

    def __init__(self, reqs: list[Any]) -> None:
        super().__init__(reqs, "decode")
        self.forward_mode = Mode("decode")
        self.spec_info: Any = SimpleNamespace(
            is_verify_input=lambda: False, is_draft_input=lambda: True
        )

    def __getattr__(self, name: str) -> Anything:
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything()


class Result(SimpleNamespace):
    """GenerationBatchResult."""

    accept_lens = None


class Output(SimpleNamespace):
    """What verification says, with any other field."""

    def __getattr__(self, name: str) -> Anything:
        return Anything()


class Scheduler:
    """Runs a worker's cycles and takes their results."""

    device = "cpu"
    tp_rank, tp_size = 0, 1

    def __init__(self, worker: Any) -> None:
        self.draft_worker = worker

    def process_batch_result(self, batch: Any, result: Any) -> None:
        """Bring to the host what each request got, where the worker did not."""
        if getattr(result, "on_device", False):
            result.num_correct_drafts_per_req_cpu = [ACCEPTED] * len(batch.reqs)

    def cycle(self, reqs: list[Any]) -> None:
        """One decode cycle."""
        batch = DecodeBatch(reqs)
        worker = self.draft_worker
        oldest = getattr(worker, "forward_batch_speculative_generation", None)
        returned = (oldest or worker.forward_batch_generation)(batch)
        result = Result() if isinstance(returned, tuple) else returned
        self.process_batch_result(batch, result)


def worker(directory: Path, name: str, device: FakeDevice) -> Any:
    """Return a worker of a release, whose package is in `directory`, on a device."""
    text = (directory / "sglang" / "srt" / "speculative" / FILES[name]).read_text()
    kinds = _compiled(text)
    made = object.__new__(kinds[name])
    made.speculative_num_steps, made.speculative_num_draft_tokens = STEPS, STEPS + 1
    drafting = kinds.get(DRAFTING)
    if drafting is not None:
        made._draft_worker = object.__new__(drafting)
        if "draft_worker" not in vars(kinds[name]):  # a property, of the base in newer ones
            made.draft_worker = made._draft_worker
    for kind in filter(None, (kinds[name], drafting)):
        for method, stub in _stubs(device, newer=drafting is not None, text=text).items():
            if method in vars(kind):
                setattr(kind, method, stub)
    return made


def _compiled(text: str) -> dict[str, Any]:
    """Return the classes of a module, with none of its imports and annotations."""
    tree = ast.parse(text)
    tree.body = [
        node for node in tree.body if isinstance(node, ast.ClassDef) and node.name in
        (*FILES, DRAFTING)
    ]  # fmt: skip
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.decorator_list = [
                item for item in node.decorator_list if ast.unparse(item) in _DECORATORS
            ]
            node.returns = None
            for argument in (*node.args.args, *node.args.kwonlyargs):
                argument.annotation = None
    known = Globals(
        __name__="sglang.srt.speculative.copied", contextlib=contextlib,
        GenerationBatchResult=Result,
        **dict.fromkeys(("TpModelWorker", "BaseSpecWorker", "BaseDraftWorker"), Blank),
        **dict.fromkeys(("EagleDraftWorkerBase",), Blank),
    )  # fmt: skip
    exec(compile(tree, "a release of SGLang", "exec"), known)
    return known


def _stubs(device: FakeDevice, *, newer: bool, text: str) -> dict[str, Any]:
    """Return what stands in for the heavy parts, by name of the method."""
    three = "logits_output, verify_output, can_run_cuda_graph = self.verify" in text

    def draft(self: Any, batch: Any, **_: Any) -> Any:
        device.submit(DRAFT_S)
        return SimpleNamespace(is_verify_input=lambda: True, kv_loc_plan=None)

    def verify(self: Any, batch: Any, *_: Any, **__: Any) -> Any:
        device.submit(VERIFY_S)
        if newer:
            return Result(on_device=True, new_seq_lens=None)
        device.wait()
        counts = [ACCEPTED] * len(batch.reqs)
        batch.spec_info = SimpleNamespace(verified_id=batch.seq_lens, is_verify_input=lambda: True)
        output = Output(
            **dict.fromkeys(_LISTS, counts), verified_id=None,
            draft_extend_input=SimpleNamespace(input_ids=batch.seq_lens),
        )  # fmt: skip
        found = (Anything(), output, Anything(), False)
        return (found[0], output, False) if three else found

    def extend(self: Any, *_: Any, **__: Any) -> None:
        device.submit(EXTEND_S)

    return {
        "draft": draft,
        "verify": verify,
        "_draft_extend_for_decode": extend,
        "forward_draft_extend_after_decode": extend,
    }
