"""SGLang's rules: each with the version, GPU or model that it depends on, and right values."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sweep.engines.sglang import SGLang
from sweep.model.errors import Problem
from sweep.model.experiment import Axes, Drafting, EngineSpec, Experiment, Prompt, Variant, Workload
from sweep.model.plan import Configuration
from sweep.ports import EngineFacts, Judged

ENGINE = SGLang()
WORKLOAD = Workload(
    "guide", (Prompt("1", text="a guide"), Prompt("2", text="x")), concurrency=(1, 2)
)
KIMI = "KimiK25ForConditionalGeneration"
RTX_PRO_6000 = ("12.0",)
B200 = ("10.0",)
H100 = ("9.0",)


def experiment(
    *, api: Any = "native", variants: Any = (), axes: Any = None, **engine: Any
) -> Experiment:
    """An EAGLE-3 experiment with these fields of the engine."""
    fields = {"draft_model": "draft", "algorithm": "EAGLE3"} | engine
    return Experiment(
        name="e",
        engine=EngineSpec("sglang", "target", **fields),
        workloads=(replace(WORKLOAD, api=api),),
        axes=axes or Axes(variants=(Variant("default"), *variants)),
    )


def facts(
    version: str | None = "0.5.23",
    *,
    gpus: tuple[str, ...] = (),
    architecture: str | None = None,
    flags: dict[str, list[str] | None] | None = None,
) -> EngineFacts:
    """What a node says."""
    return EngineFacts(
        version=None if version is None else f"sglang {version}",
        details={} if flags is None else {"flags": flags},
        gpu_capabilities=gpus,
        architectures={} if architecture is None else {"target": architecture},
    )


def judge(
    steps: int | None = 2,
    topk: int | None = 1,
    tokens: int | None = None,
    *,
    known: EngineFacts | None = None,
    api: str = "native",
    **engine: Any,
) -> Judged:
    """What the rules make of one configuration of an experiment."""
    subject = experiment(api=api, **engine)
    algorithm = subject.engine.algorithm
    return ENGINE.judge(Configuration(algorithm, steps, topk, tokens), subject, known)


def reason(*asked: int | None, **more: Any) -> str:
    """Why a configuration cannot run; empty: it can."""
    return judge(*asked, **more).reason or ""


def test_a_chain_verifies_its_steps_and_the_root() -> None:
    """Draft tokens follow from the steps; another number is replaced, and the plan says so."""
    assert judge(5).configuration.num_draft_tokens == 6
    assert judge(5).note is None
    asked_more = judge(5, 1, 9)
    assert asked_more.configuration.num_draft_tokens == 6
    assert "num_steps + 1" in str(asked_more.note)


@pytest.mark.parametrize(("steps", "topk", "pool"), [(1, 2, 3), (2, 2, 7), (3, 4, 37)])
def test_a_tree_has_only_so_many_candidates(steps: int, topk: int, pool: int) -> None:
    """1 + topk + (steps - 1)·topk²; one more fails when graphs are captured, after the load."""
    assert not reason(steps, topk, pool)
    assert f"2 to {pool}" in reason(steps, topk, pool + 1)
    assert judge(steps, topk).configuration.num_draft_tokens == pool


def test_the_pool_of_one_step_and_two_branches_does_not_hold_eight_tokens() -> None:
    """Pool 2 is less than 7, and the formula is shown."""
    assert "topk + (steps - 1)·topk²" in reason(1, 2, 8)


@pytest.mark.parametrize(("args", "gpus", "needed"), [
    ({"tp-size": 8}, 2, 8),
    ({"tp": 4, "pp-size": 2}, 6, 8),
    ({"tp-size": 2, "dp-size": 4}, 4, 8),
    ({"tp-size": 8, "device": "cuda"}, 2, 8),
    ({"tp-size": 8}, 8, None),
    ({"tp-size": 4, "dp-size": 4, "enable-dp-attention": True}, 4, None),
    ({"tp-size": 16, "nnodes": 2}, 8, None),
    ({"tp-size": 8}, None, None),
    ({"tp-size": 2, "device": "cpu"}, 0, None),
])  # fmt: skip
def test_every_rank_has_a_gpu(args: dict[str, Any], gpus: int | None, needed: int | None) -> None:
    """For the baseline and for speculation, before anything is loaded."""
    known = replace(facts(), gpus=gpus)
    refused = f"needs {needed} GPUs, and the node gives {gpus}"
    for asked in (Configuration(None), Configuration("EAGLE3", 2, 1)):
        found = ENGINE.judge(asked, experiment(args=args), known).reason or ""
        assert (refused in found) == (needed is not None), found


def test_algorithms_that_do_not_exist_are_told_by_name() -> None:
    """SGLang's own that were never tried, and names that are none."""
    for name, words in (("DSPARK", "never tried"), ("EAGEL", "none of SGLang's")):
        (problem,) = ENGINE.problems(experiment(algorithm=name))
        assert words in problem.message
        assert "EAGLE3" in str(problem.hint)
    steps_only = experiment(algorithm=None, axes=Axes(num_steps=(2,)))
    assert "not how to draft" in ENGINE.problems(steps_only)[0].message


def test_a_variants_algorithm_is_judged_as_the_engines() -> None:
    """By name, at its own place in the file."""
    variant = Variant("other", drafting=Drafting("EAGEL", num_steps=(2,)))
    (problem,) = ENGINE.problems(experiment(variants=(variant,)))
    assert "none of SGLang's" in problem.message
    assert problem.path == ("sweep", "variants", "other", "algorithm")


@pytest.mark.parametrize(("algorithm", "own", "path"), [
    ("EAGLE3", None, "draft"),
    ("EAGLE3", "its", "its"),
    ("STANDALONE", "its", "its"),
    ("NGRAM", None, None),
])  # fmt: skip
def test_a_drafter_is_for_its_algorithm(algorithm: str, own: str | None, path: str | None) -> None:
    """A variant that drafts otherwise is not given the engine's drafter."""
    variant = Variant("other", draft_model=own, drafting=Drafting(algorithm))
    steps = None if algorithm == "NGRAM" else 2
    asked = Configuration(algorithm, steps, None, 3, variant="other")
    argv = ENGINE.server(asked, experiment(variants=(variant,))).argv
    given = [argv[at + 1] for at, word in enumerate(argv) if word.endswith("draft-model-path")]
    assert given == ([] if path is None else [path])


def test_an_algorithm_without_its_drafter_is_skipped() -> None:
    """The engine's head is none for another algorithm."""
    subject = experiment(variants=(Variant("other", drafting=Drafting("STANDALONE")),))
    judged = ENGINE.judge(Configuration("STANDALONE", 2, 1, variant="other"), subject, None)
    assert "draft_model" in str(judged.reason)


@pytest.mark.parametrize(("algorithm", "last", "first"), [
    ("STANDALONE", "0.4.10", "0.5.2"),
    ("NGRAM", "0.5.2", "0.5.3"),
])  # fmt: skip
def test_algorithms_came_with_a_version(algorithm: str, last: str, first: str) -> None:
    """Older ones do not know the name."""
    asked = (None, None, 8) if algorithm == "NGRAM" else (2, 1, None)
    assert f"came with SGLang {first}" in reason(*asked, algorithm=algorithm, known=facts(last))
    assert not reason(*asked, algorithm=algorithm, known=facts(first))


def test_ngram_has_draft_tokens_and_nothing_else() -> None:
    """Neither steps nor branches; its length must be given."""
    judged = judge(None, 1, 8, algorithm="NGRAM", draft_model=None)
    assert (judged.reason, judged.configuration.topk) == (None, None)
    assert judged.configuration.label == "NGRAM, 8 tokens"
    assert "repeats of a prompt get faster" in str(judged.note)
    assert "neither steps nor topk" in reason(2, 1, 8, algorithm="NGRAM")
    assert "num_draft_tokens" in reason(None, 1, None, algorithm="NGRAM")
    assert "the root" in reason(None, 1, 1, algorithm="NGRAM")


def test_ngram_over_pages_needs_flashinfer() -> None:
    """Its breadth is 10 unless it is told otherwise."""
    ngram: dict[str, Any] = {"algorithm": "NGRAM", "draft_model": None}
    args = {"attention-backend": "triton", "page-size": 16}
    assert "10 branches" in reason(None, 1, 8, args=args, **ngram)
    assert not reason(None, 1, 8, args={**args, "attention-backend": "flashinfer"}, **ngram)
    narrow = {**args, "speculative-ngram-max-bfs-breadth": 1}
    assert not reason(None, 1, 8, args=narrow, **ngram)


def test_a_missing_draft_model_is_told_before_the_load() -> None:
    """Without one the target is loaded as its own draft; some targets have layers for that."""
    assert "needs a draft model" in reason(draft_model=None)
    eagle: dict[str, Any] = {"algorithm": "NEXTN", "draft_model": None}
    assert not reason(**eagle)
    assert not reason(**eagle, known=facts(architecture="DeepseekV3ForCausalLM"))
    assert "has none" in reason(**eagle, known=facts(architecture="LlamaForCausalLM"))


def test_kimi_came_with_0_5_9() -> None:
    """Older ones find no class for it, with a draft or without."""
    old = facts("0.5.7", architecture=KIMI)
    baseline = ENGINE.judge(Configuration(None), experiment(), old)
    assert "does not know Kimi-K2.5" in str(baseline.reason)
    new = facts("0.5.9", architecture=KIMI)
    assert ENGINE.judge(Configuration(None), experiment(), new).reason is None


def test_kimi_hands_over_hidden_states_from_0_5_10_on() -> None:
    """EAGLE-3 reads hidden states of the target."""
    assert "0.5.10" in reason(known=facts("0.5.9", architecture=KIMI))
    assert not reason(known=facts("0.5.10.post1", architecture=KIMI))


@pytest.mark.parametrize(
    ("backend", "version", "gpus", "words"),
    [
        ("fa3", "0.5.23", RTX_PRO_6000, "capability 12.0: it is for 8.0 to 9.0"),
        ("fa3", "0.5.23", H100, ""),
        ("trtllm_mla", "0.5.5", RTX_PRO_6000, "12.0 with 0.5.9"),
        ("trtllm_mla", "0.5.9", RTX_PRO_6000, ""),
        ("trtllm_mla", "0.5.5", B200, ""),
        ("trtllm_mla", "0.5.23", H100, "capability 9.0"),
        ("cutedsl_mla", "0.5.23", RTX_PRO_6000, "it needs 10.0"),
        ("cutedsl_mla", "0.5.23", B200, ""),
        ("trtllm_mha", "0.5.9", RTX_PRO_6000, "before 0.5.10"),
        ("trtllm_mha", "0.5.18", RTX_PRO_6000, "to read prompts"),
        ("trtllm_mha", "0.5.23", RTX_PRO_6000, ""),
        ("triton", "0.5.23", RTX_PRO_6000, ""),
    ],
)
def test_backends_and_the_gpus_they_are_for(
    backend: str, version: str, gpus: tuple[str, ...], words: str
) -> None:
    """An RTX PRO 6000 (12.0) is no B200 (10.0): what runs there may not run here."""
    found = reason(args={"attention-backend": backend}, known=facts(version, gpus=gpus))
    assert words in found
    assert bool(words) == bool(found)


def test_a_backend_for_prefill_alone_is_judged_as_that() -> None:
    """trtllm_mha decodes on 12.0 from 0.5.10 on, and reads prompts from 0.5.19 on."""
    known = facts("0.5.12", gpus=RTX_PRO_6000)
    assert not reason(args={"decode-attention-backend": "trtllm_mha"}, known=known)
    assert "to read prompts" in reason(
        args={"prefill-attention-backend": "trtllm_mha"}, known=known
    )


@pytest.mark.parametrize("backend", ["flashmla", "trtllm_mla", "trtllm_mha", "cutlass_mla"])
def test_some_backends_verify_chains_only(backend: str) -> None:
    """They say so after the load."""
    args = {"decode-attention-backend": backend}
    assert "chains only" in reason(2, 2, 4, args=args)
    assert not reason(2, 1, args=args)


def test_flashinfer_verifies_trees_unless_attention_is_latent() -> None:
    """Its kernel for latent attention is another one."""
    args = {"attention-backend": "flashinfer"}
    assert "use triton" in reason(2, 2, 4, args=args, known=facts(architecture=KIMI))
    assert not reason(2, 2, 4, args=args, known=facts(architecture="LlamaForCausalLM"))
    assert not reason(2, 1, args=args, known=facts(architecture=KIMI))


@pytest.mark.parametrize(
    ("version", "able"),
    [
        ("0.5.2", {"flashinfer"}),
        ("0.5.9", {"flashinfer", "fa3"}),
        ("0.5.12", {"flashinfer", "fa3"}),
        ("0.5.13", {"flashinfer", "fa3", "triton"}),
        (None, {"flashinfer", "fa3", "triton"}),
    ],
)
def test_trees_over_pages_need_a_backend_that_can(version: str | None, able: set[str]) -> None:
    """Which can grew with the versions; of an unknown one, only the impossible is refused."""
    for backend in ("flashinfer", "fa3", "triton", "intel_amx"):
        args = {"attention-backend": backend, "page-size": 16}
        found = reason(2, 2, 4, args=args, known=facts(version))
        assert bool(found) == (backend not in able), (backend, found)
        assert not reason(2, 1, args=args, known=facts(version))
        assert not reason(2, 2, 4, args={**args, "page-size": 1}, known=facts(version))


DEEPSEEK, LLAMA = "DeepseekV3ForCausalLM", "LlamaForCausalLM"


@pytest.mark.parametrize(("backend", "page", "version", "sizes"), [
    ("flashmla", 16, "0.5.23", "64"),
    ("cutlass_mla", 64, "0.5.9", "128"),
    ("trtllm_mla", 1, "0.5.23", "32 or 64"),
    ("trtllm_mla", 32, "0.5.23", None),
    ("trtllm_mha", 128, "0.5.16", "16 or 32 or 64"),
    ("trtllm_mha", 128, "0.5.18", None),
    ("triton", 1, "0.5.23", None),
])  # fmt: skip
def test_some_backends_change_the_page_size(
    backend: str, page: int, version: str, sizes: str | None
) -> None:
    """Another server than was asked for: told before its load, for baselines too."""
    known = facts(version, gpus=B200)
    subject = experiment(args={"attention-backend": backend, "page-size": page})
    for configuration in (Configuration(None), Configuration("EAGLE3", 2, 1)):
        found = ENGINE.judge(configuration, subject, known).reason or ""
        assert (f"runs with {sizes} whatever is asked" in found) == (sizes is not None)
        assert bool(found) == (sizes is not None)
    without = experiment(args={"attention-backend": backend})
    assert ENGINE.judge(Configuration(None), without, known).reason is None


@pytest.mark.parametrize(("gpus", "architecture", "asked", "words"), [
    (B200, KIMI, (2, 2, 4), "trtllm_mla, which SGLang takes here by itself, verifies chains only"),
    (B200, DEEPSEEK, (2, 2, 4), "trtllm_mla"),
    (B200, KIMI, (2, 1), ""),
    (RTX_PRO_6000, KIMI, (2, 2, 4), ""),
    (H100, KIMI, (2, 2, 4), ""),
    (B200, LLAMA, (2, 2, 4), ""),
    (B200, None, (2, 2, 4), ""),
])  # fmt: skip
def test_what_sglang_takes_by_itself_is_judged_too(
    gpus: tuple[str, ...], architecture: str | None, asked: tuple[int, ...], words: str
) -> None:
    """Trees on a B200 need a backend by name; of a model that was not tried, nothing is said."""
    found = reason(*asked, known=facts(gpus=gpus, architecture=architecture))
    assert words in found
    assert bool(words) == bool(found)
    named = {"attention-backend": "triton"}
    assert not reason(*asked, args=named, known=facts(gpus=gpus, architecture=architecture))


def test_pages_that_a_backend_insists_on_count_for_branches() -> None:
    """NGRAM has ten, and was asked no page size."""
    ngram: dict[str, Any] = {"algorithm": "NGRAM", "draft_model": None}
    known = facts(gpus=B200)
    args = {"attention-backend": "trtllm_mla"}
    assert "10 branches with page-size 64" in reason(None, 1, 8, args=args, **ngram, known=known)
    split = {"attention-backend": "flashmla", "decode-attention-backend": "flashinfer"}
    assert "2 branches with page-size 64" in reason(2, 2, 4, args=split, known=facts())


def test_before_0_5_4_pages_and_branches_need_a_name() -> None:
    """The backend that is taken by itself did not count."""
    args = {"page-size": 16}
    assert "attention-backend flashinfer only" in reason(2, 2, 4, args=args, known=facts("0.5.2"))
    assert not reason(2, 2, 4, args=args, known=facts("0.5.5"))
    assert "sets topk to 1" in reason(2, 2, 4, args=args, known=facts("0.4.6.post5"))


def test_another_backend_than_the_baselines_is_noted() -> None:
    """SGLang chooses by topk: trees and chains would differ in more than that."""
    note = judge(2, 2, 4, known=facts(gpus=H100, architecture=LLAMA)).note or ""
    assert "takes attention backend flashinfer for this and fa3 for the baseline" in note
    assert judge(2, 1, known=facts(gpus=H100, architecture=LLAMA)).note is None
    assert judge(2, 2, 4, known=facts(gpus=H100, architecture=KIMI)).note is None
    named = {"attention-backend": "triton"}
    assert judge(2, 2, 4, args=named, known=facts(gpus=H100, architecture=LLAMA)).note is None


def test_the_oldest_versions_change_topk_without_asking() -> None:
    """0.4.6 sets it to 1 where pages are larger: another configuration than was asked."""
    args = {"attention-backend": "triton", "page-size": 16}
    assert "sets topk to 1" in reason(2, 2, 4, args=args, known=facts("0.4.6.post5"))


def test_the_newer_worker_by_environment_takes_chains_only() -> None:
    """SGLANG_ENABLE_SPEC_V2 in 0.5.4 to 0.5.10."""
    env = {"SGLANG_ENABLE_SPEC_V2": "1"}
    assert "SGLANG_ENABLE_SPEC_V2" in reason(2, 2, 4, env=env, known=facts("0.5.9"))
    assert not reason(2, 2, 4, env=env, known=facts("0.5.13"))
    assert not reason(2, 2, 4, env={"SGLANG_ENABLE_SPEC_V2": "0"}, known=facts("0.5.9"))


def test_a_silent_change_of_worker_is_noted() -> None:
    """0.5.11 and 0.5.12 run trees with the older worker."""
    for version, noted in (
        ("0.5.10", False),
        ("0.5.11", True),
        ("0.5.12.post1", True),
        ("0.5.13", False),
    ):
        note = judge(2, 2, 4, known=facts(version)).note or ""
        assert ("older worker" in note) == noted
        assert "older worker" not in (judge(2, 1, known=facts(version)).note or "")


def test_versions_that_do_not_count_accepted_tokens_are_noted() -> None:
    """They report cycles only."""
    assert "accept lengths stay unknown" in str(judge(known=facts("0.5.3")).note)
    assert judge(known=facts("0.5.5.post3")).note is None


def test_flags_are_those_of_the_node() -> None:
    """Unknown ones with what they may be called now; abbreviations that the parser takes pass."""
    flags: dict[str, list[str] | None] = {
        "cuda-graph-max-bs-decode": None,
        "cuda-graph-max-bs-prefill": None,
        "attention-backend": ["triton", "fa3"],
        "max-running-requests": None,
        "page-size": None,
        "trust-remote-code": None,
    }
    known = facts(flags=flags)
    assert not reason(args={"attention-backend": "fa3", "trust-remote-code": True}, known=known)
    assert not reason(args={"page": 1}, known=known)
    renamed = reason(args={"cuda-graph-max-bs": 8}, known=known)
    assert renamed == (
        "SGLang 0.5.23 on this node has no --cuda-graph-max-bs: is it --cuda-graph-max-bs-decode?"
    )
    assert "is it --page-size?" in reason(args={"page-siez": 1}, known=known)
    assert "one of triton, fa3, not fa4" in reason(args={"attention-backend": "fa4"}, known=known)
    baseline = ENGINE.judge(Configuration(None), experiment(args={"nope": 1}), known)
    assert "no --nope" in str(baseline.reason)
    assert not reason(args={"nope": 1})


def test_speculation_and_parallelism() -> None:
    """DP attention."""
    attention = {"enable-dp-attention": True}
    assert "enable-dp-attention" in reason(args=attention, algorithm="STANDALONE")
    assert not reason(args=attention)


def test_speculation_across_a_pipeline_is_eagles_and_asked_for() -> None:
    """From 0.5.22 on, by a variable of the environment."""
    pipeline: dict[str, Any] = {"args": {"pp-size": 2}, "algorithm": "EAGLE"}
    env = {"SGLANG_ENABLE_PP_SPEC": "1"}
    assert "across a pipeline" in reason(env=env, **pipeline, known=facts("0.5.20"))
    assert "SGLANG_ENABLE_PP_SPEC" in reason(**pipeline, known=facts("0.5.22"))
    assert not reason(env=env, **pipeline, known=facts("0.5.22"))
    assert "EAGLE3 does not work" in reason(
        env=env, args={"pp-size": 2}, algorithm="EAGLE3", known=facts("0.5.22")
    )


def test_rejection_sampling_needs_a_chain() -> None:
    """And an EAGLE drafter."""
    args = {"speculative-use-rejection-sampling": True}
    assert "needs topk 1" in reason(2, 2, 4, args=args)
    assert "STANDALONE" in reason(args=args, algorithm="STANDALONE")
    assert not reason(args=args)
    ngram = judge(None, 1, 8, algorithm="NGRAM", draft_model=None, args=args)
    assert ngram.reason is None
    assert "does nothing with NGRAM" in str(ngram.note)


def test_chat_carries_counts_from_0_5_20_on() -> None:
    """Before that, nobody could tell whether the draft was used."""
    assert "use api: native" in reason(api="chat", known=facts("0.5.19"))
    assert not reason(api="chat", known=facts("0.5.20"))
    baseline = ENGINE.judge(Configuration(None), experiment(api="chat"), facts("0.5.19"))
    assert baseline.reason is None


def test_what_is_known_of_one_python_does_not_judge_another() -> None:
    """A variant may bring an SGLang of its own."""
    other = Variant("other", python="/other/bin/python")
    subject = experiment(args={"nope": 1}, variants=(other,))
    known = facts(flags={"max-running-requests": None})
    asked = Configuration("EAGLE3", 2)
    assert ENGINE.judge(asked, subject, known).reason
    assert ENGINE.judge(replace(asked, variant="other"), subject, known).reason is None


def problems(**engine: Any) -> list[Problem]:
    """What is wrong with an experiment, whatever the version."""
    return list(ENGINE.problems(experiment(**engine)))


def test_what_sweep_sets_cannot_be_set() -> None:
    """Each with what to do instead, in any spelling."""
    names = ["port", "speculative_num_steps", "model", "enable-metrics", "speculative-adaptive"]
    found = problems(args=dict.fromkeys(names, 1))
    assert [problem.path[-1] for problem in found] == names
    assert all(problem.hint for problem in found)


def test_one_flag_under_two_names_is_told() -> None:
    """The server would take the last, and nobody would know which that is."""
    (problem,) = problems(args={"tp": 8, "tp-size": 4})
    assert "the same flag --tp-size" in problem.message


def test_limits_below_the_concurrency_are_told() -> None:
    """Requests would wait, or run without graphs."""
    found = problems(args={"max-running-requests": 1, "cuda-graph-max-bs": 1})
    assert ["queue" in found[0].message, "without CUDA graphs" in found[1].message] == [True, True]
    assert problems(args={"max-running-requests": 2, "cuda-graph-max-bs-decode": 2}) == []


def test_invented_acceptance_is_refused_and_kept_unset() -> None:
    """In the engine's environment, in a variant's, and in the node's login profile."""
    (problem,) = problems(env={"SGLANG_SIMULATE_ACC_LEN": "3"})
    assert "invent" in problem.message
    (problem,) = problems(variants=(Variant("v", env={"SGLANG_SIMULATE_ACC_LEN": "3"}),))
    assert problem.path == ("sweep", "variants", "v", "env", "SGLANG_SIMULATE_ACC_LEN")
    server = ENGINE.server(Configuration(None), experiment())
    assert "SGLANG_SIMULATE_ACC_LEN" in server.unset


def test_completions_carry_no_counts() -> None:
    """The native API does."""
    (problem,) = problems(api="completions")
    assert problem.path == ("workloads", 0, "api")
