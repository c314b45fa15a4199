"""What one trial measured: its answered requests, their counts, and its rates as grids."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from sweep.agent.wire import RequestRecord
from sweep.analysis.uncertainty import Grid, pool
from sweep.model.record import AttemptRecord
from sweep.ports import Counters

Count: TypeAlias = Callable[[RequestRecord], Counters]
"""An engine's reading of the raw counts of one answered request."""


@dataclass(frozen=True)
class Answered:
    """A measured request that was answered without an error, with its counts."""

    record: RequestRecord
    counts: Counters

    @property
    def duration_s(self) -> float | None:
        """From sent to the last output; to the end of the answer when it held no text."""
        return self.record.end_s if self.record.last_s is None else self.record.last_s

    @property
    def tpot_s(self) -> float | None:
        """Time per output token after the first [s]; None for fewer than two tokens."""
        tokens, record = self.counts.output_tokens, self.record
        if tokens is None or tokens <= 1 or record.first_s is None or record.last_s is None:
            return None
        return (record.last_s - record.first_s) / (tokens - 1)


@dataclass(frozen=True)
class Measurement:
    """The measured requests of one trial in one attempt.

    `output` holds output tokens and window time, `decode` the tokens after each first output
    chunk and the time after it, both for complete windows only; None: some answer does not say
    how many tokens it has, or no window is complete.
    """

    answered: tuple[Answered, ...]
    errors: int
    complete: tuple[int, ...]
    output: Grid | None
    decode: Grid | None

    @property
    def is_empty(self) -> bool:
        """Whether no request was measured at all."""
        return not self.answered and not self.errors

    def total(self, name: str) -> int | None:
        """Sum of one of the counts over all answers; None when any answer does not say."""
        values = [getattr(item.counts, name) for item in self.answered]
        return sum(values) if values and None not in values else None


def measure(trial_id: str, attempt: AttemptRecord, count: Count) -> Measurement:
    """Gather what `attempt` measured for a trial; warm-up and throw-away requests are left out."""
    records = [
        record
        for record in attempt.requests
        if record.trial == trial_id and record.role == "measure"
    ]
    answered = tuple(Answered(record, count(record)) for record in records if is_ok(record))
    complete = complete_windows(attempt.events, trial_id)
    cut = sum(record.error == "stopped" for record in records)
    # The same word stands for requests that were cut because the server died: those failed.
    ours = cut if _was_stopped(attempt.events, trial_id) else 0
    return Measurement(
        answered=answered,
        errors=len(records) - len(answered) - ours,
        complete=complete,
        output=_output_grid(answered, records, complete),
        decode=_decode_grid(answered, complete),
    )


@dataclass(frozen=True)
class Drafting:
    """Counts of drafting, summed over the answers that report any; None: one of those lacks it.

    `undrafted` is the number of answers that report none of the counts: an engine may leave them
    out of an answer for which it never drafted. The sums are None when no answer reports.
    """

    cycles: int | None
    drafted_tokens: int | None
    accepted_tokens: int | None
    undrafted: int


_DRAFTING = ("cycles", "drafted_tokens", "accepted_tokens")


def drafting(measurement: Measurement) -> Drafting:
    """Sum the counts of drafting of a trial."""
    counts = [item.counts for item in measurement.answered]
    told = [[getattr(item, name) for name in _DRAFTING] for item in counts]
    reporting = [values for values in told if any(value is not None for value in values)]
    columns = list(zip(*reporting, strict=True)) or [(None,)] * len(_DRAFTING)
    cycles, drafted, accepted = (None if None in column else sum(column) for column in columns)
    return Drafting(cycles, drafted, accepted, len(told) - len(reporting))


def only_complete(measurement: Measurement) -> Measurement:
    """Return a measurement with the answers of its complete windows alone."""
    inside = [x for x in measurement.answered if x.record.window in measurement.complete]
    return replace(measurement, answered=tuple(inside))


def pool_measurements(parts: Sequence[Measurement]) -> Measurement:
    """Join what several launches of one configuration measured; their windows are stacked."""
    return Measurement(
        answered=tuple(item for part in parts for item in part.answered),
        errors=sum(part.errors for part in parts),
        complete=tuple(window for part in parts for window in part.complete),
        output=pool_known(part.output for part in parts),
        decode=pool_known(part.decode for part in parts),
    )


def pool_known(grids: Iterable[Grid | None]) -> Grid | None:
    """Stack the windows of those grids that are known; None: none is."""
    known = [grid for grid in grids if grid is not None]
    return pool(known) if known else None


def is_ok(record: RequestRecord) -> bool:
    """Whether a request was answered: a status of success, and no error on the way."""
    return record.error is None and record.status is not None and record.status // 100 == 2  # noqa: PLR2004  2xx


def _was_stopped(events: Iterable[Mapping[str, Any]], trial_id: str) -> bool:
    """Whether the trial ended because the sweep was asked to stop."""
    return any(
        event.get("event") == "trial_end"
        and event.get("trial") == trial_id
        and event.get("end") == "stopped"
        for event in events
    )


def complete_windows(events: Iterable[Mapping[str, Any]], trial_id: str) -> tuple[int, ...]:
    """Return the numbers of the trial's windows that ended complete, in order."""
    return tuple(
        int(event["window"])
        for event in events
        if event.get("event") == "window" and event.get("trial") == trial_id and event["complete"]
    )


def typical_texts(measurements: Iterable[Measurement]) -> dict[str, str]:
    """Return prompt → hash of the most frequent answer; the first seen wins a tie."""
    texts: dict[str, Counter[str]] = defaultdict(Counter)
    for measurement in measurements:
        for item in measurement.answered:
            if item.record.text_sha256 is not None:
                texts[item.record.prompt][item.record.text_sha256] += 1
    return {prompt: counter.most_common(1)[0][0] for prompt, counter in texts.items()}


def same_text_share(measurement: Measurement, texts: Mapping[str, str]) -> float | None:
    """Return the share of answers whose text has the hash in `texts`; None: none to compare."""
    equal = [
        item.record.text_sha256 == texts[item.record.prompt]
        for item in measurement.answered
        if item.record.text_sha256 is not None and item.record.prompt in texts
    ]
    return sum(equal) / len(equal) if equal else None


_Cell: TypeAlias = tuple[int, str, float, float]
"""Window, prompt, amount, time [s]."""


def _output_grid(
    answered: Sequence[Answered], records: Sequence[RequestRecord], complete: Sequence[int]
) -> Grid | None:
    cells: list[_Cell] = []
    for window in complete:
        items = [item for item in answered if item.record.window == window]
        ends = [item.record.sent_s + (item.duration_s or 0.0) for item in items]
        busy_s = sum(item.duration_s or 0.0 for item in items)
        if busy_s <= 0:
            continue
        start_s = min(record.sent_s for record in records if record.window == window)
        # Streams overlap, so a request's part of the window is its share of all busy time: the
        # parts of a window add up to exactly the window's time.
        scale = (max(ends) - start_s) / busy_s
        for item in items:
            if item.counts.output_tokens is None:
                return None
            part_s = (item.duration_s or 0.0) * scale
            cells.append((window, item.record.prompt, item.counts.output_tokens, part_s))
    return _grid(cells)


def _decode_grid(answered: Sequence[Answered], complete: Sequence[int]) -> Grid | None:
    cells: list[_Cell] = []
    for item in answered:
        record, tokens = item.record, item.counts.output_tokens
        if record.window is None or record.window not in complete:
            continue
        if record.first_s is None or record.last_s is None:
            continue
        if tokens is None or record.first_chunk_tokens is None:
            return None
        after_first = tokens - record.first_chunk_tokens
        cells.append((record.window, record.prompt, after_first, record.last_s - record.first_s))
    return _grid(cells)


def _grid(cells: Sequence[_Cell]) -> Grid | None:
    if not cells:
        return None
    windows = {window: row for row, window in enumerate(dict.fromkeys(cell[0] for cell in cells))}
    prompts = {prompt: at for at, prompt in enumerate(dict.fromkeys(cell[1] for cell in cells))}
    amount = np.zeros((len(windows), len(prompts)))
    time_s = np.zeros_like(amount)
    for window, prompt, part, part_s in cells:
        amount[windows[window], prompts[prompt]] += part
        time_s[windows[window], prompts[prompt]] += part_s
    return Grid(tuple(prompts), amount, time_s)
