"""Lanes as Ray actors, one per node, in a private local Ray. The only importer of ray.

Ray is bounded to this machine's loopback and to this driver: an explicit local address, no
dashboard, no usage statistics, no proxy, a session directory of its own that is deleted at the
end. Nothing of a sweep's record lives in Ray.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from sweep.driver.lane import Lane, LaneEvent, LaunchTask
from sweep.driver.lanes import (
    Fetched,
    FetchTask,
    LaneFailed,
    LaneLost,
    LanesEvent,
    fetched,
    guarded,
)
from sweep.driver.ray_files import RayFiles
from sweep.driver.thread_lanes import ThreadLane
from sweep.ports import Clock, Node

NodeFactory = Callable[[], Node]
"""Importable, so that an actor makes its node inside itself."""

_ENVIRONMENT = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # listen on 127.0.0.1, not on the interface
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_USAGE_STATS_REPORT_URL": "http://127.0.0.1:9/",
    "RAY_AUTH_MODE": "token",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    "RAY_DISABLE_IMPORT_WARNING": "1",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_memory_monitor_refresh_ms": "0",  # a model that fills the memory is no reason to kill us
    "no_proxy": "127.0.0.1,localhost",
    "NO_PROXY": "127.0.0.1,localhost",
}
_REMOVED = ("RAY_ADDRESS", "RAY_NAMESPACE", "RAY_JOB_ID")
_INLINE_BYTES = 200 << 20
"""Larger than any task or event, smaller than what one message of Ray's may hold."""
_SYSTEM = {
    # A dead raylet is known after 2 s instead of 15 s.
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 500,
    "health_check_timeout_ms": 1000,
    "health_check_failure_threshold": 3,
    # Everything travels in messages: a driver that touches the object store of a dead raylet is
    # ended by Ray's native code, and a task with the agent's archive would be put there.
    "max_direct_call_object_size": _INLINE_BYTES,
    "task_rpc_inlined_bytes_limit": _INLINE_BYTES,
}
_GROUPS = {"control": 2, "files": 1}
"""Threads of an actor beside its loop: a long fetch must not keep a ping waiting."""
_OBJECT_STORE_BYTES = 100_000_000
_EARLY_POLL_S = 0.05
_PING_AFTER_S = 5.0
_PING_TIMEOUT_S = 5.0
_FIRST_PING_TIMEOUT_S = 60.0
"""An actor that never answered is still starting: the more of them, the longer it takes."""


def _actor_class() -> Any:
    """Define the actor; ray is imported only when a driver really runs."""
    import ray  # noqa: PLC0415 - 0.4 s that only the driver pays

    remote: Any = ray.remote  # its stubs lack concurrency_groups

    @remote(num_cpus=0, max_restarts=0, max_task_retries=0, concurrency_groups=_GROUPS)
    class LaneActor:
        """A lane in a process of its own."""

        def __init__(self, factory: NodeFactory, clock: Clock) -> None:
            self._lane = Lane(factory, clock)

        def run(self, task: LaunchTask) -> Iterator[LaneEvent | LaneFailed]:
            """Yield what the lane reads; an error of the node is the last event."""
            yield from guarded(self._lane, task)

        @ray.method(concurrency_group="control")
        def cancel(self) -> None:
            """Stop what runs."""
            self._lane.cancel()

        @ray.method(concurrency_group="control")
        def ping(self) -> int:
            """Answer with the process's pid."""
            return os.getpid()

        @ray.method(concurrency_group="files")
        def fetch(self, task: FetchTask) -> Fetched:
            """Fetch an ended attempt."""
            return fetched(self._lane, task)

    return LaneActor


def _shut_down(ray: Any) -> None:
    """End Ray. What refers to it must go before: collected later, in whatever thread, it would
    reach a worker that is shut down, for which Ray's native code ends the process."""
    gc.collect()
    ray.shutdown()


@dataclass
class _ActorLane:
    """One actor with the calls that are under way in it."""

    actor: Any
    stream: Any = None
    ping: Any = None
    heard_s: float = 0.0
    has_answered: bool = False
    pinged_s: float = 0.0
    fetches: dict[Any, FetchTask] = field(default_factory=dict)


class RayLanes:
    """The lanes of a sweep in a private Ray; implements driver.lanes.Lanes."""

    def __init__(self, factories: Mapping[str, NodeFactory], clock: Clock) -> None:
        self._factories = dict(factories)
        self._clock = clock
        self._cancelled = False
        self._waiting: deque[tuple[str, LanesEvent]] = deque()
        self._starter = ThreadPoolExecutor(1, thread_name_prefix="ray")
        self._files = RayFiles()
        self._lanes: dict[str, _ActorLane] = {}
        """Empty until Ray is up."""
        self._early: dict[str, ThreadLane] = {}
        self._early_fetches: list[tuple[str, FetchTask]] = []
        self._beginning: Future[Any] | None = None
        self._ray: Any = None

    # -- until Ray is up ---------------------------------------------------------------------

    def _begin(self) -> None:
        """Let Ray start in the background. Launches need nobody: early lanes bring and read them
        meanwhile, and the actors attach."""
        if self._beginning is None:
            # Ray ends a process that was started by a raylet and outlives it. Without this pid, it
            # takes a driver whose parent is gone, as in the background, for one.
            own = {"RAY_RAYLET_PID": str(os.getpid())}
            os.environ.update(_ENVIRONMENT | self._files.environment | own)
            for name in _REMOVED:
                os.environ.pop(name, None)
            self._beginning = self._starter.submit(self._start_ray)

    def _is_up(self) -> bool:
        """Whether the actors are there; makes them as soon as Ray can. Raises what kept Ray from
        starting."""
        if not self._lanes and self._beginning is not None and self._beginning.done():
            self._ray = self._beginning.result()
            self._take_signals_back()
            self._actor_class = _actor_class()
            self._lanes = {name: self._new_lane(name) for name in self._factories}
            for early in self._early.values():
                early.release()
            for node, task in self._early_fetches:
                self.fetch(node, task)
            self._early_fetches = []
        return bool(self._lanes)

    def _poll_early(self, timeout_s: float) -> None:
        """Take an event of each early lane, and hand over to its actor one that is released."""
        if not self._early:
            time.sleep(timeout_s)
        for name, early in list(self._early.items()):
            event = early.take(timeout_s / len(self._early))
            if event is not None:
                self._waiting.append((name, event))
            if early.is_over:
                del self._early[name]
            elif self._lanes and early.is_released:
                del self._early[name]
                self.start(name, early.task)

    def _start_ray(self) -> Any:
        """Start Ray and return it. Runs in a thread: on the main one Ray would take the handler
        of SIGTERM away.

        The thread lives until `close`: Ray's processes are killed when the thread that started
        them ends.
        """
        import ray  # noqa: PLC0415

        logging.getLogger("ray._private.worker").setLevel(logging.ERROR)  # it warns of just that
        ray.init(
            address="local",
            num_cpus=1,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            object_store_memory=_OBJECT_STORE_BYTES,
            _temp_dir=str(self._files.path),
            _system_config=_SYSTEM,
        )
        return ray

    def _take_signals_back(self) -> None:
        """Ray's native code takes both signals all the same, and aborts 3 s after one by an
        alarm."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.getsignal(number))
        signal.alarm(0)

    def _new_lane(self, name: str) -> _ActorLane:
        actor = self._actor_class.remote(self._factories[name], self._clock)
        if self._cancelled:
            actor.cancel.remote()
        now_s = time.monotonic()
        # Asked at once, so that what is starting and what is frozen can be told apart.
        return _ActorLane(actor, ping=actor.ping.remote(), heard_s=now_s, pinged_s=now_s)

    # -- the protocol ------------------------------------------------------------------------

    def start(self, node: str, task: LaunchTask) -> None:
        """Bring an attempt to an idle lane."""
        if not self._is_up():
            self._begin()
            self._early[node] = ThreadLane(self._factories[node], self._clock, task)
            if self._cancelled:
                self._early[node].cancel()
            return
        lane = self._lanes[node]
        lane.stream = lane.actor.run.options(num_returns="streaming").remote(task)
        lane.heard_s = time.monotonic()

    def fetch(self, node: str, task: FetchTask) -> None:
        """Fetch an attempt's files while the lane may run the next."""
        if not self._is_up():
            self._begin()
            self._early_fetches.append((node, task))
            return
        lane = self._lanes[node]
        lane.fetches[lane.actor.fetch.remote(task)] = task

    def poll(self, timeout_s: float) -> Sequence[tuple[str, LanesEvent]]:
        """Wait at most `timeout_s` for events of any lane."""
        deadline_s = time.monotonic() + timeout_s
        while not self._waiting:
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                break
            step_s = min(left_s, _EARLY_POLL_S)
            if not self._is_up():
                self._poll_early(step_s)
                continue
            # A node that does not answer may hold its early lane for long: the others go on.
            self._poll_early(step_s if self._early else 0.0)
            lost = self._collect(step_s if self._early else left_s) or self._look_after_silence()
            if lost is not None:
                self._replace(*lost)
        events = list(self._waiting)
        self._waiting.clear()
        return events

    def cancel(self) -> None:
        """Stop every launch that runs or is started from now on."""
        self._cancelled = True
        for early in self._early.values():
            early.cancel()
        for lane in self._lanes.values():
            lane.actor.cancel.remote()

    def close(self) -> None:
        """End Ray and delete its files. Launches on nodes go on."""
        for early in self._early.values():
            early.release()
        if self._beginning is not None and self._beginning.exception() is None:
            self._lanes = {}
            _shut_down(self._beginning.result())
        self._starter.shutdown()
        self._files.delete()

    # -- events ------------------------------------------------------------------------------

    def _collect(self, timeout_s: float) -> tuple[str, str] | None:
        """Take what is ready; return a lane that is lost, and why. Whoever replaces it must hold
        nothing of Ray's any more, so that is left to the caller."""
        waiting: dict[Any, str] = {}
        for name, lane in self._lanes.items():
            calls = [lane.stream, lane.ping, *lane.fetches]
            waiting |= {call: name for call in calls if call is not None}
        if not waiting:
            time.sleep(timeout_s)
            return None
        ready, _ = self._ray.wait(
            list(waiting), num_returns=1, timeout=timeout_s, fetch_local=False
        )
        for call in ready:
            name = waiting[call]
            lane = self._lanes[name]
            try:
                self._take(name, lane, call)
            except self._ray.exceptions.RayError as error:
                return name, type(error).__name__
        return None

    def _take(self, name: str, lane: _ActorLane, call: Any) -> None:
        lane.heard_s, lane.has_answered = time.monotonic(), True
        if call is lane.stream:
            try:
                event = self._ray.get(next(call))
            except StopIteration:
                lane.stream = None
                return
            self._waiting.append((name, event))
        elif call is lane.ping:
            self._ray.get(call)
            lane.ping = None
        else:
            task = lane.fetches[call]
            event = self._ray.get(call)
            del lane.fetches[call]
            assert isinstance(event, Fetched)
            assert event.task == task
            self._waiting.append((name, event))

    def _look_after_silence(self) -> tuple[str, str] | None:
        """Ask lanes that said nothing for a while; return one that does not answer, and why."""
        now_s = time.monotonic()
        for name, lane in list(self._lanes.items()):
            silent_s = now_s - lane.heard_s
            patience_s = _PING_TIMEOUT_S if lane.has_answered else _FIRST_PING_TIMEOUT_S
            if lane.ping is None and silent_s > _PING_AFTER_S:
                lane.ping, lane.pinged_s = lane.actor.ping.remote(), now_s
            elif lane.ping is not None and now_s - lane.pinged_s > patience_s:
                return name, f"no answer for {silent_s:.0f} s"
        return None

    def _replace(self, name: str, reason: str) -> None:
        """Put a new actor in the place of a dead or frozen one, with a new Ray if need be."""
        self._ray.kill(self._lanes[name].actor, no_restart=True)
        works = self._ray_works()
        replaced = [name] if works else list(self._lanes)
        owed = {lost: list(self._lanes[lost].fetches.values()) for lost in replaced}
        running = [lost for lost in replaced if self._lanes[lost].stream is not None]
        for lost in replaced:
            del self._lanes[lost]
        if not works:
            reason = f"{reason}, Ray restarted"
            _shut_down(self._ray)
            self._starter.submit(self._start_ray).result()
            self._take_signals_back()
        for lost in replaced:
            self._lanes[lost] = self._new_lane(lost)
        for lost, tasks in owed.items():
            for task in tasks:
                self.fetch(lost, task)
        self._waiting.extend((lost, LaneLost(reason)) for lost in running)

    def _ray_works(self) -> bool:
        """Return whether Ray still starts actors: not so after its raylet died."""
        alive = [node for node in self._ray.nodes() if node["Alive"]]
        return bool(alive)
