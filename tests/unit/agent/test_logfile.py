"""Searching, bounding and showing a server's log."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from sweep.agent.logfile import LogFile, Scanner, tail
from sweep.agent.wire import Pattern

OOM = Pattern("oom", r"CUDA out of memory|OutOfMemoryError")
READY = Pattern("ready", r"^server is ready$")


def scan(*pieces: bytes) -> list[tuple[str, str]]:
    """Names and lines of the hits in pieces of a log."""
    scanner = Scanner([OOM, READY])
    hits = [hit for piece in pieces for hit in scanner.feed(piece)]
    hits += scanner.feed(b"", last=True)
    return [(pattern.name, line) for pattern, line in hits]


@pytest.mark.parametrize(
    "pieces",
    [
        (b"a\nserver is ready\nx CUDA out of memory y\n",),
        (b"a\nserver is re", b"ady\nx CUDA out of", b" memory y"),
        tuple(bytes([byte]) for byte in b"server is ready\nx CUDA out of memory y\n"),
        (b"12%\r50%\rserver is ready\r\nx CUDA out of memory y\r\n",),
    ],
)
def test_patterns_are_found_however_the_log_comes(pieces: tuple[bytes, ...]) -> None:
    """Lines cut anywhere, progress bars and a last line without end are searched alike."""
    assert scan(*pieces) == [("ready", "server is ready"), ("oom", "x CUDA out of memory y")]


def test_each_pattern_is_told_once() -> None:
    """A server that repeats itself does not flood the events."""
    assert scan(b"OutOfMemoryError\n" * 1000) == [("oom", "OutOfMemoryError")]


def test_an_anchor_means_the_line() -> None:
    """A line that merely contains the words does not match an anchored pattern."""
    assert scan(b"the server is ready now\n") == []


def test_bytes_that_are_no_text() -> None:
    """They do no harm to what is around them."""
    found = scan(b"\xff\xfe\x00CUDA out of memory \xc3\n")
    assert [name for name, _ in found] == ["oom"]
    assert "CUDA out of memory" in found[0][1]


def test_a_huge_line_is_searched_in_linear_time() -> None:
    """20 MB without a line's end take no longer than they must."""
    begin_s = time.monotonic()
    found = scan(*[b"x" * 65536] * 320, b" OutOfMemoryError")
    assert time.monotonic() - begin_s < 10
    assert [name for name, _ in found] == ["oom"]
    assert len(found[0][1]) <= 1000


def test_a_growing_file_is_read_on(tmp_path: Path) -> None:
    """Each look takes what is new; a file that is not there yet is empty."""
    path = tmp_path / "server.log"
    log = LogFile(str(path), [OOM, READY])
    assert (log.read(), log.size()) == ([], 0)
    with path.open("ab") as stream:
        stream.write(b"server is ready\nCUDA out")
        stream.flush()
        assert [hit[0].name for hit in log.read()] == ["ready"]
        stream.write(b" of memory")
    assert log.read() == []
    assert [hit[0].name for hit in log.finish()] == ["oom"]


def test_a_log_beyond_its_limit_keeps_its_head_and_says_so(tmp_path: Path) -> None:
    """The server goes on appending to the shortened file, and its growth still counts."""
    path = tmp_path / "server.log"
    log = LogFile(str(path), [OOM])
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(descriptor, b"h" * 100 + b"x" * 1000)
    log.bound(limit=1100, head=100)
    assert path.stat().st_size == 1100
    os.write(descriptor, b"x")
    log.read()
    log.bound(limit=1100, head=100)
    text = path.read_text()
    assert text.startswith("h" * 100 + "\n[sweep: the log passed 1100 bytes; 1001 bytes after")
    size = log.size()
    os.write(descriptor, b"OutOfMemoryError\n")
    os.close(descriptor)
    assert log.size() == size + 17
    assert [hit[0].name for hit in log.read()] == ["oom"]


def test_the_last_lines(tmp_path: Path) -> None:
    """At most 40, not empty, each of bounded length."""
    path = tmp_path / "log"
    assert tail(str(path)) == []
    path.write_text("".join(f"line {n}\n\n" for n in range(100)) + "y" * 5000)
    shown = tail(str(path))
    assert (len(shown), shown[0], shown[-1]) == (40, "line 61", "y" * 1000)
