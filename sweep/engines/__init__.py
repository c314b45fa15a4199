"""Engines: everything that is known of one kind of server, as pure functions of values."""

from __future__ import annotations

from sweep.engines.llama_cpp import LlamaCpp
from sweep.engines.simulator import Simulator
from sweep.model.errors import UsageError
from sweep.ports import Engine

_ENGINES: dict[str, Engine] = {engine.kind: engine for engine in (LlamaCpp(), Simulator())}

KINDS = tuple(_ENGINES)
"""Values of `engine.kind` that exist."""


def engine(kind: str) -> Engine:
    """Return the engine of a kind; UsageError names those that exist."""
    if kind not in _ENGINES:
        raise UsageError(f"engine.kind {kind!r} is not built", hint=f"kinds: {', '.join(KINDS)}")
    return _ENGINES[kind]
