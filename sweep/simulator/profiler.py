"""/start_profile of the simulated server: a small trace that says that it is simulated."""

from __future__ import annotations

import gzip
import json
import os
import threading
from typing import Any, Dict, List, Optional, Tuple

from sweep.simulator.calibration import Phases

FILE = "simulated-TP-0.trace.json.gz"
STEPS = 5
"""Of a window that does not say how many."""
_VERIFYING = (
    ("simulated_all_reduce", 0.25),
    ("simulated_attention", 0.1),
    ("simulated_fused_moe", 0.4),
    ("simulated_gemm", 0.15),
    ("simulated_norm", 0.05),
)
"""Kernels of a verification with their shares of its time; the rest is idle. Nothing was measured
for them."""

_APART_US = 1.0
"""Between two steps, so that they stay two when their times are rounded."""

Json = Dict[str, Any]


class Profiler:
    """Writes the trace of a window when it is opened, and closes it. Safe for threads."""

    def __init__(self, phases: Phases, *, speculates: bool) -> None:
        self._phases = phases
        self._verify = "step[VERIFY bs=1]" if speculates else "step[DECODE bs=1]"
        self._lock = threading.Lock()

    def start(self, body: Json) -> Tuple[int, str]:
        """Return status and text of /start_profile."""
        directory = str(body.get("output_dir") or "/tmp")  # noqa: S108 - SGLang's own default
        trace = {
            "traceEvents": self._events(int(body.get("num_steps") or STEPS)),
            "simulated": True,
        }
        with self._lock:
            os.makedirs(directory, exist_ok=True)
            partial = os.path.join(directory, FILE + ".part")
            with gzip.open(partial, "wt", encoding="utf-8") as stream:
                json.dump(trace, stream)
            os.replace(partial, os.path.join(directory, FILE))
        return 200, "Start profiling.\n"

    def stop(self) -> Tuple[int, str]:
        """Return status and text of /stop_profile: every window has ended by itself."""
        return 500, "Internal Server Error"

    def _events(self, steps: int) -> List[Json]:
        events: List[Json] = []
        at_us = 0.0
        for _ in range(steps):
            for name, span, milliseconds in (
                ("simulated_draft", "draft", self._phases.draft_ms),
                (None, self._verify, self._phases.verify_ms),
                ("simulated_extend", "draft_extend", self._phases.extend_ms),
            ):
                length_us = 1000.0 * milliseconds
                if length_us > 0.0:
                    events.append(_event("gpu_user_annotation", span, at_us, length_us))
                    events += _kernels(name, at_us, length_us)
                at_us += length_us
            at_us += 1000.0 * self._phases.other_ms + _APART_US
        return events


def _kernels(name: Optional[str], begin_us: float, length_us: float) -> List[Json]:
    """Return the kernels of a span: one, or those of a verification."""
    parts = _VERIFYING if name is None else ((name, 1.0),)
    found, at_us = [], begin_us
    for kernel, share in parts:
        found.append(_event("kernel", kernel, at_us, share * length_us))
        at_us += share * length_us
    return found


def _event(kind: str, name: str, at_us: float, length_us: float) -> Json:
    return {
        "ph": "X", "cat": kind, "name": name, "pid": 0, "tid": 7,
        "ts": round(at_us, 3), "dur": round(length_us, 3), "args": {"device": 0, "stream": 7},
    }  # fmt: skip
