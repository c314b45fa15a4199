"""Tests of what is said of phases: the bottleneck, what each could bring, and agreement."""

from __future__ import annotations

import pandas as pd
import pytest
from fakes.records import count
from fakes.timed import timed_sweep

from sweep.analysis.bottleneck import bottleneck, findings, timed_rows
from sweep.analysis.frame import make_frame

VERIFYING = {"draft_s": 0.001, "verify_s": 0.019, "extend_s": 0.0, "other_s": 0.0}
DRAFTING = {"draft_s": 0.012, "verify_s": 0.006, "extend_s": 0.001, "other_s": 0.001}


def table(**cycles_s: dict[str, float]) -> pd.DataFrame:
    """The table of a sweep with these cycles, named s1, s2 and so on by their steps."""
    record, cycles = timed_sweep({int(name[1:]): parts for name, parts in cycles_s.items()})
    return make_frame(record, count, None, cycles)


@pytest.mark.parametrize(
    ("cycles_s", "sentence"),
    [
        ({"s1": VERIFYING}, "Verify takes 95 % of the cycle"),
        (
            {"s1": VERIFYING, "s2": VERIFYING | {"draft_s": 0.006}},
            "Verify takes 76 to 95 % of the cycle",
        ),
        (
            {"s1": VERIFYING, "s2": DRAFTING, "s3": DRAFTING},
            "Drafting takes 60 % of the cycle in 2 of 3 rows",
        ),
    ],
)
def test_the_bottleneck_is_named(cycles_s: dict[str, dict[str, float]], sentence: str) -> None:
    """The phase with the largest part in most rows, with the range of its share there."""
    found = bottleneck(timed_rows(table(**cycles_s)))
    assert found is not None
    assert found.sentence == sentence


def test_findings_by_hand() -> None:
    """A cycle of 20 ms with 2.5 tokens against 10 ms a token: 1.25×, and 1.32× without drafting."""
    told = findings(table(s1=VERIFYING))
    assert told[0] == "Verify takes 95 % of the cycle."
    assert "drafting 1.32× (1 step); verify 25.00× (1 step); draft extend 1.25×" in told[1]
    assert told[2].startswith("Verifying 4 tokens at once is 2.11× as efficient")
    # Measured: 1.1 s of the baseline against 0.1 + 40 × 0.02 s.
    assert (
        "differs from the measured one by 2.3% in the median of 1 row, at most by +2.3%" in told[3]
    )
    assert "(1 step, code, concurrency 1)" in told[3]
    assert len(told) == 4


def test_nothing_is_said_where_nothing_was_timed() -> None:
    """No cycle, no sentence."""
    record, _ = timed_sweep({1: VERIFYING})
    frame = make_frame(record, count)
    assert findings(frame) == ()
    assert bottleneck(timed_rows(frame)) is None
