#!/usr/bin/env python3
"""What the probe costs: microseconds added to every cycle, and to the start of every process.

    bench_probe.py [--cycles N] [--rounds N]

A worker whose phases do nothing is called with the probe attached and without, in turn; what is
left is the probe's own. The decoding thread's CPU time counts, because that is what a server waits
for; the writing thread works beside it. Marks are those of a CPU: what CUDA's events cost is not
measured here.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from sweep.probe.attaching import attach
from sweep.probe.layout import lay_out
from sweep.probe.writing import INTERVAL_S

BURST = 100
"""Cycles between two pauses: fewer than the probe keeps for its writing thread."""


class Mode:
    """A decode batch's forward mode."""

    def is_idle(self) -> bool:
        """Not idle."""
        return False

    def is_decode(self) -> bool:
        """Decoding."""
        return True


def stack() -> Any:
    """Return a scheduler, with a worker, of classes that nobody has patched yet."""

    class DraftWorker:
        def draft(self, batch: Any) -> None:
            pass

        def _draft_extend_for_decode(self, batch: Any, result: Any) -> None:
            pass

    class Worker:
        speculative_num_steps = 5
        speculative_num_draft_tokens = 6

        def __init__(self) -> None:
            self.draft_worker = DraftWorker()

        def forward_batch_generation(self, batch: Any) -> Any:
            self.draft_worker.draft(batch)
            result = self.verify(batch)
            self.draft_worker._draft_extend_for_decode(batch, result)  # noqa: SLF001 - as SGLang
            return result

        def verify(self, batch: Any) -> Any:
            return batch.result

    class Scheduler:
        device = "cpu"
        tp_rank = 0
        tp_size = 1

        def __init__(self) -> None:
            self.draft_worker = Worker()

        def process_batch_result(self, batch: Any, result: Any) -> None:
            pass

    return Scheduler()


def batch() -> Any:
    """Return a batch of one request."""
    request = SimpleNamespace(rid="r", is_retracted=False, finished=lambda: False)
    return SimpleNamespace(
        forward_mode=Mode(),
        seq_lens=SimpleNamespace(shape=(1,)),
        seq_lens_sum=500,
        reqs=[request],
        result=SimpleNamespace(accept_lens=None, num_correct_drafts_per_req_cpu=[2]),
    )


def cycle_cost(scheduler: Any, cycles: int) -> tuple[float, float]:
    """Return CPU time per cycle of this thread and of the others [s]; the writing thread gets its
    turn after every burst, as it does when a cycle takes a server milliseconds."""
    one, decode, process = batch(), scheduler.draft_worker, scheduler.process_batch_result
    thread_s, process_s, done = 0.0, time.process_time(), 0
    while done < cycles:
        start_s = time.thread_time()
        for _ in range(BURST):
            result = decode.forward_batch_generation(one)
            process(one, result)
        thread_s += time.thread_time() - start_s
        done += BURST
        time.sleep(2 * INTERVAL_S)
    return thread_s / done, (time.process_time() - process_s - thread_s) / done


def start_cost(place: str, active: str) -> float:
    """Return how long an interpreter takes with the probe on its path [s]."""
    environment = {
        "PATH": os.environ["PATH"], "PYTHONPATH": place, "EAGLE3_PROFILE": active,
        "EAGLE3_PROFILE_DIR": "/tmp",  # noqa: S108 - nothing is written without a scheduler
    }  # fmt: skip
    start_s = time.perf_counter()
    subprocess.run([sys.executable, "-c", "pass"], env=environment, check=True)
    return time.perf_counter() - start_s


def median(measure: Callable[[], float], rounds: int) -> float:
    """Return the median of some measurements."""
    return statistics.median(measure() for _ in range(rounds))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--cycles", type=int, default=2_000)
    parser.add_argument("--rounds", type=int, default=9)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as root:
        bare, hooked = stack(), stack()
        attach(hooked, root, every_cycles=10**9)
        pairs = [
            (cycle_cost(bare, given.cycles), cycle_cost(hooked, given.cycles))
            for _ in range(given.rounds)
        ]
        added = statistics.median(with_it[0] - without[0] for without, with_it in pairs)
        writing = statistics.median(with_it[1] for _, with_it in pairs)
        print(f"added to each cycle, decoding thread: {1e6 * added:.2f} us of CPU time")
        print(f"beside it, writing thread:            {1e6 * writing:.2f} us of CPU time")
        place = str(Path(root) / "probe")
        lay_out(place)
        none = median(lambda: start_cost("", "0"), given.rounds)
        cost = median(lambda: start_cost(place, "1"), given.rounds)
        print(f"added to the start of each process:   {1e3 * (cost - none):.1f} ms")


if __name__ == "__main__":
    main()
