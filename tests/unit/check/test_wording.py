"""Figures as people read them."""

from __future__ import annotations

import pytest

from sweep.check import wording


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (2_366_048, "2.37 MB"), (595e9, "595 GB"),
     (1.5e12, "1.5 TB"), (8_388_608, "8.39 MB")],
)  # fmt: skip
def test_sizes(count: float, text: str) -> None:
    """Decimal prefixes, three digits."""
    assert wording.size(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.084, "0.084 s"), (9.4, "9.4 s"), (45, "45 s"), (89, "89 s"), (90, "2 min"),
     (992, "17 min"), (5399, "90 min"), (5400, "1.5 h"), (9000, "2.5 h")],
)  # fmt: skip
def test_durations(seconds: float, text: str) -> None:
    """As exact as anybody needs."""
    assert wording.minutes(seconds) == text


def test_memory_of_gpus() -> None:
    """As nvidia-smi counts."""
    assert [wording.mebibytes(count) for count in (500, 1024, 98304)] == [
        "500 MiB", "1 GiB", "96 GiB",
    ]  # fmt: skip


def test_counts() -> None:
    """One file, two files, and the rest of a list."""
    assert [wording.counted(count, "file") for count in (1, 2)] == ["1 file", "2 files"]
    assert wording.some(["a", "b", "c"]) == "a, b, c"
    assert wording.some(["a", "b", "c", "d"]) == "a, b, c and 1 more"
