"""The file of one process: the handshake, then a line per cycle, by a thread of its own.

The decoding thread only puts rows into a list. Lines are written whole, a few times a second, and
no more than the file may hold.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections import deque
from typing import Any, Callable, Deque, Dict, Optional, Tuple

from .recording import FIELDS, Row
from .summary import Summary

INTERVAL_S = 0.05
"""Between two writes."""
MOST_BYTES = 64 << 20
"""Of the file: some 400,000 cycles."""
MOST_WAITING = 50_000
"""Rows that wait to be written while the disk does not answer."""
_PIECE = 25
"""Rows formatted at a time: between two pieces the decoding thread can go on."""
_MANY = 1000
"""Dropped cycles of a full file that are worth a line."""


def create(directory: str, rank: int, ranks: int) -> Tuple[int, int]:
    """Create the file of a rank; return its descriptor and the rank. Raises OSError.

    Replicas of a data-parallel server count their ranks from 0 each: the later ones go on from the
    earlier ones.
    """
    while True:
        path = os.path.join(directory, "cycles.%d.jsonl" % rank)
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
            return os.open(path, flags, 0o600), rank
        except FileExistsError:
            rank += ranks


_WHOLE = "[%s]\n" % ",".join(
    "%.7f" if name.endswith("_s") else "%d" for name in FIELDS
)  # a third of the time that line by line takes, for the lines that are most


class Writer:
    """Writes rows to a descriptor and prints summaries. `settle` is called before each write."""

    def __init__(
        self,
        descriptor: int,
        header: Dict[str, Any],
        summary: Optional[Summary],
        most_bytes: int = MOST_BYTES,
    ) -> None:
        """Write the handshake; without a summary nothing is printed. Raises OSError."""
        self._descriptor = descriptor
        self._summary = summary
        self._most_bytes = most_bytes
        self._bytes = 0
        self._rows: Deque[Row] = deque()
        self._dropped = 0
        self._lock = threading.Lock()
        self._ended = False
        self._due = threading.Event()
        self._write(json.dumps(header, separators=(",", ":")) + "\n")

    def take(self, row: Row) -> None:
        """Take a row of the decoding thread."""
        if len(self._rows) < MOST_WAITING:
            self._rows.append(row)
        else:
            self._dropped += 1

    def start(self, settle: Callable[[], None], failed: Callable[[str, Exception], None]) -> None:
        """Take turns in a thread until `close`, or until one fails."""

        def work() -> None:
            goes_on = True
            while goes_on and not self._ended:
                self._due.wait(INTERVAL_S)
                self._due.clear()
                goes_on = self.turn(settle, failed)

        threading.Thread(target=work, name="eagle3-probe", daemon=True).start()

    def turn(self, settle: Callable[[], None], failed: Callable[[str, Exception], None]) -> bool:
        """Settle and write once; whether that went well. `failed` is told if not."""
        try:
            settle()
            self.flush()
        except Exception as problem:  # noqa: BLE001 - the server must not notice
            failed("write", problem)
            return False
        return True

    def flush(self) -> None:
        """Write what has come together. Raises OSError."""
        with self._lock:
            while self._rows:
                piece = [self._rows.popleft() for _ in range(min(_PIECE, len(self._rows)))]
                if self._has_room:
                    self._write("".join(map(line, piece)))
                else:
                    self._dropped += len(piece)
                for row in piece:
                    self._summarise(row)
            if self._dropped >= (1 if self._has_room else _MANY):
                self._note_dropped()

    def drop(self, cycles: int) -> None:
        """Note cycles that were lost on the way here."""
        self._dropped += cycles

    def hurry(self) -> None:
        """Write at once."""
        self._due.set()

    def error(self, where: str, message: str) -> None:
        """Note a hook that failed."""
        event = {"event": "error", "where": where, "message": message}
        with self._lock:
            self._write(json.dumps(event, separators=(",", ":")) + "\n")

    def close(self) -> None:
        """Write the rest and what was dropped."""
        self._ended = True
        self.flush()
        if self._dropped:
            self._note_dropped()

    @property
    def _has_room(self) -> bool:
        return self._bytes < self._most_bytes

    def _note_dropped(self) -> None:
        self._write('{"event":"dropped","cycles":%d}\n' % self._dropped)
        self._dropped = 0

    def _summarise(self, row: Row) -> None:
        text = self._summary.take(row) if self._summary is not None else None
        if text is not None:
            sys.stdout.write(text + "\n")
            sys.stdout.flush()

    def _write(self, text: str) -> None:
        data = text.encode()
        self._bytes += len(data)
        while data:
            data = data[os.write(self._descriptor, data) :]


def line(row: Row) -> str:
    """Return a row as a line of JSON; times to a tenth of a microsecond."""
    if None not in row:
        return _WHOLE % row
    return "[%s]\n" % ",".join(map(_number, row))


def _number(value: Optional[float]) -> str:
    if value is None:
        return "null"
    return "%.7f" % value if isinstance(value, float) else str(value)
