"""The file of a process: handshake, rows, bounds."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from fakes.launching import wait_for

from sweep.agent import cycles
from sweep.probe import writing
from sweep.probe.recording import FIELDS, Row
from sweep.probe.summary import Summary

HEADER: dict[str, Any] = {
    "v": 1, "event": "armed", "rank": 0, "ranks": 2, "worker": "EAGLEWorkerV2", "clock": "wall",
    "hooks": ["cycle", "draft", "verify", "extend", "accepted"], "missing": [], "patched": [],
    "fields": list(FIELDS),
}  # fmt: skip


def row(number: int) -> Row:
    """A cycle with some values unknown."""
    return (number, 12.25, 1, 37, 5, 6, 0.00087, 0.0287, 0.0003, None, None, 1e-7, 1e-3, 0.0, 2, 3)


def writer(path: Path, *, summary: Summary | None = None, most_bytes: int = 1 << 20) -> Any:
    """A writer to a new file."""
    descriptor, _ = writing.create(str(path), 0, 1)
    return writing.Writer(descriptor, HEADER, summary, most_bytes)


def read(path: Path) -> cycles.CycleFile:
    """The file as the controller reads it; every line of it must be whole."""
    found = cycles.decode((path / "cycles.0.jsonl").read_text())
    assert found.damaged == 0
    return found


def test_the_controller_reads_what_the_probe_writes(tmp_path: Path) -> None:
    """Fields, order and unknown values are those of the format."""
    assert list(FIELDS) == list(cycles.FIELDS)
    subject = writer(tmp_path)
    for number in (1, 2):
        subject.take(row(number))
    subject.flush()
    found = read(tmp_path)
    assert found.armed is not None
    assert (found.armed.worker, found.armed.ranks) == ("EAGLEWorkerV2", 2)
    assert {name: column[1] for name, column in found.columns.items()} == dict(
        zip(FIELDS, row(2), strict=True)
    )


def test_a_line_is_compact_json(tmp_path: Path) -> None:
    """Counts are whole numbers, times have a tenth of a microsecond."""
    assert writing.line(row(7)) == (
        "[7,12.2500000,1,37,5,6,0.0008700,0.0287000,0.0003000,null,null,0.0000001,0.0010000,"
        "0.0000000,2,3]\n"
    )


def test_a_full_file_says_how_many_are_missing(tmp_path: Path) -> None:
    """It ends at its bound, and the rest is counted."""
    subject = writer(tmp_path, most_bytes=2000)
    for number in range(200):
        subject.take(row(number))
    subject.flush()
    subject.flush()
    subject.close()
    found = read(tmp_path)
    kept = len(found.columns["n"])
    assert found.dropped == 200 - kept > 0
    assert (tmp_path / "cycles.0.jsonl").stat().st_size < 2000 + 50 * 120


def test_rows_that_wait_are_bounded(tmp_path: Path) -> None:
    """A disk that does not answer costs rows, not memory."""
    subject = writer(tmp_path, most_bytes=1 << 30)
    for number in range(writing.MOST_WAITING + 5):
        subject.take(row(number))
    subject.drop(2)
    subject.flush()
    found = read(tmp_path)
    assert found.dropped == 7
    assert found.columns["n"][-1] == writing.MOST_WAITING - 1


def test_errors_are_noted_where_they_happened(tmp_path: Path) -> None:
    """Between the rows before and after."""
    subject = writer(tmp_path)
    subject.error("draft", 'no "thing"')
    assert read(tmp_path).errors == (cycles.HookError("draft", 'no "thing"'),)


def test_replicas_with_the_same_rank_get_files_of_their_own(tmp_path: Path) -> None:
    """Nobody writes into another's file."""
    ranks = [writing.create(str(tmp_path), rank, 2)[1] for rank in (0, 1, 0, 1)]
    assert ranks == [0, 1, 2, 3]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"cycles.{rank}.jsonl" for rank in range(4)
    ]


def test_the_summary_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every so many rows, by the one who has a summary."""
    subject = writer(tmp_path, summary=Summary(2))
    full = (1, 12.25, 1, 37, 5, 6, 0.001, 0.02, 0.001, 0.0, 0.022, 0.0, 0.0, 0.0, 0.0, 1)
    for _ in range(3):
        subject.take(full)
    subject.flush()
    printed = capsys.readouterr().out
    assert printed.startswith("EAGLE3_PROF (2 cycles, 4 tok, no sync)\n")
    assert printed.count("EAGLE3_PROF") == 1


def test_a_thread_writes_until_the_end(tmp_path: Path) -> None:
    """What settles is written; what fails is told once, and the thread ends."""
    subject = writer(tmp_path)
    told: list[tuple[str, str]] = []
    calls: list[int] = []

    def settle() -> None:
        calls.append(1)
        if len(calls) == 1:
            subject.take(row(1))
        else:
            raise OSError("no disk")

    subject.start(settle, lambda where, problem: told.append((where, str(problem))))
    wait_for(lambda: told)
    assert told == [("write", "no disk")]
    assert read(tmp_path).columns["n"] == [1]
    wait_for(lambda: not any(t.name == "eagle3-probe" for t in threading.enumerate()))


def test_the_handshake_is_the_first_line(tmp_path: Path) -> None:
    """As soon as there is a file."""
    writer(tmp_path)
    (line,) = (tmp_path / "cycles.0.jsonl").read_text().splitlines()
    assert json.loads(line) == HEADER
