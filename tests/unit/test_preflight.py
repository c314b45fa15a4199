"""What must be true of a node before anything is started on it."""

from __future__ import annotations

from typing import Any

import pytest
from fakes.clock import FakeClock
from fakes.engine import FakeEngine
from fakes.node import FakeNode
from fakes.sweeps import small_experiment

from sweep.model.errors import ClaimHeldError, UnusableError
from sweep.model.experiment import NodeSpec
from sweep.preflight import Facts, inspect, problems, require_usable, users

GPU = {"index": 0, "uuid": "GPU-aa"}
OTHER_GPU = {"index": 1, "uuid": "GPU-bb"}
DISK: dict[str, Any] = {
    "path": "/w",
    "writable": True,
    "network": False,
    "file_system": "ext4",
    "free_bytes": 10**12,
}
EXPERIMENT = small_experiment()
NODE = NodeSpec("n")


def facts(*gpus: dict[str, Any], spec: NodeSpec = NODE, **answer: Any) -> Facts:
    """A usable node with these GPUs unless told otherwise."""
    values: dict[str, Any] = {
        "paths": {"m.gguf": {"size": 1}},
        "version": {"line": "v1", "returncode": 0, "error": None},
        "gpus": list(gpus),
        "gpu_error": None,
        "gpu_processes": [],
        "claims": [],
        "workdir": DISK,
    } | answer
    return Facts(spec, values, ["m.gguf"], "/w", gpus)


def claim(resource: str, sweep: str) -> dict[str, Any]:
    """A claim that a sweep holds."""
    reason = f"sweep {sweep} of bob on lab-1 (agent pid 7)"
    return {"resource": resource, "holder": {"sweep": sweep}, "reason": reason}


def process(gpu: dict[str, Any]) -> dict[str, Any]:
    """Somebody's process on a GPU."""
    return {"gpu_uuid": gpu["uuid"], "user": "bob", "pid": 4711, "name": "python"}


def test_a_usable_node_has_no_problems() -> None:
    """Nothing is wrong, and nobody is there."""
    require_usable(facts(), None)
    require_usable(facts(GPU), None)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({"paths": {"m.gguf": None}}, "m.gguf does not exist on node n"),
        ({"version": {"returncode": 1, "line": "no such lib"}}, "cannot be run on node n: no such"),
        ({"gpu_error": "driver mismatch"}, "nvidia-smi fails on node n: driver mismatch"),
        ({"workdir": DISK | {"writable": False}}, "/w cannot be written on node n"),
        ({"workdir": DISK | {"network": True}}, "network file system"),
        ({"workdir": DISK | {"free_bytes": 5}}, "/w on node n has 5 bytes free"),
    ],
)
def test_each_problem_is_told(answer: dict[str, Any], reason: str) -> None:
    """With the node's name, before anything is started."""
    with pytest.raises(UnusableError, match=reason) as raised:
        require_usable(facts(**answer), None)
    assert raised.value.exit_code == 3


def test_all_problems_are_told_at_once() -> None:
    """Two things wrong are two sentences."""
    both = facts(paths={"m.gguf": None}, gpu_error="x")
    assert len(problems(both)) == 2


def test_a_claim_of_another_sweep_is_named() -> None:
    """Who holds it, and what one may do."""
    held = facts(GPU, claims=[claim("gpu-GPU-aa", "theirs")])
    with pytest.raises(ClaimHeldError, match="gpu-GPU-aa of node n is held: sweep theirs of bob"):
        require_usable(held, "ours")


def test_a_claim_on_other_gpus_is_no_hindrance() -> None:
    """Nor is one on the node as a whole when GPUs are what is claimed."""
    held = facts(GPU, claims=[claim("gpu-GPU-bb", "theirs"), claim("node", "theirs")])
    require_usable(held, None)
    assert users(facts(claims=[claim("node", "theirs")]), None)


def test_our_own_claim_is_what_resume_attaches_to() -> None:
    """Neither the claim nor the server's own use of the GPU makes resume refuse."""
    ours = facts(GPU, claims=[claim("gpu-GPU-aa", "ours")], gpu_processes=[process(GPU)])
    require_usable(ours, "ours")
    assert users(ours, None)


def test_a_process_on_our_gpus_is_named() -> None:
    """User and pid of whoever is there without a claim; those on other GPUs do not count."""
    busy = facts(GPU, gpu_processes=[process(GPU)])
    with pytest.raises(ClaimHeldError, match="used by bob, pid 4711"):
        require_usable(busy, None)
    require_usable(facts(GPU, gpu_processes=[process(OTHER_GPU)]), None)


def test_one_may_wait_for_others() -> None:
    """With on_busy: wait the agent waits for its claim instead."""
    waiting = NodeSpec("n", on_busy="wait")
    require_usable(facts(GPU, spec=waiting, gpu_processes=[process(GPU)]), None)


@pytest.mark.parametrize("method", ["put", "run", "remove_tree"])
def test_a_node_that_refuses_is_unusable_before_start(method: str) -> None:
    """Exit code 3, not the 1 of a sweep that had begun."""
    node = FakeNode(FakeClock())
    node.broken = {method}
    with pytest.raises(UnusableError, match=f"{method} failed") as raised:
        inspect(node, NodeSpec(), EXPERIMENT, FakeEngine())
    assert raised.value.exit_code == 3
