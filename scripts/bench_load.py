"""How late and how exact is the load generator? Measured against a server of known rate.

The fake server stamps each chunk with its send time on the monotonic clock, which all processes
of a machine share. Lag = arrival as recorded - stamp. The window's throughput is compared with
streams × rate, which the server keeps by an absolute schedule. Both processes' CPU time is shown,
so that a busy server is not taken for a late client. Run on an otherwise idle machine:

    python scripts/bench_load.py
"""

from __future__ import annotations

import argparse
import contextlib
import os
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sweep.agent import http, wire
from sweep.agent.load import Sent
from sweep.agent.loop import Pass, closed_loop

SERVER = Path(__file__).parents[1] / "tests" / "fakes" / "server.py"
ANSWER = wire.Answer(
    text_at=[["content"]],
    output_tokens_at=[["timings", "predicted_n"]],
    input_tokens_at=[["timings", "prompt_n"]],
    tokens_so_far_at=[["tokens_predicted"]],
    meta_at={"timings": ["timings"]},
)
REQUEST_S = 60.0
LAG_GOAL_MS = 3.0
ERROR_GOAL_PERCENT = 0.5


@dataclass(frozen=True)
class Load:
    """`streams` concurrent streams at `rate` tokens/s each, `requests` each of `tokens`."""

    streams: int
    rate: float
    tokens: int
    requests: int


@dataclass(frozen=True)
class Result:
    """What one window showed; lags in ms, CPU in cores."""

    lag_p50_ms: float
    lag_p99_ms: float
    lag_max_ms: float
    throughput: float
    client_cores: float
    server_cores: float


LOADS = (Load(64, 80, 1000, 2), Load(8, 100, 1000, 2), Load(1, 100, 1000, 2))


def free_port() -> int:
    """Return a port that was free a moment ago."""
    with socket.socket() as sock:
        sock.bind((http.HOST, 0))
        return int(sock.getsockname()[1])


@contextlib.contextmanager
def server(rate: float, chunk_tokens: int) -> Iterator[tuple[int, int]]:
    """Run the fake server in a process of its own; give its port and pid."""
    port = free_port()
    argv = [sys.executable, str(SERVER), "--port", str(port), "--rate", str(rate), "--stamp"]
    with subprocess.Popen([*argv, "--chunk-tokens", str(chunk_tokens)]) as process:
        try:
            while http.call(port, wire.HttpCall("/health"), 1.0).status is None:
                time.sleep(0.01)
            yield port, process.pid
        finally:
            process.kill()


def cpu_s(pid: int) -> float:
    """CPU seconds of a process so far, children not included."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def lags_ms(sents: list[Sent]) -> list[float]:
    """Arrival minus send stamp of every chunk."""
    return [
        (sent.sent_s + arrived_s - float(stamp)) * 1000
        for sent in sents
        for arrived_s, stamp in zip(sent.chunk_s, sent.text.split(), strict=True)
    ]


def window(load: Load, port: int) -> Pass:
    """Measure one window, with the records' cost that a launch has too."""

    def keep(stream: int, sent: Sent) -> None:
        wire.encode(sent.record(0, "bench", 0, "measure", stream))
        wire.encode({"n": 0, "chunk_s": sent.chunk_s, "text": sent.text})

    requests = [
        wire.Request(
            "/completion",
            {"prompt": f"prompt {number}", "n_predict": load.tokens, "stream": True},
            f"p{number}",
        )
        for number in range(load.streams * load.requests)
    ]
    return closed_loop(
        port,
        requests,
        ANSWER,
        concurrency=load.streams,
        timeout_s=REQUEST_S,
        stop=threading.Event(),
        keep=keep,
    )


def measure(load: Load, chunk_tokens: int) -> Result:
    """Start a server, measure one window, end the server."""
    with server(load.rate, chunk_tokens) as (port, pid):
        before = (time.monotonic(), time.process_time(), cpu_s(pid))
        measured = window(load, port)
        after = (time.monotonic(), time.process_time(), cpu_s(pid))
    if measured.failed or measured.throughput is None:
        raise SystemExit(f"requests failed: {[sent.error for sent in measured.failed][:5]}")
    lags = sorted(lags_ms(measured.sents))
    wall_s = after[0] - before[0]
    return Result(
        lag_p50_ms=statistics.median(lags),
        lag_p99_ms=lags[int(len(lags) * 0.99)],
        lag_max_ms=lags[-1],
        throughput=measured.throughput,
        client_cores=(after[1] - before[1]) / wall_s,
        server_cores=(after[2] - before[2]) / wall_s,
    )


def main() -> None:
    """Measure each load and print a table; exit 1 when a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chunk-tokens", type=int, default=1)
    parser.add_argument("--windows", type=int, default=3)
    asked = parser.parse_args()
    print("streams tok/s  lag p50  p99  max [ms]   throughput  known  error   cores client server")
    missed = False
    for load in LOADS:
        known = load.streams * load.rate
        for _ in range(asked.windows):
            result = measure(load, asked.chunk_tokens)
            error_percent = (result.throughput / known - 1) * 100
            missed |= result.lag_p99_ms > LAG_GOAL_MS or abs(error_percent) > ERROR_GOAL_PERCENT
            print(
                f"{load.streams:7} {load.rate:5.0f} {result.lag_p50_ms:8.2f} "
                f"{result.lag_p99_ms:5.2f} {result.lag_max_ms:6.2f} {result.throughput:12.1f} "
                f"{known:7.0f} {error_percent:+6.2f}% {result.client_cores:12.2f} "
                f"{result.server_cores:6.2f}"
            )
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
