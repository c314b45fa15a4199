"""What a node says of its SGLang and its GPUs, as the rules ask for it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sweep.ports import EngineFacts

Version = tuple[int, int, int]

_VERSION = re.compile(r"sglang (\d+)\.(\d+)\.(\d+)")

_MLA_ARCHITECTURES = (
    "DeepseekV2ForCausalLM",
    "DeepseekV3ForCausalLM",
    "DeepseekV32ForCausalLM",
    "DeepseekVL2ForCausalLM",
    "GlmMoeDsaForCausalLM",
    "KimiK25ForConditionalGeneration",
    "KimiVLForConditionalGeneration",
    "LongcatFlashForCausalLM",
    "MiniCPM3ForCausalLM",
    "MistralLarge3ForCausalLM",
)
"""Target models with multi-head latent attention (model_config.py of 0.5.23, the released ones)."""


@dataclass(frozen=True)
class Known:
    """Facts that rules depend on; None: not known, and what depends on it is not judged."""

    version: Version | None = None
    capability: int | None = None
    """Largest CUDA compute capability of the GPUs as an integer: 120 for 12.0, 90 for 9.0."""
    gpus: int | None = None
    """How many a server is given."""
    architecture: str | None = None
    """Of the target model, by its config."""
    changes_steps: bool | None = None
    """Whether its source asks for the draft steps before each batch."""
    flags: Mapping[str, Sequence[str] | None] | None = None
    """Flags that the server takes, without dashes in front → the values it takes; None: any."""

    def before(self, *version: int) -> bool:
        """Whether the version is known, and older than this one."""
        return self.version is not None and self.version < version

    def since(self, *version: int) -> bool:
        """Whether the version is known, and this one or newer."""
        return self.version is not None and self.version >= version

    @property
    def latent_attention(self) -> bool:
        """Whether the target is known to have multi-head latent attention."""
        return self.architecture in _MLA_ARCHITECTURES

    @property
    def name(self) -> str:
        """The version for people."""
        return "SGLang" if self.version is None else "SGLang " + ".".join(map(str, self.version))


def read(facts: EngineFacts | None, model: str) -> Known:
    """Return what the rules ask for of what the node said; `model` is the target's name."""
    if facts is None:
        return Known()
    match = _VERSION.match(facts.version or "")
    return Known(
        version=(int(match[1]), int(match[2]), int(match[3])) if match else None,
        capability=_capability(facts.gpu_capabilities),
        gpus=facts.gpus,
        architecture=facts.architectures.get(model),
        changes_steps=facts.details.get("changes_steps"),
        flags=facts.details.get("flags"),
    )


def _capability(texts: Sequence[str]) -> int | None:
    found = [re.fullmatch(r"(\d+)\.(\d)", text) for text in texts]
    return max((int(match[1] + match[2]) for match in found if match), default=None)
