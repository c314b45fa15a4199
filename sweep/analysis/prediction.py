"""What the chains of a line say of each other: accept length, cost of a cycle, and throughput.

A line is a configuration over its draft steps (topk 1) at one node, workload and concurrency. Its
longest chain predicts what shorter ones accept, a cost model what a cycle of any takes, and the two
the decode rate at every step count up to the longest, launched or not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from sweep.analysis.acceptance import chain_accept_length
from sweep.analysis.cost_model import (
    MIN_POINTS,
    CostModel,
    TimedChain,
    fit_costs,
    refit_costs,
)
from sweep.analysis.glossary import SHARE_PREFIX
from sweep.analysis.lines import line_name
from sweep.analysis.phases import DISAGREES
from sweep.analysis.ranking import ended_ok
from sweep.analysis.verdict import PLACE, launches_together, ranking_rows
from sweep.analysis.wording import counted, known, listed

_TIMES = ("verify_ms", "draft_ms", "cycle_ms")
_SAME_TOKENS = 0.01
"""Share by which a chain may verify other than steps + 1 tokens and still count as one."""


@dataclass(frozen=True)
class Measured:
    """What a chain that was launched measured; None: not known."""

    accept_length: float | None
    verify_ms: float | None
    cycle_ms: float | None
    decode_tok_s: float | None
    decode_error: float | None
    """Predicted ÷ measured decode rate - 1, its own times left out of the fit."""


NOT_MEASURED = Measured(None, None, None, None, None)
"""Of a step count that was not launched, or did not end ok."""


@dataclass(frozen=True)
class Step:
    """A number of draft steps: what is predicted of it, and what was measured if it was launched.

    `accept_length` [tokens/cycle] None: acceptance by position is not known; times [ms] None: no
    cost model; `decode_tok_s` of one stream [tokens/s] None: one of the two.
    """

    steps: int
    accept_length: float | None
    verify_ms: float | None
    cycle_ms: float | None
    decode_tok_s: float | None
    measured: Measured = NOT_MEASURED

    @property
    def accept_length_error(self) -> float | None:
        """Predicted ÷ measured accept length - 1."""
        return _error(self.accept_length, self.measured.accept_length)

    @property
    def verify_residual_ms(self) -> float | None:
        """Measured - fitted verification [ms]."""
        measured_ms = self.measured.verify_ms
        if measured_ms is None or self.verify_ms is None:
            return None
        return measured_ms - self.verify_ms


@dataclass(frozen=True)
class Line:
    """The chains of one configuration over their draft steps, at one place."""

    node: str
    workload: str
    concurrency: int
    name: str
    longest: int | None
    """Steps of the chain whose acceptance by position is used; None: it is known of none."""
    costs: CostModel | None
    refused: str
    """Why there is no cost model; empty: there is one."""
    baseline_tok_s: float | None
    """Decode rate of the arm's baseline [tokens/s]."""
    steps: tuple[Step, ...]

    @property
    def place(self) -> tuple[str, str, int]:
        """Node, workload and concurrency."""
        return self.node, self.workload, self.concurrency

    @property
    def optimum(self) -> Step | None:
        """The step count with the highest predicted decode rate; None: nothing is predicted."""
        rated = [step for step in self.steps if step.decode_tok_s is not None]
        return max(rated, key=lambda step: step.decode_tok_s or 0.0, default=None)


def find_lines(frame: pd.DataFrame) -> tuple[Line, ...]:
    """Return the lines of a table with two or more step counts that ended ok, in its order."""
    rows = ended_ok(ranking_rows(launches_together(frame)))
    baselines = {
        _place(row): float(row["decode_tok_s"])
        for row in rows[rows["is_baseline"]].to_dict("records")
        if known(row["decode_tok_s"])
    }
    chains = rows[~rows["is_baseline"] & rows["num_steps"].notna() & (rows["topk"].fillna(1) == 1)]
    grouped: dict[Any, list[Any]] = {}
    for row in chains.sort_values("num_steps", kind="stable").to_dict("records"):
        grouped.setdefault((*_place(row), line_name(row)), []).append(row)
    order = [(*_place(row), line_name(row)) for row in chains.to_dict("records")]
    return tuple(
        _line(grouped[key], baselines.get(key[:-1]))
        for key in dict.fromkeys(order)
        if len({row["num_steps"] for row in grouped[key]}) > 1
    )


def _place(row: Any) -> tuple[Any, ...]:
    return (*(row[name] for name in PLACE), row["arm"])


def _line(rows: Sequence[Any], baseline_tok_s: float | None) -> Line:
    """Make a line of its rows, in the order of their steps."""
    first = rows[0]
    shares = max((_shares(row) for row in rows), key=len)
    chains = {row["trial_id"]: chain for row in rows if (chain := _timed(row)) is not None}
    refused = _refused(rows)
    costs = None if refused else fit_costs(list(chains.values()), int(first["concurrency"]))
    launched = {int(row["num_steps"]): row for row in reversed(rows)}
    counts = sorted({*range(1, len(shares) + 1), *launched})
    return Line(
        node=str(first["node"]),
        workload=str(first["workload"]),
        concurrency=int(first["concurrency"]),
        name=line_name(first),
        longest=len(shares) or None,
        costs=costs,
        refused=refused,
        baseline_tok_s=baseline_tok_s,
        steps=tuple(_step(count, shares, costs, chains, launched.get(count)) for count in counts),
    )


def _step(
    count: int,
    shares: Sequence[float],
    costs: CostModel | None,
    chains: dict[str, TimedChain],
    row: Any,
) -> Step:
    length = chain_accept_length(shares, count)
    measured = NOT_MEASURED
    if row is not None:
        rate = _cell(row, "decode_tok_s")
        others = [chain for key, chain in chains.items() if key != row["trial_id"]]
        without = refit_costs(costs, others) if costs and row["trial_id"] in chains else costs
        predicted = without.decode_tok_s(length, count) if without and length else None
        measured = Measured(
            accept_length=_cell(row, "accept_length"),
            verify_ms=_cell(row, "verify_ms") if row["trial_id"] in chains else None,
            cycle_ms=_cell(row, "cycle_ms") if row["trial_id"] in chains else None,
            decode_tok_s=rate,
            decode_error=_error(predicted, rate),
        )
    return Step(
        steps=count,
        accept_length=length,
        verify_ms=costs.verify_ms(count) if costs else None,
        cycle_ms=costs.cycle_ms(count) if costs else None,
        decode_tok_s=costs.decode_tok_s(length, count) if costs and length else None,
        measured=measured,
    )


def _shares(row: Any) -> list[float]:
    """p_1 … p_s of a row with s steps; empty: they are not known."""
    names = [f"{SHARE_PREFIX}{position}" for position in range(1, int(row["num_steps"]) + 1)]
    found = [_cell(row, name) for name in names]
    return [] if None in found else [share for share in found if share is not None]


def _unusable(row: Any) -> str:
    """Why the times of a row are not fitted; empty: they are."""
    if not all(known(row[name]) for name in _TIMES):
        return "not timed"
    if DISAGREES in str(row["flags"]).split():
        return f"flagged {DISAGREES}"
    tokens, expected = row["verified_tokens"], int(row["num_steps"]) + 1
    if not known(tokens) or abs(tokens / expected - 1.0) > _SAME_TOKENS:
        return "verifying other than steps + 1 tokens"
    return ""


def _timed(row: Any) -> TimedChain | None:
    if _unusable(row):
        return None
    return TimedChain(
        steps=int(row["num_steps"]),
        tokens=float(row["verified_tokens"]) * int(row["concurrency"]),
        verify_ms=float(row["verify_ms"]),
        draft_ms=float(row["draft_ms"]),
        rest_ms=float(row["cycle_ms"]) - float(row["verify_ms"]) - float(row["draft_ms"]),
        verify_se_ms=_cell(row, "verify_se_ms"),
        draft_se_ms=_cell(row, "draft_se_ms"),
    )


def _refused(rows: Sequence[Any]) -> str:
    usable = {row["num_steps"] for row in rows if not _unusable(row)}
    if len(usable) >= MIN_POINTS:
        return ""
    reasons = Counter(reason for row in rows if (reason := _unusable(row)))
    others = listed([f"{count} {reason}" for reason, count in reasons.items()])
    text = f"the times of {counted(len(usable), 'step count')} can be fitted, {MIN_POINTS} needed"
    return f"{text} ({others})" if others else text


def _cell(row: Any, name: str) -> float | None:
    return float(row[name]) if name in row and known(row[name]) else None


def _error(predicted: float | None, measured: float | None) -> float | None:
    return predicted / measured - 1.0 if predicted is not None and measured else None
