"""Tests of reading fetched traces, and of what table, findings and figure then say."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from fakes.records import count
from fakes.timed import timed_sweep
from matplotlib.patches import Rectangle

from sweep.analysis.bottleneck import findings
from sweep.analysis.frame import make_frame
from sweep.analysis.kernels import KINDS
from sweep.analysis.trace import Binned
from sweep.analysis.traced import Traced, trace_findings
from sweep.analysis.verdict import verdict
from sweep.model.experiment import Profile
from sweep.model.record import LaunchRecord, SweepRecord
from sweep.plots.phases import phases
from sweep.report.traces import read_traces

CYCLE = {"draft_s": 0.002, "verify_s": 0.016, "extend_s": 0.001, "other_s": 0.001}
NAME = "123-TP-0.trace.json.gz"


def event(kind: str, name: str, begin: float, length: float) -> dict[str, Any]:
    """An event of device 0 [us]."""
    return {"ph": "X", "cat": kind, "name": name, "ts": begin, "dur": length, "pid": 0}


GOOD = {
    "traceEvents": [
        event("gpu_user_annotation", "step[VERIFY bs=1]", 0, 100),
        event("kernel", "ncclDevKernel_AllReduce", 0, 50),
        event("kernel", "fused_moe_kernel", 50, 25),
        event("kernel", "gemm", 200, 100),
    ]
}


def with_trace(launch: LaunchRecord, root: Path, told: dict[str, Any] | None) -> LaunchRecord:
    """The launch with a directory and, unless None, the event of its trace."""
    (attempt,) = launch.attempts
    trial = launch.launch.trials[0].trial_id
    more = [] if told is None else [{"event": "trace", "trial": trial, "t_s": 9e9} | told]
    events = (*attempt.events, *more)
    return replace(launch, attempts=(replace(attempt, events=events, directory=str(root)),))


def table(
    root: Path, told: dict[str, Any] | None, content: bytes | None = None
) -> tuple[pd.DataFrame, SweepRecord]:
    """The table of a baseline and one step, whose trace has this content and event."""
    record, cycles = timed_sweep({1: CYCLE})
    experiment = replace(record.experiment, profile=Profile(trace=True))
    first, second = record.launches
    if content is not None:
        folder = root / "traces" / second.launch.trials[0].trial_id
        folder.mkdir(parents=True)
        (folder / NAME).write_bytes(content)
    launches = (first, with_trace(second, root, told))
    record = replace(record, experiment=experiment, launches=launches)
    return make_frame(record, count, None, cycles, traces=read_traces(record)), record


def packed(value: Any) -> bytes:
    """A file of JSON."""
    return gzip.compress(json.dumps(value).encode(), mtime=0)


def test_shares_stand_in_the_row_and_in_a_sentence(tmp_path: Path) -> None:
    """Half of verification is communication, a quarter experts, a quarter nothing."""
    frame, record = table(tmp_path, {"files": [NAME], "problem": None}, packed(GOOD))
    row: Any = frame.iloc[1]
    assert (row["trace_scope"], row["trace_source"], row["trace_steps"]) == ("verify", "kernels", 1)
    assert row["trace_communication_share"] == pytest.approx(0.5)
    assert row["trace_experts_share"] == row["trace_idle_share"] == pytest.approx(0.25)
    assert row["trace_dense_share"] == 0.0
    assert "trace_missing" not in row["flags"]
    assert (
        "Inside the verification of 1 step (by kernels that the server's own profiler traced "
        "outside the measured windows): communication 50 %, experts 25 % and nothing 25 %."
    ) in findings(frame)
    figure = phases(frame, verdict(frame, record.experiment))
    assert figure is not None
    thin = [p for p in figure.axes[0].patches if isinstance(p, Rectangle) and p.get_height() < 0.2]
    places = [(round(patch.get_x(), 6), round(patch.get_width(), 6)) for patch in thin]
    assert places == [(2.0, 8.0), (10.0, 0.0), (10.0, 4.0), (14.0, 0.0), (14.0, 0.0), (14.0, 4.0)]


def test_configurations_share_a_sentence() -> None:
    """With the range of each part."""
    record, _ = timed_sweep({1: CYCLE, 2: CYCLE})
    traces = {}
    for share, launch in zip((0.5, 0.4, 0.6), record.launches, strict=True):
        seconds = dict.fromkeys(KINDS, 0.0) | {"dense": share, "other": 1.0 - share}
        scope = "decode" if launch is record.launches[0] else "verify"
        name = launch.launch.trials[0].trial_id
        traces[launch.launch.launch_id, 1] = {name: Traced(Binned(seconds, "operators", scope, 3))}
    told = trace_findings(make_frame(record, count, traces=traces))
    assert [text.replace(text[text.index("(") : text.index(")") + 1], "()") for text in told] == [
        f"Inside {steps} (): other matrix work {share} % and the rest of the work {share} %."
        for steps, share in (
            ("a decoding step of baseline", "50"),
            ("the verification of 1 step and 2 steps", "40 to 60"),
        )
    ]
    assert all("(by operators of the host that the server's own profiler" in text for text in told)


@pytest.mark.parametrize(
    ("told", "content", "note"),
    [
        (None, None, "the launch ended before the server's profiler was started"),
        ({"files": [], "problem": "/start_profile answered 404"}, None, "answered 404"),
        ({"files": [NAME], "problem": None}, None, "was not fetched"),
        ({"files": [NAME], "problem": None}, b"no gzip", "cannot be read"),
        ({"files": [NAME], "problem": None}, packed(GOOD)[:40], "cannot be read"),
        ({"files": [NAME], "problem": None}, packed([1]), "it is no trace"),
        ({"files": [NAME], "problem": None}, packed({"traceEvents": 5}), "cannot be read"),
        ({"files": [NAME], "problem": None}, packed({}), "neither kernels nor operators"),
    ],
)
def test_a_missing_trace_is_told_and_spoils_nothing(
    tmp_path: Path, told: dict[str, Any] | None, content: bytes | None, note: str
) -> None:
    """The row keeps its figures, and the warnings say why there is no trace."""
    frame, record = table(tmp_path, told, content)
    row: Any = frame.iloc[1]
    assert row["state"] == "ok"
    assert "trace_missing" in row["flags"].split()
    assert note in row["trace_note"]
    assert pd.isna(row["trace_scope"])
    assert pd.notna(row["speedup"])
    warnings = verdict(frame, record.experiment).warnings
    assert any(text.startswith("trace_missing: 1 step.") and note in text for text in warnings)


def test_nothing_is_missing_where_nothing_was_asked(tmp_path: Path) -> None:
    """Nor of a launch whose files were not fetched yet."""
    _, record = table(tmp_path, None)
    assert read_traces(replace(record, experiment=replace(record.experiment, profile=None))) == {}
    first, *_ = record.launches
    assert (first.launch.launch_id, 1) not in read_traces(record)


def test_a_trace_that_would_fill_the_memory_is_not_read(tmp_path: Path) -> None:
    """Packed traces are small whatever they hold; the row says how it can be looked at."""
    _, record = table(tmp_path, {"files": [NAME], "problem": None}, packed(GOOD))
    found = [each for own in read_traces(record, 10).values() for each in own.values()]
    assert {each.binned for each in found} == {None}
    assert any("larger than 10 bytes: open it in" in str(each.problem) for each in found)
