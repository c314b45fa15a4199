"""What every test of real launches needs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.launching import Bench


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """A place for launches; nothing of them outlives the test."""
    bench = Bench(tmp_path)
    yield bench
    bench.close()
