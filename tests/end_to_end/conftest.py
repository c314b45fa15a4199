"""What tests of whole sweeps need."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.machine import Machine


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """A machine for sweeps; whatever a failed test left on it is ended."""
    machine = Machine(tmp_path)
    try:
        yield machine
    finally:
        machine.close()
