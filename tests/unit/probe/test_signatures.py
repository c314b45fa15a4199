"""The hooks on what released versions of SGLang have, recorded by scripts/sglang_signatures.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sweep.probe import attaching, pinning
from sweep.probe.attaching import PHASES
from sweep.probe.hooks import CYCLE

RECORDED: dict[str, Any] = json.loads(Path(__file__).with_name("signatures.json").read_text())
SPECULATING = (
    "EAGLEWorker", "EAGLEWorkerV2", "StandaloneWorker", "StandaloneWorkerV2",
    "MultiLayerEagleWorker", "MultiLayerEagleWorkerV2", "NGRAMWorker",
)  # fmt: skip
CASES = [
    (version, worker)
    for version, record in RECORDED.items()
    for worker in SPECULATING
    if worker in record["workers"]
]


class Target:
    """The target's worker: what drafting workers of V1 inherit from."""

    def forward_batch_generation(self, batch: object) -> None:
        """The target's own forward."""


def build(name: str, workers: dict[str, Any], built: dict[str, type]) -> type:
    """Return a class with the recorded bases and methods."""
    if name not in workers:
        return Target if name == "TpModelWorker" else object
    if name not in built:
        record = workers[name]
        bases = tuple(build(base, workers, built) for base in record["bases"])
        kinds = tuple(base for base in bases if base is not object)
        body = {method: lambda *_: None for method in record["methods"]}
        built[name] = type(name, kinds, body)
    return built[name]


def hooks(version: str, worker: str) -> dict[str, Any]:
    """What the probe finds on a version's worker."""
    record = RECORDED[version]
    built: dict[str, type] = {}
    subject = build(worker, record["workers"], built)()
    subject.target_worker = Target()
    drafting = record["workers"][worker]["drafting"]
    if drafting is not None:
        subject.draft_worker = build(drafting, record["workers"], built)()
    body = {method: lambda *_: None for method in record["scheduler"]}
    return dict(attaching.find(type("Scheduler", (), body)(), subject))


@pytest.mark.parametrize(("version", "worker"), CASES)
def test_every_phase_of_every_worker_is_found(version: str, worker: str) -> None:
    """In 19 versions from 0.4.6 to 0.5.23; the first V2 has no extension of its own, and n-grams
    have nothing to extend."""
    without = worker == "NGRAMWorker" or (version, worker) == ("0.5.3.post3", "EAGLEWorkerV2")
    missing = set(PHASES) - set(hooks(version, worker))
    assert missing == ({"extend"} if without else set())


@pytest.mark.parametrize(("version", "worker"), CASES)
def test_the_batch_is_the_first_argument_of_a_cycle(version: str, worker: str) -> None:
    """By either of two names, should it be given by name."""
    hook = hooks(version, worker)["cycle"]
    record = RECORDED[version]["workers"][hook.owner.__name__]
    (name,) = set(CYCLE) & set(record["methods"])
    assert record["methods"][name][:2] in (["self", "batch"], ["self", "model_worker_batch"])


@pytest.mark.parametrize("version", RECORDED)
def test_results_are_processed_with_their_batch(version: str) -> None:
    """The first arguments are the same in all versions."""
    arguments = RECORDED[version]["scheduler"]["process_batch_result"]
    assert arguments[:3] == ["self", "batch", "result"]


def adaptive(version: str, worker: str) -> Any:
    """A worker of a version that was asked to hold 1, 3 and 5 steps, at 5."""
    record = RECORDED[version]
    subject = build(worker, record["workers"], {})()
    subject.speculative_num_steps = 5
    if not record["workers"][worker]["adaptive"]:
        return subject
    parts = record["adaptive"]
    body: dict[str, Any] = dict.fromkeys(
        parts["AdaptiveSpeculativeParams"]["methods"], lambda *_: None
    )
    if "candidate_steps" in body:
        body["candidate_steps"] = [1, 3, 5]
    methods = dict.fromkeys(parts["AdaptiveController"]["methods"], lambda *_: None)
    subject.adaptive_controller = type("AdaptiveController", (), methods)()
    if parts["AdaptiveController"]["policy"]:
        subject.adaptive_controller.params = type("AdaptiveSpeculativeParams", (), body)()
    return subject


@pytest.mark.parametrize(
    ("version", "worker"), [case for case in CASES if case[1] != "NGRAMWorker"]
)
def test_steps_can_be_pinned_from_0_5_13(version: str, worker: str) -> None:
    """Before, nothing asks a policy before a batch is decoded; of the workers of chains, the one
    of several layers has no controller."""
    number = tuple(int(part) for part in version.split(".")[:3])
    able = number >= (0, 5, 13) and worker in ("EAGLEWorkerV2", "StandaloneWorkerV2")
    assert (pinning.install(adaptive(version, worker)) is not None) == able


def test_versions_without_a_worker_are_known() -> None:
    """EAGLEWorker is gone since 0.5.13: a probe that knows only that one measures nothing."""
    assert ("0.5.12.post1", "EAGLEWorker") in CASES
    assert ("0.5.13.post1", "EAGLEWorker") not in CASES
    assert ("0.5.23", "EAGLEWorkerV2") in CASES
    assert len(RECORDED) == 19
