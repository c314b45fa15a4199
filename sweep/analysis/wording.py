"""Numbers and lists as people read them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

LONGEST_LIST = 6


def known(value: Any) -> bool:
    """Whether a cell of the table holds a value."""
    return value is not None and not pd.isna(value)


def number(value: float) -> str:
    """A measured value with three significant digits, all of them from 1,000 on."""
    size = abs(value)
    if size >= 1000:  # noqa: PLR2004  the digits that the docstring names
        return f"{value:,.0f}"
    for limit, digits in ((100, 0), (10, 1), (1, 2), (0.1, 3), (0.01, 4)):
        if size >= limit:
            return f"{value:.{digits}f}"
    return f"{value:.3g}"


def ratio(value: float) -> str:
    """A ratio such as a speed-up: 1.06×."""
    return f"{value:.2f}×"


def bounds(lo: Any, hi: Any) -> str:
    """An interval in brackets, two decimals for ratios and small values; empty when not known."""
    if not (known(lo) and known(hi)):
        return ""
    digits = 2 if max(abs(lo), abs(hi)) < 10 else 1  # noqa: PLR2004  one digit less from 10 on
    return f" [{lo:.{digits}f}, {hi:.{digits}f}]"


def listed(names: Sequence[str], limit: int = LONGEST_LIST) -> str:
    """Names in a sentence: "a, b and c"; beyond `limit`, the count of the rest.

    Semicolons stand between names that hold commas themselves.
    """
    unique = list(dict.fromkeys(names))
    if len(unique) > limit:
        unique = [*unique[:limit], f"{len(unique) - limit} more"]
    between = "; " if any("," in name for name in unique) else ", "
    last = " and " if between == ", " else "; and "
    return (
        last.join([between.join(unique[:-1]), unique[-1]]) if len(unique) > 1 else "".join(unique)
    )


def counted(count: int, noun: str) -> str:
    """A count with its noun: "1 trial", "3 trials"."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def several_nodes(frame: pd.DataFrame) -> bool:
    """Whether the rows of a table must be told apart by their nodes."""
    return len(frame["node"].dropna().drop_duplicates()) > 1
