"""Requests that are decoded together: when each token of an answer is due."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

from sweep.simulator.calibration import Calibration, Effect, Phases, Speculation
from sweep.simulator.counters import Counters
from sweep.simulator.cycles import CycleLog
from sweep.simulator.decoding import AcceptedDrafts, count_tokens, noise_factor, words


@dataclass(frozen=True)
class Ask:
    """A generation request, whatever call it came by."""

    prompt: str
    max_tokens: int
    temperature: float
    steps: Optional[int] = None
    """Draft steps that it asks for; None: it asks for none."""


@dataclass(frozen=True)
class Progress:
    """An answer so far."""

    text: str
    """All of it."""
    piece: str
    """What is new."""
    tokens: int
    done: bool
    meta: Dict[str, Any]
    """SGLang's meta_info."""
    speculative: Dict[str, Any]
    """What of it counts speculation; empty before the end, and without speculation."""


class Scheduler:
    """Decodes at most `max_running` requests at a time.

    Every token has its time on an absolute schedule: the costs of the cycles add up from the
    moment the request was admitted, so that a late wake-up delays one chunk and never the next.
    """

    def __init__(
        self,
        calibration: Calibration,
        speculation: Optional[Speculation],
        effects: Tuple[Effect, ...],
        counters: Counters,
        *,
        seed: str,
        max_running: int,
        chunk_tokens: int,
        cycles: Optional[CycleLog] = None,
        held: Sequence[int] = (),
    ) -> None:
        """Decode as `speculation` says, until a request asks for other steps that are `held`."""
        self._calibration = calibration
        self._first = speculation
        self.speculation = speculation
        self._held = frozenset(held)
        self._effects = effects
        self._counters = counters
        self._seed = seed
        self._chunk_tokens = chunk_tokens
        self._cycles = cycles
        self._slots = threading.Semaphore(max_running)
        self._lock = threading.Lock()
        self._seen: Counter[str] = Counter()
        self._cached: Dict[str, int] = {}
        self._admitted = 0

    @property
    def idle(self) -> bool:
        """Whether nothing runs or waits."""
        return not self._counters.running and not self._counters.waiting

    def flush(self) -> bool:
        """Empty the prefix cache; False: not while something runs."""
        if not self.idle:
            return False
        with self._lock:
            self._cached.clear()
        return True

    def run(self, ask: Ask) -> Iterator[Progress]:
        """Yield the answer as it grows, each part at its time."""
        began_s = time.monotonic()
        self._counters.enter(0, waiting=1)
        try:
            self._slots.acquire()
        finally:
            self._counters.enter(0, waiting=-1)
        self._counters.enter(1)
        try:
            yield from self._decode(ask, began_s)
        finally:
            self._counters.enter(-1)
            self._slots.release()

    def _admit(self, ask: Ask) -> _Admitted:
        prompt_tokens = count_tokens(ask.prompt)
        with self._lock:
            cached = self._cached.get(ask.prompt, 0)
            self._cached[ask.prompt] = prompt_tokens - 1
            index = self._seen[ask.prompt]
            self._seen[ask.prompt] += 1
            self._admitted += 1
            admitted = self._admitted
            if ask.steps in self._held:
                self.speculation = Speculation(ask.steps, 1, ask.steps + 1)
            speculation = self.speculation
            self._counters.requests += 1
        # Greedy decoding repeats itself; sampling does not.
        sample = index if ask.temperature > 0 else 0
        chances = [] if speculation is None else self._calibration.conditional(speculation)
        draws = AcceptedDrafts(chances, (self._seed, ask.prompt, sample))
        noise = noise_factor(self._calibration.noise_percent, self._seed, speculation, admitted)
        return _Admitted(admitted, cached, speculation, draws, noise)

    def _decode(self, ask: Ask, began_s: float) -> Iterator[Progress]:
        admitted = self._admit(ask)
        prompt_tokens = count_tokens(ask.prompt)
        # SGLang counts proposed tokens by the steps that it was started with, and so does this.
        answer = _Answer(ask, prompt_tokens, admitted.cached, self._first)
        due_s = time.monotonic() + self._calibration.prefill_s(prompt_tokens - admitted.cached)
        _sleep_until(due_s)
        self._counters.prefilled(prompt_tokens)
        answer.grow(1)
        yield answer.progress(began_s)
        with self._logged(admitted.number, prompt_tokens + 1):
            while not answer.done:
                start_s = due_s
                phases = self._phases(admitted)
                due_s += phases.total_ms / 1000.0
                accepted = admitted.draws.draw()
                tokens = answer.cycle(accepted)
                if answer.done or answer.pending >= self._chunk_tokens:
                    _sleep_until(due_s)
                    yield answer.progress(began_s)
                self._counters.cycle(phases, tokens, prompt_tokens + answer.tokens)
                if self._cycles is not None:
                    self._cycles.cycle(
                        admitted.number, start_s, phases, admitted.speculation,
                        accepted=accepted, tokens=tokens, last=answer.done,
                    )  # fmt: skip

    def _phases(self, admitted: _Admitted) -> Phases:
        running, speculation = self._counters.running, admitted.speculation
        phases = self._calibration.phases(speculation, running, self._effects)
        return phases.scaled(admitted.noise)

    @contextlib.contextmanager
    def _logged(self, request: int, context_tokens: int) -> Iterator[None]:
        """Let the log of cycles know that a request is decoded."""
        if self._cycles is None:
            yield
            return
        self._cycles.enter(request, context_tokens)
        try:
            yield
        finally:
            self._cycles.leave(request)


@dataclass(frozen=True)
class _Admitted:
    """A request that is to be decoded: its number, and what is drawn for it."""

    number: int
    cached: int
    """Prompt tokens that are in the cache."""
    speculation: Optional[Speculation]
    draws: AcceptedDrafts
    noise: float
    """Factor on the times of its cycles."""


class _Answer:
    """One answer as it grows, and the counts that SGLang reports of it."""

    def __init__(
        self, ask: Ask, prompt_tokens: int, cached: int, speculation: Optional[Speculation]
    ) -> None:
        self._ask = ask
        self._prompt_tokens = prompt_tokens
        self._cached = cached
        self._speculation = speculation
        self._words = words(ask.prompt)
        self._text = ""
        self._sent = 0
        self._histogram: Counter[int] = Counter()
        self._pieces: List[str] = []
        self.tokens = 0

    @property
    def done(self) -> bool:
        """Whether it is as long as was asked."""
        return self.tokens >= self._ask.max_tokens

    @property
    def pending(self) -> int:
        """Tokens that were not handed on yet."""
        return len(self._pieces)

    def grow(self, tokens: int) -> int:
        """Add tokens, as far as the limit allows; returns how many."""
        added = min(tokens, self._ask.max_tokens - self.tokens)
        self._pieces += [next(self._words) for _ in range(added)]
        self.tokens += added
        return added

    def cycle(self, accepted: int) -> int:
        """Add what a cycle yields. Counts hold all accepted tokens, even past the limit."""
        self._histogram[accepted] += 1
        return self.grow(accepted + 1)

    def progress(self, began_s: float) -> Progress:
        """Return the answer so far."""
        piece = "".join(self._pieces)
        self._pieces = []
        self._text += piece
        meta: Dict[str, Any] = {
            "finish_reason": {"type": "length", "length": self.tokens} if self.done else None,
            "prompt_tokens": self._prompt_tokens,
            "completion_tokens": self.tokens,
            "cached_tokens": self._cached,
        }
        speculative = self._speculative() if self.done else {}
        if self.done:
            meta["e2e_latency"] = time.monotonic() - began_s
            meta.update(speculative)
        return Progress(self._text, piece, self.tokens, self.done, meta, speculative)

    def _speculative(self) -> Dict[str, Any]:
        if self._speculation is None:
            return {}
        cycles = sum(self._histogram.values())
        correct = sum(number * count for number, count in self._histogram.items())
        proposed = cycles * (self._speculation.tokens - 1)
        deepest = max(self._histogram, default=0)
        return {
            "spec_verify_ct": cycles,
            "spec_accept_length": self.tokens / cycles if cycles else 0.0,
            "spec_accept_rate": correct / proposed if proposed else 0.0,
            "spec_num_correct_drafts": correct,
            "spec_num_proposed_drafts": proposed,
            "spec_correct_drafts_histogram": [self._histogram[k] for k in range(deepest + 1)],
        }


def _sleep_until(due_s: float) -> None:
    left_s = due_s - time.monotonic()
    if left_s > 0:
        time.sleep(left_s)
