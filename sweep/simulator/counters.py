"""What the server counts over its whole life, and what it says of it in its log."""

from __future__ import annotations

import threading
import time
from typing import Dict, List, Optional

from sweep.simulator import log
from sweep.simulator.calibration import Phases, Speculation

LOG_EVERY = 40
"""Cycles between two lines of the log, SGLang's decode_log_interval."""
_LIFETIME_ACCEPT_LENGTH = 3.9


class Counters:
    """Counts of all requests; methods may be called from any thread."""

    def __init__(
        self,
        speculation: Optional[Speculation],
        *,
        profile_every: Optional[int],
        lifetime_cycles: int,
    ) -> None:
        """A summary of phases is written every `profile_every` cycles; None: never."""
        self._speculation = speculation
        self._profile_every = None if speculation is None else profile_every
        self._lock = threading.Lock()
        self.running = 0
        self.waiting = 0
        self.prompt_tokens = 0
        self.requests = 0
        self.cycles = lifetime_cycles
        self.output_tokens = round(lifetime_cycles * _LIFETIME_ACCEPT_LENGTH)
        self.decode_tokens = self.output_tokens
        self.throughput = 0.0
        self._log_from = (self.cycles, self.decode_tokens, time.monotonic())
        self._profiled: List[Phases] = []
        self._profiled_tokens = 0

    def enter(self, change: int, waiting: int = 0) -> None:
        """A request begins (1) or ends (-1) to run, or to wait."""
        with self._lock:
            self.running += change
            self.waiting += waiting

    def prefilled(self, prompt_tokens: int) -> None:
        """A prompt was read and gave its first token."""
        with self._lock:
            self.prompt_tokens += prompt_tokens
            self.output_tokens += 1

    def cycle(self, phases: Phases, tokens: int, context: int) -> None:
        """A cycle of one request yielded tokens; `context` is the length of its sequence."""
        with self._lock:
            self.cycles += 1
            self.output_tokens += tokens
            self.decode_tokens += tokens
            line = self._line(context) if self.cycles % LOG_EVERY == 0 else None
            block = self._block(phases, tokens)
        if line is not None:
            log.say(line)
        if block is not None:
            log.write(block)

    def _line(self, context: int) -> str:
        cycles, tokens, at_s = self._log_from
        now_s = time.monotonic()
        self.throughput = (self.decode_tokens - tokens) / max(1e-6, now_s - at_s)
        length = (self.decode_tokens - tokens) / (self.cycles - cycles)
        self._log_from = (self.cycles, self.decode_tokens, now_s)
        accept: List[float] = []
        if self._speculation is not None:
            accept = [length, (length - 1.0) / max(1, self._speculation.tokens - 1)]
        return log.decode_line(self.running, context, accept, self.throughput, self.waiting)

    def _block(self, phases: Phases, tokens: int) -> Optional[str]:
        if self._profile_every is None:
            return None
        self._profiled.append(phases)
        self._profiled_tokens += tokens
        count = len(self._profiled)
        if count < self._profile_every:
            return None
        mean = Phases(
            sum(item.draft_ms for item in self._profiled) / count,
            sum(item.verify_ms for item in self._profiled) / count,
            sum(item.extend_ms for item in self._profiled) / count,
            sum(item.other_ms for item in self._profiled) / count,
        )
        block = log.profile_block(count, self._profiled_tokens, mean)
        self._profiled, self._profiled_tokens = [], 0
        return block

    @property
    def accept_length(self) -> float:
        """Tokens per cycle over the server's whole life, warm-up and all."""
        return self.decode_tokens / self.cycles if self.cycles else 0.0

    def metrics(self, model: str) -> str:
        """Return the counters in Prometheus' text format."""
        values: Dict[str, float] = {
            "num_running_reqs": self.running,
            "num_queue_reqs": self.waiting,
            "gen_throughput": self.throughput,
            "prompt_tokens_total": self.prompt_tokens,
            "generation_tokens_total": self.output_tokens,
            "num_requests_total": self.requests,
        }
        if self._speculation is not None:
            drafted = self._speculation.tokens - 1
            values["spec_num_steps"] = self._speculation.steps
            values["spec_num_draft_tokens"] = self._speculation.tokens
            values["spec_accept_length"] = self.accept_length
            values["spec_accept_rate"] = max(0.0, self.accept_length - 1.0) / max(1, drafted)
            values["spec_verify_calls_total"] = self.cycles
        lines: List[str] = []
        for name, value in values.items():
            kind = "counter" if name.endswith("_total") else "gauge"
            lines.append("# TYPE sglang:%s %s" % (name, kind))
            lines.append('sglang:%s{model_name="%s"} %s' % (name, model, float(value)))
        return "\n".join(lines) + "\n"
