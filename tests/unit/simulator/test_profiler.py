"""The trace of the simulated server."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from sweep.analysis.trace import bin_trace
from sweep.simulator.calibration import Phases
from sweep.simulator.profiler import FILE, Profiler

PHASES = Phases(1.0, 20.0, 0.5, 0.25)


def test_a_trace_says_that_it_is_simulated_and_bins(tmp_path: Path) -> None:
    """Of four verifications of 20 ms, with the shares that it was given."""
    profiler = Profiler(PHASES, speculates=True)
    assert profiler.start({"output_dir": str(tmp_path / "new"), "num_steps": 4})[0] == 200
    assert [path.name for path in (tmp_path / "new").iterdir()] == [FILE]
    trace = json.loads(gzip.decompress((tmp_path / "new" / FILE).read_bytes()))
    assert trace["simulated"] is True
    kernels = [event for event in trace["traceEvents"] if event["cat"] == "kernel"]
    assert all(event["name"].startswith("simulated_") for event in kernels)
    found = bin_trace(trace)
    assert (found.scope, found.steps) == ("verify", 4)
    assert sum(found.seconds.values()) == pytest.approx(0.08)
    shares = {kind: found.share(kind) for kind in found.seconds}
    assert shares == pytest.approx(
        {"communication": 0.25, "attention": 0.1, "experts": 0.4, "dense": 0.15, "other": 0.05,
         "idle": 0.05}
    )  # fmt: skip


def test_a_window_that_ended_cannot_be_stopped(tmp_path: Path) -> None:
    """As with SGLang."""
    assert Profiler(PHASES, speculates=True).stop()[0] == 500


def test_a_baseline_only_decodes(tmp_path: Path) -> None:
    """Its steps have the other name."""
    Profiler(Phases(0.0, 11.0, 0.0, 0.0), speculates=False).start({"output_dir": str(tmp_path)})
    found = bin_trace(json.loads(gzip.decompress((tmp_path / FILE).read_bytes())))
    assert (found.scope, found.steps) == ("decode", 5)
