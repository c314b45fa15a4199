"""cycles.0.jsonl, as the probe in a real engine would write it: times by the cost model."""

from __future__ import annotations

import json
import os
import threading
import time
from typing import Dict, List, Optional

from sweep.simulator.calibration import Phases, Speculation

FORMAT = 1
DIRECTORY_VARIABLE = "EAGLE3_PROFILE_DIR"
FILE = "cycles.0.jsonl"
FIELDS = (
    "n", "start_s", "requests", "context_tokens", "steps", "draft_tokens", "draft_s", "verify_s",
    "extend_s", "other_s", "cycle_s", "accepted",
)  # fmt: skip
"""What the cost model knows; it has no host and one rank."""
_HOOKS = ("cycle", "draft", "verify", "extend", "accepted")
_DIGITS = 9


class CycleLog:
    """Writes a line per cycle of the batch; methods may be called from any thread.

    Each request is simulated on its own, so a line comes with each cycle of the request that has
    run longest, takes its times, and counts what all requests did since the line before.
    """

    def __init__(self, directory: str, version: str, *, holds_several: bool) -> None:
        """Say hello; `holds_several`: requests choose their steps."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._descriptor = os.open(os.path.join(directory, FILE), flags, 0o600)
        self._lock = threading.Lock()
        self._contexts: Dict[int, int] = {}
        self._written = 0
        self._requests = 0
        self._accepted = 0
        self._write(
            {
                "v": FORMAT,
                "event": "armed",
                "rank": 0,
                "ranks": 1,
                "pid": os.getpid(),
                "engine": "simulator",
                "engine_version": version,
                "module": __name__,
                "worker": type(self).__name__,
                "clock": "simulated",
                "hooks": (*_HOOKS, "pin") if holds_several else _HOOKS,
                "missing": [],
                "utc": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                "fields": FIELDS,
            }
        )

    def enter(self, request: int, context_tokens: int) -> None:
        """A request begins to be decoded."""
        with self._lock:
            self._contexts[request] = context_tokens

    def leave(self, request: int) -> None:
        """A request is decoded no more."""
        with self._lock:
            self._contexts.pop(request, None)

    def cycle(
        self,
        request: int,
        start_s: float,
        phases: Phases,
        speculation: Optional[Speculation],
        *,
        accepted: int,
        tokens: int,
        last: bool,
    ) -> None:
        """A request had a cycle that began at `start_s` and yielded so many tokens."""
        with self._lock:
            self._requests += 1
            self._accepted += accepted
            if request == next(iter(self._contexts), request):
                idle = last and len(self._contexts) == 1
                self._write(self._line(start_s, phases, speculation, idle_after=idle))
                self._requests = self._accepted = 0
            self._contexts[request] = self._contexts.get(request, 0) + tokens

    def _line(
        self,
        start_s: float,
        phases: Phases,
        speculation: Optional[Speculation],
        *,
        idle_after: bool,
    ) -> List[Optional[float]]:
        self._written += 1

        def seconds(milliseconds: float) -> float:
            return round(milliseconds / 1000.0, _DIGITS)

        return [
            self._written,
            round(start_s, _DIGITS),
            self._requests,
            sum(self._contexts.values()),
            None if speculation is None else speculation.steps,
            None if speculation is None else speculation.tokens,
            seconds(phases.draft_ms),
            seconds(phases.verify_ms),
            seconds(phases.extend_ms),
            None if idle_after else seconds(phases.other_ms),
            None if idle_after else seconds(phases.total_ms),
            self._accepted,
        ]

    def _write(self, value: object) -> None:
        os.write(self._descriptor, json.dumps(value, separators=(",", ":")).encode() + b"\n")
