"""Kernels of state-space models: imported by SGLang, and called for no model of ours."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)

    def missing(*_: Any, **__: Any) -> None:
        raise NotImplementedError(f"sgl_kernel.mamba.{name} has no stand-in for this CPU")

    return missing
