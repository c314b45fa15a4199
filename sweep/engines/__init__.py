"""Engines: everything that is known of one kind of server, as pure functions of values."""

from __future__ import annotations

from sweep.engines.llama_cpp import LlamaCpp
from sweep.engines.rehearsed import Rehearsed
from sweep.engines.sglang import SGLang
from sweep.engines.simulator import Simulator
from sweep.model.errors import UsageError
from sweep.model.experiment import EngineSpec
from sweep.ports import Engine

_ENGINES: dict[str, Engine] = {
    engine.kind: engine for engine in (LlamaCpp(), SGLang(), Simulator())
}

KINDS = tuple(_ENGINES)
"""Values of `engine.kind` that exist."""


def engine_of(spec: EngineSpec) -> Engine:
    """Return the engine of an experiment; UsageError names the kinds that exist."""
    for kind in (spec.kind, spec.rehearses or spec.kind):
        if kind not in _ENGINES:
            raise UsageError(
                f"engine.kind {kind!r} is not built", hint=f"kinds: {', '.join(KINDS)}"
            )
    if spec.rehearses is not None:
        return Rehearsed(_ENGINES[spec.rehearses])
    return _ENGINES[spec.kind]
