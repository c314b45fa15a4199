"""One row of the table: what a trial measured, by column; what is missing is not in it.

A row holds counts, latencies and phases of whatever was measured, rates only when its trial ended
ok or partial, and comparisons only when it ended ok: the throughput of a server that did not do
what it was asked is no result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from sweep.analysis import acceptance, break_even, timeline
from sweep.analysis.cautions import DRIFTED, is_large
from sweep.analysis.cycles import Recorded
from sweep.analysis.flags import is_cache_unknown, is_without_graph, measurement_flags
from sweep.analysis.glossary import ARGUMENT_PREFIX, SHARE_PREFIX
from sweep.analysis.measurement import (
    Measurement,
    drafting,
    same_text_share,
    typical_texts,
)
from sweep.analysis.phases import Phased, cycle_columns, is_asked, phased
from sweep.analysis.probe_cost import SLOWS, is_slowed
from sweep.analysis.references import Baseline, References
from sweep.analysis.scans import effective, steps_flags
from sweep.analysis.server import Scraped, of_server
from sweep.analysis.settings import read_settings
from sweep.analysis.traced import MISSING, Traced, trace_columns
from sweep.analysis.uncertainty import (
    Grid,
    Interval,
    difference_interval,
    rate_interval,
    ratio_interval,
)
from sweep.model.canonical import identity
from sweep.model.experiment import Experiment, Workload
from sweep.model.plan import Configuration, Role, SkippedConfiguration
from sweep.model.record import AttemptRecord, TrialRecord
from sweep.model.redaction import redact_text, secrets_in
from sweep.model.states import Failure, TrialState

Row: TypeAlias = dict[str, Any]

_RATED = (TrialState.OK, TrialState.PARTIAL)


@dataclass(frozen=True)
class Source:
    """What a row is made from."""

    experiment: Experiment
    trial: TrialRecord
    attempt: AttemptRecord | None
    measured: Measurement | None
    references: References
    launch_failure: Failure | None
    gaps: Sequence[float]
    """Between the outputs of its answers [s]."""
    recorded: Recorded | None
    """What the engine recorded of its cycles; None: its files were not fetched."""
    traced: Traced | None
    """What its profiler traced; None: it was not to be traced, or its files were not fetched."""
    scraped: Scraped | None
    """The server's own counters around its windows; None: not all of them are there."""
    is_throttled: bool
    """Whether a GPU was held back in its windows."""
    steps_in_force: frozenset[int] = frozenset()
    """Draft steps of its cycles, where its requests chose them; empty: not known."""


def trial_row(source: Source) -> Row:
    """Return what is known of a planned trial, by column."""
    trial, attempt, measured = source.trial, source.attempt, source.measured
    failure = trial.failure or (source.launch_failure if trial.state is TrialState.FAILED else None)
    row: Row = {
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
        settings = read_settings(
            trial.launch.server,
            attempt.events,
            is_baseline=trial.trial.configuration.is_baseline,
        )
        row |= {
            **_run(trial, attempt),
            **settings.row,
            **effective(trial, source.steps_in_force),
        }
        flags += settings.flags
    if attempt is not None and measured is not None and not measured.is_empty:
        row |= counts(measured, is_baseline=trial.trial.configuration.is_baseline)
        row |= latencies(measured, source.gaps)
        flags += measurement_flags(measured, trial.trial.workload, row["accept_length"])
        flags += steps_flags(trial, source.steps_in_force)
        flags += _circumstances(source, attempt)
        inside = _phased(source, attempt, measured)
        row |= inside.row | _shares(source, measured, inside)
        flags += inside.flags
        if source.scraped is not None:
            own = of_server(source.scraped, measured, row.get("timed_cycles"))
            row |= own.row
            flags += own.flags
        if source.traced is not None:
            row |= _trace_columns(source.traced, trial)
            flags += [] if source.traced.binned is not None else [MISSING]
        if trial.state in _RATED:
            row |= rate("output_tok_s", measured.output) | rate("decode_tok_s", measured.decode)
        if trial.state is TrialState.OK:
            row |= _comparison(source, measured, row, flags)
            flags += _drift_flags(row)
            flags += _cost_flags(row, source.references.baseline(trial))
    same = row.get("same_as_baseline_share")
    if same is not None and same < 1.0:
        flags.append("output_differs")
    if source.experiment.engine.kind == "simulator":
        flags.append("simulated")
    return row | {"flags": " ".join(flags)}


def _circumstances(source: Source, attempt: AttemptRecord) -> list[str]:
    checks = {
        "cache_unknown": is_cache_unknown(attempt.events, source.trial.trial.trial_id),
        "without_graph": is_without_graph(attempt.events),
        "throttled": source.is_throttled,
    }
    return [flag for flag, holds in checks.items() if holds]


def _without_secrets(message: str, trial: TrialRecord) -> str:
    server = trial.launch.server
    return redact_text(message, secrets_in(server.argv, server.env))


def skipped_rows(skipped: SkippedConfiguration, experiment: Experiment) -> list[Row]:
    """Return a row for each place that a refused configuration was asked for."""
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


def _configuration(configuration: Configuration, experiment: Experiment) -> Row:
    _, axes = experiment.speculation(experiment.variant(configuration.variant))
    asked, effective = axes.num_draft_tokens, configuration.num_draft_tokens
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


def _workload(workload: Workload) -> Row:
    prompts = [(prompt.text, prompt.messages, prompt.token_ids) for prompt in workload.prompts]
    return {"workload": workload.name, "prompt_hash": identity(prompts)}


def _run(trial: TrialRecord, attempt: AttemptRecord) -> Row:
    trial_id = trial.trial.trial_id
    return {
        "engine_version": attempt.engine_version,
        "load_s": timeline.load_s(attempt.events),
        "wall_s": timeline.trial_wall_s(attempt.events, trial_id),
        "started_utc": timeline.trial_start_utc(attempt.events, trial_id) or attempt.intent_utc,
    }


def counts(measured: Measurement, *, is_baseline: bool) -> Row:
    """Return the columns of counts, and the ratios of counts."""
    row: Row = {
        "windows": len(measured.complete),
        "requests_ok": len(measured.answered),
        "requests_error": measured.errors,
        "output_tokens": measured.total("output_tokens"),
        "accept_length": None,
    }
    if is_baseline:
        return row
    drafts = drafting(measured)
    cycles, accepted, drafted = drafts.cycles, drafts.accepted_tokens, drafts.drafted_tokens
    row |= {"cycles": cycles, "accepted_tokens": accepted, "drafted_tokens": drafted}
    if accepted is not None and cycles is not None:
        row["accept_length"] = acceptance.accept_length(accepted, cycles)
    if accepted is not None and drafted is not None:
        row["acceptance_rate"] = acceptance.acceptance_rate(accepted, drafted)
    return row


def latencies(measured: Measurement, gaps: Sequence[float]) -> Row:
    """Return the columns of latencies; `gaps` are those between outputs [s]."""
    records = [item.record for item in measured.answered]
    return {
        "ttft_s_p50": _percentile([r.first_s for r in records if r.first_s is not None], 50),
        "tpot_s_p50": _percentile(
            [item.tpot_s for item in measured.answered if item.tpot_s is not None], 50
        ),
        "itl_s_p50": _percentile(gaps, 50),
        "itl_s_p99": _percentile(gaps, 99),
    }


def _phased(source: Source, attempt: AttemptRecord, measured: Measurement) -> Phased:
    trial, recorded = source.trial, source.recorded
    if trial.trial.configuration.is_baseline or recorded is None:
        return Phased()
    if not recorded.recordings and not is_asked(trial.launch):
        return Phased()
    found = phased(recorded, attempt, trial.trial.trial_id, measured)
    note = found.row.get("instrument_note")
    if note is not None:
        found.row["instrument_note"] = _without_secrets(note, trial)
    return found


def _trace_columns(traced: Traced, trial: TrialRecord) -> Row:
    row = trace_columns(traced)
    note = row["trace_note"]
    return row | {"trace_note": note and _without_secrets(note, trial)}


def _shares(source: Source, measured: Measurement, inside: Phased) -> Row:
    """p_1, p_2 …: as the answers report them, else from the cycles themselves."""
    reported = [item.counts.cycles_by_accepted for item in measured.answered]
    told = [histogram for histogram in reported if histogram is not None]
    by_accepted = acceptance.sum_histograms(told) if told else inside.by_accepted or ()
    steps = source.trial.trial.configuration.num_steps or 0
    shares = acceptance.position_shares(by_accepted, steps)
    return {f"{SHARE_PREFIX}{k}": share for k, share in enumerate(shares, start=1)}


def _comparison(source: Source, measured: Measurement, row: Row, flags: Sequence[str]) -> Row:
    trial = source.trial
    own, default = source.references.baseline(trial), source.references.default_baseline(trial)
    result: Row = {}
    if own is not None:
        result |= _to_baseline("speedup", measured.output, own)
        result["break_even_accept_length"] = _break_even(row, own)
        if own.decode is not None and own.decode.rate:
            result |= cycle_columns(row, flags, 1.0 / own.decode.rate)
        if trial.trial.workload.temperature == 0:
            texts = typical_texts(own.measurements)
            result["same_as_baseline_share"] = same_text_share(measured, texts)
        if trial.launch.role is Role.BASELINE_LAST:
            result |= ratio("drift", measured.output, own.output_of(Role.BASELINE_FIRST))
    if default is not None:
        result |= _to_baseline("speedup_vs_default", measured.output, default)
    own_output = source.references.output(trial)
    if trial.launch.role is Role.CONFIRM:
        return result | ratio("vs_scan", measured.output, own_output)
    if trial.launch.role is not Role.UNPROFILED:
        result |= ratio("vs_default_variant", own_output, source.references.default_variant(trial))
        result |= _to_fastest(own_output, source.references.fastest(trial))
        result |= _to_unprofiled(measured.output, source.references.without_probe(trial))
    return result


def _to_unprofiled(output: Grid | None, without: Grid | None) -> Row:
    if output is None or without is None or not output.rate or not without.rate:
        return {}
    name = "probe_difference_tok_s"
    interval = difference_interval(output, without)
    return {name: output.rate - without.rate, **_bounds(name, interval)}


def _drift_flags(row: Row) -> list[str]:
    drift = row.get("drift")
    if drift is None:
        return []
    return [DRIFTED] if is_large(drift, row.get("drift_lo"), row.get("drift_hi")) else []


def _cost_flags(row: Row, baseline: Baseline | None) -> list[str]:
    difference, hi = row.get("probe_difference_tok_s"), row.get("probe_difference_tok_s_hi")
    if difference is None:
        return []
    drift = 0.0
    if baseline is not None:
        first = baseline.output_of(Role.BASELINE_FIRST)
        last = baseline.output_of(Role.BASELINE_LAST)
        if first is not None and last is not None and first.rate and last.rate:
            drift = last.rate / first.rate - 1.0
    return [SLOWS] if is_slowed(difference, hi, row["output_tok_s"] - difference, drift) else []


def _to_baseline(name: str, output: Grid | None, baseline: Baseline) -> Row:
    # A baseline is the unit: exactly 1 by definition, not a ratio that was measured.
    if output is not None and any(output is part.output for part in baseline.measurements):
        return {name: 1.0, **_bounds(name, Interval(1.0, 1.0))}
    return ratio(name, output, baseline.output)


def _to_fastest(output: Grid | None, fastest: Grid | None) -> Row:
    if output is None or output is fastest:
        return {} if output is None else {"vs_best": 1.0}
    return ratio("vs_best", output, fastest)


def ratio(name: str, output: Grid | None, reference: Grid | None) -> Row:
    """Return the column of a ratio of two rates with its interval; nothing when one is unknown."""
    if output is None or reference is None or not output.rate or not reference.rate:
        return {}
    interval = ratio_interval(output, reference)
    return {name: output.rate / reference.rate, **_bounds(name, interval)}


def rate(name: str, grid: Grid | None) -> Row:
    """Return the column of a rate with its interval; nothing when it is unknown."""
    if grid is None:
        return {}
    return {name: grid.rate, **_bounds(name, rate_interval(grid))}


def _bounds(name: str, interval: Interval | None) -> Row:
    return {f"{name}_lo": interval.lo, f"{name}_hi": interval.hi} if interval else {}


def _break_even(row: Row, baseline: Baseline) -> float | None:
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
