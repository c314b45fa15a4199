"""What holds the configurations of a table back, phase by phase, in sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import pandas as pd

from sweep.analysis.optimum import prediction_findings
from sweep.analysis.phases import PHASES
from sweep.analysis.prediction import find_lines
from sweep.analysis.probe_cost import probe_costs
from sweep.analysis.server import timer_findings
from sweep.analysis.traced import trace_findings
from sweep.analysis.wording import counted, known, ratio
from sweep.model.states import TrialState

NAMES = {"draft": "drafting", "verify": "verify", "extend": "draft extend", "other": "the rest"}
"""Of the phases, in a sentence."""


@dataclass(frozen=True)
class Bottleneck:
    """The phase that takes the largest part of the cycle in most rows, and how much in these."""

    phase: str
    least: float
    most: float
    """Share of the cycle [fraction]."""
    rows: int
    of: int

    @property
    def sentence(self) -> str:
        """As a finding, without a full stop."""
        name = NAMES[self.phase]
        least, most = (f"{share:.0%}".removesuffix("%") for share in (self.least, self.most))
        much = f"{most} %" if least == most else f"{least} to {most} %"
        text = f"{name[0].upper()}{name[1:]} takes {much} of the cycle"
        return text if self.rows == self.of else f"{text} in {self.rows} of {self.of} rows"


def timed_rows(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that ended ok and whose cycle was measured."""
    return frame[(frame["state"] == TrialState.OK.value) & frame["cycle_ms"].notna()]


def bottleneck(rows: pd.DataFrame) -> Bottleneck | None:
    """Name the bottleneck of rows whose cycle was measured; None: no phase is known."""
    shares = pd.DataFrame(
        {name: (rows[f"{name}_ms"] / rows["cycle_ms"]).astype(float) for name in PHASES}
    ).dropna(how="all")
    if shares.empty:
        return None
    largest = shares.idxmax(axis=1)
    phase = str(largest.mode().iloc[0])
    own = shares.loc[largest == phase, phase]
    return Bottleneck(phase, float(own.min()), float(own.max()), len(own), len(shares))


def findings(frame: pd.DataFrame) -> tuple[str, ...]:
    """Say what phases tell of a table: bottleneck, what each phase could bring, what batching
    saves, how well two ways to the speed-up agree, what the probe costs, and which step count the
    cost model takes for the best. Empty when no cycle was measured and nothing was traced."""
    rows = timed_rows(frame)
    found = bottleneck(rows)
    records = rows.to_dict("records")
    sentences = (
        f"{found.sentence}." if found is not None else None,
        _headroom(records),
        _batching(records),
        _agreement(records),
        *timer_findings(frame),
        *trace_findings(frame),
        *probe_costs(frame),
        *prediction_findings(find_lines(frame)),
    )
    return tuple(sentence for sentence in sentences if sentence is not None)


def _with(rows: Sequence[Any], *names: str) -> list[Any]:
    return [row for row in rows if all(known(row[name]) for name in names)]


def _headroom(rows: Sequence[Any]) -> str | None:
    told = []
    for phase, name in NAMES.items():
        column = f"{phase}_headroom"
        if with_it := _with(rows, column):
            best = max(with_it, key=lambda row: float(row[column]))
            told.append(f"{name} {ratio(best[column])} ({best['configuration']})")
    if not told:
        return None
    return (
        "The most that each phase could bring, as the speed-up of decoding if it cost nothing, in "
        f"its best row: {'; '.join(told)}. Below 1.00× nothing pays that is done to that phase "
        "alone."
    )


def _batching(rows: Sequence[Any]) -> str | None:
    with_it = _with(rows, "batching_efficiency", "verified_tokens")
    if not with_it:
        return None
    tokens = _range([f"{row['verified_tokens']:.3g}" for row in with_it])
    gains = _range([ratio(row["batching_efficiency"]) for row in with_it])
    return (
        f"Verifying {tokens} tokens at once is {gains} as efficient as decoding them one by one "
        "(verified tokens × the baseline's time per token ÷ verify)."
    )


def _range(figures: Sequence[str]) -> str:
    ordered = sorted(figures, key=lambda figure: float(figure.removesuffix("×")))
    return ordered[0] if ordered[0] == ordered[-1] else f"{ordered[0]} to {ordered[-1]}"


def _agreement(rows: Sequence[Any]) -> str | None:
    with_it = _with(rows, "speedup_by_cycle", "speedup")
    if not with_it:
        return None
    apart = [float(row["speedup_by_cycle"] / row["speedup"]) - 1.0 for row in with_it]
    largest, row = max(zip(apart, with_it, strict=True), key=lambda pair: abs(pair[0]))
    return (
        "The speed-up that accept length and measured cycle mean (τ ÷ τ*) differs from the "
        f"measured one by {median(map(abs, apart)):.1%} in the median of "
        f"{counted(len(apart), 'row')}, at most by {largest:+.1%} ({row['configuration']}, "
        f"{row['workload']}, concurrency {row['concurrency']}). Only the measured one has prefill "
        "and idle streams in it."
    )
