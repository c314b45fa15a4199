"""The server's log: its lines searched as they come, its last lines, its size kept bounded."""

from __future__ import annotations

import codecs
import os
import re
from typing import List, Sequence, Tuple

from sweep.agent.wire import Pattern

_PIECE = 64 * 1024
"""Searched at once: small, so that a flood never holds up the threads that measure."""

_LINE_LIMIT = 16 * 1024
"""A longer line is searched in pieces of this length."""

_SHOWN_LIMIT = 1000
"""Characters of a line that events and the outcome keep."""

SIZE_LIMIT = 256 * 1024 * 1024
HEAD_KEPT = 64 * 1024 * 1024
"""A log beyond SIZE_LIMIT is cut back to its first HEAD_KEPT bytes, and says so in a line."""

_BACKLOG_LIMIT = 32 * 1024 * 1024
"""When more than this is waiting to be searched, the oldest is passed over."""

Hit = Tuple[Pattern, str]


class Scanner:
    """Searches a stream of bytes for patterns, each reported once, with the line it is in."""

    def __init__(self, patterns: Sequence[Pattern]) -> None:
        self._waiting = [(pattern, re.compile(pattern.regex, re.MULTILINE)) for pattern in patterns]
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""

    def feed(self, data: bytes, *, last: bool = False) -> List[Hit]:
        """Take the next bytes; `last` also searches a line that has no end."""
        text = self._rest + self._decoder.decode(data, last)
        text = text.replace("\r", "\n")  # progress bars rewrite their line
        end = text.rfind("\n") + 1
        if last or len(text) - end > _LINE_LIMIT:
            end = len(text)
        self._rest = text[end:]
        return self._search(text[:end]) if end else []

    def _search(self, text: str) -> List[Hit]:
        hits = []
        for waiting in list(self._waiting):
            pattern, regex = waiting
            line = _matching_line(regex, text)
            if line is not None:
                hits.append((text.index(line), pattern, line[:_SHOWN_LIMIT]))
                self._waiting.remove(waiting)
        return [(pattern, line) for _, pattern, line in sorted(hits, key=lambda hit: hit[0])]


def _matching_line(regex: re.Pattern[str], text: str) -> str | None:
    found = regex.search(text)
    while found:
        start = text.rfind("\n", 0, found.start()) + 1
        end = text.find("\n", found.start())
        end = len(text) if end < 0 else end
        if regex.search(text[start:end]):
            return text[start:end]
        found = regex.search(text, end + 1)  # it matched across lines
    return None


class LogFile:
    """Reads a growing log from where it last stopped."""

    def __init__(self, path: str, patterns: Sequence[Pattern]) -> None:
        self._path = path
        self._scanner = Scanner(patterns)
        self._offset = 0
        self._dropped = 0

    def size(self) -> int:
        """Bytes the server has written so far, those cut off included."""
        try:
            return os.stat(self._path).st_size + self._dropped
        except FileNotFoundError:
            return 0

    def read(self, pieces: int = 64) -> List[Hit]:
        """Search at most `pieces` further pieces."""
        hits: List[Hit] = []
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return hits
        try:
            size = os.fstat(descriptor).st_size
            self._offset = max(self._offset, size - _BACKLOG_LIMIT)
            for _ in range(pieces):
                data = os.pread(descriptor, _PIECE, self._offset)
                if not data:
                    break
                self._offset += len(data)
                hits += self._scanner.feed(data)
        finally:
            os.close(descriptor)
        return hits

    def finish(self) -> List[Hit]:
        """Search all that is left, when nobody writes any more."""
        hits: List[Hit] = []
        before = -1
        while before != self._offset:
            before = self._offset
            hits += self.read()
        return hits + self._scanner.feed(b"", last=True)

    def bound(self, limit: int = SIZE_LIMIT, head: int = HEAD_KEPT) -> None:
        """Cut the log back when it is too long. The server appends, so it just goes on."""
        try:
            size = os.stat(self._path).st_size
        except FileNotFoundError:
            return
        if size <= limit:
            return
        self._dropped += size - head
        notice = "\n[sweep: the log passed %d bytes; %d bytes after this point were dropped]\n"
        line = (notice % (limit, self._dropped)).encode()
        os.truncate(self._path, head)
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        try:
            os.write(descriptor, line)
        finally:
            os.close(descriptor)
        self._offset = head


def tail(path: str, count: int = 40) -> List[str]:
    """Return the last lines of a log."""
    try:
        with open(path, "rb") as stream:
            stream.seek(0, os.SEEK_END)
            stream.seek(max(0, stream.tell() - count * _SHOWN_LIMIT * 2))
            data = stream.read()
    except FileNotFoundError:
        return []
    lines = data.decode("utf-8", "replace").replace("\r", "\n").split("\n")
    shown = [line[:_SHOWN_LIMIT] for line in lines if line.strip()]
    return shown[-count:]
