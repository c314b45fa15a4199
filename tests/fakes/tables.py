"""Tables written by hand: the columns that a test names, all others missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from sweep.analysis.glossary import table_columns

_ROW = {
    "node": "node-a", "workload": "code", "concurrency": 1, "arm": "default-arm", "role": "main",
    "variant": "default", "state": "ok", "flags": "", "is_baseline": False,
}  # fmt: skip


def table(rows: Sequence[Mapping[str, Any]], positions: int = 10) -> pd.DataFrame:
    """The table of rows that ended ok on one node; a row's cells go before these."""
    filled = [{"trial_id": f"trial-{n}", **_ROW, **row} for n, row in enumerate(rows)]
    return pd.DataFrame(
        {
            column.name: _values([row.get(column.name) for row in filled], column.dtype)
            for column in table_columns((), positions)
        }
    )


def _values(values: Sequence[Any], dtype: Any) -> Any:
    return pd.array([pd.NA if value is None else value for value in values], dtype=dtype)


def chain(
    steps: int,
    *,
    verify_ms: float,
    shares: Sequence[float] = (),
    draft_ms: float | None = None,
    rest_ms: float = 0.5,
    **cells: Any,
) -> dict[str, Any]:
    """A chain that was timed: its accept length is that of its `shares`, its decode rate that of
    its accept length and cycle, and a draft step takes 0.1 ms."""
    draft_ms = 0.1 * steps if draft_ms is None else draft_ms
    cycle_ms = verify_ms + draft_ms + rest_ms
    length = 1.0 + sum(shares[:steps])
    return {
        "configuration": f"{steps} steps", "configuration_id": f"s{steps}", "num_steps": steps,
        "topk": 1, "verified_tokens": steps + 1.0, "verify_ms": verify_ms, "draft_ms": draft_ms,
        "cycle_ms": cycle_ms, "accept_length": length, "decode_tok_s": length / cycle_ms * 1000.0,
        **{f"p_{k}": share for k, share in enumerate(shares[:steps], start=1)},
    } | cells  # fmt: skip


def baseline(decode_tok_s: float = 90.0, **cells: Any) -> dict[str, Any]:
    """A row without speculation."""
    return {
        "configuration": "baseline", "configuration_id": "base", "is_baseline": True,
        "role": "baseline_first", "decode_tok_s": decode_tok_s,
    } | cells  # fmt: skip
