"""The table: one row per trial, always the same columns, missing is null and never 0.

A row holds counts and latencies of whatever was measured, rates only when its trial ended ok or
partial, and comparisons only when it ended ok: the throughput of a server that did not do what it
was asked is no result.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from sweep.analysis import acceptance, break_even, timeline
from sweep.analysis.flags import is_cache_unknown, measurement_flags
from sweep.analysis.glossary import ARGUMENT_PREFIX, Column, argument_column, table_columns
from sweep.analysis.measurement import (
    Count,
    Measurement,
    drafting,
    measure,
    pool_measurements,
    same_text_share,
    typical_texts,
)
from sweep.analysis.references import Baseline, References, find_references, place
from sweep.analysis.uncertainty import Grid, Interval, rate_interval, ratio_interval
from sweep.model.canonical import identity
from sweep.model.experiment import Experiment, Workload
from sweep.model.plan import Configuration, Role, SkippedConfiguration
from sweep.model.record import AttemptRecord, SweepRecord, TrialRecord
from sweep.model.redaction import redact_text, secrets_in
from sweep.model.states import Failure, TrialState

Gaps: TypeAlias = Mapping[tuple[str, int], Mapping[int, Sequence[float]]]
"""(launch id, attempt) → number of the request → gaps between its outputs [s]."""

POOLED = "pooled"
"""Where a table's `attrs` keep what the launches of one configuration measured together: trial id
→ column → value, only for configurations that ended ok in more than one launch."""

_Row: TypeAlias = dict[str, Any]

_RATED = (TrialState.OK, TrialState.PARTIAL)


def make_frame(record: SweepRecord, count: Count, gaps: Gaps | None = None) -> pd.DataFrame:
    """Return the table of a sweep; `count` is the engine's reading of a request's raw counts.

    Rows come in plan order, configurations that the engine's rules refuse last, one row for each
    place (workload and concurrency) that they were asked for. Without `gaps` the ITL is null.
    """
    attempts = {
        (attempt.launch_id, attempt.attempt): attempt
        for launch in record.launches
        for attempt in launch.attempts
    }
    launch_failures = {item.launch.launch_id: item.failure for item in record.launches}
    pairs = []
    for trial in record.trials:
        attempt = attempts.get((trial.launch.launch_id, trial.attempt or 0))
        measured = measure(trial.trial.trial_id, attempt, count) if attempt else None
        pairs.append((trial, attempt, measured))
    references = find_references((trial, measured) for trial, _, measured in pairs)
    rows = [
        _trial_row(
            _Source(record.experiment, trial, attempt, measured, references),
            launch_failures.get(trial.launch.launch_id),
            gaps or {},
        )
        for trial, attempt, measured in pairs
    ]
    rows += [row for skipped in record.skipped for row in _skipped_rows(skipped, record.experiment)]
    for row in rows:
        row["sweep_id"] = record.sweep_id
        row["engine"] = record.experiment.engine.kind
    frame = _to_frame(rows)
    frame.attrs[POOLED] = _pooled(pairs, references, gaps or {})
    return frame


_Pair: TypeAlias = tuple[TrialRecord, AttemptRecord | None, Measurement | None]


def _pooled(pairs: Sequence[_Pair], references: References, gaps: Gaps) -> dict[str, _Row]:
    same: dict[Any, list[tuple[TrialRecord, Measurement, list[float]]]] = defaultdict(list)
    for trial, attempt, measured in pairs:
        if attempt is not None and measured is not None and trial.state is TrialState.OK:
            key = (trial.launch.arm, trial.trial.configuration_id, place(trial))
            same[key].append((trial, measured, _gaps_of(attempt, measured, gaps)))
    result: dict[str, _Row] = {}
    for parts in same.values():
        if len(parts) == 1:
            continue
        first = parts[0][0]
        measured = pool_measurements([part for _, part, _ in parts])
        row = _counts(measured, is_baseline=first.trial.configuration.is_baseline)
        row |= _latencies(measured, [gap for _, _, own in parts for gap in own])
        row |= _rate("output_tok_s", measured.output) | _rate("decode_tok_s", measured.decode)
        default = references.default_baseline(first)
        if default is not None and default is not references.baseline(first):
            row |= _ratio("speedup_vs_default", measured.output, default.output)
        result |= {trial.trial.trial_id: row for trial, _, _ in parts}
    return result


def _gaps_of(attempt: AttemptRecord, measured: Measurement, gaps: Gaps) -> list[float]:
    own = gaps.get((attempt.launch_id, attempt.attempt), {})
    return [gap for item in measured.answered for gap in own.get(item.record.n, ())]


@dataclass(frozen=True)
class _Source:
    """What a row is made from."""

    experiment: Experiment
    trial: TrialRecord
    attempt: AttemptRecord | None
    measured: Measurement | None
    references: References


def _trial_row(source: _Source, launch_failure: Failure | None, gaps: Gaps) -> _Row:
    trial, attempt, measured = source.trial, source.attempt, source.measured
    failure = trial.failure or (launch_failure if trial.state is TrialState.FAILED else None)
    row: _Row = {
        "trial_id": trial.trial.trial_id,
        "launch_id": trial.launch.launch_id,
        "role": trial.launch.role.value,
        "attempt": trial.attempt,
        "node": trial.launch.node,
        "configuration_id": trial.trial.configuration_id,
        "arm": trial.launch.arm,
        "state": trial.state.value,
        "failure_class": failure and failure.failure_class,
        "reason": failure and _without_secrets(failure.message, trial),
        "concurrency": trial.trial.concurrency,
        **_configuration(trial.trial.configuration, source.experiment),
        **_workload(trial.trial.workload),
    }
    flags: list[str] = []
    if attempt is not None:
        row |= _run(trial, attempt)
    if attempt is not None and measured is not None and not measured.is_empty:
        row |= _counts(measured, is_baseline=trial.trial.configuration.is_baseline)
        row |= _latencies(measured, _gaps_of(attempt, measured, gaps))
        flags += measurement_flags(measured, trial.trial.workload, row["accept_length"])
        if is_cache_unknown(attempt.events, trial.trial.trial_id):
            flags.append("cache_unknown")
        if trial.state in _RATED:
            row |= _rate("output_tok_s", measured.output) | _rate("decode_tok_s", measured.decode)
        if trial.state is TrialState.OK:
            row |= _comparison(source, measured, row)
    same = row.get("same_as_baseline_share")
    if same is not None and same < 1.0:
        flags.append("output_differs")
    if source.experiment.engine.kind == "simulator":
        flags.append("simulated")
    return row | {"flags": " ".join(flags)}


def _without_secrets(message: str, trial: TrialRecord) -> str:
    server = trial.launch.server
    return redact_text(message, secrets_in(server.argv, server.env))


def _skipped_rows(skipped: SkippedConfiguration, experiment: Experiment) -> list[_Row]:
    return [
        {
            "configuration_id": skipped.configuration_id,
            "state": TrialState.SKIPPED_INVALID.value,
            "reason": skipped.reason,
            "concurrency": concurrency,
            "flags": "",
            **_configuration(skipped.configuration, experiment),
            **_workload(workload),
        }
        for workload in experiment.workloads
        for concurrency in workload.concurrency
    ]


def _configuration(configuration: Configuration, experiment: Experiment) -> _Row:
    asked, effective = experiment.axes.num_draft_tokens, configuration.num_draft_tokens
    if isinstance(asked, str) or configuration.is_baseline:
        requested = None
    elif effective in asked:
        requested = effective
    else:
        requested = asked[0] if len(asked) == 1 else None
    return {
        "configuration": configuration.label,
        "is_baseline": configuration.is_baseline,
        "variant": configuration.variant,
        "algorithm": configuration.algorithm,
        "num_steps": configuration.num_steps,
        "topk": configuration.topk,
        "num_draft_tokens": requested,
        "effective_num_draft_tokens": effective,
        **{f"{ARGUMENT_PREFIX}{name}": value for name, value in configuration.args.items()},
    }


def _workload(workload: Workload) -> _Row:
    prompts = [(prompt.text, prompt.messages, prompt.token_ids) for prompt in workload.prompts]
    return {"workload": workload.name, "prompt_hash": identity(prompts)}


def _run(trial: TrialRecord, attempt: AttemptRecord) -> _Row:
    trial_id = trial.trial.trial_id
    return {
        "engine_version": attempt.engine_version,
        "load_s": timeline.load_s(attempt.events),
        "wall_s": timeline.trial_wall_s(attempt.events, trial_id),
        "started_utc": timeline.trial_start_utc(attempt.events, trial_id) or attempt.intent_utc,
    }


def _counts(measured: Measurement, *, is_baseline: bool) -> _Row:
    row: _Row = {
        "windows": len(measured.complete),
        "requests_ok": len(measured.answered),
        "requests_error": measured.errors,
        "output_tokens": measured.total("output_tokens"),
        "accept_length": None,
    }
    if is_baseline:
        return row
    counts = drafting(measured)
    cycles, accepted, drafted = counts.cycles, counts.accepted_tokens, counts.drafted_tokens
    row |= {"cycles": cycles, "accepted_tokens": accepted, "drafted_tokens": drafted}
    if accepted is not None and cycles is not None:
        row["accept_length"] = acceptance.accept_length(accepted, cycles)
    if accepted is not None and drafted is not None:
        row["acceptance_rate"] = acceptance.acceptance_rate(accepted, drafted)
    return row


def _latencies(measured: Measurement, gaps: Sequence[float]) -> _Row:
    records = [item.record for item in measured.answered]
    return {
        "ttft_s_p50": _percentile([r.first_s for r in records if r.first_s is not None], 50),
        "tpot_s_p50": _percentile(
            [item.tpot_s for item in measured.answered if item.tpot_s is not None], 50
        ),
        "itl_s_p50": _percentile(gaps, 50),
        "itl_s_p99": _percentile(gaps, 99),
    }


def _comparison(source: _Source, measured: Measurement, row: _Row) -> _Row:
    trial = source.trial
    own, default = source.references.baseline(trial), source.references.default_baseline(trial)
    result: _Row = {}
    if own is not None:
        result |= _to_baseline("speedup", measured.output, own)
        result["break_even_accept_length"] = _break_even(row, own)
        if trial.trial.workload.temperature == 0:
            texts = typical_texts(own.measurements)
            result["same_as_baseline_share"] = same_text_share(measured, texts)
        if trial.launch.role is Role.BASELINE_LAST:
            result |= _ratio("drift", measured.output, own.output_of(Role.BASELINE_FIRST))
    if default is not None:
        result |= _to_baseline("speedup_vs_default", measured.output, default)
    result |= _to_fastest(source.references.output(trial), source.references.fastest(trial))
    return result


def _to_baseline(name: str, output: Grid | None, baseline: Baseline) -> _Row:
    # A baseline is the unit: exactly 1 by definition, not a ratio that was measured.
    if output is not None and any(output is part.output for part in baseline.measurements):
        return {name: 1.0, **_bounds(name, Interval(1.0, 1.0))}
    return _ratio(name, output, baseline.output)


def _to_fastest(output: Grid | None, fastest: Grid | None) -> _Row:
    if output is None or output is fastest:
        return {} if output is None else {"vs_best": 1.0}
    return _ratio("vs_best", output, fastest)


def _ratio(name: str, output: Grid | None, reference: Grid | None) -> _Row:
    if output is None or reference is None or not output.rate or not reference.rate:
        return {}
    interval = ratio_interval(output, reference)
    return {name: output.rate / reference.rate, **_bounds(name, interval)}


def _rate(name: str, grid: Grid | None) -> _Row:
    if grid is None:
        return {}
    return {name: grid.rate, **_bounds(name, rate_interval(grid))}


def _bounds(name: str, interval: Interval | None) -> _Row:
    return {f"{name}_lo": interval.lo, f"{name}_hi": interval.hi} if interval else {}


def _break_even(row: _Row, baseline: Baseline) -> float | None:
    """τ* by the cycle as the client sees it; None when a part of it is not known."""
    length, rate = row["accept_length"], row.get("decode_tok_s")
    decode = baseline.decode
    if not length or not rate or decode is None or not decode.rate:
        return None
    return break_even.break_even_accept_length(
        break_even.cycle_time_s(length, rate), 1.0 / decode.rate
    )


def _percentile(values: Sequence[float], share: float) -> float | None:
    return float(np.percentile(values, share)) if len(values) else None


def _to_frame(rows: Sequence[_Row]) -> pd.DataFrame:
    names = sorted({name for row in rows for name in row if name.startswith(ARGUMENT_PREFIX)})
    arguments = tuple(
        argument_column(name.removeprefix(ARGUMENT_PREFIX), _dtype([row.get(name) for row in rows]))
        for name in names
    )
    steps = max((row["num_steps"] or 0 for row in rows), default=0)
    columns = table_columns(arguments, steps)
    return pd.DataFrame({column.name: _values(rows, column) for column in columns})


def _values(rows: Sequence[_Row], column: Column) -> Any:
    values: list[Any] = [row.get(column.name) for row in rows]
    if column.dtype == "string":
        values = [None if value is None else str(value) for value in values]
    dtype: Any = column.dtype
    return pd.array([pd.NA if value is None else value for value in values], dtype=dtype)


def _dtype(values: Sequence[Any]) -> str:
    """The narrowest type of the table that holds the values of a swept argument."""
    kinds = {type(value) for value in values if value is not None}
    if kinds == {bool}:
        return "boolean"
    if kinds == {int}:
        return "Int64"
    return "Float64" if kinds and kinds <= {int, float} else "string"
