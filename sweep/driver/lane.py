"""One lane: brings launches to a node one after another, and reads what they record.

The launch runs on the node by itself; the lane only attaches to it. `attach_or_start` is the
only way in, for a first start, a reconnect and a resume alike, so that a crash anywhere on the
controller's side costs no load.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from sweep.agent import cycles, wire
from sweep.agent.procs import parse_stat
from sweep.model.errors import NodeError, NodeUnreachableError, WireVersionError
from sweep.nodes.access import agent_answer
from sweep.ports import Clock, Node

_T = TypeVar("_T")

PATIENCE_S = 1800.0
"""How long a lane goes on trying to reach a node that does not answer."""
STOP_PATIENCE_S = 180.0
"""The same from the moment at which the sweep was asked to stop."""
_POLL_S = 0.1
_RETRY_S = 1.0
_READ_LIMIT = 4 * 1024 * 1024
_START_TIMEOUT_S = 60.0
_VERB_TRIES = 3
"""When the link breaks under a verb; all of them may be repeated."""
_STOP_TIMEOUT_S = 120.0
"""Above the agent's own deadlines for stopping and proving."""
_KNOWN_FILES = (
    wire.LAUNCH_FILE,
    wire.IDENT_FILE,
    wire.EVENTS_FILE,
    wire.REQUESTS_FILE,
    wire.CHUNKS_FILE,
    wire.TELEMETRY_FILE,
    wire.LOG_FILE,
)


@dataclass(frozen=True)
class LaunchTask:
    """One attempt to bring to the node. `offsets`: how far each file was recorded already."""

    launch_id: str
    attempt: int
    directory: str
    document: str
    """The text of launch.json."""
    archive_name: str
    archive: bytes
    python: str
    offsets: Mapping[str, int] = field(default_factory=dict)
    stop_at_once: bool = False
    """Only end what may still run of this attempt: its launch is no longer wanted."""


@dataclass(frozen=True)
class Attached:
    """The lane has the launch; how: started, attached or finished (its outcome was there)."""

    how: str


@dataclass(frozen=True)
class Unanswered:
    """The node does not answer; the lane goes on trying, and says Attached when it has it again."""

    message: str


@dataclass(frozen=True)
class Lines:
    """Whole lines read at `offset` of one of the node's files."""

    name: str
    offset: int
    lines: tuple[str, ...]
    next_offset: int


@dataclass(frozen=True)
class Ended:
    """The attempt is over. `outcome` is the text of outcome.json; None: the agent died, and
    what it left was stopped: `clean` says whether nothing of it is left, `left` what is."""

    outcome: str | None
    clean: bool
    left: tuple[str, ...]


LaneEvent = Attached | Unanswered | Lines | Ended


class Lane:
    """The loop of one node, which is made when it is first needed: what goes wrong with that is
    told by whatever needed it. Methods other than `run` may be called from other threads."""

    def __init__(self, factory: Callable[[], Node], clock: Clock) -> None:
        self._factory = factory
        self._clock = clock
        self._making = threading.Lock()
        self._made: Node | None = None
        self._cancelled = threading.Event()
        self._cancelled_s = 0.0
        self._released = threading.Event()

    def _node(self) -> Node:
        with self._making:
            if self._made is None:
                self._made = self._factory()
            return self._made

    def close(self) -> None:
        """Let go of the node."""
        with self._making:
            if self._made is not None:
                self._made.close()

    def cancel(self) -> None:
        """Stop the launch that runs: its server is stopped and the node proven clean."""
        if not self._cancelled.is_set():
            self._cancelled_s = self._clock.monotonic_s()
        self._cancelled.set()

    def release(self) -> None:
        """Read no further, so that another lane can attach; the launch goes on."""
        self._released.set()

    def run(self, task: LaunchTask) -> Iterator[LaneEvent]:
        """Attach to an attempt, or start it, and yield what it records until it has ended.

        Raises NodeUnreachableError once the node was silent for PATIENCE_S, or for
        STOP_PATIENCE_S after a stop or when there is nothing to do but stop: what runs there
        goes on. Released, it ends without a word.
        """
        offsets = {
            name: task.offsets.get(name, 0) for name in (wire.EVENTS_FILE, wire.REQUESTS_FILE)
        }
        silent_s: float | None = None
        while True:
            try:
                for event in self._follow(task, offsets):
                    silent_s = None
                    yield event
            except NodeUnreachableError as error:
                if silent_s is None:
                    silent_s = self._clock.monotonic_s()
                    yield Unanswered(error.message)
                if self._released.is_set():
                    return
                self._bear(error, silent_s, STOP_PATIENCE_S if task.stop_at_once else PATIENCE_S)
            else:
                return

    def _follow(self, task: LaunchTask, offsets: dict[str, int]) -> Iterator[LaneEvent]:
        """Yield what comes as long as the node answers; `offsets` move with it."""
        attempt = _Attempt(self._node(), task)
        if not task.stop_at_once and not self._cancelled.is_set():
            yield Attached(attempt.attach_or_start())
        stopped: _Stopped | None = None
        while not self._released.is_set():
            if stopped is None and (self._cancelled.is_set() or task.stop_at_once):
                stopped = attempt.stop()
            alive = stopped is None and attempt.is_alive()
            outcome = attempt.outcome()  # looked for last: an agent writes it before it ends
            if outcome is None and stopped is None and not alive:
                stopped = attempt.stop()
            if (yield from self._read_on(attempt, offsets)):
                continue
            if outcome is not None or stopped is not None:
                yield _ended(outcome, stopped)
                return
            self._clock.sleep(_POLL_S)

    def _bear(self, error: NodeUnreachableError, silent_s: float, patience_s: float) -> None:
        """Return to try the node again; raise when it was silent for too long."""
        now_s = self._clock.monotonic_s()
        if self._cancelled.is_set() and now_s - self._cancelled_s >= STOP_PATIENCE_S:
            raise NodeUnreachableError(
                f"{self._node().name} did not answer for {STOP_PATIENCE_S:g} s after the stop: "
                f"{error.message}",
                hint="what was launched there goes on and ends by itself; once the node answers, "
                "`sweep cancel` stops it and `sweep resume` goes on with it",
            ) from error
        if now_s - silent_s >= patience_s:
            raise error
        self._clock.sleep(_RETRY_S)

    def _read_on(
        self, attempt: _Attempt, offsets: dict[str, int]
    ) -> Generator[LaneEvent, None, bool]:
        """Yield the new whole lines of each file; returns whether there were any."""
        # The events are read before the records that they speak of, and handed on after them.
        events, next_event = attempt.read_lines(wire.EVENTS_FILE, offsets[wire.EVENTS_FILE])
        records = yield from self._drain(attempt, wire.REQUESTS_FILE, offsets)
        if events:
            yield Lines(wire.EVENTS_FILE, offsets[wire.EVENTS_FILE], events, next_event)
            offsets[wire.EVENTS_FILE] = next_event
        return records or bool(events)

    def _drain(
        self, attempt: _Attempt, name: str, offsets: dict[str, int]
    ) -> Generator[LaneEvent, None, bool]:
        """Yield every whole line that a file has by now; returns whether there were any."""
        progress = False
        while True:
            lines, next_offset = attempt.read_lines(name, offsets[name])
            if not lines:
                return progress
            yield Lines(name, offsets[name], lines, next_offset)
            offsets[name] = next_offset
            progress = True

    def fetch(self, directory: str, target: str, *, keep: bool) -> None:
        """Copy an ended attempt's files to the local `target`.

        With an outcome, every file is proven by its hash, and the directory is then deleted on
        the node unless `keep`. Without one the agent died: the known files are copied as they
        are, and the directory stays. A node that does not answer is borne as long as by `run`.
        """
        silent_s: float | None = None
        while True:
            try:
                self._fetch(directory, target, keep=keep)
            except NodeUnreachableError as error:
                silent_s = self._clock.monotonic_s() if silent_s is None else silent_s
                self._bear(error, silent_s, PATIENCE_S)
            else:
                return

    def _fetch(self, directory: str, target: str, *, keep: bool) -> None:
        node = self._node()
        text = node.read(f"{directory}/{wire.OUTCOME_FILE}")
        if text is None:
            for name in _KNOWN_FILES:
                self._fetch_if_there(directory, name, target)
            ranks = itertools.count()
            while self._fetch_if_there(directory, cycles.file_name(next(ranks)), target):
                pass
            return
        for name, proof in wire.decode_outcome(text.decode()).files.items():
            _check_relative(name)
            goal = Path(target) / name
            if goal.exists() and _sha256(goal) == proof.sha256:
                continue  # fetched before the node fell silent
            node.fetch(f"{directory}/{name}", str(goal))
            if _sha256(goal) != proof.sha256:
                raise NodeError(
                    f"{node.name}: {directory}/{name} does not have the hash its agent wrote",
                    hint="the directory stays on the node; check its disk",
                )
        node.fetch(f"{directory}/{wire.OUTCOME_FILE}", str(Path(target) / wire.OUTCOME_FILE))
        if not keep:
            node.remove_tree(directory)

    def _fetch_if_there(self, directory: str, name: str, target: str) -> bool:
        if self._node().read(f"{directory}/{name}", 0, 1) is None:
            return False
        self._node().fetch(f"{directory}/{name}", str(Path(target) / name))
        return True


@dataclass(frozen=True)
class _Stopped:
    """What the agent's `stop` proved, or what is left."""

    clean: bool
    left: tuple[str, ...]


def _ended(outcome: str | None, stopped: _Stopped | None) -> Ended:
    if stopped is None:
        assert outcome is not None
        proof = wire.decode_outcome(outcome)
        return Ended(outcome, proof.clean, tuple(proof.left))
    return Ended(outcome, stopped.clean, stopped.left)


class _Attempt:
    """One launch directory on the node."""

    def __init__(self, node: Node, task: LaunchTask) -> None:
        self._node = node
        self._task = task
        self._archive = f"{PurePosixPath(task.directory).parent.parent}/{task.archive_name}"
        self._ident: wire.AgentIdent | None = None
        self._boot_id: str | None = None

    def attach_or_start(self) -> str:
        """Make sure that the attempt runs or has ended: started, attached or finished."""
        if self.outcome() is not None:
            return "finished"
        ident = self._read_ident()
        if ident is not None:
            self._ident = ident
            return "attached"
        launch_file = f"{self._task.directory}/{wire.LAUNCH_FILE}"
        if self._node.read(launch_file, 0, 1) is None:
            self._node.put(launch_file, self._task.document.encode())
        answer = self._verb("run", _START_TIMEOUT_S)
        if answer["ident"] is None:
            raise NodeError(
                f"{self._node.name}: another start of {self._task.directory} never ended",
                hint="`sweep resume` tries again",
            )
        self._ident = self._decoded(wire.decode_ident, json.dumps(answer["ident"]))
        return "attached" if answer["already"] else "started"

    def outcome(self) -> str | None:
        """Return the text of outcome.json, None while there is none."""
        data = self._node.read(f"{self._task.directory}/{wire.OUTCOME_FILE}")
        if data is None:
            return None
        text = data.decode("utf-8", "replace")
        self._decoded(wire.decode_outcome, text)
        return text

    def is_alive(self) -> bool:
        """Return whether the agent's process lives, by pid, start time and boot."""
        if self._ident is None:
            return False
        if self._boot_id is None:
            boot_id = self._node.read("/proc/sys/kernel/random/boot_id") or b""
            self._boot_id = boot_id.decode().strip()
        if self._boot_id != self._ident.boot_id:
            return False
        data = self._node.read(f"/proc/{self._ident.pid}/stat")
        if not data:
            return False
        process = parse_stat(data)
        return process.start_ticks == self._ident.start_ticks and not process.dead

    def read_lines(self, name: str, offset: int) -> tuple[tuple[str, ...], int]:
        """Return the whole lines from `offset` on, and where they end."""
        data = self._node.read(f"{self._task.directory}/{name}", offset, _READ_LIMIT) or b""
        lines, taken = wire.whole_lines(data)
        return tuple(lines), offset + taken

    def stop(self) -> _Stopped:
        """Stop the attempt, or clean up after a dead agent."""
        answer = self._verb("stop", _STOP_TIMEOUT_S)
        return _Stopped(bool(answer["clean"]), tuple(answer["left"]))

    def _read_ident(self) -> wire.AgentIdent | None:
        data = self._node.read(f"{self._task.directory}/{wire.IDENT_FILE}")
        if data is None:
            return None
        return self._decoded(wire.decode_ident, data.decode("utf-8", "replace"))

    def _decoded(self, decode: Callable[[str], _T], text: str) -> _T:
        try:
            return decode(text)
        except wire.WireMismatch as error:
            raise WireVersionError(
                f"{self._node.name}: {error}",
                hint="stop that launch with the version of sweep that started it: its agent "
                f"lies in {PurePosixPath(self._archive).parent}",
            ) from error
        except (ValueError, TypeError, KeyError) as error:
            raise NodeError(
                f"{self._node.name}: a file in {self._task.directory} is damaged: {error}",
                hint="check the node's disk",
            ) from error

    def _verb(self, verb: str, timeout_s: float) -> dict[str, Any]:
        if self._node.read(self._archive, 0, 1) is None:
            self._node.put(self._archive, self._task.archive)
        argv = [self._task.python, "-I", self._archive, verb, self._task.directory]
        for _ in range(_VERB_TRIES):
            ended = self._node.run(argv, timeout_s=timeout_s)
            if ended.returncode is not None:
                break
        failed = f"the agent's `{verb}` failed"
        return agent_answer(self._node.name, failed, self._task.python, ended)


def _check_relative(name: str) -> None:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        raise NodeError(f"an agent named a file outside its directory: {name!r}")


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
