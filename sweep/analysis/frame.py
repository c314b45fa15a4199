"""The table: one row per trial, always the same columns, missing is null and never 0."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import pandas as pd

from sweep.analysis import scans
from sweep.analysis.clocks import ClocksOf, clocks_within, throttled
from sweep.analysis.cycles import CyclesOf, window_spans
from sweep.analysis.glossary import (
    ARGUMENT_PREFIX,
    SHARE_COLUMN,
    Column,
    argument_column,
    table_columns,
)
from sweep.analysis.measurement import Count, Measurement, measure, pool_measurements
from sweep.analysis.references import References, find_references, place
from sweep.analysis.row import (
    Row,
    Source,
    counts,
    latencies,
    rate,
    ratio,
    skipped_rows,
    trial_row,
)
from sweep.analysis.server import Scraped, ScrapedOf
from sweep.analysis.traced import Traced, TracesOf
from sweep.model.plan import Role
from sweep.model.record import AttemptRecord, SweepRecord, TrialRecord
from sweep.model.states import TrialState

Gaps: TypeAlias = Mapping[tuple[str, int], Mapping[int, Sequence[float]]]
"""(launch id, attempt) → number of the request → gaps between its outputs [s]."""

POOLED = "pooled"
"""Where a table's `attrs` keep what the launches of one configuration measured together: trial id
→ column → value, only for configurations that ended ok in more than one launch."""


def make_frame(
    record: SweepRecord,
    count: Count,
    gaps: Gaps | None = None,
    cycles: CyclesOf | None = None,
    clocks: ClocksOf | None = None,
    *,
    traces: TracesOf | None = None,
    scrapes: ScrapedOf | None = None,
) -> pd.DataFrame:
    """Return the table of a sweep; `count` is the engine's reading of a request's raw counts.

    Rows come in plan order, configurations that the engine's rules refuse last, one row for each
    place (workload and concurrency) that they were asked for. Without `gaps` the ITL is null,
    without `cycles` every phase is, without `traces` and `scrapes` what they say; without `clocks`
    no row is flagged for them.
    """
    attempts = {
        (attempt.launch_id, attempt.attempt): attempt
        for launch in record.launches
        for attempt in launch.attempts
    }
    launch_failures = {item.launch.launch_id: item.failure for item in record.launches}
    pairs = []
    steps: dict[str, frozenset[int]] = {}
    for trial in record.trials:
        attempt = attempts.get((trial.launch.launch_id, trial.attempt or 0))
        measured = measure(trial.trial.trial_id, attempt, count) if attempt else None
        if trial.trial.pinned:
            recorded = (cycles or {}).get((trial.launch.launch_id, trial.attempt or 0))
            steps[trial.trial.trial_id] = scans.steps_in_force(trial, attempt, recorded)
            trial = scans.judged(trial, steps[trial.trial.trial_id])  # noqa: PLW2901
            measured = measured and scans.counted(measured, trial)
        pairs.append((trial, attempt, measured))
    references = find_references((trial, measured) for trial, _, measured in pairs)
    slowed = _slowed(pairs, clocks or {})
    rows = [
        trial_row(
            Source(
                record.experiment,
                trial,
                attempt,
                measured,
                references,
                launch_failure=launch_failures.get(trial.launch.launch_id),
                gaps=_gaps_of(trial, measured, gaps or {}),
                recorded=(cycles or {}).get((trial.launch.launch_id, trial.attempt or 0)),
                traced=_traced(trial, traces or {}),
                scraped=_scraped(trial, scrapes or {}),
                is_throttled=trial.trial.trial_id in slowed,
                steps_in_force=steps.get(trial.trial.trial_id, frozenset()),
            )
        )
        for trial, attempt, measured in pairs
    ]
    rows += [row for skipped in record.skipped for row in skipped_rows(skipped, record.experiment)]
    for row in rows:
        row["sweep_id"] = record.sweep_id
        row["engine"] = record.experiment.engine.kind
    frame = _to_frame(rows)
    frame.attrs[POOLED] = _pooled(pairs, references, gaps or {})
    return frame


def _traced(trial: TrialRecord, traces: TracesOf) -> Traced | None:
    own = traces.get((trial.launch.launch_id, trial.attempt or 0), {})
    return own.get(trial.trial.trial_id)


def _scraped(trial: TrialRecord, scrapes: ScrapedOf) -> Scraped | None:
    own = scrapes.get((trial.launch.launch_id, trial.attempt or 0), {})
    return own.get(trial.trial.trial_id)


_Pair: TypeAlias = tuple[TrialRecord, AttemptRecord | None, Measurement | None]


def _pooled(pairs: Sequence[_Pair], references: References, gaps: Gaps) -> dict[str, Row]:
    same: dict[Any, list[tuple[TrialRecord, Measurement, list[float]]]] = defaultdict(list)
    for trial, attempt, measured in pairs:
        alike = trial.state is TrialState.OK and trial.launch.role is not Role.UNPROFILED
        if attempt is not None and measured is not None and alike:
            # One that confirms a scan runs another server, and is compared with it instead.
            is_alone = trial.launch.role is Role.CONFIRM
            key = (trial.launch.arm, trial.trial.configuration_id, place(trial), is_alone)
            same[key].append((trial, measured, _gaps_of(trial, measured, gaps)))
    result: dict[str, Row] = {}
    for parts in same.values():
        if len(parts) == 1:
            continue
        first = parts[0][0]
        measured = pool_measurements([part for _, part, _ in parts])
        row = counts(measured, is_baseline=first.trial.configuration.is_baseline)
        row |= latencies(measured, [gap for _, _, own in parts for gap in own])
        row |= rate("output_tok_s", measured.output) | rate("decode_tok_s", measured.decode)
        default = references.default_baseline(first)
        if default is not None and default is not references.baseline(first):
            row |= ratio("speedup_vs_default", measured.output, default.output)
        result |= {trial.trial.trial_id: row for trial, _, _ in parts}
    return result


def _slowed(pairs: Sequence[_Pair], clocks: ClocksOf) -> set[str]:
    within = {
        trial.trial.trial_id: clocks_within(
            window_spans(attempt.events, trial.trial.trial_id),
            clocks.get((attempt.launch_id, attempt.attempt), ()),
        )
        for trial, attempt, _ in pairs
        if attempt is not None
    }
    groups = {trial.trial.trial_id: (trial.launch.node, place(trial)) for trial, _, _ in pairs}
    return throttled(groups, within)


def _gaps_of(trial: TrialRecord, measured: Measurement | None, gaps: Gaps) -> list[float]:
    own = gaps.get((trial.launch.launch_id, trial.attempt or 0), {})
    answered = measured.answered if measured is not None else ()
    return [gap for item in answered for gap in own.get(item.record.n, ())]


def _to_frame(rows: Sequence[Row]) -> pd.DataFrame:
    names = sorted({name for row in rows for name in row if name.startswith(ARGUMENT_PREFIX)})
    arguments = tuple(
        argument_column(name.removeprefix(ARGUMENT_PREFIX), _dtype([row.get(name) for row in rows]))
        for name in names
    )
    steps = max((row["num_steps"] or 0 for row in rows), default=0)
    deepest = max((_deepest(row) for row in rows), default=0)
    columns = table_columns(arguments, max(steps, deepest))
    return pd.DataFrame({column.name: _values(rows, column) for column in columns})


def _deepest(row: Row) -> int:
    positions = (SHARE_COLUMN.fullmatch(name) for name in row)
    return max((int(match[1]) for match in positions if match), default=0)


def _values(rows: Sequence[Row], column: Column) -> Any:
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
