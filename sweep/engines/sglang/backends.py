"""Attention backends: which SGLang takes, which GPUs, pages and trees each of them can do.

Held against the argument code of releases from 0.4.6 to 0.5.23.
"""

from __future__ import annotations

from sweep.engines.sglang.case import Case
from sweep.engines.sglang.speculation import NGRAM

HOPPER, BLACKWELL, SMALL_BLACKWELL = 90, 100, 120
"""Compute capabilities: H100, B200, and the cards for workstations, which are no small B200."""
_HOPPERS, _BLACKWELLS, _SMALL_BLACKWELLS = 9, 10, 12
"""Their generations: what SGLang looks at when it chooses."""

_PAGES = {
    "flashmla": (64,),
    "cutlass_mla": (128,),
    "trtllm_mla": (32, 64),
    "cutedsl_mla": (32, 64),
    "trtllm_mha": (16, 32, 64),
}
"""Tokens of a page that a backend can do: SGLang replaces another number without asking."""
_FOR_DECODING = ("flashmla", "cutlass_mla", "trtllm_mla", "cutedsl_mla")
"""Those whose pages count for nothing when they only read prompts."""
_CHAINS_ONLY = ("flashmla", "cutlass_mla", "trtllm_mla", "trtllm_mha", "cutedsl_mla")


def general(case: Case) -> str | None:
    """Return the backend for everything that no other one is asked for; None: not known."""
    asked = case.args.get("attention-backend")
    prefill = case.args.get("prefill-attention-backend")
    decode = case.args.get("decode-attention-backend")
    if prefill is not None and prefill == decode:
        return str(decode)
    return chosen(case) if asked is None else str(asked)


def decoding(case: Case) -> str | None:
    """Return the backend for decoding and verifying; None: not known."""
    asked = case.args.get("decode-attention-backend")
    return general(case) if asked is None else str(asked)


def prefilling(case: Case) -> str | None:
    """Return the backend for reading prompts; None: not known."""
    asked = case.args.get("prefill-attention-backend")
    return general(case) if asked is None else str(asked)


def chosen(case: Case) -> str | None:
    """Return the backend that SGLang takes for GPU and model when none is asked for.

    Known for models whose choice was tried with 0.5.9 to 0.5.23, flashinfer being installed.
    """
    known = case.known
    if known.capability is None or not known.since(0, 5, 9):
        return None
    generation = known.capability // 10
    if known.architecture in ("DeepseekV3ForCausalLM", "KimiK25ForConditionalGeneration"):
        split = {"prefill-attention-backend", "decode-attention-backend"} & case.args.keys()
        newest = "flashinfer" if split else "trtllm_mla"
        return {_HOPPERS: "fa3", _BLACKWELLS: newest, _SMALL_BLACKWELLS: "triton"}.get(generation)
    if known.architecture == "LlamaForCausalLM":
        return _chosen_for_llama(case, generation)
    return None


def _chosen_for_llama(case: Case, generation: int) -> str | None:
    """Trees, and chains over pages, get flashinfer; the newer GPUs' backend is for the rest."""
    pages = case.args.get("page-size", 1) != 1
    algorithm = case.configuration.algorithm
    branching = algorithm not in (None, NGRAM) and (case.topk > 1 or pages)
    if generation == _HOPPERS:
        return "flashinfer" if branching else "fa3"
    if generation == _BLACKWELLS:
        return "flashinfer" if branching or algorithm == NGRAM else "trtllm_mha"
    return "flashinfer" if generation == _SMALL_BLACKWELLS else None


def for_gpu(case: Case) -> str | None:
    """Return why a backend cannot run on the GPUs."""
    capability, known = case.known.capability, case.known
    if capability is None:
        return None
    small = not BLACKWELL <= capability < SMALL_BLACKWELL
    no_mla = capability < BLACKWELL or (small and known.before(0, 5, 9))
    no_decode = small and known.before(0, 5, 10)
    no_prefill = small and known.before(0, 5, 19)
    prefill, decode = (prefilling(case),), (decoding(case),)
    limits = (
        ("fa3", prefill + decode, capability > HOPPER, "it is for 8.0 to 9.0 (all versions)"),
        ("cutedsl_mla", prefill + decode, small, "it needs 10.0 (0.5.13 and newer)"),
        ("trtllm_mla", prefill + decode, no_mla, "it needs 10.0, or 12.0 with 0.5.9 and newer"),
        ("trtllm_mha", decode, no_decode, "before 0.5.10 it needs 10.0"),
        ("trtllm_mha", prefill, no_prefill, "to read prompts it needs 10.0 before 0.5.19"),
    )
    for backend, asked, is_refused, why in limits:
        if is_refused and backend in asked:
            shown = f"{capability // 10}.{capability % 10}"
            return f"attention backend {backend} cannot run on GPUs of capability {shown}: {why}"
    return None


def pages(case: Case) -> str | None:
    """Return why pages of another size than asked for would be used."""
    asked = case.args.get("page-size")
    if asked is None or _page_size(case) == asked:
        return None
    backend = next(name for name in _with_pages(case) if asked not in _sizes(name, case))
    return (
        f"page-size {asked}: attention backend {backend}{_by_itself(backend, case)} runs with "
        f"{' or '.join(map(str, _sizes(backend, case)))} whatever is asked: give one of these, or "
        "another attention-backend"
    )


def _page_size(case: Case) -> object:
    """Return the tokens of a page: what is asked for, or what backends make of it in turn."""
    size = case.args.get("page-size", 1)
    for backend in _with_pages(case):
        if size not in _sizes(backend, case):
            size = max(_PAGES[backend])
    return size


def _with_pages(case: Case) -> list[str]:
    """Return the backends of a server that are particular about pages, as SGLang asks them."""
    deciding = {general(case), decoding(case)}
    found = [name for name in _FOR_DECODING if name in deciding]
    return [*found, "trtllm_mha"] if "trtllm_mha" in deciding | {prefilling(case)} else found


def _sizes(backend: str, case: Case) -> tuple[int, ...]:
    wide = backend == "trtllm_mha" and not case.known.before(0, 5, 18)
    return (*_PAGES[backend], 128) if wide else _PAGES[backend]


def _by_itself(backend: str | None, case: Case) -> str:
    asked = {case.args.get(f"{kind}attention-backend") for kind in ("", "prefill-", "decode-")}
    return "" if backend in asked else ", which SGLang takes here by itself,"


def tree(case: Case) -> str | None:
    """Return why a backend cannot verify trees."""
    if case.topk == 1:
        return None
    backend = decoding(case)
    if backend in _CHAINS_ONLY:
        return (
            f"topk {case.topk}: attention backend {backend}{_by_itself(backend, case)} verifies "
            "chains only (all versions)"
        )
    if backend == "flashinfer" and case.known.latent_attention:
        return (
            f"topk {case.topk}: flashinfer verifies chains only for models with latent attention "
            "(all versions): use triton"
        )
    return None


def tree_pages(case: Case) -> str | None:
    """Return why branches and pages do not go together: a page of several tokens has a tail that
    must be copied for each branch."""
    size = _page_size(case)
    if case.breadth == 1 or size == 1:
        return None
    if case.known.before(0, 5, 2):
        return f"page-size {size}: {case.known.name} sets topk to 1 without asking"
    able = ["flashinfer", "fa3", "triton"]
    if case.configuration.algorithm == NGRAM or case.known.before(0, 5, 9):
        able = ["flashinfer"]
    elif case.known.before(0, 5, 13):
        able = ["flashinfer", "fa3"]
    # Which one SGLang takes by itself did not count before 0.5.4: only a name did.
    unnamed = general(case) is None and case.known.before(0, 5, 4)
    if not unnamed and {general(case), decoding(case)} <= {None, *able}:
        return None
    return (
        f"{case.breadth} branches with page-size {size}: {case.known.name} can do that with "
        f"attention-backend {', '.join(able)} only (fa3 from 0.5.9, triton from 0.5.13; NGRAM "
        "flashinfer alone): use page-size 1"
    )


def note(case: Case) -> str | None:
    """Return that SGLang takes another backend for this than for the baseline, if it does."""
    backend = chosen(case) if "attention-backend" not in case.args else None
    without = chosen(case.without_speculation())
    if backend is None or backend == without:
        return None
    return (
        f"SGLang takes attention backend {backend} for this and {without} for the baseline: give "
        "attention-backend to compare speculation alone"
    )
