"""Raw counts of an answer, in all the spellings of SGLang's meta_info, and what they prove.

| count           | from    | to     | name                          |
|-----------------|---------|--------|-------------------------------|
| cycles          | 0.4.6   |        | spec_verify_ct                |
| accepted        | 0.5.5   | 0.5.10 | spec_accept_token_num         |
|                 | 0.5.11  | 0.5.20 | spec_accepted_drafts          |
|                 | 0.5.12  |        | spec_num_correct_drafts       |
| drafted         | 0.5.9   | 0.5.10 | spec_draft_token_num          |
|                 | 0.5.11  | 0.5.20 | spec_proposed_drafts          |
|                 | 0.5.12  |        | spec_num_proposed_drafts      |
| by position     | 0.5.9   | 0.5.20 | spec_accept_histogram         |
|                 | 0.5.12  |        | spec_correct_drafts_histogram |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sweep.agent.wire import RequestRecord
from sweep.model.plan import PlannedTrial
from sweep.model.states import Failure
from sweep.ports import Counters

CYCLES = "spec_verify_ct"
ACCEPTED = ("spec_num_correct_drafts", "spec_accepted_drafts", "spec_accept_token_num")
DRAFTED = ("spec_num_proposed_drafts", "spec_proposed_drafts")
_DRAFTED_BEFORE = "spec_draft_token_num"
"""Up to 0.5.8 it is cycles times steps, which is wrong for trees; 0.5.9, which has a histogram too,
counts draft tokens."""
HISTOGRAMS = ("spec_correct_drafts_histogram", "spec_accept_histogram")

META = (CYCLES, *ACCEPTED, *DRAFTED, _DRAFTED_BEFORE, *HISTOGRAMS)
"""What the agent keeps of an answer's meta_info."""


def _first(meta: Mapping[str, Any], names: Sequence[str]) -> Any:
    return next((meta[name] for name in names if meta.get(name) is not None), None)


def count(record: RequestRecord) -> Counters:
    """Read the raw counts of one answered request: the server's own, None where it is silent."""
    histogram = _first(record.meta, HISTOGRAMS)
    drafted = _first(record.meta, DRAFTED)
    if drafted is None and histogram is not None:
        drafted = record.meta.get(_DRAFTED_BEFORE)
    return Counters(
        output_tokens=record.output_tokens,
        cycles=record.meta.get(CYCLES),
        drafted_tokens=drafted,
        accepted_tokens=_first(record.meta, ACCEPTED),
        cycles_by_accepted=None if histogram is None else tuple(histogram),
    )


def classify_trial(trial: PlannedTrial, records: Sequence[RequestRecord]) -> Failure | None:
    """Name speculation that was not asked for, that never ran, or that ran with other settings."""
    counted = [count(record) for record in records]
    cycles = sum(item.cycles or 0 for item in counted)
    if trial.configuration.is_baseline:
        return _speculating_baseline() if cycles else None
    if cycles == 0:
        decoded = any((item.output_tokens or 0) > 1 for item in counted)
        return _never_verified() if decoded else None
    if trial.pinned:
        return _beyond(trial.configuration.num_steps or 0, counted)
    known = [item.drafted_tokens for item in counted if item.drafted_tokens is not None]
    asked = trial.configuration.num_draft_tokens
    if known and asked is not None and sum(known) != cycles * (asked - 1):
        return _changed(asked, sum(known) / cycles + 1)
    return None


def _beyond(steps: int, counted: Sequence[Counters]) -> Failure | None:
    """A cycle cannot accept more tokens than it has steps. Proposed tokens say nothing here: they
    are counted by the steps that the server was started with."""
    deepest = max((_deepest(item.cycles_by_accepted or ()) for item in counted), default=0)
    if deepest <= steps:
        return None
    return Failure(
        "not_pinned", f"a cycle accepted {deepest} tokens, and {steps} steps were asked for"
    )


def _deepest(histogram: Sequence[int]) -> int:
    return max((accepted for accepted, cycles in enumerate(histogram) if cycles), default=0)


def _speculating_baseline() -> Failure:
    return Failure("bad_args", "the baseline speculated though it was not asked to")


def _never_verified() -> Failure:
    return Failure(
        "speculation_inactive",
        "the server answered without a single verification: its log says why (`sweep logs`); "
        "before 0.5.20, answers of api: chat carry no counts",
    )


def _changed(asked: int, seen: float) -> Failure:
    return Failure(
        "bad_args",
        f"the server verified {seen:.3g} tokens a cycle, {asked} were asked: it changed its "
        "arguments, and the result would be another configuration's",
    )
