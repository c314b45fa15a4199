"""One server that is asked for, as the rules look at it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from sweep.engines.sglang.known import Known
from sweep.engines.sglang.speculation import NGRAM
from sweep.model.experiment import Scalar
from sweep.model.plan import Configuration

_NGRAM_BREADTH = 10
"""What SGLang takes when it is not told (0.5.3 to 0.5.23)."""


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

    def is_on(self, flag: str) -> bool:
        """Whether a bare flag is given."""
        return self.args.get(flag) is True

    def is_set(self, variable: str) -> bool:
        """Whether a variable of the environment is switched on, as SGLang reads it."""
        return (self.env.get(variable) or "").lower() in ("1", "true", "yes", "y")

    def without_speculation(self) -> Case:
        """Return the same server as a baseline."""
        return replace(self, configuration=replace(self.configuration, algorithm=None, topk=None))
