"""SGLang's own counters among its metrics, in Prometheus' text format.

| counter                                | from   | of                                           |
|----------------------------------------|--------|----------------------------------------------|
| sglang:generation_tokens_total         | 0.4.6  | output tokens of requests that ended         |
| sglang:spec_verify_calls_total         | 0.5.13 | cycles of requests that ended                |
| sglang:forward_execution_seconds_total | 0.5.11 | the device's time, by category, of spec V2   |

The last is the built-in timer's (profiling.TIMER_VARIABLE). What 0.5.7 to 0.5.10 have in its place
does not tell phases apart.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from sweep.ports import ServerCounters

_TOKENS = "sglang:generation_tokens_total"
_CYCLES = "sglang:spec_verify_calls_total"
_TIMER = "sglang:forward_execution_seconds_total"
_PHASES = {"eagle_draft": "draft", "target_verify": "verify", "eagle_draft_extend": "extend"}
"""Category of the timer → phase of a cycle."""
_SAMPLE = re.compile(r"(?P<name>[\w:]+)(?:\{(?P<labels>.*)\})? (?P<value>\S+)(?: \d+)?")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def server_counters(metrics: str) -> ServerCounters:
    """Read a scrape of /metrics; what a version does not have, or is no number, is not there."""
    totals: dict[str, float] = {}
    timed: dict[tuple[tuple[str, str], ...], dict[str, float]] = {}
    for name, labels, value in _samples(metrics):
        if name in (_TOKENS, _CYCLES):
            totals[name] = totals.get(name, 0.0) + value
        elif name == _TIMER and labels.get("category") in _PHASES:
            rank = tuple(sorted(item for item in labels.items() if item[0] != "category"))
            timed.setdefault(rank, {})[_PHASES[labels["category"]]] = value
    first = timed[min(timed)] if timed else {}
    return ServerCounters(totals.get(_TOKENS), totals.get(_CYCLES), first)


def _samples(metrics: str) -> Iterator[tuple[str, Mapping[str, str], float]]:
    for line in metrics.splitlines():
        found = _SAMPLE.fullmatch(line.strip())
        if found is not None:
            try:
                value = float(found["value"])
            except ValueError:
                continue
            yield found["name"], dict(_LABEL.findall(found["labels"] or "")), value
