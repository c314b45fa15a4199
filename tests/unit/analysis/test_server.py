"""The server's own counters and timer, beside client and probe."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
from fakes.records import count
from fakes.timed import timed_sweep

from sweep.analysis.bottleneck import findings
from sweep.analysis.frame import make_frame
from sweep.analysis.server import ScrapedOf
from sweep.analysis.verdict import verdict
from sweep.model.record import SweepRecord
from sweep.ports import ServerCounters

CYCLE = {"draft_s": 0.002, "verify_s": 0.016, "extend_s": 0.001, "other_s": 0.001}
ANSWERS = 5
"""In each of three windows, of 101 tokens and 40 cycles."""


def scraped(record: SweepRecord, **growth: Any) -> ScrapedOf:
    """Every trial's three windows: counters of a long life that grow by so much in each."""
    tokens, cycles = growth.get("tokens", ANSWERS * 101), growth.get("cycles", ANSWERS * 40)
    device_s = growth.get("device_s", {})
    before = ServerCounters(9000.0, 500.0, dict.fromkeys(device_s, 7.0))
    after = ServerCounters(
        None if tokens is None else 9000.0 + tokens,
        None if cycles is None else 500.0 + cycles,
        {phase: 7.0 + spent_s for phase, spent_s in device_s.items()},
    )
    return {
        (launch.launch.launch_id, 1): {
            trial.trial_id: [(before, after)] * 3 for trial in launch.launch.trials
        }
        for launch in record.launches
    }


def table(**growth: Any) -> pd.DataFrame:
    """The table of a baseline and one step."""
    record, cycles = timed_sweep({1: CYCLE})
    return make_frame(record, count, None, cycles, scrapes=scraped(record, **growth))


def test_the_timer_stands_beside_the_probe() -> None:
    """3 s in 600 cycles of the windows are 5 ms each; a phase that it does not time is null."""
    frame = table(device_s={"verify": 3.1, "draft": 0.4})
    row: Any = frame.iloc[1]
    assert row["timer_verify_ms"] == pytest.approx(1000 * 3.1 / 200)
    assert row["timer_draft_ms"] == pytest.approx(2.0)
    assert pd.isna(row["timer_extend_ms"])
    assert pd.isna(frame.iloc[0]["timer_verify_ms"])
    (sentence,) = [text for text in findings(frame) if "own timer" in text]
    assert "differs from the probe's by -3.1% at most, in 1 row (1 step, code" in sentence
    assert "15.5 ms a cycle against 16.0" in sentence


def test_a_version_without_a_timer_has_none() -> None:
    """Null, and no sentence."""
    frame = table()
    assert frame["timer_verify_ms"].isna().all()
    assert not any("own timer" in text for text in findings(frame))
    assert "server_disagrees" not in " ".join(frame["flags"])


@pytest.mark.parametrize(
    ("growth", "note"),
    [
        ({"cycles": ANSWERS * 40 + 3}, "609 cycles by its own counter, 600 by its answers"),
        ({"tokens": 400}, "1200 output tokens by its own counter, 1,515 by its answers"),
        ({"cycles": None, "tokens": None}, None),
        ({"cycles": ANSWERS * 40 + 1}, None),
    ],
)
def test_counters_that_differ_from_the_answers_are_flagged(
    growth: dict[str, Any], note: str | None
) -> None:
    """By more than 1 %; a counter that is not there says nothing."""
    frame = table(**growth)
    row: Any = frame.iloc[1]
    assert ("server_disagrees" in row["flags"].split()) == (note is not None)
    assert (row["server_note"] if note else None) == note
    if note:
        record, _ = timed_sweep({1: CYCLE})
        warnings = verdict(frame, record.experiment).warnings
        assert any(text.startswith("server_disagrees: ") and note in text for text in warnings)
