"""What must be true of a node before anything is started on it."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from fakes.clock import FakeClock
from fakes.engine import FakeEngine
from fakes.node import FakeNode
from fakes.sweeps import small_experiment

from sweep.model.errors import ClaimHeldError, NodeError, UnusableError
from sweep.model.experiment import NodeSpec
from sweep.ports import Completed, EngineFacts, Node
from sweep.preflight import (
    Facts,
    _asked_gpus,
    inspect,
    inspect_all,
    problems,
    require_usable,
    users,
)

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
        "models": {},
        "gpus": list(gpus),
        "gpu_error": None,
        "gpu_processes": [],
        "claims": [],
        "claim_directory": "/locks",
        "boot_id": "boot",
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
    require_usable([facts()], None)
    require_usable([facts(GPU)], None)


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
        require_usable([facts(**answer)], None)
    assert raised.value.exit_code == 3


def test_all_problems_are_told_at_once() -> None:
    """Two things wrong are two sentences."""
    both = facts(paths={"m.gguf": None}, gpu_error="x")
    assert len(problems(both)) == 2


def test_a_claim_of_another_sweep_is_named() -> None:
    """Who holds it, and what one may do."""
    held = facts(GPU, claims=[claim("gpu-GPU-aa", "theirs")])
    with pytest.raises(ClaimHeldError, match="gpu-GPU-aa of node n is held: sweep theirs of bob"):
        require_usable([held], "ours")


def test_a_claim_on_other_gpus_is_no_hindrance() -> None:
    """Nor is one on the node as a whole when GPUs are what is claimed."""
    held = facts(GPU, claims=[claim("gpu-GPU-bb", "theirs"), claim("node", "theirs")])
    require_usable([held], None)
    assert users(facts(claims=[claim("node", "theirs")]), None)


def test_our_own_claim_is_what_resume_attaches_to() -> None:
    """Neither the claim nor the server's own use of the GPU makes resume refuse."""
    ours = facts(GPU, claims=[claim("gpu-GPU-aa", "ours")], gpu_processes=[process(GPU)])
    require_usable([ours], "ours")
    assert users(ours, None)


def test_a_process_on_our_gpus_is_named() -> None:
    """User and pid of whoever is there without a claim; those on other GPUs do not count."""
    busy = facts(GPU, gpu_processes=[process(GPU)])
    with pytest.raises(ClaimHeldError, match="used by bob, pid 4711"):
        require_usable([busy], None)
    require_usable([facts(GPU, gpu_processes=[process(OTHER_GPU)])], None)


def test_one_may_wait_for_others() -> None:
    """With on_busy: wait the agent waits for its claim instead."""
    waiting = NodeSpec("n", on_busy="wait")
    require_usable([facts(GPU, spec=waiting, gpu_processes=[process(GPU)])], None)


@pytest.mark.parametrize("method", ["put", "run", "remove_tree"])
def test_a_node_that_refuses_is_unusable_before_start(method: str) -> None:
    """Exit code 3, not the 1 of a sweep that had begun."""
    node = FakeNode(FakeClock())
    node.broken = {method}
    with pytest.raises(UnusableError, match=f"{method} failed") as raised:
        inspect(node, NodeSpec(), EXPERIMENT, FakeEngine())
    assert raised.value.exit_code == 3


def test_what_is_wrong_with_any_node_is_told_at_once() -> None:
    """Problems of all nodes first; then who is there, on nodes that are not to be waited for."""
    wrong = [facts(gpu_error="x"), facts(spec=NodeSpec("m"), paths={"m.gguf": None})]
    with pytest.raises(UnusableError, match=r"fails on node n: x; m.gguf does not exist on node m"):
        require_usable(wrong, None)
    waiting = facts(spec=NodeSpec("w", on_busy="wait"), claims=[claim("node", "theirs")])
    require_usable([facts(boot_id="other"), waiting], None)
    held = facts(spec=NodeSpec("m"), boot_id="third", claims=[claim("node", "theirs")])
    with pytest.raises(ClaimHeldError, match=r"^node of node m is held: sweep theirs") as raised:
        require_usable([facts(boot_id="other"), waiting, held], None)
    assert "node w" not in raised.value.message


def test_two_names_of_one_machine_are_refused() -> None:
    """Their lanes would wait for each other; other GPUs, or other machines, are no harm."""
    twice = [facts(GPU), facts(GPU, OTHER_GPU, spec=NodeSpec("alias"))]
    with pytest.raises(UnusableError, match="nodes n and alias are one machine: name it once"):
        require_usable(twice, None)
    require_usable([facts(GPU), facts(OTHER_GPU, spec=NodeSpec("alias"))], None)
    require_usable([facts(), facts(spec=NodeSpec("m"), boot_id="other")], None)


def test_an_identity_holds_the_gpus_in_the_order_asked() -> None:
    """T37: other GPUs, or another one under the same index, are another identity."""
    answer = {**facts().answer, "gpus": [GPU, OTHER_GPU]}

    def identity(*gpus: int | str) -> Any:
        spec = NodeSpec("n", gpus)
        return Facts(spec, answer, [], "/w", _asked_gpus(spec, answer)).identity

    assert identity(1, "GPU-aa")["gpus"] == ["GPU-bb", "GPU-aa"]
    assert identity(0) == identity("GPU-aa") != identity(1)


def test_every_node_is_asked_and_every_error_told() -> None:
    """Two of three cannot be inspected: one error names both, in the order of the file."""
    names = ["a", "b", "c"]
    experiment = small_experiment(nodes=tuple(map(NodeSpec, names)))
    nodes = {name: FakeNode(FakeClock()) for name in names}
    for name in "ac":
        nodes[name].broken = {"put"}

    def refuse() -> Node:
        raise NodeError("c: unknown host key", hint="trust it")

    factories: dict[str, Any] = {name: partial(nodes.__getitem__, name) for name in names}
    nodes["b"].programs["python3"] = lambda *_: Completed(0, b'{"gpus": []}', b"")
    with pytest.raises(UnusableError, match=r"^fake: put failed; c: unknown host key$") as raised:
        inspect_all(experiment, FakeEngine(), factories | {"c": refuse})
    assert raised.value.hint == "mend the fake; trust it"
    nodes["a"].broken = set()
    nodes["a"].programs = nodes["b"].programs
    two = small_experiment(nodes=experiment.nodes[:2])
    assert [each.node for each in inspect_all(two, FakeEngine(), factories)] == ["a", "b"]


def test_an_engines_rules_get_what_the_node_said() -> None:
    """Its version, what it printed beside that, the GPUs asked for, and the models' kinds."""
    version = {"line": "sglang 0.5.23", "returncode": 0, "details": {"flags": {"port": None}}}
    models = {
        "target": {"kind": "missing", "config": {"architecture": "LlamaForCausalLM"}},
        "draft": {"kind": "missing", "config": {}},
    }
    first, second = ({**gpu, "compute_capability": "12.0"} for gpu in (GPU, OTHER_GPU))
    known = facts(first, second, version=version, models=models).engine
    assert known == EngineFacts(
        version="sglang 0.5.23",
        details={"flags": {"port": None}},
        gpu_capabilities=("12.0",),
        architectures={"target": "LlamaForCausalLM"},
    )
    assert facts(GPU, version=None).engine == EngineFacts()


def test_prompts_that_cannot_be_rendered_are_told() -> None:
    """Before anything is started, with the tokenizer's own words."""
    version = {"line": "v1", "returncode": 0, "details": {"rendering_error": "OSError: no file"}}
    (problem,) = problems(facts(version=version))
    assert problem == (
        "the engine's tokenizer cannot render the prompts on node n: OSError: no file"
    )
