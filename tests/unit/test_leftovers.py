"""Ending a sweep and removing what it left, without a driver."""

from __future__ import annotations

from pathlib import Path

from fakes.sweeps import SmallSweep

from sweep import leftovers
from sweep.store.directory import SweepLock


def test_cancel_of_a_sweep_that_does_not_run_changes_nothing(tmp_path: Path) -> None:
    """A finished sweep stays finished, and its lock is free again."""
    sweep = SmallSweep(tmp_path)
    sweep.run()
    assert leftovers.cancel(tmp_path, {}) is None
    assert [run.exit_code for run in sweep.database.runs()] == [0]
    SweepLock.take(tmp_path).release()
