"""What a simulated server costs and accepts: the calibration file, and what derives from it.

A calibration holds milliseconds of each phase and conditional acceptances, never a throughput:
throughput is what is measured. Tables such as `verify_ms` map tokens to a value; between two
entries the value is interpolated, below the first it is the first, and above the last it goes on
as between the last two.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, Optional, Tuple

FORMAT = 1

Table = Dict[str, float]


def read_table(table: Mapping[str, float], tokens: float) -> float:
    """Return a table's value at a number of tokens."""
    points = sorted((float(key), value) for key, value in table.items())
    if len(points) == 1 or tokens <= points[0][0]:
        return points[0][1]
    upper = next((n for n, (at, _) in enumerate(points) if at >= tokens), len(points) - 1)
    (x0, y0), (x1, y1) = points[upper - 1], points[upper]
    return y0 + (y1 - y0) * (tokens - x0) / (x1 - x0)


@dataclass(frozen=True)
class Effect:
    """What an environment variable or an argument of the server changes when it has a value."""

    value: str
    variable: Optional[str] = None
    argument: Optional[str] = None
    verify_factor: Table = field(default_factory=lambda: {"1": 1.0})
    """Tokens of a request's verification → factor."""
    step_factor: float = 1.0

    def applies(self, environment: Mapping[str, str], arguments: Mapping[str, str]) -> bool:
        """Whether the server was started with this value."""
        if self.variable is not None:
            return environment.get(self.variable) == self.value
        return arguments.get(self.argument or "") == self.value


@dataclass(frozen=True)
class Speculation:
    """How the server speculates; `tokens` counts the root, as SGLang does."""

    steps: int
    topk: int
    tokens: int


@dataclass(frozen=True)
class Phases:
    """Milliseconds of the phases of one cycle. Without speculation `verify` is the whole step."""

    draft_ms: float
    verify_ms: float
    extend_ms: float
    other_ms: float

    @property
    def total_ms(self) -> float:
        """Milliseconds of the cycle."""
        return self.draft_ms + self.verify_ms + self.extend_ms + self.other_ms

    def scaled(self, factor: float) -> Phases:
        """Return the phases of a cycle that takes `factor` times as long."""
        return Phases(
            self.draft_ms * factor,
            self.verify_ms * factor,
            self.extend_ms * factor,
            self.other_ms * factor,
        )


@dataclass(frozen=True)
class Calibration:
    """A calibration file, see README.md. Times in milliseconds, except `load_s`."""

    name: str
    load_s: float
    prefill_ms: Mapping[str, float]
    """fixed, and per_token of the prompt that is not cached."""
    step_ms: float
    """Decoding one token without speculation."""
    draft_ms: Mapping[str, float]
    """fixed, and per_step."""
    verify_ms: Table
    """By tokens of one request, the root included."""
    extend_ms: float
    other_ms: float
    acceptance: Mapping[str, Any]
    """p: conditional acceptance by position, the last holds for all deeper ones; further_branch:
    share of the misses that each branch beyond the first recovers."""
    concurrency: Mapping[str, float]
    """step, verify: share by which each further running request makes them dearer."""
    noise_percent: float = 0.0
    """Standard deviation of a request's cycle time around the model."""
    effects: Tuple[Effect, ...] = ()
    faults: Mapping[str, Any] = field(default_factory=dict)

    def phases(
        self,
        speculation: Optional[Speculation],
        running: int,
        active: Tuple[Effect, ...] = (),
    ) -> Phases:
        """Return the cost of one cycle while `running` requests are decoded together."""
        others = max(0, running - 1)
        if speculation is None:
            factor = 1.0 + self.concurrency["step"] * others
            for effect in active:
                factor *= effect.step_factor
            return Phases(0.0, self.step_ms * factor, 0.0, 0.0)
        factor = 1.0 + self.concurrency["verify"] * others
        for effect in active:
            factor *= read_table(effect.verify_factor, speculation.tokens)
        return Phases(
            draft_ms=self.draft_ms["fixed"] + self.draft_ms["per_step"] * speculation.steps,
            verify_ms=read_table(self.verify_ms, speculation.tokens) * factor,
            extend_ms=self.extend_ms,
            other_ms=self.other_ms,
        )

    def conditional(self, speculation: Speculation) -> List[float]:
        """Return for each depth the probability that a draft token is accepted when those above
        it are.

        The draft tokens of a tree are spread evenly over its levels: a level of b branches
        accepts with 1 - (1 - p)(1 - further_branch)^(b - 1).
        """
        drafted = speculation.tokens - 1
        depth = min(speculation.steps, drafted)
        branches = min(float(speculation.topk), drafted / depth) if depth else 1.0
        missed_again = (1.0 - self.acceptance["further_branch"]) ** (branches - 1.0)
        given: List[float] = self.acceptance["p"]
        chain = [given[min(position, len(given) - 1)] for position in range(depth)]
        return [1.0 - (1.0 - p) * missed_again for p in chain]

    def accept_length(self, speculation: Speculation) -> float:
        """Return the expected accept length, the bonus included: 1 + p1 + p1·p2 and so on."""
        length = reached = 1.0
        for probability in self.conditional(speculation):
            reached *= probability
            length += reached
        return length

    def prefill_s(self, tokens: int) -> float:
        """Return the time to the first token of a prompt of which `tokens` are not cached [s]."""
        return (self.prefill_ms["fixed"] + self.prefill_ms["per_token"] * tokens) / 1000.0


def parse(text: str) -> Calibration:
    """Read a calibration file. Raises ValueError, KeyError or TypeError when it is none."""
    values = json.loads(text)
    if not isinstance(values, dict) or values.pop("format", None) != FORMAT:
        raise ValueError("not a calibration of format %d" % FORMAT)
    values.pop("about", None)
    values["effects"] = tuple(Effect(**effect) for effect in values.get("effects", ()))
    return Calibration(**values)
