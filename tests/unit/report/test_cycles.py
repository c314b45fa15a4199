"""Tests of reading fetched files of cycles, and of what the table then holds."""

from __future__ import annotations

import json
from pathlib import Path

from fakes.records import RecordBuilder, TrialPlan, count, experiment, steps, workload

from sweep.agent.cycles import FIELDS, file_name
from sweep.analysis.frame import make_frame
from sweep.model.plan import ServerCommand
from sweep.report.cycles import read_cycles

PROFILED = ServerCommand(("serve", "--port", "0"), 2, {"EAGLE3_PROFILE": "1"})


def header(rank: int, ranks: int, version: int = 1) -> str:
    """The first line of a rank's file."""
    fields = {"rank": rank, "ranks": ranks, "clock": "cuda", "fields": list(FIELDS)}
    return json.dumps({"v": version, "event": "armed", **fields}) + "\n"


def write(directory: Path, text: str, rank: int = 0) -> None:
    """Write a rank's file."""
    directory.mkdir(exist_ok=True)
    (directory / file_name(rank)).write_text(text)


def test_files_of_every_rank_are_read_in_order(tmp_path: Path) -> None:
    """Not the torn last line, and not other files; no directory means not fetched."""
    code = workload()
    builder = RecordBuilder(experiment(code))
    for rank in (10, 2):
        cycle = json.dumps([rank, *[0.5] * (len(FIELDS) - 1)])
        write(tmp_path / "some", header(rank, 2) + cycle + "\n" + cycle[:9], rank)
    write(tmp_path / "none", "", 0)
    builder.launch(steps(1), TrialPlan(code), directory=str(tmp_path / "some"))
    builder.launch(steps(2), TrialPlan(code), directory=str(tmp_path / "none"))
    builder.launch(steps(3), TrialPlan(code), directory=str(tmp_path / "gone"))
    builder.launch(steps(4), TrialPlan(code), directory=None)
    record = builder.record()
    some, none, *_ = (launch.launch.launch_id for launch in record.launches)
    found = read_cycles(record)
    assert set(found) == {(some, 1), (none, 1)}
    assert [item.armed.rank for item in found[some, 1].recordings] == [2, 10]
    assert [item.columns["n"].tolist() for item in found[some, 1].recordings] == [[2], [10]]
    assert found[none, 1].recordings == ()


def test_another_version_is_told_in_the_table(tmp_path: Path) -> None:
    """By the name of its file, with both versions; the row stays, without phases."""
    code = workload()
    builder = RecordBuilder(experiment(code))
    write(tmp_path / "launch", header(0, 1, version=7))
    directory = str(tmp_path / "launch")
    builder.launch(steps(1), TrialPlan(code), directory=directory, command=PROFILED)
    record = builder.record()
    row = make_frame(record, count, None, read_cycles(record)).iloc[0]
    assert "phases_incompatible" in row["flags"].split()
    assert "cycles.0.jsonl speaks version 7" in row["instrument_note"]
    assert row["state"] == "ok"
