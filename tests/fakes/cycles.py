"""Recordings of decode cycles, as an instrument inside the engine would have made them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sweep.agent.cycles import FIELDS, Armed
from sweep.analysis.cycles import CyclesOf, Recorded, Recording
from sweep.model.record import SweepRecord

PHASES_S = {"draft_s": 0.001, "verify_s": 0.01, "extend_s": 0.0005, "other_s": 0.001}
"""A cycle of 12.5 ms: 2.5 tokens at 200 tokens/s."""


def armed(**changes: Any) -> Armed:
    """A handshake of the only rank, with every hook found."""
    fields: dict[str, Any] = {
        "rank": 0, "ranks": 1, "engine": "sglang", "engine_version": "0.5.23",
        "module": "/opt/eagle_worker_v2.py", "worker": "EAGLEWorkerV2", "clock": "cuda",
        "hooks": ("cycle", "draft", "verify", "extend", "accepted"), "missing": (),
    }  # fmt: skip
    return Armed(**(fields | changes))


def recording(rows: Sequence[Mapping[str, float | None]], **changes: Any) -> Recording:
    """A recording of cycles given by column; what a row leaves out is not known."""
    columns = {name: np.array([row.get(name) for row in rows], dtype=float) for name in FIELDS}
    fields: dict[str, Any] = {"armed": armed(), "columns": columns} | changes
    return Recording(**fields)


def cycles_of(
    record: SweepRecord, phases_s: Mapping[str, float] = PHASES_S, **changes: Any
) -> CyclesOf:
    """A recording of every attempt: each measured answer's own cycles, one after the other from
    its first output on, all alike; the last of an answer has no interval. `changes` replace
    columns, or (callables) make them of each row."""
    return {
        (attempt.launch_id, attempt.attempt): Recorded(
            (recording(_rows(attempt.requests, phases_s, changes)),)
        )
        for launch in record.launches
        for attempt in launch.attempts
    }


def _rows(
    requests: Sequence[Any], phases_s: Mapping[str, float], changes: Mapping[str, Any]
) -> list[dict[str, float | None]]:
    rows: list[dict[str, float | None]] = []
    cycle_s = sum(phases_s.values())
    for request in requests:
        count, accepted = request.meta.get("cycles") or 0, request.meta.get("accepted") or 0
        spaced_s = (request.last_s - request.first_s) / count if count else 0.0
        for k in range(count):
            row: dict[str, float | None] = {
                "n": len(rows) + 1,
                "start_s": request.sent_s + request.first_s + k * spaced_s,
                "requests": 1,
                "context_tokens": 100 + k,
                "steps": 3,
                "draft_tokens": 4,
                "accepted": accepted * (k + 1) // count - accepted * k // count,
                "cycle_s": cycle_s,
                "host_cycle_s": 0.002,
                **phases_s,
            }
            if k == count - 1:
                row |= {"cycle_s": None, "other_s": None}
            made = {
                name: value(row) if callable(value) else value for name, value in changes.items()
            }
            rows.append(row | made)
    return rows
