"""Where the time of a decode step goes, from a trace of torch's profiler (Chrome's trace format).

On a GPU kernels count, by the clock of the device; without a device in the trace, the operators
of the host, by the time in each that is in no operator inside it. Times in a trace are
microseconds.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from sweep.analysis.kernels import ATTENTION, COMMUNICATION, DENSE, EXPERTS, IDLE, OTHER, kind_of

Event: TypeAlias = Mapping[str, Any]
Span: TypeAlias = tuple[float, float]
"""Begin and end [µs]."""

KERNELS, OPERATORS = "kernels", "operators"
VERIFY, DECODE, WHOLE = "verify", "decode", "whole"
_SCOPES = (
    (VERIFY, re.compile(r"verify$|step\[(TARGET_)?VERIFY")),
    (DECODE, re.compile(r"step\[DECODE")),
)
"""What SGLang names its steps, the newer versions do."""
_DEVICE = frozenset(["kernel", "gpu_memcpy", "gpu_memset"])
_DEVICE_SPAN, _HOST_SPAN, _OPERATOR = "gpu_user_annotation", "user_annotation", "cpu_op"
_EXPOSED_LAST = (EXPERTS, ATTENTION, DENSE, OTHER, COMMUNICATION)
"""Where kernels of several kinds run at once, the first of these counts: communication costs
nothing where it is hidden behind work."""
_US_PER_S = 1e6


class TraceError(ValueError):
    """There is nothing in a trace to be told."""


@dataclass(frozen=True)
class Binned:
    """Time by kind of work, idle included."""

    seconds: Mapping[str, float]
    """Kind → time [s]; they add up to the time of all steps looked at."""
    source: str
    """KERNELS of a device, or OPERATORS of the host."""
    scope: str
    """VERIFY: the target's verifications alone; DECODE: steps without speculation; WHOLE: all that
    was traced, drafting included, because the trace does not name its steps."""
    steps: int | None
    """How many steps were looked at; None: the trace does not name them."""

    def share(self, kind: str) -> float:
        """Part of the time [fraction]."""
        return self.seconds[kind] / sum(self.seconds.values())


def bin_trace(trace: Mapping[str, Any]) -> Binned:
    """Bin the time of a trace by kind of work. Raises TraceError when it holds no work."""
    events = [event for event in trace.get("traceEvents", ()) if event.get("ph") == "X"]
    if any(event.get("cat") in _DEVICE for event in events):
        return _of_device(events)
    if any(event.get("cat") == _OPERATOR for event in events):
        return _of_host(events)
    raise TraceError("it holds neither kernels nor operators")


def _span(event: Event) -> Span:
    begin = float(event["ts"])
    return begin, begin + float(event.get("dur", 0.0))


def _of_device(events: Sequence[Event]) -> Binned:
    work: dict[Any, list[Event]] = defaultdict(list)
    marks: dict[Any, list[Event]] = defaultdict(list)
    for event in events:
        if event.get("cat") in _DEVICE:
            work[_device(event)].append(event)
        elif event.get("cat") == _DEVICE_SPAN:
            marks[_device(event)].append(event)
    # One device is one process's: another one in its trace has no part in its steps.
    device = max(work, key=lambda name: len(work[name]))
    scope, spans = _scope(marks[device], work[device])
    found, before = {}, 0.0
    covering: list[Span] = []
    for kind in _EXPOSED_LAST:
        covering += [_span(event) for event in work[device] if kind_of(event["name"]) == kind]
        covered = _overlap(union(covering), spans)
        found[kind], before = covered - before, covered
    found[IDLE] = _length(spans) - before
    return _binned(found, KERNELS, scope, spans)


def _device(event: Event) -> Any:
    return (event.get("args") or {}).get("device", event.get("pid"))


def _of_host(events: Sequence[Event]) -> Binned:
    threads: dict[Any, list[Event]] = defaultdict(list)
    for event in events:
        if event.get("cat") == _OPERATOR:
            threads[event.get("tid")].append(event)
    thread = max(threads, key=lambda name: len(threads[name]))
    named = [e for e in events if e.get("cat") == _HOST_SPAN and e.get("tid") == thread]
    scope, spans = _scope(named, threads[thread])
    inside = [event for event in threads[thread] if _is_within(float(event["ts"]), spans)]
    found = dict.fromkeys(_EXPOSED_LAST, 0.0) | _own_times(inside)
    found[IDLE] = max(0.0, _length(spans) - sum(found.values()))
    return _binned(found, OPERATORS, scope, spans)


def _own_times(events: Iterable[Event]) -> dict[str, float]:
    """Return kind → time of operators without that of operators inside them [µs]; what an operator
    of a known kind calls is of that kind."""
    found: dict[str, float] = defaultdict(float)
    stack: list[tuple[float, str]] = []
    for event in sorted(events, key=lambda item: (item["ts"], -item["dur"])):
        begin, end = _span(event)
        while stack and stack[-1][0] <= begin:
            stack.pop()
        kind = kind_of(event["name"])
        if stack:
            if stack[-1][1] != OTHER:
                kind = stack[-1][1]
            found[stack[-1][1]] -= end - begin
        found[kind] += end - begin
        stack.append((end, kind))
    return found


def _scope(marks: Iterable[Event], work: Sequence[Event]) -> tuple[str, list[Span]]:
    """Return what is looked at, and when: the steps that the trace names, else all of it."""
    named = [(str(mark["name"]), _span(mark)) for mark in marks]
    for scope, regex in _SCOPES:
        spans = union(span for name, span in named if regex.match(name))
        if spans:
            return scope, spans
    every = [_span(event) for event in work]
    return WHOLE, [(min(begin for begin, _ in every), max(end for _, end in every))]


def _binned(found: Mapping[str, float], source: str, scope: str, spans: Sequence[Span]) -> Binned:
    if _length(spans) <= 0.0:
        raise TraceError("its steps take no time")
    seconds = {kind: time_us / _US_PER_S for kind, time_us in found.items()}
    return Binned(seconds, source, scope, None if scope == WHOLE else len(spans))


def union(spans: Iterable[Span]) -> list[Span]:
    """Return spans as those that do not overlap, in order; neighbours stay two."""
    joined: list[Span] = []
    for begin, end in sorted(spans):
        if joined and begin < joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((begin, end))
    return joined


def _length(spans: Iterable[Span]) -> float:
    return sum(end - begin for begin, end in spans)


def _overlap(one: Sequence[Span], other: Sequence[Span]) -> float:
    """Return how long two lists of disjoint spans in order coincide [µs]."""
    total, at = 0.0, 0
    for begin, end in one:
        while at < len(other) and other[at][1] <= begin:
            at += 1
        reach = at
        while reach < len(other) and other[reach][0] < end:
            total += min(end, other[reach][1]) - max(begin, other[reach][0])
            reach += 1
    return total


def _is_within(at: float, spans: Sequence[Span]) -> bool:
    return any(begin <= at < end for begin, end in spans)
