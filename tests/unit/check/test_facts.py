"""What planning takes from the facts of a node."""

from __future__ import annotations

from typing import Any

from fakes.facts import facts, gpu, model, package

from sweep.ports import EngineFacts


def test_an_engines_rules_get_what_the_node_said() -> None:
    """Its version, what it printed beside that, the GPUs asked for, and the models' kinds."""
    version = {"line": "sglang 0.5.23", "returncode": 0, "details": {"flags": {"port": None}}}
    models = {
        "target": model(config={"architecture": "LlamaForCausalLM"}),
        "draft": model(config={}),
    }
    known = facts(gpu(0), gpu(1), version=version, models=models).engine
    assert known == EngineFacts(
        version="sglang 0.5.23",
        details={"flags": {"port": None}},
        gpu_capabilities=("12.0",),
        architectures={"target": "LlamaForCausalLM"},
        gpus=2,
    )
    assert facts(gpu(0, compute_capability=None), version=None).engine == EngineFacts(gpus=1)


def test_an_identity_holds_the_models_of_the_hub() -> None:
    """By size and revision; one that is not in the cache yet is known to be missing."""
    models = {
        "org/there": model(kind="hub", revision="abc"),
        "org/absent": model(kind="hub", path=None),
        "/m": model(),
    }
    files = facts(models=models, files=("/m",)).identity["files"]
    assert files == {
        "/m": {"size": 1},
        "org/there": {"size": 595 * 10**9, "revision": "abc"},
        "org/absent": None,
    }


def test_an_identity_holds_the_state_of_a_changed_engine() -> None:
    """Its commit and the state of its changes; a release says all by its version."""

    def changes(**package_changes: Any) -> Any:
        return facts(packages={"p": package(**package_changes)}).identity["engine_changes"]

    assert changes() == {}
    assert changes(error="p has no package") == {}
    assert changes(commit="c0ffee") == {"p": ["c0ffee", None]}
    assert changes(changed=["a.py"], state="feed") == {"p": [None, "feed"]}
