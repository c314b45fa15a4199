"""Doubts about a row, each named in glossary.FLAGS. A flag never removes a row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sweep.analysis.measurement import Measurement, drafting
from sweep.analysis.uncertainty import relative_half_width
from sweep.engines.classify import WITHOUT_GRAPH
from sweep.model.experiment import FEW_WINDOWS, Workload

INEFFECTIVE_ACCEPT_LENGTH = 1.05
MAX_CACHED_SHARE = 0.1
"""A chat template's common start is cached in every request; more flatters the prefill."""
MAX_SHORT_SHARE = 0.05
SHORT_LENGTH = 0.1
"""Of the tokens asked; answers may end by themselves, so only far shorter ones count."""


def measurement_flags(
    measurement: Measurement, workload: Workload, accept_length: float | None
) -> list[str]:
    """Return the flags that follow from the measured requests of a trial."""
    prompts = {item.record.prompt for item in measurement.answered}
    windows = len(measurement.complete)
    checks = {
        "errors": measurement.errors > 0,
        "short_output": _is_short(measurement, workload),
        "speculation_ineffective": accept_length is not None
        and accept_length <= INEFFECTIVE_ACCEPT_LENGTH,
        "cycles_estimated": accept_length is not None
        and any(item.counts.cycles_estimated for item in measurement.answered),
        "some_undrafted": accept_length is not None and drafting(measurement).undrafted > 0,
        "cached_prompt": _cached_share(measurement) > MAX_CACHED_SHARE,
        "one_prompt": len(prompts) == 1,
        "few_windows": windows < max(workload.repeats.min, FEW_WINDOWS),
        "wide_interval": _is_wide(measurement, workload),
    }
    return [flag for flag, holds in checks.items() if holds]


def is_cache_unknown(events: Iterable[Mapping[str, Any]], trial_id: str) -> bool:
    """Whether a flush was not confirmed while the trial ran."""
    trial = None
    for event in events:
        if event["event"] == "phase":
            trial = event.get("trial")
        if event["event"] == "flush" and trial == trial_id and not event["confirmed"]:
            return True
    return False


def is_without_graph(events: Iterable[Mapping[str, Any]]) -> bool:
    """Whether the launch's log tells of decoding outside the CUDA graphs."""
    return any(event["event"] == "milestone" and event["name"] == WITHOUT_GRAPH for event in events)


def _is_wide(measurement: Measurement, workload: Workload) -> bool:
    if measurement.output is None or len(measurement.complete) < workload.repeats.max:
        return False
    width = relative_half_width(measurement.output)
    return width is not None and width > workload.repeats.relative_ci


def _is_short(measurement: Measurement, workload: Workload) -> bool:
    known = [item.counts.output_tokens for item in measurement.answered]
    lengths = [tokens for tokens in known if tokens is not None]
    if not lengths:
        return False
    least = workload.max_tokens * (1.0 if workload.ignore_eos else SHORT_LENGTH)
    return sum(tokens < least for tokens in lengths) / len(lengths) > MAX_SHORT_SHARE


def _cached_share(measurement: Measurement) -> float:
    cached = sum(item.record.cached_tokens or 0 for item in measurement.answered)
    asked = sum(item.record.input_tokens or 0 for item in measurement.answered)
    return cached / asked if asked else 0.0
