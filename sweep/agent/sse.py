"""Server-sent events: bytes in, the data of whole events out."""

from __future__ import annotations

from typing import List, Optional


class Decoder:
    """Splits a stream of bytes into events, whatever the sizes of the pieces it arrives in.

    Lines end in LF or CRLF. An event ends at an empty line; its `data` lines are joined by LF.
    Lines that start with a colon are comments. A line `error: X`, which llama.cpp sends, counts
    as the data `{"error":X}`. Other fields are left out.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._data: List[bytes] = []

    def feed(self, piece: bytes) -> List[bytes]:
        """Return the data of the events that end in this piece."""
        *lines, self._rest = (self._rest + piece).split(b"\n")
        events = []
        for line in lines:
            event = self._line(line.rstrip(b"\r"))
            if event is not None:
                events.append(event)
        return events

    def close(self) -> List[bytes]:
        """Return what is left at the end of the stream: an event whose empty line is missing."""
        return self.feed(b"\n\n")

    def _line(self, line: bytes) -> Optional[bytes]:
        if not line:
            event = b"\n".join(self._data) if self._data else None
            self._data = []
            return event
        name, _, value = line.partition(b":")
        if value.startswith(b" "):
            value = value[1:]
        if name == b"data":
            self._data.append(value)
        elif name == b"error":
            self._data.append(b'{"error":%b}' % value)
        return None
