"""A closed loop of streams over a list of requests, and what it amounts to."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Callable, List, Optional, Sequence, Tuple

from sweep.agent import wire
from sweep.agent.guard import STOPPED, TIMEOUT, Guard, guarding
from sweep.agent.load import LOST, Channel, Sent

STALLED = "stalled"
LOST_PAUSE_S = 0.5
"""A stream that lost its server waits this long for `stop`: whoever watches the process has
then told us, and requests that nobody hears are not burnt."""

Keep = Callable[[int, Sent], None]
"""Takes every request that ended, with the number of its stream; called in one thread."""


@dataclass(frozen=True)
class Pass:
    """One pass over a list of requests."""

    sents: List[Sent]
    """In the order in which they ended."""
    complete: bool
    """Every request of the list was sent, and none was cut short by stop or stall."""
    stalled: bool
    """A request timed out, and during its time no stream received output."""

    @property
    def start_s(self) -> Optional[float]:
        """When the first request was sent, on the monotonic clock."""
        return min((round(sent.sent_s, 6) for sent in self.sents), default=None)

    @property
    def end_s(self) -> Optional[float]:
        """When the last output came, on the monotonic clock; None: none came."""
        ends_s = [sent.sent_s + sent.chunk_s[-1] for sent in self.sents if sent.chunk_s]
        return round(max(ends_s), 6) if ends_s else None

    @property
    def answered(self) -> List[Sent]:
        """The requests without error."""
        return [sent for sent in self.sents if sent.error is None]

    @property
    def failed(self) -> List[Sent]:
        """The requests with an error."""
        return [sent for sent in self.sents if sent.error is not None]

    @property
    def output_tokens(self) -> Optional[int]:
        """Output tokens of the answered requests, None: the server does not report them all, or
        there is no answered request."""
        counts = [sent.output_tokens for sent in self.answered]
        known = [count for count in counts if count is not None]
        return sum(known) if counts and len(known) == len(counts) else None

    @property
    def throughput(self) -> Optional[float]:
        """Output tokens ÷ (last output - first sent) [tokens/s]."""
        if self.output_tokens is None or self.start_s is None or self.end_s is None:
            return None
        return self.output_tokens / (self.end_s - self.start_s)


def closed_loop(
    port: int,
    requests: Sequence[wire.Request],
    answer: wire.Answer,
    *,
    concurrency: int,
    timeout_s: float,
    stop: threading.Event,
    keep: Keep,
) -> Pass:
    """Send every request once, in order, from `concurrency` streams: each sends its next request
    as soon as its last one ended. Returns when all ended or, within 0.2 s, when `stop` is set.

    Gives up when the server stalls: a request timed out, and no stream received output since it
    was sent.
    """
    streams = max(1, min(concurrency, len(requests)))
    with guarding(stop) as guard, ThreadPoolExecutor(streams) as threads:
        channels = [Channel(port, guard) for _ in range(streams)]
        loop = _Loop(requests, answer, timeout_s, guard, channels)
        try:
            running = [threads.submit(loop.stream, number) for number in range(streams)]
            loop.hand_over(keep)
        except BaseException:
            loop.abandon()
            raise
        for stream in running:
            stream.result()
        return loop.result()


class _Loop:
    """What the streams of one closed loop share."""

    def __init__(
        self,
        requests: Sequence[wire.Request],
        answer: wire.Answer,
        timeout_s: float,
        guard: Guard,
        channels: List[Channel],
    ) -> None:
        self._waiting = list(reversed(requests))
        self._answer = answer
        self._timeout_s = timeout_s
        self._guard = guard
        self._channels = channels
        self._aligned = threading.Barrier(len(channels), action=self._connect)
        self._ended: SimpleQueue[Optional[Tuple[int, Sent]]] = SimpleQueue()
        self._sents: List[Sent] = []

    def hand_over(self, keep: Keep) -> None:
        """Give each request that ended to `keep`, until every stream has ended.

        Not in the streams: what it costs would delay their next requests.
        """
        streams = len(self._channels)
        while streams:
            ended = self._ended.get()
            if ended is None:
                streams -= 1
            else:
                self._sents.append(ended[1])
                keep(*ended)

    def stream(self, number: int) -> None:
        """Send requests until there are no more; runs in a thread of its own."""
        channel = self._channels[number]
        try:
            self._aligned.wait()
            while not self._guard.is_over:
                try:
                    request = self._waiting.pop()
                except IndexError:
                    return
                sent = channel.send(request, self._answer, self._timeout_s)
                self._ended.put((number, sent))
                self._after(sent)
        finally:
            channel.close()
            self._ended.put(None)

    def abandon(self) -> None:
        """End every stream: the records can be kept no longer."""
        self._guard.halt(STOPPED)
        self._aligned.abort()

    def result(self) -> Pass:
        """Return what came of it, once every stream has ended."""
        return Pass(
            sents=self._sents,
            complete=not self._waiting and self._guard.halted is None,
            stalled=self._guard.halted == STALLED,
        )

    def _connect(self) -> None:
        """Connect every stream before the first sends; a server that refuses shows when it does."""
        with suppress(OSError):
            for channel in self._channels:
                channel.open()

    def _after(self, sent: Sent) -> None:
        if sent.error in LOST:
            self._guard.stop.wait(LOST_PAUSE_S)
        if sent.error == TIMEOUT and sent.sent_s > max(c.output_s for c in self._channels):
            self._guard.halt(STALLED)
