"""Measure what sweep itself costs around a launch, with a server that needs nothing.

Runs one real sweep of 20 launches (`sweep submit`, Ray and all) of a tiny server written below,
and prints medians from the recorded events. All times are of this machine's monotonic clock.

usage: bench_overhead.py [--launches 20] [--ssh]

With --ssh the node is this machine behind a real sshd of its own, on a port of its own.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from sweep.agent.wire import EVENTS_FILE, LOG_FILE
from sweep.store.directory import find_sweeps
from sweep.store.sweep_db import SweepDb

_TOKENS = 4
_TESTS = Path(__file__).parents[1] / "tests"


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


@contextlib.contextmanager
def node(directory: Path, environment: dict[str, str], *, ssh: bool) -> Iterator[dict[str, str]]:
    """Give the experiment's node: this machine, or this machine behind an sshd that the user of
    `environment` knows."""
    if not ssh:
        yield {}
        return
    from faults.sshd import Sshd  # noqa: PLC0415 - needs what the tests need

    settings = directory / "home" / ".ssh"
    settings.mkdir(parents=True)
    environment["HOME"] = str(settings.parent)
    login = {"SWEEP_CLAIM_DIR": environment["SWEEP_CLAIM_DIR"]}
    server = Sshd(directory / "sshd", ["MaxSessions 2"], environment=login)
    try:
        (settings / "config").write_text(server.section("bench"), encoding="utf-8")
        (settings / "known_hosts").write_bytes(server.known_hosts.read_bytes())
        yield {"host": "bench", "workdir": str(directory / "node")}
    finally:
        server.close()


def experiment(directory: Path, launches: int, where: dict[str, str]) -> Path:
    """Write the experiment: a baseline first and last, and a launch per step count between."""
    from fakes.model_files import gguf  # noqa: PLC0415 - on the path once main has run

    for name in ("target.gguf", "draft.gguf"):
        (directory / name).write_bytes(gguf())
    document = {
        "name": "overhead",
        "node": where,
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


def run(directory: Path, launches: int, say: Callable[[str], None], *, ssh: bool) -> None:
    """Run the sweep and print the table."""
    sweep = [sys.executable, "-m", "sweep"]
    environment = os.environ | {
        "SWEEP_RESULTS": str(directory / "results"),
        "XDG_STATE_HOME": str(directory / "state"),
        "SWEEP_CLAIM_DIR": str(directory),
    }
    with node(directory, environment, ssh=ssh) as where:
        file = str(experiment(directory, launches, where))
        began = time.monotonic()
        subprocess.run([*sweep, "submit", file, "--yes"], env=environment, check=True)
    attempts = recorded(directory / "results")
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


def recorded(results: Path) -> list[tuple[list[dict[str, Any]], str]]:
    """Return events and server's log of each launch, in the order of their starts."""
    database = SweepDb.open(find_sweeps(results)[0].directory)
    attempts = []
    for row in database.attempts():
        events: list[dict[str, Any]] = [
            json.loads(line) for line in database.lines(row.launch_id, row.attempt, EVENTS_FILE)
        ]
        log = Path(row.fetched or row.directory) / LOG_FILE
        attempts.append((events, log.read_text(encoding="utf-8")))
    database.close()
    return sorted(attempts, key=lambda attempt: float(attempt[0][0]["t_s"]))


def main() -> None:
    """Parse, run in a temporary directory."""
    if sys.argv[1:2] == ["serve"]:
        serve(sys.argv[2:])
        return
    sys.path.append(str(_TESTS))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--launches", type=int, default=20)
    parser.add_argument("--ssh", action="store_true", help="reach the node by a loopback sshd")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-") as directory:
        run(Path(directory), arguments.launches, print, ssh=arguments.ssh)


if __name__ == "__main__":
    main()
