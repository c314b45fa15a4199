"""Several step counts in one SGLang: which versions and arguments allow it, and how it is asked."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sweep.agent.wire import RequestRecord
from sweep.engines.sglang import SGLang
from sweep.engines.simulator import Simulator
from sweep.model.experiment import Axes, EngineSpec, Experiment, Profile, Prompt, Variant, Workload
from sweep.model.plan import Configuration, PlannedTrial, ServerCommand
from sweep.ports import EngineFacts, StepScan

ENGINE = SGLang()
SCAN: StepScan = ENGINE.scan
CODE = Workload("code", (Prompt("p", text="def f():"),), max_tokens=64)
CHAIN = Configuration("EAGLE3", 3, 1, 4)


def experiment(args: Any = None, **fields: Any) -> Experiment:
    """A scan of EAGLE-3 with these arguments of the engine."""
    engine = EngineSpec(
        "sglang", "target", draft_model="draft", algorithm="EAGLE3", args=args or {}
    )
    values: dict[str, Any] = {"axes": Axes(num_steps=(1, 3, 8), scan=True), "profile": Profile()}
    return Experiment("e", engine, (CODE,), **(values | fields))


def facts(version: str | None, **fields: Any) -> EngineFacts:
    """What a node says."""
    return EngineFacts(version=version and f"sglang {version}", **fields)


def obstacle(
    version: str | None = "0.5.23",
    args: Any = None,
    configuration: Configuration = CHAIN,
    **known: Any,
) -> str | None:
    """Why a configuration needs a server of its own."""
    return SCAN.obstacle(configuration, experiment(args), facts(version, **known))


@pytest.mark.parametrize(
    ("version", "able"),
    [
        ("0.4.6.post5", False), ("0.5.11", False), ("0.5.12.post1", False), ("0.5.13.post1", True),
        ("0.5.14", True), ("0.5.15.post1", True), ("0.5.18", True), ("0.5.19", True),
        ("0.5.23", True),
    ],
)  # fmt: skip
def test_versions(version: str, able: bool) -> None:
    """From 0.5.13, whose memory is sized for the largest step count; older ones name that."""
    found = obstacle(version)
    assert (found is None) == able
    assert able or "0.5.13 and newer can" in str(found)


def test_a_version_that_is_not_known_is_not_trusted() -> None:
    """Nor is another Python's, of which the node was not asked."""
    assert "not known" in str(obstacle(None))
    assert "not known" in str(SCAN.obstacle(CHAIN, experiment(), None))
    own = replace(experiment(), axes=Axes(variants=(Variant("other", python="/opt/other/python"),)))
    other = replace(CHAIN, variant="other")
    assert "not known" in str(SCAN.obstacle(other, own, facts("0.5.23")))


@pytest.mark.parametrize(
    ("configuration", "why"),
    [
        (Configuration("EAGLE3", 3, 2, 8), "topk 1 only"),
        (Configuration("STANDALONE", 3, 1, 4), "EAGLE, EAGLE3, NEXTN only"),
        (Configuration("NGRAM", None, None, 8), "EAGLE, EAGLE3, NEXTN only"),
    ],
)
def test_only_chains_of_eagle(configuration: Configuration, why: str) -> None:
    """SGLang's own condition; the simulated server has the same."""
    assert why in str(obstacle(configuration=configuration))
    assert why in str(Simulator().scan.obstacle(configuration, experiment(), None))


@pytest.mark.parametrize(
    "args",
    [
        {"enable-dp-attention": True}, {"enable_dp_attention": True}, {"enable-pdmux": True},
        {"enable-two-batch-overlap": True}, {"enable-multi-layer-eagle": True},
        {"enable-lora": True}, {"lora-paths": "a=b"}, {"enable-hisparse": True}, {"dp-size": 2},
        {"dp": 2}, {"pp-size": 2},
    ],
)  # fmt: skip
def test_arguments_that_exclude_it(args: dict[str, Any]) -> None:
    """SGLang would start without, or not at all; the reason names the argument."""
    (name,) = args
    found = str(obstacle(args=args))
    assert name.replace("_", "-").removesuffix("-size").split("-paths")[0] in found
    assert obstacle(args={"tp-size": 8, "dp-size": 1, "enable-pdmux": False}) is None


SIGNATURES = json.loads(
    (Path(__file__).parents[2] / "probe" / "signatures.json").read_text(encoding="utf-8")
)
ABLE = [version for version in SIGNATURES if obstacle(version) is None]
SHAPE = {"speculative_algorithm", "speculative_eagle_topk"}
DP_ATTENTION = {"attn_dp_enabled_of": "enable_dp_attention"}
"""A function of SGLang's → the argument that it asks about, beside the number of its parts."""
NO_ARGUMENTS = {
    "resolved_view", "resolving_view",
    "from_string", "get_platform_worker_cls", "__name__",  # a worker of another platform's
}  # fmt: skip


@pytest.mark.parametrize("version", ABLE)
def test_everything_that_a_version_refuses_is_known(version: str) -> None:
    """By the arguments that its own condition reads, recorded from its wheel."""
    read = set(SIGNATURES[version]["refusing"])
    assert read >= SHAPE
    for name in sorted(read - SHAPE - NO_ARGUMENTS):
        argument = DP_ATTENTION.get(name, name)
        assert obstacle(version, {argument: True}) is not None, name


def test_recorded_versions_that_can() -> None:
    """Those from 0.5.13 on, and no older one."""
    assert ABLE[0] == "0.5.13.post1"
    assert list(SIGNATURES)[-len(ABLE) :] == ABLE
    assert len(ABLE) == 9


@pytest.mark.parametrize("backend", ["flashmla", "cutlass_mla", "trtllm_mla"])
def test_latent_attention_before_0_5_19(backend: str) -> None:
    """A change of steps crashed there; with a model whose backend is left to SGLang as well."""
    for version, safe in {"0.5.14": True, "0.5.15": False, "0.5.18": False, "0.5.19": True}.items():
        assert (obstacle(version, {"attention-backend": backend}) is None) == safe
        kimi = {"target": "KimiK25ForConditionalGeneration"}
        assert (obstacle(version, architectures=kimi) is None) == safe
    assert obstacle("0.5.18", {"attention-backend": "triton"}, architectures=kimi) is None


def test_an_installation_without_the_flag() -> None:
    """Its own parser has the last word."""
    flags = {"speculative-adaptive": None, "speculative-num-steps": None}
    found = obstacle(details={"flags": flags})
    assert found == "SGLang 0.5.23 on this node has no --speculative-adaptive-config"
    assert obstacle(details={"flags": flags | {"speculative-adaptive-config": None}}) is None


def test_an_installation_whose_source_is_another() -> None:
    """Such as a fork that calls itself 0.5.23."""
    assert obstacle(details={"changes_steps": True}) is None
    found = obstacle(details={"changes_steps": False})
    assert found == "SGLang 0.5.23 on this node does not ask for the steps before each batch"


def server() -> ServerCommand:
    """The server of steps 3, 8 and 1."""
    asked = [Configuration("EAGLE3", steps, 1, steps + 1) for steps in (3, 8, 1)]
    return SCAN.server(asked, experiment())


def test_the_server_starts_with_the_largest_step_count() -> None:
    """Or 0.5.15 to 0.5.18 crash; left alone it never changes steps."""
    command = server()
    at = command.argv.index("--speculative-num-steps")
    assert command.argv[at + 1] == "8"
    (file,) = command.files
    assert command.argv[file.at - 1 : file.at + 1] == ("--speculative-adaptive-config", file.name)
    sets = json.loads(file.text)
    assert sets["1"]["candidate_steps"] == [1, 3, 8]
    assert sets["1"]["warmup_batches"] >= 10**9
    assert command.settings["num_steps"].value == 8
    assert command.settings["speculative-adaptive"].value is True


def test_it_is_the_plain_server_but_for_the_flags() -> None:
    """Everything else is equal."""
    plain = ENGINE.server(Configuration("EAGLE3", 8, 1, 9), experiment())
    command = server()
    assert command.argv[: len(plain.argv)] == plain.argv
    assert command.argv[len(plain.argv)] == "--speculative-adaptive"
    assert (command.env, command.unset) == (plain.env, plain.unset)


@pytest.mark.parametrize(("api", "where"), [("native", "sampling_params"), ("chat", None)])
def test_requests_carry_the_steps(api: Any, where: str | None) -> None:
    """Where SGLang hands them to its scheduler; the rest of the request is as it was."""
    request = ENGINE.request(replace(CODE, api=api), CODE.prompts[0])
    asking = SCAN.asking(request, 3)
    inside = asking.body if where is None else asking.body[where]
    assert inside.pop("custom_params") == {"sweep_num_steps": 3}
    assert asking == request


def test_it_needs_the_probe() -> None:
    """Which gives the choice to the requests, in rehearsal as well."""
    for engine in (ENGINE, Simulator()):
        (problem,) = engine.problems(experiment(profile=None))
        assert problem.path == ("sweep", "scan")
        assert "profile" in str(problem.hint)
        assert engine.problems(experiment()) == ()


def trial(*, pinned: bool) -> PlannedTrial:
    """A trial of 3 steps."""
    return PlannedTrial("t", "c", CHAIN, CODE, 1, pinned=pinned)


def answered(histogram: list[int]) -> RequestRecord:
    """An answer of a server that was started with 8 steps."""
    cycles = sum(histogram)
    meta = {
        "spec_verify_ct": cycles,
        "spec_num_proposed_drafts": cycles * 8,
        "spec_num_correct_drafts": sum(k * count for k, count in enumerate(histogram)),
        "spec_correct_drafts_histogram": histogram,
    }
    return RequestRecord(
        n=1, trial="t", window=0, role="measure", prompt="p", stream=0, sent_s=0.0, first_s=0.1,
        last_s=1.0, end_s=1.0, status=200, error=None, chunks=9, first_chunk_tokens=1,
        output_tokens=48, input_tokens=10, cached_tokens=0, text_sha256=None, meta=meta,
    )  # fmt: skip


def test_counts_of_a_scan() -> None:
    """Proposed tokens are counted by the steps of the start, which proves nothing; a cycle that
    accepted more than was asked proves that other steps were in force."""
    within = answered([9, 4, 2, 1, 0])
    assert ENGINE.classify_trial(trial(pinned=True), [within]) is None
    beyond = ENGINE.classify_trial(trial(pinned=True), [within, answered([9, 4, 2, 1, 1])])
    assert beyond is not None
    assert beyond.failure_class == "not_pinned"
    assert "accepted 4 tokens" in beyond.message
    plain = ENGINE.classify_trial(trial(pinned=False), [within])
    assert plain is not None
    assert plain.failure_class == "bad_args"
