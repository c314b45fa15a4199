"""Launches of the fake server by the real agent, from its .pyz, in directories of a test."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from faults.gpus import FakeGpus

from sweep.agent import procs, wire
from sweep.nodes.archive import agent_archive

FAKE_SERVER = str(Path(__file__).with_name("server.py"))

ANSWER = wire.Answer(
    text_at=[["choices", 0, "text"]],
    output_tokens_at=[["usage", "completion_tokens"]],
    input_tokens_at=[["usage", "prompt_tokens"]],
)


def request(prompt: str, tokens: int = 5) -> wire.Request:
    """A streamed completion."""
    body: dict[str, Any] = {"prompt": prompt, "max_tokens": tokens, "stream": True}
    return wire.Request(
        "/v1/completions", {**body, "stream_options": {"include_usage": True}}, prompt
    )


def trial(name: str = "t1", *, windows: int = 2, requests: int = 4) -> wire.TrialDoc:
    """A trial of a few short requests on two streams."""
    return wire.TrialDoc(
        trial_id=name,
        label=name,
        concurrency=2,
        requests=[request(f"prompt {number}") for number in range(requests)],
        warmup=[request("warm")],
        throwaway=request("something else", 1),
        repeats=wire.Repeats(windows, windows, 0.5, [None, None, 12.7062, 4.3027]),
        answer=ANSWER,
    )


def document(
    *options: str, nonce: str, python: str = sys.executable, **fields: Any
) -> wire.LaunchDoc:
    """A launch of the fake server with these options; `fields` replace those of the document."""
    engine = wire.EngineDoc(
        name="fake",
        health=wire.HttpCall("/health"),
        ready=request("ready", 1),
        ready_answer=ANSWER,
        flush=wire.HttpCall("/flush_cache", "POST"),
        scrapes=[wire.HttpCall("/metrics", name="metrics")],
        milestones=[wire.Pattern("weights", "weights loaded")],
        fatal=[wire.Pattern("oom", "CUDA out of memory")],
    )
    doc = wire.LaunchDoc(
        sweep_id="test-sweep",
        launch_id="L1",
        attempt=1,
        nonce=nonce,
        label="fake",
        argv=[sys.executable, "-I", FAKE_SERVER, "--port", "?", *options],
        port_at=4,
        env={},
        unset=[],
        gpus=None,
        owner=wire.Owner("tester", "here", "test-sweep"),
        engine=engine,
        trials=[trial()],
        deadlines=wire.Deadlines(
            claim_s=5, load_s=20, stall_s=60, request_s=10, launch_s=120, stop_s=2, verify_s=5
        ),
    )
    return replace(doc, **fields)


def wait_for(condition: Callable[[], Any], timeout_s: float = 20.0) -> Any:
    """Return the first true value of a condition; fails after a deadline."""
    until_s = time.monotonic() + timeout_s
    while time.monotonic() < until_s:
        value = condition()
        if value:
            return value
        time.sleep(0.005)
    raise AssertionError("it did not happen in time")


class Bench:
    """A directory for launches, with claims of its own. Ends at close whatever it started."""

    def __init__(self, root: Path, python: str = sys.executable) -> None:
        self.root = root
        self.python = python
        self.claims = root / "claims"
        self.claims.mkdir()
        name, data = agent_archive()
        self.archive = root / name
        self.archive.write_bytes(data)
        self.environment = {**os.environ, "SWEEP_CLAIM_DIR": str(self.claims)}
        self._gpus: FakeGpus | None = None
        self._count = 0
        self._launches: list[LaunchUnderTest] = []

    def install_gpus(self, state: dict[str, Any]) -> None:
        """Put a fake nvidia-smi on the agent's PATH; call again for another state."""
        if self._gpus is None:
            self._gpus = FakeGpus(self.root, state)
            self.environment.update(self._gpus.environment)
        self._gpus.show(state)

    def verb(self, verb: str, argument: str) -> Any:
        """Run a verb of the agent and return its answer."""
        done = subprocess.run(
            [self.python, "-I", str(self.archive), verb, argument],
            capture_output=True, check=False, env=self.environment, timeout=90,
        )  # fmt: skip
        assert done.stdout, done.stderr.decode()
        return json.loads(done.stdout)

    def inspect(self, asked: dict[str, Any]) -> Any:
        """The verb `inspect`, with what is asked in a file."""
        path = self.root / "asked.json"
        path.write_text(json.dumps(asked))
        return self.verb("inspect", str(path))

    def prepare(self, *options: str, **fields: Any) -> LaunchUnderTest:
        """Write a launch directory for the fake server with these options."""
        self._count += 1
        nonce = f"{os.getpid()}-{self.root.name}-{self._count}"
        doc = document(*options, nonce=nonce, **fields)
        directory = self.root / f"launch {self._count}"
        directory.mkdir()
        (directory / wire.LAUNCH_FILE).write_text(wire.encode(doc))
        launch = LaunchUnderTest(self, directory, doc)
        self._launches.append(launch)
        return launch

    def launch(self, *options: str, **fields: Any) -> LaunchUnderTest:
        """Prepare a launch and start its agent."""
        launch = self.prepare(*options, **fields)
        answer = launch.run()
        assert answer["already"] is False
        return launch

    def close(self) -> None:
        """End what still runs, by nonce and identity."""
        for launch in self._launches:
            if launch.ident is not None and launch.status()["state"] in ("running", "dead"):
                launch.kill_agent()
            for pid in launch.ours():
                os.kill(pid, signal.SIGKILL)


class LaunchUnderTest:
    """One launch directory and what runs for it."""

    def __init__(self, bench: Bench, directory: Path, doc: wire.LaunchDoc) -> None:
        self.bench = bench
        self.directory = directory
        self.doc = doc
        self.ident: dict[str, int] | None = None

    def run(self) -> Any:
        """The verb `run`."""
        answer = self.bench.verb("run", str(self.directory))
        self.ident = answer.get("ident")
        return answer

    def status(self) -> Any:
        """The verb `status`."""
        return self.bench.verb("status", str(self.directory))

    def stop(self) -> Any:
        """The verb `stop`."""
        return self.bench.verb("stop", str(self.directory))

    def events(self, kind: str | None = None) -> list[dict[str, Any]]:
        """The events so far, of one kind or all."""
        path = self.directory / wire.EVENTS_FILE
        data = path.read_bytes() if path.exists() else b""
        events = [json.loads(line) for line in wire.whole_lines(data)[0]]
        return [event for event in events if kind in (None, event["event"])]

    def event(self, kind: str, timeout_s: float = 20.0) -> dict[str, Any]:
        """Wait for the first event of a kind."""
        event: dict[str, Any] = wait_for(lambda: self.events(kind), timeout_s)[0]
        return event

    def phase(self, phase: str) -> None:
        """Wait until a phase is entered."""
        wait_for(lambda: any(event["phase"] == phase for event in self.events("phase")))

    def outcome(self, timeout_s: float = 40.0) -> wire.Outcome:
        """Wait for the outcome, and for the agent's end."""
        path = self.directory / wire.OUTCOME_FILE
        wait_for(path.exists, timeout_s)
        assert self.ident is not None
        identity = (self.ident["pid"], self.ident["start_ticks"])
        wait_for(lambda: not procs.alive(identity))
        return wire.decode_outcome(path.read_text())

    def agent_log(self) -> str:
        """What the agent itself wrote: nothing, if all went well."""
        return (self.directory / "agent.log").read_text()

    def kill_agent(self) -> None:
        """SIGKILL for the agent, as a crash."""
        assert self.ident is not None
        identity = (self.ident["pid"], self.ident["start_ticks"])
        if procs.alive(identity):
            os.kill(self.ident["pid"], signal.SIGKILL)
        wait_for(lambda: not procs.alive(identity))

    def ours(self) -> list[int]:
        """Live processes that carry the launch's nonce."""
        entry = f"{wire.NONCE_VARIABLE}={self.doc.nonce}".encode()
        return [pid for pid in _living() if procs.carries(pid, entry)]

    def port_is_free(self) -> bool:
        """Whether nothing listens on the server's port."""
        return not procs.listening_sockets(self.event("server_started")["port"])


def _living() -> Iterator[int]:
    return (process.pid for process in procs.snapshot().values() if not process.dead)


def kinds(events: Sequence[dict[str, Any]]) -> list[str]:
    """The kinds of events, in order."""
    return [event["event"] for event in events]
