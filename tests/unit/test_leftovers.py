"""Ending a sweep and removing what it left, without a driver."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from fakes.node import Call, Hold, load
from fakes.sweeps import Crashed, SmallSweep, crash

from sweep import leftovers
from sweep.model.states import LaunchState
from sweep.store.directory import SweepLock


def test_cancel_of_a_sweep_that_does_not_run_changes_nothing(tmp_path: Path) -> None:
    """A finished sweep stays finished, and its lock is free again."""
    sweep = SmallSweep(tmp_path)
    sweep.run()
    assert leftovers.cancel(tmp_path, {}) is None
    assert [run.exit_code for run in sweep.database.runs()] == [0]
    SweepLock.take(tmp_path).release()


def test_what_was_stopped_on_the_way_is_told(tmp_path: Path) -> None:
    """A launch that still ran is not "nothing"."""
    sweep = SmallSweep(tmp_path)
    sweep.node.script = lambda doc: [*load(doc), Call(crash), Hold()]
    with pytest.raises(Crashed):
        sweep.run()
    before = sweep.database.attempts()
    (row,) = before
    ended = [replace(row, state=LaunchState.INTERRUPTED)]
    assert leftovers.stopped(before, ended) == (f"launch {row.launch_id} on local",)
    assert leftovers.stopped(before, before) == ()
    assert leftovers.stopped(ended, ended) == ()
