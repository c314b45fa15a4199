"""The block in the server's log."""

from __future__ import annotations

from typing import Any

from sweep.probe.recording import FIELDS, Row
from sweep.probe.summary import Summary, block

BLOCK = """\
EAGLE3_PROF (100 cycles, 114 tok, no sync)
  Draft steps:        0.93 ms/cyc  (  3.4%)
  Target verify:     26.07 ms/cyc  ( 95.6%)
  Draft re-extend:    0.28 ms/cyc  (  1.0%)
  Other overhead:     0.00 ms/cyc  (  0.0%)
  TOTAL:             27.28 ms/cyc
  Accept len:      1.14
  Eff tok/s:       41.8"""


def row(**values: Any) -> Row:
    """A row of one request, with the reference case's times."""
    known = {
        "requests": 1, "draft_s": 0.00093, "verify_s": 0.02607, "extend_s": 0.00028,
        "other_s": 0.0, "cycle_s": 0.02728, "accepted": 0,
    }  # fmt: skip
    return tuple((known | values).get(name) for name in FIELDS)


def test_the_reference_case_is_printed_as_it_was() -> None:
    """100 cycles, of which 14 accepted a token: the shape that scripts already read."""
    rows = [row(accepted=1 if number < 14 else 0) for number in range(100)]
    assert block(rows) == BLOCK


def test_the_accept_length_is_per_request() -> None:
    """Tokens per second are those of the whole batch."""
    text = block([row(requests=8, accepted=8)] * 10)
    assert text is not None
    assert "(10 cycles, 160 tok, no sync)" in text
    assert "Accept len:      2.00" in text
    assert "Eff tok/s:      586.5" in text


def test_the_rest_is_averaged_over_the_cycles_that_have_one() -> None:
    """A cycle before a prefill has no length; its phases count."""
    rows = [row(other_s=0.001), row(other_s=None, cycle_s=None, verify_s=0.03607)]
    text = block(rows)
    assert text is not None
    assert "Target verify:     31.07 ms/cyc" in text
    assert "Other overhead:     1.00 ms/cyc" in text
    assert "TOTAL:             33.28 ms/cyc" in text


def test_nothing_is_printed_of_what_is_not_known() -> None:
    """A phase without a hook, or tokens without a result, would be a claim."""
    assert block([row(extend_s=None, other_s=None)] * 3) is None
    assert block([row(), row(accepted=None)]) is None
    assert block([row(other_s=None, cycle_s=None)]) is None


def test_a_block_every_so_many_cycles() -> None:
    """And it begins anew after each."""
    summary = Summary(every_cycles=2)
    texts = [summary.take(row(accepted=number)) for number in range(5)]
    assert [text is not None for text in texts] == [False, True, False, True, False]
    assert "(2 cycles, 3 tok" in str(texts[1])
    assert "(2 cycles, 7 tok" in str(texts[3])
