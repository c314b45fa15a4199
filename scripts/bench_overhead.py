"""Measure what sweep itself costs around a launch, with a server that needs nothing.

Runs one real sweep of 20 launches (`sweep submit`, Ray and all) of a tiny server written below,
and prints medians from the recorded events. All times are of this machine's monotonic clock.

usage: bench_overhead.py [--launches 20]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from sweep.agent.wire import EVENTS_FILE, LOG_FILE
from sweep.store.directory import find_sweeps
from sweep.store.sweep_db import SweepDb

_TOKENS = 4


class _Handler(BaseHTTPRequestHandler):
    """llama-server's answers, at once."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.path == "/health":
            print(f"health {time.monotonic():.6f}", flush=True)
        self._answer({"status": "ok"})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        print(f"generate {time.monotonic():.6f}", flush=True)
        timings = {
            "predicted_n": _TOKENS,
            "prompt_n": 1,
            "cache_n": 0,
            "predicted_ms": 1.0,
            "draft_n": _TOKENS,
            "draft_n_accepted": 2,
        }
        if "--spec-type" not in sys.argv:
            del timings["draft_n"], timings["draft_n_accepted"]
        answer = {"content": "word " * _TOKENS, "tokens_predicted": _TOKENS, "stop": True}
        self._answer(answer | {"tokens_evaluated": 1, "timings": timings}, stream=True)

    def _answer(self, document: dict[str, Any], *, stream: bool = False) -> None:
        body = json.dumps(document).encode()
        if stream:
            body = b"data: " + body + b"\n\n"
        self.send_response(200)
        kind = "text/event-stream" if stream else "application/json"
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        """Say nothing: the health stamps are all that the log is read for."""


def serve(argv: Sequence[str]) -> None:
    """Be the server."""
    if "--version" in argv:
        print("needs nothing 1.0")
        return
    port = int(argv[argv.index("--port") + 1])
    ThreadingHTTPServer(("127.0.0.1", port), _Handler).serve_forever()


def experiment(directory: Path, launches: int) -> Path:
    """Write the experiment: a baseline first and last, and a launch per step count between."""
    for name in ("target.gguf", "draft.gguf"):
        (directory / name).write_bytes(b"nothing")
    document = {
        "name": "overhead",
        "engine": {
            "kind": "llama.cpp",
            "command": [sys.executable, str(Path(__file__).absolute()), "serve"],
            "model": str(directory / "target.gguf"),
            "draft_model": str(directory / "draft.gguf"),
            "algorithm": "draft-simple",
        },
        "sweep": {"num_steps": {"from": 1, "to": launches - 2}},
        "workloads": [
            {
                "name": "nothing",
                "prompts": ["one", "two"],
                "max_tokens": _TOKENS,
                "repeats": {"min": 2, "max": 2},
            }
        ],
    }
    path = directory / "overhead.yaml"
    path.write_text(json.dumps(document), encoding="utf-8")  # JSON is YAML
    return path


def first(events: Sequence[dict[str, Any]], name: str, **fields: Any) -> float:
    """Return when the first event of a kind happened [s]."""
    for event in events:
        if event["event"] == name and all(event.get(key) == fields[key] for key in fields):
            return float(event["t_s"])
    raise SystemExit(f"no event {name} {fields}: the sweep did not run as expected")


def spans(attempts: Sequence[tuple[list[dict[str, Any]], str]]) -> dict[str, list[float]]:
    """Return the durations [s] of each stage over all launches."""
    found: dict[str, list[float]] = {name: [] for name in STAGES}
    clean_before = None
    for events, log in attempts:
        lines = [line.split() for line in log.splitlines()]
        health = min(float(line[1]) for line in lines if line[:1] == ["health"])
        started = first(events, "server_started")
        if clean_before is not None:
            found["clean to next start"].append(started - clean_before)
        found["start to first health request"].append(health - started)
        healthy, token = first(events, "healthy"), first(events, "first_token")
        found["healthy to first token"].append(token - healthy)
        measured = first(events, "phase", phase="measure", window=0)
        warm = first(events, "phase", phase="warmup")
        found["first token to first measured request"].append(measured - token)
        found["of it: warm-up, flush, throw-away, scrape"].append(measured - warm)
        clean_before = first(events, "clean")
        found["stop to proven clean"].append(clean_before - first(events, "phase", phase="stop"))
    return found


STAGES = (
    "start to first health request",
    "healthy to first token",
    "first token to first measured request",
    "of it: warm-up, flush, throw-away, scrape",
    "stop to proven clean",
    "clean to next start",
)


def command_s(argv: Sequence[str], environment: dict[str, str], repeats: int = 5) -> float:
    """Return the median wall time of a command [s]."""

    def once() -> float:
        began = time.monotonic()
        subprocess.run(argv, env=environment, check=True, stdout=subprocess.DEVNULL)
        return time.monotonic() - began

    return statistics.median(once() for _ in range(repeats))


def run(directory: Path, launches: int, say: Callable[[str], None]) -> None:
    """Run the sweep and print the table."""
    sweep = [sys.executable, "-m", "sweep"]
    environment = os.environ | {
        "SWEEP_RESULTS": str(directory / "results"),
        "XDG_STATE_HOME": str(directory / "state"),
        "SWEEP_CLAIM_DIR": str(directory),
    }
    file = str(experiment(directory, launches))
    began = time.monotonic()
    subprocess.run([*sweep, "submit", file, "--yes"], env=environment, check=True)
    found = find_sweeps(directory / "results")[0]
    database = SweepDb.open(found.directory)
    attempts = []
    for row in database.attempts():
        events = [
            json.loads(line) for line in database.lines(row.launch_id, row.attempt, EVENTS_FILE)
        ]
        log = Path(row.fetched or row.directory) / LOG_FILE
        attempts.append((events, log.read_text(encoding="utf-8")))
    database.close()
    attempts.sort(key=lambda attempt: float(attempt[0][0]["t_s"]))
    stages = spans(attempts)
    say(f"{'stage':<44}{'median s':>9}{'max s':>8}")
    for name, values in stages.items():
        say(f"{name:<44}{statistics.median(values):>9.3f}{max(values):>8.3f}")
    total = sum(statistics.median(values) for name, values in stages.items() if "of it" not in name)
    say(f"{'in sum, per launch':<44}{total:>9.3f}")
    start = first(attempts[0][0], "server_started") - began
    say(f"{'submit to first server start':<44}{start:>9.3f}")
    say(f"{'sweep --help':<44}{command_s([*sweep, '--help'], environment):>9.3f}")
    say(f"{'sweep status':<44}{command_s([*sweep, 'status'], environment):>9.3f}")


def main() -> None:
    """Parse, run in a temporary directory."""
    if sys.argv[1:2] == ["serve"]:
        serve(sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--launches", type=int, default=20)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-") as directory:
        run(Path(directory), arguments.launches, print)


if __name__ == "__main__":
    main()
