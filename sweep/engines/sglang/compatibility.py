"""What SGLang refuses, by version, GPU, model and argument: before a load instead of after it.

Each rule says why and in which version that was read. A fact that is not known is not judged.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping
from math import prod

from sweep.engines.sglang import backends
from sweep.engines.sglang.case import Case
from sweep.engines.sglang.speculation import NGRAM

_NO_DRAFT_WITHIN = (
    "LlamaForCausalLM",
    "Llama4ForConditionalGeneration",
    "Qwen2ForCausalLM",
    "Qwen3ForCausalLM",
    "Qwen3MoeForCausalLM",
    "MixtralForCausalLM",
    "GptOssForCausalLM",
)
"""Targets whose files are known to hold no layers that draft."""

_KIMI = "KimiK25ForConditionalGeneration"

_RENAMED = {
    "cuda-graph-max-bs": "cuda-graph-max-bs-decode",
    "cuda-graph-bs": "cuda-graph-bs-decode",
    "disable-cuda-graph": "cuda-graph-backend-decode",
}


def reason(case: Case) -> str | None:
    """Return why a server cannot run; None: nothing known speaks against it."""
    rules: tuple[_Rule, ...] = _ANY_SERVER
    if not case.configuration.is_baseline:
        rules = (*rules, *_SPECULATING)
    return next((found for rule in rules if (found := rule(case)) is not None), None)


def notes(case: Case) -> Iterator[str]:
    """Yield what is worth knowing of a server that can run."""
    if case.configuration.is_baseline:
        return
    if case.topk > 1 and case.known.since(0, 5, 11) and case.known.before(0, 5, 13):
        yield (
            f"topk above 1: {case.known.name} drafts trees with its older worker, which does not "
            "overlap, and chains with the newer one: they differ in more than topk"
        )
    if (note := backends.note(case)) is not None:
        yield note
    if case.configuration.algorithm == NGRAM and case.is_on("speculative-use-rejection-sampling"):
        yield "speculative-use-rejection-sampling does nothing with NGRAM"
    if case.known.before(0, 5, 5):
        yield (
            f"{case.known.name} does not count accepted draft tokens: accept lengths stay unknown"
        )


_Rule = Callable[[Case], str | None]


def _flags(case: Case) -> str | None:
    flags = case.known.flags
    if flags is None:
        return None
    for name, value in case.args.items():
        taken = name if name in flags else _abbreviated(name, flags)
        if taken is None:
            return f"{case.known.name} on this node has no --{name}{_instead(name, flags)}"
        values = flags[taken]
        if values is not None and not isinstance(value, bool) and str(value) not in values:
            return f"{case.known.name} takes for --{taken} one of {', '.join(values)}, not {value}"
    return None


def _abbreviated(name: str, flags: Mapping[str, object]) -> str | None:
    """Return the one flag that begins with `name`: the server's parser takes it for that."""
    longer = [flag for flag in flags if flag.startswith(name)]
    return longer[0] if len(longer) == 1 else None


def _instead(name: str, flags: Mapping[str, object]) -> str:
    near = (
        [_RENAMED[name]] if _RENAMED.get(name) in flags else difflib.get_close_matches(name, flags)
    )
    return f": is it --{near[0]}?" if near else ""


def _gpus(case: Case) -> str | None:
    """Every rank of tensor and pipeline parallelism has a GPU of its own; data parallelism has as
    many again, unless it is that of the attention, which shares them (model_parallel of all
    versions)."""
    elsewhere = case.args.get("nnodes", 1) != 1 or case.args.get("device", "cuda") != "cuda"
    if elsewhere or not case.known.gpus:
        return None
    sizes = {name: case.args.get(name, 1) for name in ("tp-size", "pp-size", "dp-size")}
    if case.is_on("enable-dp-attention"):
        del sizes["dp-size"]
    needed = prod(size for size in sizes.values() if isinstance(size, int))
    if needed <= case.known.gpus:
        return None
    given = " × ".join(f"{name} {size}" for name, size in sizes.items() if size != 1)
    return f"{given} needs {needed} GPUs, and the node gives {case.known.gpus} (node.gpus)"


def _algorithm(case: Case) -> str | None:
    for name, since in {"STANDALONE": (0, 5, 2), NGRAM: (0, 5, 3)}.items():
        if case.configuration.algorithm == name and case.known.before(*since):
            came = ".".join(map(str, since))
            return f"{name} came with SGLang {came}, the node has {case.known.name}"
    return None


def _draft_model(case: Case) -> str | None:
    algorithm, architecture = case.configuration.algorithm, case.known.architecture
    if case.draft_model is not None or algorithm == NGRAM:
        return None
    if algorithm in ("EAGLE3", "STANDALONE"):
        return (
            f"{algorithm} needs a draft model: without one SGLang loads the target twice and "
            "crashes; give draft_model, the variant's where the algorithm is"
        )
    if architecture in _NO_DRAFT_WITHIN:
        return (
            f"{algorithm} without a draft model takes the target's own draft layers, and "
            f"{architecture} has none: give engine.draft_model"
        )
    return None


def _model(case: Case) -> str | None:
    if case.known.architecture == _KIMI and case.known.before(0, 5, 9):
        return f"{case.known.name} does not know Kimi-K2.5: that came with 0.5.9"
    return None


def _model_support(case: Case) -> str | None:
    if (
        case.configuration.algorithm == "EAGLE3"
        and case.known.architecture == _KIMI
        and case.known.before(0, 5, 10)
    ):
        return (
            f"{case.known.name} hands no hidden states of Kimi-K2.5 to an EAGLE-3 drafter: that "
            "came with 0.5.10"
        )
    return None


def _tree_worker(case: Case) -> str | None:
    """The newer worker was taken by environment, and took chains only."""
    forced = case.is_set("SGLANG_ENABLE_SPEC_V2")
    if case.topk > 1 and forced and case.known.since(0, 5, 4) and case.known.before(0, 5, 11):
        return (
            f"topk {case.topk}: with SGLANG_ENABLE_SPEC_V2 set, {case.known.name} refuses trees "
            "(0.5.4 to 0.5.10)"
        )
    return None


def _parallelism(case: Case) -> str | None:
    algorithm = case.configuration.algorithm
    if algorithm in ("STANDALONE", NGRAM) and case.is_on("enable-dp-attention"):
        return f"{algorithm} does not work with enable-dp-attention (all versions)"
    return None


def _pipeline(case: Case) -> str | None:
    size, algorithm = case.args.get("pp-size", 1), case.configuration.algorithm
    if not isinstance(size, int) or size == 1:
        return None
    found = None
    if case.known.before(0, 5, 22):
        found = f"{case.known.name} does not speculate across a pipeline"
    elif algorithm not in ("EAGLE", "NEXTN"):
        found = f"{algorithm} does not work across a pipeline, EAGLE does (0.5.22 and newer)"
    elif not case.is_set("SGLANG_ENABLE_PP_SPEC"):
        found = "set SGLANG_ENABLE_PP_SPEC to 1 in engine.env to speculate (0.5.22 and newer)"
    elif case.is_on("enable-dp-attention"):
        found = "speculation does not work with enable-dp-attention too (0.5.22 and newer)"
    return found and f"pp-size {size}: {found}"


def _rejection_sampling(case: Case) -> str | None:
    if not case.is_on("speculative-use-rejection-sampling"):
        return None
    if case.configuration.algorithm == "STANDALONE":
        return "STANDALONE does not work with speculative-use-rejection-sampling (0.5.14 and newer)"
    if case.topk > 1:
        return (
            f"topk {case.topk}: speculative-use-rejection-sampling needs topk 1 (0.5.14 and newer)"
        )
    return None


_ANY_SERVER: tuple[_Rule, ...] = (_flags, _gpus, _model, backends.for_gpu, backends.pages)
_SPECULATING: tuple[_Rule, ...] = (
    _algorithm,
    _draft_model,
    _model_support,
    backends.tree,
    backends.tree_pages,
    _tree_worker,
    _parallelism,
    _pipeline,
    _rejection_sampling,
)
