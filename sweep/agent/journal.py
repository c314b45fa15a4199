"""What the agent writes into its launch directory: appended whole lines, never rewritten.

Events are fsynced at once: the controller acts on them. Request records are appended while
streams run and fsynced by `sync`, which every window calls before its event, so that no disk
wait falls into a measurement and no event speaks of records that could be lost.
"""

from __future__ import annotations

import datetime as dt
import os
import threading
import time
from typing import Any, Dict, List, Optional

from sweep.agent import wire


def utc_now() -> str:
    """The time of day for display, ISO 8601 with milliseconds and Z."""
    now = dt.datetime.now(dt.timezone.utc)
    return now.strftime("%Y-%m-%dT%H:%M:%S.") + "%03dZ" % (now.microsecond // 1000)


class _Lines:
    """One append-only file of lines."""

    def __init__(self, path: str) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._descriptor = os.open(path, flags, 0o600)

    def append(self, text: str) -> None:
        """Append one line in one write; nothing of one that does not fit on the disk stays."""
        data = text.encode() + b"\n"
        end = os.fstat(self._descriptor).st_size
        try:
            while data:
                data = data[os.write(self._descriptor, data) :]
        except OSError:
            os.ftruncate(self._descriptor, end)  # what comes later must not stand in its line
            raise

    def sync(self) -> None:
        """Make what was appended survive a crash of the machine."""
        os.fdatasync(self._descriptor)


class Journal:
    """Writer of events.jsonl, requests.jsonl, chunks.jsonl and scrapes/. Safe for threads."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self._lock = threading.Lock()
        self._events = _Lines(os.path.join(directory, wire.EVENTS_FILE))
        self._requests = _Lines(os.path.join(directory, wire.REQUESTS_FILE))
        self._chunks = _Lines(os.path.join(directory, wire.CHUNKS_FILE))
        self._count = 0
        self._request_count = 0
        self.phase = ""
        self._phase_since_s = 0.0
        self._phases_s: Dict[str, float] = {}

    def resume(self) -> None:
        """Go on where a dead agent stopped, and number events after its.

        Half a line at the end, which no reader has taken, is cut off.
        """
        path = os.path.join(self.directory, wire.EVENTS_FILE)
        with open(path, "rb") as stream:
            data = stream.read()
        os.truncate(path, data.rfind(b"\n") + 1)
        self._count = data.count(b"\n")

    def _enter(self, phase: str, now_s: float) -> None:
        if self.phase:
            spent_s = self._phases_s.get(self.phase, 0.0) + now_s - self._phase_since_s
            self._phases_s[self.phase] = spent_s
        self.phase, self._phase_since_s = phase, now_s

    def phases_s(self) -> Dict[str, float]:
        """Return how long each phase lasted so far, summed over its visits."""
        with self._lock:
            self._enter(self.phase, time.monotonic())
            return {name: round(spent_s, 6) for name, spent_s in self._phases_s.items()}

    def event(self, kind: str, **fields: Any) -> None:
        """Append an event of one of wire.EVENTS and fsync."""
        if kind not in wire.EVENTS:
            raise ValueError("unknown kind of event: %s" % kind)
        with self._lock:
            now_s = time.monotonic()
            if kind == "phase":
                self._enter(fields["phase"], now_s)
            line = {
                "v": wire.WIRE_VERSION,
                "n": self._count,
                "t_s": round(now_s, 6),
                "utc": utc_now(),
                "event": kind,
            }
            line.update(fields)
            self._events.append(wire.encode(line))
            self._events.sync()
            self._count += 1

    def next_request(self) -> int:
        """A number for a request, unique in this launch directory."""
        with self._lock:
            self._request_count += 1
            return self._request_count - 1

    def request(self, record: wire.RequestRecord, chunk_s: List[float], text: str) -> None:
        """Append a request's record, and its chunk arrivals [s after sent] with the text."""
        line = wire.encode(record)
        raw = wire.encode({"v": wire.WIRE_VERSION, "n": record.n, "chunk_s": chunk_s, "text": text})
        with self._lock:
            self._chunks.append(raw)
            self._requests.append(line)

    def sync(self) -> None:
        """Fsync the request records appended so far."""
        with self._lock:
            self._requests.sync()
            self._chunks.sync()

    def scrape(self, name: str, payload: bytes) -> None:
        """Write one raw payload under scrapes/."""
        directory = os.path.join(self.directory, wire.SCRAPES_DIR)
        os.makedirs(directory, mode=0o700, exist_ok=True)
        write_whole(os.path.join(directory, name), payload)


def write_whole(path: str, data: bytes, mode: int = 0o600) -> None:
    """Write a file that appears complete or not at all."""
    partial = path + ".part"
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.replace(partial, path)
    sync_directory(os.path.dirname(path))


def sync_directory(path: str) -> None:
    """Make renames in a directory survive a crash of the machine."""
    descriptor = os.open(path or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_text(path: str) -> Optional[str]:
    """Return the whole text of a file, None when there is no such file."""
    try:
        with open(path, encoding="utf-8") as stream:
            return stream.read()
    except FileNotFoundError:
        return None
