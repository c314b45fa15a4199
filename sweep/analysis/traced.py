"""The columns of what a trace of the server's own profiler says of a configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import pandas as pd

from sweep.analysis.kernels import KINDS
from sweep.analysis.trace import DECODE, OPERATORS, VERIFY, WHOLE, Binned
from sweep.analysis.wording import listed

MISSING = "trace_missing"
NAMES = {
    "communication": "communication", "attention": "attention", "experts": "experts",
    "dense": "other matrix work", "other": "the rest of the work", "idle": "nothing",
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
    """Say what time goes into, the largest part first: a sentence for the rows whose shares are of
    the same steps and rest on the same."""
    rows = frame[frame["trace_scope"].notna()]
    groups = rows.groupby(["trace_scope", "trace_source"], sort=False)
    return tuple(_sentence(str(scope), str(source), own) for (scope, source), own in groups)


def _sentence(scope: str, source: str, rows: pd.DataFrame) -> str:
    shares = {kind: rows[f"trace_{kind}_share"].astype(float) for kind in KINDS}
    ordered = sorted(KINDS, key=lambda kind: -float(shares[kind].median()))
    parts = [f"{NAMES[kind]} {_range(shares[kind])}" for kind in ordered if shares[kind].max() > 0]
    by = "operators of the host" if source == OPERATORS else "kernels"
    named = list(rows["configuration"])
    return (
        f"{_SCOPES[scope]} of {listed(named)} (by {by} that the server's own profiler traced "
        f"outside the measured windows): {listed(parts, len(KINDS))}."
    )


def _range(shares: pd.Series[float]) -> str:
    least, most = (f"{share:.0%}".removesuffix("%") for share in (shares.min(), shares.max()))
    return f"{most} %" if least == most else f"{least} to {most} %"
