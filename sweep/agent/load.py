"""Generation requests to the server, and what came back of each."""

from __future__ import annotations

import hashlib
import http.client
import json
import threading
import time
from dataclasses import dataclass
from typing import Any, Dict, List, Optional

from sweep.agent import sse, wire
from sweep.agent.answer import MESSAGE_LIMIT, Reading, error_in
from sweep.agent.guard import Guard, Watched, guarding
from sweep.agent.http import HOST, error_class

PIECE = 65536
"""Bytes read at once, at most."""
CONNECT_S = 5.0
"""Longest wait for a connection; on loopback it stands within a millisecond."""
NO_OUTPUT = "no output"
BAD_JSON = "bad json"
LOST = ("connection refused", "connection closed", "connection reset")
"""Errors that a server which dies causes."""
DONE = b"[DONE]"


@dataclass(frozen=True)
class Sent:
    """One request and all that came back; offsets count from `sent_s`. What was received before
    an error is kept."""

    prompt: str
    sent_s: float
    """On the monotonic clock."""
    end_s: Optional[float]
    """The end of the answer, None: it did not come."""
    streamed: bool
    status: Optional[int]
    error: Optional[str]
    """A short class of error, None: answered."""
    chunk_s: List[float]
    """Arrivals of the chunks with output."""
    text: str
    first_chunk_tokens: Optional[int]
    output_tokens: Optional[int]
    """As the server reports it, None: it does not."""
    input_tokens: Optional[int]
    cached_tokens: Optional[int]
    meta: Dict[str, Any]

    @property
    def chunks(self) -> int:
        """How many chunks with output came."""
        return len(self.chunk_s)

    def record(
        self, n: int, trial: Optional[str], window: Optional[int], role: str, stream: int
    ) -> wire.RequestRecord:
        """Return the line for requests.jsonl."""
        chunk_s = self.chunk_s
        whole = self.text if self.error is None else ""
        digest = hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()
        return wire.RequestRecord(
            n=n,
            trial=trial,
            window=window,
            role=role,
            prompt=self.prompt,
            stream=stream,
            sent_s=round(self.sent_s, 6),
            first_s=chunk_s[0] if chunk_s and self.streamed else None,
            last_s=chunk_s[-1] if chunk_s else None,
            end_s=self.end_s,
            status=self.status,
            error=self.error,
            chunks=self.chunks,
            first_chunk_tokens=self.first_chunk_tokens,
            output_tokens=self.output_tokens,
            input_tokens=self.input_tokens,
            cached_tokens=self.cached_tokens,
            text_sha256=digest if whole else None,
            meta=self.meta,
        )


class _Failed(Exception):
    """The request failed; the message is the class of error."""


class Channel:
    """Sends requests one after another, each over a connection of its own.

    A server may close an idle connection at the very moment at which the next request is sent
    on it (llama.cpp's does), and the request would fail for no fault of the configuration. The
    connection is made before the clock of the request starts.
    """

    def __init__(self, port: int, guard: Guard) -> None:
        self._connection = http.client.HTTPConnection(HOST, port, timeout=CONNECT_S)
        self._guard = guard
        self.output_s = float("-inf")
        """When output last came, on the monotonic clock."""

    def open(self) -> None:
        """Connect, unless the connection stands. Raises OSError."""
        if self._connection.sock is None:
            self._connection.connect()  # sets TCP_NODELAY
            self._connection.sock.settimeout(None)  # type: ignore[attr-defined] # connected now

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def send(self, request: wire.Request, answer: wire.Answer, timeout_s: float) -> Sent:
        """Send a request and read its answer, at most `timeout_s` long. Raises nothing."""
        body = json.dumps(request.body).encode()
        exchange = _Exchange(self, request, answer)
        error: Optional[str] = None
        watched: Optional[Watched] = None
        try:
            self.open()
            exchange.sent_s = time.monotonic()
            with self._guard.watch(self._connection.sock, exchange.sent_s + timeout_s) as watched:
                exchange.run(self._connection, body)
        except _Failed as failure:
            error = str(failure)
        except (OSError, http.client.HTTPException) as trouble:
            error = error_class(trouble)
        cut = watched.cut if watched is not None else None
        self.close()
        return exchange.sent(cut or error)


class _Exchange:
    """One request on its way: reads the answer as it comes."""

    def __init__(self, channel: Channel, request: wire.Request, answer: wire.Answer) -> None:
        self._channel = channel
        self._request = request
        self._reading = Reading(answer)
        self._streamed = request.stream
        self._status: Optional[int] = None
        self._end_s: Optional[float] = None
        self.sent_s = time.monotonic()

    def run(self, connection: http.client.HTTPConnection, body: bytes) -> None:
        """Send the body and read the answer to its end."""
        connection.request(
            "POST", self._request.path, body=body, headers={"Content-Type": "application/json"}
        )
        response = connection.getresponse()
        self._status = response.status
        if response.status != http.client.OK:
            self._refused(response)
        if not self._streamed or "json" in response.getheader("Content-Type", ""):
            self._streamed = False
            self._take(response.read(), time.monotonic())
            self._ended()
        else:
            self._read_events(response)

    def sent(self, error: Optional[str]) -> Sent:
        """Return what there is. Trouble after the end of the answer is none; an answer without
        output is."""
        reading = self._reading
        if self._end_s is not None and self._status == http.client.OK:
            empty = not reading.chunk_s and not reading.output_tokens
            error = NO_OUTPUT if empty else None
        return Sent(
            prompt=self._request.prompt,
            sent_s=self.sent_s,
            end_s=self._end_s,
            streamed=self._streamed,
            status=self._status,
            error=error,
            chunk_s=reading.chunk_s,
            text=reading.text,
            first_chunk_tokens=reading.first_chunk_tokens,
            output_tokens=reading.output_tokens,
            input_tokens=reading.input_tokens,
            cached_tokens=reading.cached_tokens,
            meta=reading.meta,
        )

    def _since(self, now_s: float) -> float:
        return round(now_s - self.sent_s, 6)

    def _refused(self, response: http.client.HTTPResponse) -> None:
        """Fail with the status, keeping what the server says about it."""
        payload = response.read(PIECE)
        self._ended()
        try:
            message = error_in(json.loads(payload))
        except ValueError:
            message = None
        said = message or payload.decode("utf-8", "replace")[:MESSAGE_LIMIT]
        self._reading.meta["error_message"] = said
        raise _Failed("http %d" % response.status)

    def _read_events(self, response: http.client.HTTPResponse) -> None:
        decoder = sse.Decoder()
        for piece in iter(lambda: response.read1(PIECE), b""):
            self._events(decoder.feed(piece))
        self._events(decoder.close())
        if response.length:
            raise _Failed("connection closed")
        self._ended()
        response.close()  # read1 leaves it open at the end of a body of known length

    def _events(self, events: List[bytes]) -> None:
        now_s = time.monotonic()
        for event in events:
            if event == DONE:
                self._ended()
            elif self._end_s is None:
                self._take(event, now_s)

    def _ended(self) -> None:
        if self._end_s is None:
            self._end_s = self._since(time.monotonic())

    def _take(self, data: bytes, now_s: float) -> None:
        try:
            value = json.loads(data)
        except ValueError:
            raise _Failed(BAD_JSON) from None
        message = error_in(value)
        if message is not None:
            self._reading.meta["error_message"] = message
            raise _Failed("error in answer")
        if self._reading.take(value, self._since(now_s)):
            self._channel.output_s = now_s


def send(
    port: int,
    request: wire.Request,
    answer: wire.Answer,
    timeout_s: float,
    stop: threading.Event,
) -> Sent:
    """Send one request on a connection of its own; ends early once `stop` is set.

    Raises nothing: `Sent.error` names what went wrong, "stopped" and "timeout" included.
    """
    with guarding(stop) as guard:
        channel = Channel(port, guard)
        try:
            return channel.send(request, answer, timeout_s)
        finally:
            channel.close()
