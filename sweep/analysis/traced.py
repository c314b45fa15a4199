"""The columns of what a trace of the server's own profiler says of a configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import pandas as pd

from sweep.analysis.kernels import KINDS
from sweep.analysis.trace import DECODE, OPERATORS, VERIFY, WHOLE, Binned
from sweep.analysis.wording import counted, known, listed

MISSING = "trace_missing"
NAMES = {
    "communication": "communication", "attention": "attention", "experts": "experts",
    "dense": "other matrix work", "other": "the rest of the work", "idle": "nothing running",
}  # fmt: skip
"""Of kinds of work, in a sentence."""
_SCOPES = {
    VERIFY: "Inside the verification", DECODE: "Inside a decoding step",
    WHOLE: "Inside all that was traced, drafting included,",
}  # fmt: skip


@dataclass(frozen=True)
class Traced:
    """What became of the trace of a trial that was to be traced."""

    binned: Binned | None
    problem: str | None = None
    """Why there is none, or what is missing of it."""


TracesOf: TypeAlias = Mapping[tuple[str, int], Mapping[str, Traced]]
"""(launch id, attempt) → trial id → its trace; only trials that were to be traced."""


def trace_columns(traced: Traced) -> dict[str, Any]:
    """Return the columns of a row."""
    binned = traced.binned
    if binned is None:
        return {"trace_note": traced.problem}
    return {
        "trace_scope": binned.scope,
        "trace_source": binned.source,
        "trace_steps": binned.steps,
        **{f"trace_{kind}_share": binned.share(kind) for kind in KINDS},
        "trace_note": traced.problem,
    }


def trace_findings(frame: pd.DataFrame) -> tuple[str, ...]:
    """Say of each traced row what its time goes into, the largest part first."""
    rows = frame[frame["trace_scope"].notna()].to_dict("records")
    return tuple(_sentence(row) for row in rows)


def _sentence(row: Any) -> str:
    shares = {kind: row[f"trace_{kind}_share"] for kind in KINDS}
    ordered = sorted(shares, key=lambda kind: -shares[kind])
    parts = [f"{NAMES[kind]} {shares[kind]:.0%}" for kind in ordered if shares[kind] > 0]
    steps = counted(row["trace_steps"], "step") if known(row["trace_steps"]) else "its steps"
    by = "operators of the host" if row["trace_source"] == OPERATORS else "kernels"
    return (
        f"{_SCOPES[row['trace_scope']]} of {row['configuration']} ({row['workload']}, concurrency "
        f"{row['concurrency']}; {by} in {steps}, traced outside the measured windows): "
        f"{listed(parts, len(KINDS))}."
    )
