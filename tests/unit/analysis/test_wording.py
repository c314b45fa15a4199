"""Tests of numbers and lists as people read them."""

from __future__ import annotations

import pandas as pd
import pytest

from sweep.analysis.wording import bounds, counted, listed, number


@pytest.mark.parametrize(
    ("value", "text"),
    [(12345.6, "12,346"), (123.4, "123"), (94.04, "94.0"), (1.234, "1.23"), (0.0123456, "0.0123"),
     (0.0, "0"), (-94.04, "-94.0"), (0.00001, "1e-05"), (0.95, "0.950")],
)  # fmt: skip
def test_numbers_have_three_digits(value: float, text: str) -> None:
    """Three significant digits, more only for large numbers."""
    assert number(value) == text


def test_lists_and_counts() -> None:
    """Names are listed once; a long list says how many it leaves out."""
    assert listed(["a", "b", "a", "c"]) == "a, b and c"
    assert listed(["a"]) == "a"
    assert listed([]) == ""
    assert listed(list("abcdefgh")) == "a, b, c, d, e, f and 2 more"
    assert (counted(1, "trial"), counted(2, "trial")) == ("1 trial", "2 trials")


def test_bounds() -> None:
    """An unknown end gives no interval."""
    assert bounds(1.031, 1.092) == " [1.03, 1.09]"
    assert bounds(93.14, 94.9) == " [93.1, 94.9]"
    assert bounds(pd.NA, 1.0) == ""
