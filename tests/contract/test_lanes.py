"""What lanes do alike, in this process and as Ray actors, with real agents of a fake server."""

from __future__ import annotations

import itertools
import os
import secrets
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from fakes.inline_lanes import InlineLanes
from fakes.launching import document, wait_for

from sweep.agent import procs, wire
from sweep.driver.clock import SystemClock
from sweep.driver.lane import Attached, Ended, LaunchTask, Lines
from sweep.driver.lanes import Fetched, FetchTask, LaneFailed, LaneLost, Lanes, LanesEvent
from sweep.driver.ray_driver import RayLanes
from sweep.driver.thread_lanes import ThreadLanes
from sweep.nodes.archive import agent_archive
from sweep.nodes.local import LocalNode
from sweep.nodes.ssh import SshNode
from sweep.nodes.ssh_config import SshFiles
from sweep.ports import Node

NODE = "here"
SLOW = ("--rate", "1")
"""Options of a server whose trial takes about 22 s: longer than Ray takes to start."""


class Rig:
    """Lanes with a node of a test's own, and what they told."""

    def __init__(
        self, root: Path, make: Callable[[dict[str, Any]], Lanes], **others: Callable[[], Node]
    ) -> None:
        self.root = root
        (root / "claims").mkdir()
        environment = {**os.environ, "SWEEP_CLAIM_DIR": str(root / "claims")}
        self.node = LocalNode(environment)
        self.lanes = make({NODE: partial(LocalNode, environment), **others})
        self.tasks: list[LaunchTask] = []
        self._closed = False

    def task(self, *options: str, **changes: Any) -> LaunchTask:
        """A launch of the fake server."""
        number = len(self.tasks)
        name, archive = agent_archive()
        task = LaunchTask(
            launch_id=f"L{number}",
            attempt=1,
            directory=str(self.root / "work" / f"L{number}" / "1"),
            document=wire.encode(document(*options, nonce=secrets.token_hex(8))),
            archive_name=name,
            archive=archive,
            python="python3",
            **changes,
        )
        self.tasks.append(task)
        return task

    def until(
        self, wanted: Callable[[LanesEvent], bool], timeout_s: float = 60.0
    ) -> list[LanesEvent]:
        """Poll until an event fits, and return all up to it."""
        events: list[LanesEvent] = []
        until_s = time.monotonic() + timeout_s
        while time.monotonic() < until_s:
            for name, event in self.lanes.poll(0.2):
                assert name == NODE
                events.append(event)
            if any(wanted(event) for event in events):
                return events
        raise AssertionError(f"it did not happen in time: {events}")

    def until_all(
        self, wanted: Callable[[dict[str, list[LanesEvent]]], bool], timeout_s: float = 60.0
    ) -> dict[str, list[LanesEvent]]:
        """Poll until the events of all lanes, by node, are as wanted."""
        events: dict[str, list[LanesEvent]] = {}
        until_s = time.monotonic() + timeout_s
        while not wanted(events):
            assert time.monotonic() < until_s, f"it did not happen in time: {events}"
            for name, event in self.lanes.poll(0.2):
                events.setdefault(name, []).append(event)
        return events

    def until_actors(self, node: str = NODE) -> list[LanesEvent]:
        """Poll until Ray is up and the node's actor reads; return all events up to then."""
        lanes: Any = self.lanes
        events: list[LanesEvent] = []
        until_s = time.monotonic() + 60.0
        while not lanes._lanes or node in lanes._early:
            assert time.monotonic() < until_s, "Ray did not start in time"
            events += [event for _, event in self.lanes.poll(0.2)]
        return events

    def close(self) -> None:
        """End the lanes, then what still runs of their launches."""
        if not self._closed:
            self._closed = True
            self.lanes.close()
        for task in self.tasks:
            archive = str(self.root / "work" / task.archive_name)
            if Path(task.directory).exists():
                self.node.run(["python3", "-I", archive, "stop", task.directory], timeout_s=60)


def inline(factories: dict[str, Any]) -> Lanes:
    """The lanes of tests, stepped by `poll`."""
    return InlineLanes(factories, SystemClock())


def threads(factories: dict[str, Any]) -> Lanes:
    """Lanes in threads."""
    return ThreadLanes(factories, SystemClock())


def actors(factories: dict[str, Any]) -> Lanes:
    """Lanes in a private Ray."""
    return RayLanes(factories, SystemClock())


RAY = pytest.param(actors, marks=pytest.mark.ray)


@pytest.fixture(params=[inline, threads, RAY], ids=["inline", "threads", "ray"])
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rig]:
    """Each kind of lanes."""
    made = Rig(tmp_path, request.param)
    yield made
    made.close()


@pytest.fixture
def ray_rig(tmp_path: Path) -> Iterator[Rig]:
    """Lanes in Ray."""
    made = Rig(tmp_path, actors)
    yield made
    made.close()


def ended(event: LanesEvent) -> bool:
    """Whether an attempt is over, one way or the other."""
    return isinstance(event, (Ended, LaneFailed))


def lines(events: list[LanesEvent], name: str) -> list[str]:
    """The lines of one file, in order; their offsets must follow each other."""
    parts = [event for event in events if isinstance(event, Lines) and event.name == name]
    for before, after in itertools.pairwise(parts):
        assert after.offset == before.next_offset
    return [line for part in parts for line in part.lines]


def offsets_after(events: list[LanesEvent]) -> dict[str, int]:
    """How far each file was read."""
    return {event.name: event.next_offset for event in events if isinstance(event, Lines)}


def test_a_launch_from_its_start_to_its_files(rig: Rig) -> None:
    """Started, read in whole, ended clean, fetched; then found finished, with nothing repeated."""
    task = rig.task("--rate", "500")
    rig.lanes.start(NODE, task)
    events = rig.until(ended)
    assert isinstance(events[0], Attached)
    assert isinstance(events[-1], Ended)
    assert (events[-1].clean, events[-1].left) == (True, ())
    assert events[-1].outcome is not None
    assert wire.decode_outcome(events[-1].outcome).end == "done"
    for name in (wire.EVENTS_FILE, wire.REQUESTS_FILE):
        told = "".join(f"{line}\n" for line in lines(events, name))
        assert told.encode() == (Path(task.directory) / name).read_bytes()
    seen = 0
    for event in events:
        if isinstance(event, Lines) and event.name == wire.REQUESTS_FILE:
            seen += sum('"role":"measure"' in line for line in event.lines)
        if isinstance(event, Lines) and event.name == wire.EVENTS_FILE:
            due = sum(
                '"event":"window"' in line
                for line in lines([*events[: events.index(event)], event], wire.EVENTS_FILE)
            )
            assert seen >= 4 * due
    again = LaunchTask(**{**vars(task), "offsets": offsets_after(events)})
    rig.lanes.start(NODE, again)
    assert rig.until(ended) == [Attached("finished"), events[-1]]
    target = rig.root / "fetched"
    rig.lanes.fetch(NODE, FetchTask("L0", 1, task.directory, str(target), keep=False))
    (fetched,) = rig.until(lambda event: isinstance(event, Fetched))
    assert isinstance(fetched, Fetched)
    assert fetched.error is None
    assert (target / wire.OUTCOME_FILE).read_text() == events[-1].outcome
    assert (target / wire.LOG_FILE).exists()
    assert not Path(task.directory).exists()


def test_a_cancelled_launch_is_stopped_and_so_is_every_later_one(rig: Rig) -> None:
    """After `cancel` the server is stopped and the node proven clean; nothing starts any more."""
    task = rig.task("--port-late", "60")
    rig.lanes.start(NODE, task)
    rig.until(lambda event: isinstance(event, Lines) and "server_started" in "".join(event.lines))
    rig.lanes.cancel()
    last = rig.until(ended)[-1]
    assert isinstance(last, Ended)
    assert last.outcome is not None
    assert (wire.decode_outcome(last.outcome).end, last.clean) == ("stopped", True)
    unwanted = LaunchTask(**{**vars(rig.task()), "stop_at_once": True})
    rig.lanes.start(NODE, unwanted)
    assert rig.until(ended) == [Ended(None, clean=True, left=())]
    assert not Path(unwanted.directory).exists()


def test_a_node_that_refuses_is_told_and_the_lane_goes_on(rig: Rig) -> None:
    """An agent that cannot be started is the lane's failure, with what to do; then the next."""
    broken = LaunchTask(**{**vars(rig.task()), "python": "/no/such/python"})
    rig.lanes.start(NODE, broken)
    failed = rig.until(ended)[-1]
    assert isinstance(failed, LaneFailed)
    assert "/no/such/python" in failed.message
    rig.lanes.start(NODE, rig.task("--rate", "500"))
    assert isinstance(rig.until(ended)[-1], Ended)


def over(*names: str) -> Callable[[dict[str, list[LanesEvent]]], bool]:
    """Whether the attempts on these nodes are over."""
    return lambda events: all(any(map(ended, events.get(name, ()))) for name in names)


def both_told(events: dict[str, list[LanesEvent]]) -> bool:
    """Whether launch and fetch have ended on both bad nodes."""
    return all(len(events.get(name, ())) == 2 for name in ("nowhere", "broken"))


@pytest.mark.parametrize(
    ("make", "early"),
    [
        (inline, True),
        (threads, True),
        pytest.param(actors, True, marks=pytest.mark.ray),
        pytest.param(actors, False, marks=pytest.mark.ray),
    ],
)
def test_a_node_that_cannot_be_made_fails_its_own_lane_once(
    tmp_path: Path, make: Callable[[dict[str, Any]], Lanes], early: bool
) -> None:
    """SSH settings that lead nowhere, and a fault that nobody thought of, before and after Ray is
    up: one event, no lost lane, and the other node's launch goes on."""
    config = tmp_path / "config"
    config.write_text("Host nowhere\n ProxyJump nowhere\n")
    nowhere = partial(SshNode, "nowhere", SystemClock(), files=SshFiles((str(config),), (), (), ()))
    broken = partial(LocalNode, {}, no_such_argument=1)  # type: ignore[call-arg]
    rig = Rig(tmp_path, make, nowhere=nowhere, broken=broken)
    try:
        rig.lanes.start(NODE, rig.task("--rate", "500"))
        if not early:
            rig.until_actors()
        for name in ("nowhere", "broken"):
            rig.lanes.start(name, rig.task())
            task = FetchTask("L9", 1, "/none", str(tmp_path / "x"), keep=True)
            rig.lanes.fetch(name, task)
        told = rig.until_all(both_told)
        for name, reason in (("nowhere", "ProxyJump"), ("broken", "no_such_argument")):
            (failed,) = [event for event in told[name] if isinstance(event, LaneFailed)]
            (fetched,) = [event for event in told[name] if isinstance(event, Fetched)]
            assert reason in failed.message
            assert reason in (fetched.error or "")
        rig.lanes.start(NODE, rig.task("--rate", "500"))
        assert isinstance(rig.until_all(over(NODE))[NODE][-1], Ended)
    finally:
        rig.close()


@pytest.mark.parametrize("make", [threads, RAY])
def test_a_node_that_does_not_answer_holds_up_no_other_lane(
    tmp_path: Path, make: Callable[[dict[str, Any]], Lanes]
) -> None:
    """Whole launches run on one node, before and after Ray is up, while the other one blocks."""
    rig = Rig(tmp_path, make, blocked=partial(LocalNode, dict(os.environ)))
    directory = tmp_path / "blocked" / "1"
    directory.mkdir(parents=True)
    os.mkfifo(directory / wire.OUTCOME_FILE)  # whoever reads it waits for a writer
    try:
        rig.lanes.start("blocked", LaunchTask(**{**vars(rig.task()), "directory": str(directory)}))
        for turn in range(2):
            rig.lanes.start(NODE, rig.task("--rate", "500"))
            told = rig.until_all(over(NODE))
            assert isinstance(told[NODE][-1], Ended)
            assert "blocked" not in told
            if make is actors and not turn:
                rig.until_actors()
        (directory / wire.OUTCOME_FILE).write_bytes(b"")
        (failed,) = rig.until_all(over("blocked"))["blocked"]
        assert isinstance(failed, LaneFailed)
        assert "cannot read" in failed.message
    finally:
        rig.close()


def actor_pid(rig: Rig) -> int:
    """The process of the actor."""
    lanes: Any = rig.lanes
    return int(lanes._ray.get(lanes._lanes[NODE].actor.ping.remote()))


def raylet_pid() -> int:
    """The raylet that this process started."""
    found = procs.descendants(procs.snapshot(), os.getpid())
    return next(process.pid for process in found if process.name == "raylet")


def kill_actor(rig: Rig) -> int:
    """SIGKILL for the actor."""
    pid = actor_pid(rig)
    os.kill(pid, signal.SIGKILL)
    return pid


def freeze_actor(rig: Rig) -> int:
    """SIGSTOP for the actor: it lives, and answers nobody."""
    pid = actor_pid(rig)
    os.kill(pid, signal.SIGSTOP)
    return pid


def kill_raylet(rig: Rig) -> int:
    """SIGKILL for the raylet, which takes the actors with it."""
    pid = actor_pid(rig)
    os.kill(raylet_pid(), signal.SIGKILL)
    return pid


@pytest.mark.ray
@pytest.mark.parametrize("strike", [kill_actor, freeze_actor, kill_raylet])
def test_a_lost_actor_costs_nothing(ray_rig: Rig, strike: Callable[[Rig], int]) -> None:
    """Whatever happens to the actor, the launch goes on, and is read on from where it was."""
    rig = ray_rig
    task = rig.task(*SLOW)
    rig.lanes.start(NODE, task)
    before = rig.until(lambda event: isinstance(event, Lines) and event.name == wire.REQUESTS_FILE)
    before += rig.until_actors()
    pid = strike(rig)
    before += rig.until(lambda event: isinstance(event, LaneLost))
    agent = wire.decode_ident((Path(task.directory) / wire.IDENT_FILE).read_text())
    rig.lanes.start(NODE, LaunchTask(**{**vars(task), "offsets": offsets_after(before)}))
    after = rig.until(ended)
    assert after[0] in (Attached("attached"), Attached("finished"))
    assert isinstance(after[-1], Ended)
    assert after[-1].clean
    assert wire.decode_ident((Path(task.directory) / wire.IDENT_FILE).read_text()) == agent
    for name in (wire.EVENTS_FILE, wire.REQUESTS_FILE):
        told = "".join(f"{line}\n" for line in lines([*before, *after], name))
        assert told.encode() == (Path(task.directory) / name).read_bytes()
    wait_for(lambda: (found := procs.read(pid)) is None or found.dead)


def listening_addresses(pids: set[int]) -> set[str]:
    """Local addresses, in the kernel's notation, of the TCP listeners that these processes own."""
    sockets = {target for pid in pids for target in procs.open_targets(pid)}
    addresses = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in sockets:
                addresses.add(fields[1].partition(":")[0])
    return addresses


@pytest.mark.ray
def test_ray_listens_on_loopback_only_and_leaves_nothing(ray_rig: Rig) -> None:
    """No listener on a network of the machine; after `close` no process and no file of Ray's."""
    rig = ray_rig
    mine = os.getpid()
    before = {process.identity for process in procs.descendants(procs.snapshot(), mine)}
    rig.lanes.start(NODE, rig.task("--rate", "500"))
    rig.until(ended)
    rig.until_actors()
    actor_pid(rig)
    ours = [
        process
        for process in procs.descendants(procs.snapshot(), mine)
        if process.identity not in before
    ]
    assert any(process.name == "raylet" for process in ours)
    addresses = listening_addresses({mine, *(process.pid for process in ours)})
    assert addresses
    assert addresses <= {"0100007F", "0" * 16 + "FFFF00000100007F", "0" * 24 + "01000000"}
    files = Path(str(rig.lanes._files.path))  # type: ignore[attr-defined]
    assert files.exists()
    rig.close()
    assert not files.exists()
    wait_for(lambda: not any(procs.alive(process.identity) for process in ours))
