"""Whole sweeps of the fake llama-server: one user's machine of its own for each test."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import yaml
from fakes.inline_sweep import Inline, run_inline
from fakes.launching import wait_for
from fakes.model_files import gguf

from sweep.agent import claim, procs, wire
from sweep.agent.footprint import shm_names
from sweep.agent.ours import shm_held_by
from sweep.model.errors import SweepLockedError
from sweep.store.directory import SweepLock, find_sweeps
from sweep.store.sweep_db import AttemptRow, RunRow, SweepDb

LLAMA_SERVER = str(Path(__file__).with_name("llama_server.py"))
PROMPTS = ["one two three", "a longer prompt of seven words indeed", "why", "say it again, please"]
_SHM_OF_SWEEPS = ("plasma", "ray", "psm_", "torch_", "nccl-")
"""Others on this machine may leave shared memory at any time."""
_PRELOADED = ["__main__", "fakes.inline_sweep", "sweep.app", "sweep.driver.process"]

Lines = dict[tuple[str, int, str, int], str]
"""(launch, attempt, file, number) → text of a recorded line."""


@dataclass(frozen=True)
class Result:
    """What a trial recorded that must not depend on what happened to the sweep."""

    state: str
    answers: tuple[tuple[Any, ...], ...]
    """(window, prompt, output tokens, drafted, accepted, hash) of each measured request."""


class Machine:
    """A controller and a node in a directory of a test, with claims and Ray files of its own."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.results = root / "results"
        self.claims = root / "claims"
        self.starts_file = root / "starts"
        self.options_file = root / "options.json"
        self.model = root / "model.gguf"
        self.claims.mkdir()
        self.model.write_bytes(gguf())
        self._temporary = Path(tempfile.mkdtemp(prefix="st-"))  # short: Ray's sockets are in it
        self._mark = f"SWEEP_TEST_MARK={secrets.token_hex(16)}".encode()
        self._shm_before = set(shm_names())
        self._children: list[subprocess.Popen[bytes]] = []
        name, _, value = self._mark.decode().partition("=")
        self.environment = {
            **os.environ,
            name: value,
            "SPT_NOENV": "1",  # keeps the mark readable in Ray's processes, which rename themselves
            "SWEEP_RESULTS": str(self.results),
            "XDG_STATE_HOME": str(root / "state"),
            "SWEEP_CLAIM_DIR": str(self.claims),
            "TMPDIR": str(self._temporary),
            "FAKE_STARTS": str(self.starts_file),
            "FAKE_OPTIONS": str(self.options_file),
        }
        self.serve_with("")

    # -- experiments and verbs ----------------------------------------------------------------

    def experiment(self, steps: Sequence[int], name: str = "e2e", **fields: Any) -> Path:
        """Write an experiment without a baseline; `fields` replace or add sections."""
        document = {
            "name": name,
            "engine": {
                "kind": "llama.cpp",
                "command": [sys.executable, LLAMA_SERVER],
                "model": str(self.model),
                "draft_model": str(self.model),
            },
            "baseline": False,
            "sweep": {"num_steps": list(steps)},
            "workloads": [workload("code")],
            "timeouts": {"load": "60s", "stall": "60s", "request": "30s", "claim": "20s"},
            **fields,
        }
        path = self.root / f"{name}.yaml"
        path.write_text(yaml.safe_dump(document, sort_keys=False))
        return path

    def serve_with(self, options: str, **by_steps: str) -> None:
        """Set the fake server's options for launches from now on; `by_steps`: s3="…" adds to
        those of draft length 3. They are not in the file, so they do not change identities."""
        by_key = {"": options, **{steps[1:]: more for steps, more in by_steps.items()}}
        partial = self.options_file.with_suffix(".part")
        partial.write_text(json.dumps(by_key))
        partial.rename(self.options_file)

    def start(self, *arguments: object, **options: Any) -> subprocess.Popen[bytes]:
        """Start a verb, its standard input not a terminal; `options` are Popen's."""
        values: dict[str, Any] = {
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.STDOUT,
            "env": self.environment,
            **options,
        }
        program = str(Path(sys.executable).with_name("sweep"))
        process = subprocess.Popen([program, *map(str, arguments)], **values)
        self._children.append(process)
        return process

    def run(self, *arguments: object, timeout_s: float = 90.0) -> Finished:
        """Run a verb to its end."""
        return finished(self.start(*arguments), timeout_s)

    def inline(
        self,
        *arguments: object,
        kill_at: tuple[str, str] | None = None,
        keep_going: bool = False,
        hurried: bool = False,
    ) -> ForkServerProcess:
        """Start `submit FILE` or `resume` with lanes in the driver's own process, without Ray.

        With `kill_at`, (launch, boundary), it kills itself with SIGKILL once that is recorded.
        `hurried`: its links to a node behind SSH notice a loss in less than a second.
        """
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(_PRELOADED)
        words = tuple(map(str, arguments))
        results = str(self.results)
        task = Inline(words, self.environment, results, kill_at, keep_going, hurried)
        process = context.Process(target=run_inline, args=(task,))
        process.start()
        return process

    def inline_to_end(self, *arguments: object, **options: Any) -> int | None:
        """Run `inline` to its end and return the exit code; a signal's number is negative."""
        process = self.inline(*arguments, **options)
        process.join(90)
        if process.exitcode is None:
            process.kill()
            process.join()
            raise AssertionError(f"{arguments} did not end:\n{self.inline_log()}")
        return process.exitcode

    def inline_log(self) -> str:
        """What drivers without Ray printed."""
        path = self.root / "inline.log"
        return path.read_text() if path.exists() else ""

    # -- what was recorded --------------------------------------------------------------------

    def sweeps(self) -> list[Path]:
        """The directories of all sweeps that have begun, oldest first."""
        found = [sweep for sweep in find_sweeps(self.results) if sweep.problem is None]
        return [sweep.directory for sweep in found]

    @property
    def directory(self) -> Path:
        """The latest sweep's directory."""
        return self.sweeps()[-1]

    def wait_for_sweep(self, number: int = 1, timeout_s: float = 60.0) -> None:
        """Wait until so many sweeps have begun and the latest has an attempt."""
        eventually(lambda: len(self.sweeps()) == number and self.attempts(), timeout_s)

    @contextlib.contextmanager
    def database(self, directory: Path | None = None) -> Iterator[SweepDb]:
        """Open the database of a sweep, or of the latest, for reading."""
        database = SweepDb.open(directory or self.directory)
        try:
            yield database
        finally:
            database.close()

    def attempts(self, steps: int | None = None) -> list[AttemptRow]:
        """All attempts, or those of the launch with this draft length."""
        if not self.sweeps():
            return []
        with self.database() as database:
            rows = database.attempts()
        if steps is None or not rows:
            return rows
        chosen = self.launches()[steps]
        return [row for row in rows if row.launch_id == chosen]

    def launches(self) -> dict[int, str]:
        """Draft length → launch id; 0 is the (first) baseline."""
        with self.database() as database:
            launches = database.plan().launches
        return {
            launch.trials[0].configuration.num_steps or 0: launch.launch_id
            for launch in reversed(launches)
        }

    def events(self, steps: int, kind: str | None = None) -> list[dict[str, Any]]:
        """Recorded events of the latest attempt of a launch."""
        rows = self.attempts(steps)
        if not rows:
            return []
        with self.database() as database:
            lines = database.lines(rows[-1].launch_id, rows[-1].attempt, wire.EVENTS_FILE)
        events = [json.loads(line) for line in lines]
        return [event for event in events if kind in (None, event["event"])]

    def phase(self, steps: int) -> str | None:
        """The phase that the latest attempt of a launch was last recorded in."""
        phases = [event["phase"] for event in self.events(steps, "phase")]
        return phases[-1] if phases else None

    def wait_for_phase(self, steps: int, phase: str, timeout_s: float = 60.0) -> None:
        """Wait until a launch is recorded to be in a phase."""
        eventually(lambda: self.phase(steps) == phase, timeout_s)

    def last_run(self) -> RunRow:
        """The latest driver's row."""
        with self.database() as database:
            return database.runs()[-1]

    def driver(self) -> procs.Identity:
        """The latest driver's process."""
        run = self.last_run()
        return run.pid, run.start_ticks

    def lines(self) -> Lines:
        """Every recorded line of the latest sweep."""
        found = {}
        with self.database() as database:
            for row in database.attempts():
                for name in (wire.EVENTS_FILE, wire.REQUESTS_FILE):
                    lines = database.lines(row.launch_id, row.attempt, name)
                    key = (row.launch_id, row.attempt, name)
                    found.update({(*key, number): line for number, line in enumerate(lines)})
        return found

    def outcome(self) -> dict[str, Result]:
        """Trial id → what it recorded in the attempt that counts."""
        found = {}
        with self.database() as database:
            states = database.trial_states()
            for launch in database.plan().launches:
                for trial in launch.trials:
                    state, _, attempt = states[trial.trial_id]
                    lines = database.lines(launch.launch_id, attempt or 0, wire.REQUESTS_FILE)
                    found[trial.trial_id] = Result(state.value, _answers(lines, trial.trial_id))
        return found

    def states(self) -> Counter[str]:
        """Trial state → how many."""
        with self.database() as database:
            return Counter(state.value for state, _, _ in database.trial_states().values())

    def starts(self) -> list[dict[str, Any]]:
        """Every start of a server, as the server itself noted it."""
        text = self.starts_file.read_text() if self.starts_file.exists() else ""
        return [json.loads(line) for line in text.splitlines()]

    def server(self, steps: int) -> procs.Identity:
        """The server of the latest attempt of a launch, by its own note."""
        nonce = self.attempts(steps)[-1].nonce
        [start] = wait_for(lambda: [start for start in self.starts() if start["nonce"] == nonce])
        return start["pid"], start["start_ticks"]

    def agent(self, steps: int) -> procs.Identity:
        """The agent of the latest attempt of a launch."""
        path = Path(self.attempts(steps)[-1].directory) / wire.IDENT_FILE
        ident = wire.decode_ident(path.read_text())
        return ident.pid, ident.start_ticks

    # -- what is left -------------------------------------------------------------------------

    def processes(self) -> list[procs.Process]:
        """Live processes that carry this test's mark."""
        return [
            process
            for process in procs.snapshot().values()
            if not process.dead and procs.carries(process.pid, self._mark)
        ]

    def ray_directories(self) -> list[Path]:
        """Session directories of Ray that are still there."""
        return list(self._temporary.glob("sweep-ray-*"))

    def require_quiet(self) -> None:
        """Fail, naming it, if anything of any sweep still runs, is held or listens."""
        with contextlib.suppress(AssertionError):
            eventually(lambda: not self.processes(), 15)
        assert [f"{process.pid} {process.name}" for process in self.processes()] == []
        assert claim.list_held(str(self.claims)) == []
        for path in self.sweeps():
            eventually(partial(_is_free, path), 5)  # a dying process lets go of it last
        assert [port for port in self._ports() if procs.listening_sockets(port)] == []
        assert self._shm_left() == set()
        assert self.ray_directories() == []

    def _shm_left(self) -> set[str]:
        new = {name for name in shm_names() if name.startswith(_SHM_OF_SWEEPS)} - self._shm_before
        return new - shm_held_by(list(procs.snapshot()))

    def _ports(self) -> set[int]:
        """Ports of every server that any sweep recorded."""
        ports = set()
        for path in self.sweeps():
            with self.database(path) as database:
                for row in database.attempts():
                    for line in database.lines(row.launch_id, row.attempt, wire.EVENTS_FILE):
                        event = json.loads(line)
                        if event["event"] == "server_started":
                            ports.add(event["port"])
        return ports

    def close(self) -> None:
        """End what a failed test left, and remove Ray's files."""
        for process in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
        for child in self._children:
            child.kill()
            child.wait()
            for stream in (child.stdin, child.stdout):
                if stream is not None:
                    stream.close()
        shutil.rmtree(self._temporary, ignore_errors=True)


def workload(name: str, *, windows: int = 2, **fields: Any) -> dict[str, Any]:
    """A workload with a fixed number of windows."""
    return {
        "name": name,
        "prompts": PROMPTS,
        "max_tokens": 40,
        "repeats": {"min": windows, "max": windows},
        **fields,
    }


def eventually(condition: Callable[[], Any], timeout_s: float = 60.0) -> Any:
    """Return the first true value of a condition that is costly to ask; fails after a deadline."""
    until_s = time.monotonic() + timeout_s
    while not (value := condition()):
        assert time.monotonic() < until_s, "it did not happen in time"
        time.sleep(0.05)
    return value


@dataclass(frozen=True)
class Finished:
    """How a verb ended and what it printed."""

    code: int
    text: str


def finished(process: subprocess.Popen[bytes], timeout_s: float = 90.0) -> Finished:
    """Wait for a verb's end."""
    try:
        output, _ = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        output, _ = process.communicate()
        raise AssertionError(f"it did not end:\n{(output or b'').decode()}") from None
    return Finished(process.returncode, (output or b"").decode())


def kill(identity: procs.Identity) -> None:
    """SIGKILL for exactly this process."""
    assert procs.alive(identity)
    os.kill(identity[0], signal.SIGKILL)


def gone(identity: procs.Identity, timeout_s: float = 20.0) -> None:
    """Wait for a process's end."""
    wait_for(lambda: not procs.alive(identity), timeout_s)


def descendants(pid: int) -> list[procs.Process]:
    """Live descendants of a process."""
    return [process for process in procs.descendants(procs.snapshot(), pid) if not process.dead]


def _is_free(directory: Path) -> bool:
    """Whether nobody drives a sweep."""
    try:
        SweepLock.take(directory).release()
    except SweepLockedError:
        return False
    return True


def _answers(lines: Sequence[str], trial: str) -> tuple[tuple[Any, ...], ...]:
    records = [wire.decode_request(line) for line in lines]
    measured = [record for record in records if (record.trial, record.role) == (trial, "measure")]
    return tuple(
        sorted(
            (
                record.window,
                record.prompt,
                record.output_tokens,
                record.meta.get("draft_n"),
                record.meta.get("draft_n_accepted"),
                record.text_sha256,
            )
            for record in measured
        )
    )
