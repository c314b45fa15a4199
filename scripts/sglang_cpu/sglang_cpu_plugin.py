"""SGLang's plugin: on a CPU without AMX, `torch_native` attention that can speculate.

Without AMX the server insists on the backend `torch_native`, whose own class refuses speculation;
that of AMX does not need AMX once its kernels are replaced.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def install() -> None:
    """Called by SGLang in each of its processes."""
    from sglang.srt.layers.attention import attention_registry  # noqa: PLC0415 - not before SGLang
    from sglang.srt.speculative.draft_utils import DraftBackendFactory  # noqa: PLC0415

    backends = attention_registry.ATTENTION_BACKENDS
    backends["torch_native"] = backends["intel_amx"]
    original = DraftBackendFactory._create_backend  # noqa: SLF001 - there is no other seam

    def create(
        factory: Any, name: str, makers: Mapping[str, Any], *args: Any, **kwargs: Any
    ) -> Any:
        if "intel_amx" in makers:
            makers = {**makers, "torch_native": makers["intel_amx"]}
        return original(factory, name, makers, *args, **kwargs)

    DraftBackendFactory._create_backend = create  # noqa: SLF001
