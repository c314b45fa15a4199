"""A node in memory: files, processes and an agent that plays a script, a step per sleep."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from fakes.clock import FakeClock

from sweep.agent import wire
from sweep.model.errors import NodeError, NodeUnreachableError
from sweep.nodes.local import hint_of, no_directory
from sweep.ports import Completed, Reached

BOOT_ID = "11111111-2222-3333-4444-555555555555"
FIRST_PID = 4000
START_TICKS = 77


@dataclass(frozen=True)
class Event:
    """The agent appends an event."""

    kind: str
    fields: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Record:
    """The agent appends the record of a request."""

    trial: str
    fields: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Finish:
    """The agent writes its outcome and ends."""

    end: str = "done"
    phase: str = "release"
    fields: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Die:
    """The agent is killed."""


@dataclass(frozen=True)
class Hold:
    """The agent goes on for ever: until someone stops it."""


@dataclass(frozen=True)
class Call:
    """Something else happens in the world, while the agent goes on."""

    action: Callable[[], None]


Step = Event | Record | Finish | Die | Hold | Call
Script = Callable[[wire.LaunchDoc], Iterable[Step]]


def phase(name: str, trial: str | None = None) -> Event:
    """The entry into a phase."""
    return Event("phase", {"phase": name, "trial": trial, "window": None})


def load(doc: wire.LaunchDoc) -> list[Step]:
    """What comes before the first trial."""
    started = Event("server_started", {"pid": 9, "start_ticks": 9, "port": 8000})
    return [Event("agent", {"pid": FIRST_PID}), phase("load"), started]


def measured(trial: wire.TrialDoc, end: str = "complete", **changes: Any) -> list[Step]:
    """One trial with the least number of windows, each sending every prompt once."""
    steps: list[Step] = []
    for window in range(trial.repeats.min):
        steps.append(phase("measure", trial.trial_id))
        for number, request in enumerate(trial.requests):
            fields = {"window": window, "prompt": request.prompt, "n": number, **changes}
            steps.append(Record(trial.trial_id, fields))
        steps.append(Event("window", {"trial": trial.trial_id, "window": window}))
    fields = {"trial": trial.trial_id, "end": end, "windows": trial.repeats.min, "detail": None}
    return [*steps, Event("trial_end", fields)]


def good(doc: wire.LaunchDoc) -> list[Step]:
    """A launch that does all that it is asked."""
    trials = [step for trial in doc.trials for step in measured(trial)]
    return [*load(doc), *trials, Finish()]


def fails(end: str = "server_exit", during: str = "load", **fields: Any) -> Script:
    """A launch that ends before its first trial."""
    return lambda doc: [*load(doc), Finish(end, during, fields)]


@dataclass
class _Agent:
    doc: wire.LaunchDoc
    pid: int
    steps: list[Step]
    events: int = 0
    alive: bool = True


class FakeNode:
    """Implements ports.Node. `script` says what the agent of each launch document does."""

    def __init__(self, clock: FakeClock, script: Script = good, name: str = "fake") -> None:
        self.clock = clock
        self._name = name
        self.script = script
        self.files: dict[str, bytearray] = {}
        self.agents: dict[str, _Agent] = {}
        self.programs: dict[str, Callable[[Sequence[str], float], Completed]] = {}
        self.started: list[str] = []
        """Directories whose agents were started, in order."""
        self.stopped: list[str] = []
        """Directories that `stop` was called for, in order."""
        self.broken: set[str] = set()
        """Methods that raise NodeError."""
        self.silent = False
        """Whether there is no connection; what runs there goes on."""
        self.left: list[str] = []
        """What is still there after every stop: the node is dirty."""
        self.reads: list[tuple[str, int]] = []
        self.reached_by: Reached | None = None
        self.others: set[int] = set()
        """Pids of living processes that are no agents."""
        clock.on_sleep.append(self.step)

    # -- ports.Node ----------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The name in messages."""
        return self._name

    @property
    def reached(self) -> Reached | None:
        """How it was reached, as the test says."""
        return self.reached_by

    def home(self) -> str:
        """The directory for sweep's files."""
        return "/home/me/sweep"

    def put(self, path: str, data: bytes) -> None:
        """Write a whole file."""
        self._reach("put")
        for parent in map(str, PurePosixPath(path).parents):
            if parent in self.files:
                error = no_directory(parent)
                raise NodeError(
                    f"{self.name}: cannot write {path}: {error.strerror}", hint=hint_of(error)
                )
        self.files[path] = bytearray(data)

    def read(self, path: str, offset: int = 0, limit: int | None = None) -> bytes | None:
        """Return bytes of a file or of a process."""
        self._reach("read")
        self.reads.append((path, offset))
        data = self._proc(path) if path.startswith("/proc/") else self.files.get(path)
        end = None if limit is None else offset + limit
        return None if data is None else bytes(data[offset:end])

    def run(self, argv: Sequence[str], *, timeout_s: float) -> Completed:
        """Run the agent's verbs, or a program that the test gave."""
        self._reach("run")
        if argv[0] in self.programs:
            return self.programs[argv[0]](argv, timeout_s)
        _, isolated, archive, verb, directory = argv
        assert isolated == "-I"
        if archive not in self.files:
            return Completed(2, b"", f"can't open file {archive}".encode())
        answer = self._start(directory) if verb == "run" else self._stop(directory)
        return Completed(0, json.dumps(answer).encode(), b"")

    def fetch(self, path: str, target: str) -> None:
        """Copy a file to a local path."""
        self._reach("fetch")
        if path not in self.files:
            raise NodeError(f"fake: cannot fetch {path}: No such file or directory")
        goal = Path(target)
        goal.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        partial = goal.with_name(goal.name + ".part")
        partial.write_bytes(self.files[path])
        partial.rename(goal)

    def remove_tree(self, path: str) -> None:
        """Delete everything below a directory."""
        self._reach("remove_tree")
        below = [name for name in self.files if PurePosixPath(path) in PurePosixPath(name).parents]
        for name in below:
            del self.files[name]

    def close(self) -> None:
        """Nothing is held."""

    # -- what tests look at --------------------------------------------------------------------

    def exists(self, path: str) -> bool:
        """Whether there is a file, or anything below it."""
        return any(name == path or name.startswith(f"{path}/") for name in self.files)

    def running(self) -> list[str]:
        """Directories whose agents live."""
        return [directory for directory, agent in self.agents.items() if agent.alive]

    def kill_agents(self) -> None:
        """SIGKILL for every agent."""
        for agent in self.agents.values():
            agent.alive = False

    def step(self) -> None:
        """Let every living agent do the next thing of its script."""
        for directory in self.running():
            agent = self.agents[directory]
            if agent.steps and not isinstance(agent.steps[0], Hold):
                self._play(directory, agent, agent.steps.pop(0))

    # -- the machine ---------------------------------------------------------------------------

    def _reach(self, method: str) -> None:
        if self.silent:
            raise NodeUnreachableError(f"{self.name}: no connection")
        if method in self.broken:
            raise NodeError(f"{self.name}: {method} failed", hint="mend the fake")

    def _proc(self, path: str) -> bytes | None:
        if path == "/proc/sys/kernel/random/boot_id":
            return f"{BOOT_ID}\n".encode()
        living = {agent.pid for agent in self.agents.values() if agent.alive} | self.others
        for pid in living:
            if path == f"/proc/{pid}/stat":
                fields = ["S", "1", "1", "1", *["0"] * 15, str(START_TICKS), "0"]
                return f"{pid} (python) {' '.join(fields)}".encode()
        return None

    def _start(self, directory: str) -> dict[str, Any]:
        already = directory in self.agents
        if not already:
            doc = wire.decode_launch(self.files[f"{directory}/{wire.LAUNCH_FILE}"].decode())
            agent = _Agent(doc, FIRST_PID + len(self.agents), list(self.script(doc)))
            self.agents[directory] = agent
            self.started.append(directory)
            ident = wire.encode(self._ident(agent)).encode()
            self.files[f"{directory}/{wire.IDENT_FILE}"] = bytearray(ident)
        shown = json.loads(wire.encode(self._ident(self.agents[directory])))
        return {"ident": shown, "already": already}

    def _ident(self, agent: _Agent) -> wire.AgentIdent:
        return wire.AgentIdent(agent.pid, START_TICKS, BOOT_ID)

    def _stop(self, directory: str) -> dict[str, Any]:
        self.stopped.append(directory)
        agent = self.agents.get(directory)
        if agent is not None and agent.alive:
            self._play(directory, agent, Event("stopping", {"by": "SIGTERM"}))
            self._play(directory, agent, Finish("stopped", "measure"))
        elif agent is not None and not self.exists(f"{directory}/{wire.OUTCOME_FILE}"):
            self._play(directory, agent, Event("dirty" if self.left else "clean"))
        return {"was": "", "clean": not self.left, "left": self.left}

    def _play(self, directory: str, agent: _Agent, step: Step) -> None:
        if isinstance(step, Event):
            self._event(directory, agent, step.kind, step.fields)
        elif isinstance(step, Record):
            self._append(directory, wire.REQUESTS_FILE, wire.encode(_record(step)))
        elif isinstance(step, Die):
            agent.alive = False
        elif isinstance(step, Call):
            step.action()
        elif isinstance(step, Finish):
            self._finish(directory, agent, step)

    def _event(self, directory: str, agent: _Agent, kind: str, fields: dict[str, Any]) -> None:
        line = {"v": 1, "n": agent.events, "t_s": self.clock.now_s, "utc": self.clock.utc()}
        self._append(directory, wire.EVENTS_FILE, wire.encode({**line, "event": kind, **fields}))
        agent.events += 1

    def _append(self, directory: str, name: str, line: str) -> None:
        self.files.setdefault(f"{directory}/{name}", bytearray()).extend(line.encode() + b"\n")

    def _finish(self, directory: str, agent: _Agent, step: Finish) -> None:
        clean = not self.left
        shown = {"end": step.end, "phase": step.phase, "clean": clean}
        self._event(directory, agent, "outcome", shown)
        prefix = f"{directory}/"
        files = {
            path.removeprefix(prefix): wire.FileProof(len(data), hashlib.sha256(data).hexdigest())
            for path, data in self.files.items()
            if path.startswith(prefix)
        }
        facts: dict[str, Any] = {
            "detail": None, "server": None, "patterns": [], "log_tail": [], "clean": clean,
            "left": self.left, "phases_s": {}, "files": files,
        }  # fmt: skip
        outcome = wire.Outcome(end=step.end, phase=step.phase, **(facts | step.fields))
        self.files[f"{directory}/{wire.OUTCOME_FILE}"] = bytearray(wire.encode(outcome).encode())
        agent.alive = False


def _record(step: Record) -> wire.RequestRecord:
    fields: dict[str, Any] = {
        "n": 0, "window": 0, "role": "measure", "prompt": "p", "stream": 0, "sent_s": 0.0,
        "first_s": 0.1, "last_s": 1.0, "end_s": 1.0, "status": 200, "error": None, "chunks": 10,
        "first_chunk_tokens": 1, "output_tokens": 10, "input_tokens": 5, "cached_tokens": 0,
        "text_sha256": "text", "meta": {},
    }  # fmt: skip
    return wire.RequestRecord(trial=step.trial, **(fields | step.fields))
