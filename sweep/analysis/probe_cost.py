"""What the probe itself costs, by the configuration that was launched with and without it."""

from __future__ import annotations

from typing import Any

import pandas as pd

from sweep.analysis.instrument import MAX_DISAGREEMENT
from sweep.analysis.wording import known, number

SLOWS = "probe_slows"
_COLUMN = "probe_difference_tok_s"


def is_slowed(difference: float, hi: float | None, without: float, drift: float = 0.0) -> bool:
    """Whether a throughput [tok/s] is lower with the probe by more than MAX_DISAGREEMENT of that
    `without`, and surely so: `hi`, the upper end of the difference's interval, is below 0, and the
    node itself did not change by as much (`drift`, a fraction, from first to last baseline)."""
    least = max(MAX_DISAGREEMENT, abs(drift)) * without
    return hi is not None and hi < 0.0 and -difference > least


def probe_costs(frame: pd.DataFrame) -> tuple[str, ...]:
    """Say what the probe costs at each place where that was measured."""
    rows = frame[frame[_COLUMN].notna()]
    drifts = frame[frame["drift"].notna()].to_dict("records")
    found = []
    for row in rows.to_dict("records"):
        own = [other["drift"] - 1.0 for other in drifts if _is_alike(other, row)]
        found.append(_sentence(row, own[-1] if own else None))
    return tuple(found)


def _is_alike(one: Any, other: Any) -> bool:
    return all(one[name] == other[name] for name in ("node", "arm", "workload", "concurrency"))


def _sentence(row: Any, drift: float | None) -> str:
    with_it, difference = float(row["output_tok_s"]), float(row[_COLUMN])
    without = with_it - difference
    lo, hi = row[f"{_COLUMN}_lo"], row[f"{_COLUMN}_hi"]
    interval, certainty = "no interval", ""
    if known(lo) and known(hi):
        interval = f"95 % interval {lo:+.3g} to {hi:+.3g}, prompts paired"
        if lo <= 0.0 <= hi:
            certainty = " It cannot be told apart from none."
    if not certainty and drift is not None and abs(drift) >= abs(difference / without):
        certainty = (
            f" From first to last the baseline alone changed by {drift:+.1%}: it may be the node's."
        )
    return (
        f"The probe: {row['configuration']}, {row['workload']} at concurrency {row['concurrency']} "
        f"makes {number(with_it)} tok/s with it and {number(without)} without, a difference of "
        f"{difference:+.3g} tok/s or {difference / without:+.1%} ({interval}).{certainty} Each was "
        "launched once, so what launches differ by is in it."
    )
