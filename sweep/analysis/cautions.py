"""What to beware of in a table: sentences, the gravest first."""

from __future__ import annotations

from typing import Any

import pandas as pd

from sweep.analysis.glossary import FLAGS, INSTRUMENT_FLAGS
from sweep.analysis.server import DISAGREES
from sweep.analysis.traced import MISSING
from sweep.analysis.wording import counted, known, listed, several_nodes
from sweep.model.plan import Role
from sweep.model.states import TrialState

MAX_DRIFT = 0.05
"""A node that changed by more between first and last baseline makes its rows doubtful."""

DRIFTED = "drifted"
_TOLD_ELSEWHERE = ("one_prompt", DRIFTED)
_UNFINISHED = {
    TrialState.INTERRUPTED: "interrupted",
    TrialState.NOT_RUN: "not run",
    TrialState.PLANNED: "still to run",
    TrialState.PRUNED: "pruned",
}


def find_warnings(frame: pd.DataFrame) -> tuple[str, ...]:
    """Return the warnings of a table, each a sentence or two."""
    named = frame.assign(configuration=_with_nodes(frame))
    return (
        *_failures(named), *_drifts(frame), *_shared(frame), *_missing_baselines(named),
        *_flagged(named), *_skipped(frame), *_unfinished(named),
    )  # fmt: skip


def _with_nodes(frame: pd.DataFrame) -> pd.Series[str]:
    """The configurations' names, told apart by their nodes where there are several."""
    if not several_nodes(frame):
        return frame["configuration"]
    named = frame["configuration"] + " on " + frame["node"]
    return named.fillna(frame["configuration"])


def _failures(frame: pd.DataFrame) -> list[str]:
    states = (TrialState.FAILED.value, TrialState.PARTIAL.value)
    failed = frame[frame["state"].isin(states)]
    return [
        f"{counted(len(rows), 'trial')} failed with {failure_class}: "
        f"{listed(list(rows['configuration']))}. {_first_reason(rows)}".strip()
        for failure_class, rows in failed.fillna({"failure_class": "unknown"}).groupby(
            "failure_class", sort=False
        )
    ]


def _first_reason(rows: pd.DataFrame) -> str:
    reasons = rows["reason"].dropna()
    return str(reasons.iloc[0]) if len(reasons) else ""


def is_large(ratio: float, lo: Any, hi: Any) -> bool:
    """Whether a ratio that ought to be 1 is off by more than MAX_DRIFT, and its interval [lo, hi],
    where it is known, is clear of 1."""
    return abs(ratio - 1.0) > MAX_DRIFT and not (known(lo) and known(hi) and lo <= 1.0 <= hi)


def _drifts(frame: pd.DataFrame) -> list[str]:
    last = frame[(frame["role"] == Role.BASELINE_LAST.value) & frame["drift"].notna()]
    found = []
    for row in last.to_dict("records"):
        change, lo, hi = row["drift"] - 1.0, row["drift_lo"], row["drift_hi"]
        if not is_large(row["drift"], lo, hi):
            continue
        interval = f"95 % interval {lo - 1:+.1%} to {hi - 1:+.1%}" if known(lo) else "no interval"
        found.append(
            f"Drift: from the first to the last {row['configuration']} on {row['node']}, "
            f"{row['workload']} at concurrency {row['concurrency']} changed by {change:+.1%} "
            f"({interval}). Smaller differences between configurations may be the node's."
        )
    return found


def _shared(frame: pd.DataFrame) -> list[str]:
    """Launches that confirm a scan and differ from it."""
    found = []
    for row in frame[frame["vs_scan"].notna()].to_dict("records"):
        change, lo, hi = row["vs_scan"] - 1.0, row["vs_scan_lo"], row["vs_scan_hi"]
        if not is_large(row["vs_scan"], lo, hi):
            continue
        found.append(
            f"Scan: alone, {row['configuration']} on {row['node']}, {row['workload']} at "
            f"concurrency {row['concurrency']} differs by {change:+.1%} from what the shared "
            "server showed. Other figures of the scan may be off as well."
        )
    return found


def _missing_baselines(frame: pd.DataFrame) -> list[str]:
    ok = frame[(frame["state"] == TrialState.OK.value) & frame["output_tok_s"].notna()]
    bare = ok[ok["speedup"].isna()]
    return [
        f"No baseline ended ok for {workload} at concurrency {concurrency}: no speed-up is known "
        f"of {listed(list(rows['configuration']))}."
        for (workload, concurrency), rows in bare.groupby(["workload", "concurrency"], sort=False)
    ]


def _flagged(frame: pd.DataFrame) -> list[str]:
    found = []
    for flag, meaning in FLAGS.items():
        rows = frame[[flag in flags.split() for flags in frame["flags"]]]
        if len(rows) and flag not in _TOLD_ELSEWHERE:
            names = "all rows" if len(rows) == len(frame) else listed(list(rows["configuration"]))
            found.append(f"{flag}: {names}. {meaning}{_notes(flag, rows)}")
    return found


def _notes(flag: str, rows: pd.DataFrame) -> str:
    column = {
        **dict.fromkeys(INSTRUMENT_FLAGS, "instrument_note"),
        MISSING: "trace_note",
        DISAGREES: "server_note",
    }.get(flag)
    notes = list(rows[column].dropna()) if column is not None else []
    return f" Found: {listed(notes)}." if notes else ""


def _skipped(frame: pd.DataFrame) -> list[str]:
    skipped = frame[frame["state"] == TrialState.SKIPPED_INVALID.value]
    unique = skipped.drop_duplicates("configuration_id").fillna({"reason": "no reason is recorded"})
    return [
        f"Skipped without a launch: {listed(list(rows['configuration']))}. {reason}"
        for reason, rows in unique.groupby("reason", sort=False)
    ]


def _unfinished(frame: pd.DataFrame) -> list[str]:
    counts = frame["state"].value_counts()
    return [
        f"{counted(int(counts[state.value]), 'trial')} {words}: "
        f"{listed(list(frame[frame['state'] == state.value]['configuration']))}."
        for state, words in _UNFINISHED.items()
        if state.value in counts
    ]
