"""Models on a node: every file there and whole, and drafters made for the target."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sweep.check.facts import Facts
from sweep.check.line import CheckLine, error, ok, warning
from sweep.check.wording import counted, size, some
from sweep.ports import Installation

_OTHER_DRAFTER = "take the drafter that was trained for this target"
_GGUF_TOLERANCE = 128
"""llama.cpp drafts with a vocabulary that is larger or smaller by so many tokens, and serves
without drafting beyond it (SPEC_VOCAB_MAX_SIZE_DIFFERENCE)."""


def lines(
    facts: Facts, installation: Installation, algorithms: Mapping[str, str | None]
) -> Iterator[CheckLine]:
    """Yield what is to be said of the models; the first one is the target, and `algorithms` says
    what each of the others drafts for."""
    models = facts.answer["models"]
    if models is None:
        return
    for position, name in enumerate(installation.models):
        yield _files("drafter" if position else "model", name, models[name])
    if installation.models:
        target = models[installation.models[0]]["config"]
        for name in installation.models[1:]:
            yield from _pair(name, models[name]["config"], target, algorithms.get(name))


def _files(kind: str, name: str, model: Mapping[str, Any]) -> CheckLine:
    if model["path"] is None:
        return _absent(kind, name, model)
    if model["problems"]:
        partial = model["partial_files"]
        ended = f"; {counted(partial, 'download')} did not end" if partial else ""
        return error(kind, f"{name}: {some(model['problems'], 5)}{ended}", _get_again(name, model))
    known = [size(model["size_bytes"]), counted(model["weights"], "file")]
    known += [model["config"]["model_type"]] if model["config"].get("model_type") else []
    known += [f"revision {model['revision'][:12]}"] if model["revision"] else []
    finding = f"{name}: {', '.join(known)}"
    if model["unread"]:
        return warning(
            kind,
            f"{finding}; {model['unread']} not looked into, for want of time or because their "
            "format is a newer one",
        )
    return ok(kind, finding)


def _absent(kind: str, name: str, model: Mapping[str, Any]) -> CheckLine:
    if model["kind"] != "hub":
        return error(kind, f"{name} does not exist", "correct the path in the experiment file")
    finding, remedy = f"{name} is not in the hub's cache", f"on the node: hf download {name}"
    if model["offline"]:
        return error(kind, f"{finding}, and HF_HUB_OFFLINE forbids to download it", remedy)
    return warning(
        kind, f"{finding}: the first launch would download it, within timeouts.load", remedy
    )


def _get_again(name: str, model: Mapping[str, Any]) -> str:
    if model["kind"] == "hub":
        return f"complete it on the node: hf download {name}"
    return "copy or download these files again"


def _pair(
    name: str, ours: Mapping[str, Any], theirs: Mapping[str, Any], algorithm: str | None
) -> Iterator[CheckLine]:
    """Compare a drafter's dimensions with its target's."""
    if not ours or not theirs:
        return
    heads = _reads_hidden_states(ours, algorithm)
    found = [
        *_vocabulary(name, ours, theirs, heads=heads),
        *(_hidden_size(name, ours, theirs) if heads else ()),
        *(_layers(name, ours, theirs) if heads else ()),
        *(_no_head(name, ours) if algorithm == "EAGLE3" else ()),
    ]
    yield from found or [ok("drafter", f"{name}: fits, {_fit(ours, theirs, heads=heads)}")]


def _reads_hidden_states(config: Mapping[str, Any], algorithm: str | None) -> bool:
    """Whether a drafter is a head on the target's hidden states (EAGLE) and no model of its own."""
    named = f"{config.get('architecture') or ''} {algorithm or ''}".lower()
    return "eagle" in named or config.get("draft_vocab_size") is not None


def _vocabulary(
    name: str, ours: Mapping[str, Any], theirs: Mapping[str, Any], *, heads: bool
) -> Iterator[CheckLine]:
    own, wanted = ours.get("vocab_size"), theirs.get("vocab_size")
    if own is None or wanted is None:
        yield warning("drafter", f"{name}: no config tells both vocabularies: not compared")
    elif own != wanted:
        finding = f"{name}: its vocabulary has {own} tokens, the target's {wanted}"
        certain = heads or abs(own - wanted) > _GGUF_TOLERANCE
        yield (error if certain else warning)("drafter", finding, _OTHER_DRAFTER)


def _hidden_size(
    name: str, ours: Mapping[str, Any], theirs: Mapping[str, Any]
) -> Iterator[CheckLine]:
    own = ours.get("target_hidden_size") or ours.get("hidden_size")
    wanted = theirs.get("hidden_size")
    if own is None or wanted is None:
        yield warning("drafter", f"{name}: no config tells both hidden sizes: not compared")
    elif own != wanted:
        finding = f"{name}: it reads hidden states of size {own}, the target's have {wanted}"
        yield error("drafter", finding, _OTHER_DRAFTER)


def _layers(name: str, ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> Iterator[CheckLine]:
    layers, count = ours.get("layers"), theirs.get("num_hidden_layers")
    if not layers or count is None:
        return
    finding = f"{name}: it reads layers {_list(layers)}"
    if any(not isinstance(layer, int) or not 0 <= layer < count for layer in layers):
        last = f"the target's are 0 to {count - 1}"
        yield error("drafter", f"{finding}, {last}", _OTHER_DRAFTER)
    elif _inputs_differ(ours, theirs):
        yield error(
            "drafter",
            f"{finding}, each once, but its weights take {ours['inputs']} values of a token, the "
            f"hidden states of {ours['inputs'] / theirs['hidden_size']:g}",
            "correct the list in its config.json: as it is, the server fails while it loads",
        )
    elif count - 1 in layers:
        # SGLang hands over what enters the next layer; for a few models only, it goes on after the
        # last one. The real 0.5.23 failed so with a Llama when it first drafted.
        certain = theirs.get("architecture") == "LlamaForCausalLM"
        yield (error if certain else warning)(
            "drafter",
            f"{finding}: SGLang hands over nothing of the last, {count - 1}, for most models",
            "correct the list in its config.json: the server fails when it first drafts",
        )
    elif len(set(layers)) < len(layers):
        yield warning(
            "drafter",
            f"{finding}, one of them twice",
            "correct the list in its config.json: a wrong one costs acceptance, and no log says so",
        )


def _inputs_differ(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> bool:
    """Whether the weights that join hidden states are made for another number of layers. A layer
    that is listed twice is read once, and the order does not count (tried with SGLang 0.5.23)."""
    inputs, size = ours.get("inputs"), theirs.get("hidden_size")
    return inputs is not None and size is not None and inputs != size * len(set(ours["layers"]))


def _no_head(name: str, ours: Mapping[str, Any]) -> Iterator[CheckLine]:
    """SGLang takes the class that the config names, and only heads can be read as one: seen with
    0.5.23, which fails with "has no attribute 'hot_token_id'" while it loads."""
    architecture = ours.get("architecture") or ""
    if architecture.endswith("ForCausalLM") and "eagle" not in architecture.lower():
        yield error(
            "drafter",
            f"{name}: its config names {architecture}, a model of its own and no head for EAGLE3",
            "take an EAGLE-3 head, or algorithm: STANDALONE for a model of its own",
        )


def _fit(ours: Mapping[str, Any], theirs: Mapping[str, Any], *, heads: bool) -> str:
    parts = [f"{ours['vocab_size']} tokens"]
    if heads:
        parts.append(f"hidden size {theirs['hidden_size']}")
        layers = ours.get("layers")
        parts.append(
            f"layers {_list(layers)} of {theirs.get('num_hidden_layers')}"
            if layers
            else "no list of layers: the engine's default is read"
        )
    return ", ".join(parts)


def _list(layers: list[Any]) -> str:
    return ", ".join(map(str, layers))
