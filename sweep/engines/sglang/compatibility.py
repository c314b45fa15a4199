"""What SGLang refuses, by version, GPU, model and argument: before a load instead of after it.

Each rule says why and in which version that was read. A fact that is not known is not judged.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from sweep.engines.sglang.known import Known
from sweep.engines.sglang.speculation import NGRAM
from sweep.model.experiment import Scalar
from sweep.model.plan import Configuration

HOPPER, BLACKWELL, SMALL_BLACKWELL = 90, 100, 120
"""Compute capabilities: H100, B200, and the cards for workstations, which are no small B200."""

_NGRAM_BREADTH = 10
"""What SGLang takes when it is not told (0.5.3 to 0.5.23)."""

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

_RENAMED = {
    "cuda-graph-max-bs": "cuda-graph-max-bs-decode",
    "cuda-graph-bs": "cuda-graph-bs-decode",
    "disable-cuda-graph": "cuda-graph-backend-decode",
}


@dataclass(frozen=True)
class Case:
    """One server that is asked for, and what is known of where it would run."""

    configuration: Configuration
    args: Mapping[str, Scalar]
    """By long name."""
    env: Mapping[str, str | None]
    draft_model: str | None
    known: Known

    @property
    def topk(self) -> int:
        """Branches of a step; NGRAM has a breadth instead, which counts nowhere but with pages."""
        return self.configuration.topk or 1

    @property
    def breadth(self) -> int:
        """The most candidates side by side."""
        if self.configuration.algorithm != NGRAM:
            return self.topk
        given = self.args.get("speculative-ngram-max-bfs-breadth")
        return given if isinstance(given, int) else _NGRAM_BREADTH

    @property
    def decode_backend(self) -> str | None:
        """The attention backend that is asked for decoding and verifying; None: SGLang's own."""
        return self._backend("decode-attention-backend")

    @property
    def prefill_backend(self) -> str | None:
        """The attention backend that is asked for reading prompts; None: SGLang's own."""
        return self._backend("prefill-attention-backend")

    def _backend(self, name: str) -> str | None:
        value = self.args.get(name, self.args.get("attention-backend"))
        return None if value is None else str(value)

    def is_on(self, flag: str) -> bool:
        """Whether a bare flag is given."""
        return self.args.get(flag) is True


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


def _backend_for_gpu(case: Case) -> str | None:
    capability, known = case.known.capability, case.known
    if capability is None:
        return None
    small = not BLACKWELL <= capability < SMALL_BLACKWELL
    no_mla = capability < BLACKWELL or (small and known.before(0, 5, 9))
    no_decode = small and known.before(0, 5, 10)
    no_prefill = small and known.before(0, 5, 14)
    prefill, decode = (case.prefill_backend,), (case.decode_backend,)
    limits = (
        ("fa3", prefill + decode, capability > HOPPER, "it is for 8.0 to 9.0 (all versions)"),
        ("cutedsl_mla", prefill + decode, small, "it needs 10.0 (0.5.13 and newer)"),
        ("trtllm_mla", prefill + decode, no_mla, "it needs 10.0, or 12.0 with 0.5.9 and newer"),
        ("trtllm_mha", decode, no_decode, "before 0.5.10 it needs 10.0"),
        ("trtllm_mha", prefill, no_prefill, "to read prompts it needs 10.0 before 0.5.14"),
    )
    for backend, asked, is_refused, why in limits:
        if is_refused and backend in asked:
            shown = f"{capability // 10}.{capability % 10}"
            return f"attention backend {backend} cannot run on GPUs of capability {shown}: {why}"
    return None


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


def _model_support(case: Case) -> str | None:
    if (
        case.configuration.algorithm == "EAGLE3"
        and case.known.architecture == "KimiK25ForConditionalGeneration"
        and case.known.before(0, 5, 10)
    ):
        return (
            f"{case.known.name} hands no hidden states of Kimi-K2.5 to an EAGLE-3 drafter: that "
            "came with 0.5.10"
        )
    return None


def _tree_backend(case: Case) -> str | None:
    if case.topk == 1:
        return None
    backend = case.decode_backend
    if backend in ("flashmla", "cutlass_mla", "trtllm_mla", "trtllm_mha", "cutedsl_mla"):
        return f"topk {case.topk}: attention backend {backend} verifies chains only (all versions)"
    if backend == "flashinfer" and case.known.latent_attention:
        return (
            f"topk {case.topk}: flashinfer verifies chains only for models with latent attention "
            "(all versions): use triton"
        )
    return None


def _tree_pages(case: Case) -> str | None:
    """A page of several tokens has a tail that must be copied for each branch."""
    size = case.args.get("page-size", 1)
    backend = case.decode_backend
    if case.breadth == 1 or size == 1 or backend is None:
        return None
    if case.known.before(0, 5, 2):
        return f"page-size {size}: {case.known.name} sets topk to 1 without asking"
    able = ["flashinfer", "fa3", "triton"]
    if case.configuration.algorithm == NGRAM or case.known.before(0, 5, 9):
        able = ["flashinfer"]
    elif case.known.before(0, 5, 13):
        able = ["flashinfer", "fa3"]
    if backend in able:
        return None
    return (
        f"{case.breadth} branches with page-size {size}: {case.known.name} can do that with "
        f"{', '.join(able)} only (fa3 from 0.5.9, triton from 0.5.13; NGRAM flashinfer alone): use "
        "page-size 1"
    )


def _tree_worker(case: Case) -> str | None:
    """The newer worker was taken by environment, and took chains only."""
    forced = (case.env.get("SGLANG_ENABLE_SPEC_V2") or "").lower() in ("1", "true", "yes", "y")
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
    size = case.args.get("pp-size", 1)
    if isinstance(size, int) and size > 1 and case.known.before(0, 5, 22):
        return f"pp-size {size}: {case.known.name} does not speculate across a pipeline"
    return None


def _rejection_sampling(case: Case) -> str | None:
    if not case.is_on("speculative-use-rejection-sampling"):
        return None
    algorithm = case.configuration.algorithm
    if algorithm not in ("EAGLE", "EAGLE3", "NEXTN"):
        return (
            f"{algorithm} does not work with speculative-use-rejection-sampling (0.5.14 and newer)"
        )
    if case.topk > 1:
        return (
            f"topk {case.topk}: speculative-use-rejection-sampling needs topk 1 (0.5.14 and newer)"
        )
    return None


_ANY_SERVER: tuple[_Rule, ...] = (_flags, _backend_for_gpu)
_SPECULATING: tuple[_Rule, ...] = (
    _algorithm,
    _draft_model,
    _model_support,
    _tree_backend,
    _tree_pages,
    _tree_worker,
    _parallelism,
    _rejection_sampling,
)
