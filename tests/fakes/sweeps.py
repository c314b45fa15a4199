"""A small sweep in a directory of a test, driven by the real SweepRun over fakes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from fakes.clock import FakeClock
from fakes.engine import FakeEngine
from fakes.inline_lanes import InlineLanes
from fakes.node import FakeNode, Script, good

from sweep.agent import wire
from sweep.driver.lane import LaunchTask
from sweep.driver.lanes import FetchTask, LanesEvent
from sweep.driver.sweep_run import RunResult, RunSetup, SweepRun
from sweep.engines.classify import LogSign, classify_outcome
from sweep.model.experiment import Axes, EngineSpec, Experiment, Prompt, Repeats, Workload
from sweep.model.plan import Plan
from sweep.model.states import Failure
from sweep.ports import Node
from sweep.spec.plan import make_plan
from sweep.store.sweep_db import SweepDb

SIGNS = (LogSign("oom", "out of memory", "oom", "no memory left"),)


class SmallEngine(FakeEngine):
    """A fake engine that classifies launches as the real ones do."""

    def classify_launch(self, outcome: wire.Outcome) -> Failure | None:
        """Name why a launch failed by SIGNS, else by its end."""
        return classify_outcome(outcome, SIGNS)


def small_experiment(steps: Sequence[int] = (1, 2), **changes: Any) -> Experiment:
    """Two workloads of two prompts each, a window per trial."""
    workloads = tuple(
        Workload(
            name,
            (Prompt("a", text="A"), Prompt("b", text="B")),
            max_tokens=10,
            repeats=Repeats(min=1, max=2),
        )
        for name in ("code", "story")
    )
    fields: dict[str, Any] = {
        "name": "small",
        "engine": EngineSpec("llama.cpp", "m.gguf", draft_model="d.gguf", algorithm="draft"),
        "workloads": workloads,
        "axes": Axes(num_steps=tuple(steps)),
    } | changes
    return Experiment(**fields)


def small_plan(experiment: Experiment) -> Plan:
    """The plan of an experiment by the fake engine's rules."""
    return make_plan(experiment, SmallEngine())


class Crashed(BaseException):
    """The driver is killed here."""


def crash() -> None:
    """Kill the driver: for a step of a script."""
    raise Crashed


class CrashingLanes:
    """Lanes that kill the driver before their nth event is handed on."""

    def __init__(self, lanes: InlineLanes, after: int) -> None:
        self._lanes = lanes
        self._left = after

    def poll(self, timeout_s: float) -> Sequence[tuple[str, LanesEvent]]:
        """Hand events on until it is time."""
        events = self._lanes.poll(timeout_s)
        kept, self._left = events[: self._left], self._left - len(events)
        if self._left < 0:
            raise Crashed
        return kept

    def start(self, node: str, task: LaunchTask) -> None:
        """As the real lanes."""
        self._lanes.start(node, task)

    def fetch(self, node: str, task: FetchTask) -> None:
        """As the real lanes."""
        self._lanes.fetch(node, task)

    def cancel(self) -> None:
        """As the real lanes."""
        self._lanes.cancel()

    def close(self) -> None:
        """As the real lanes."""
        self._lanes.close()


class SmallSweep:
    """A sweep's directory and database with a fake node and clock."""

    def __init__(
        self, root: Path, script: Script = good, experiment: Experiment | None = None
    ) -> None:
        self.root = root
        self.clock = FakeClock()
        experiment = experiment or small_experiment()
        self.nodes = {
            node.name: FakeNode(self.clock, script, "fake" if node.host is None else node.name)
            for node in experiment.nodes
        }
        self.node = next(iter(self.nodes.values()))
        self.database = SweepDb.create(root, "small-1", "small", self.clock.utc())
        self.engine: FakeEngine = SmallEngine()
        self.tasks: list[LaunchTask] = []
        self.left: list[tuple[str, float]] = []
        """Nodes with the time at which they were left [s]."""
        self.submit(experiment)

    @property
    def factories(self) -> dict[str, Callable[[], Node]]:
        """What makes the nodes."""
        return {name: partial(self.nodes.__getitem__, name) for name in self.nodes}

    def submit(self, experiment: Experiment) -> None:
        """Make an experiment's plan the current one."""
        self.experiment = experiment
        self.plan = small_plan(experiment)
        self.change = self.database.set_plan(experiment, self.plan, {})

    def run(
        self,
        *,
        stop: Callable[[], str | None] = lambda: None,
        crash_after: int | None = None,
        keep_going: bool = False,
        wrap: Callable[[InlineLanes], Any] | None = None,
        fastest: Callable[[str], str | None] = lambda _: None,
    ) -> RunResult:
        """Drive the sweep in a new run, with a database connection of its own as a new process."""
        self.database.close()
        self.database = SweepDb.open(self.root)
        number = self.database.begin_run(1, 1, "boot", "here", self.clock.utc())
        lanes: Any = _Watched(self.factories, self.clock, self.tasks)
        if crash_after is not None:
            lanes = CrashingLanes(lanes, crash_after)
        if wrap is not None:
            lanes = wrap(lanes)
        result = SweepRun(
            database=self.database,
            lanes=lanes,
            clock=self.clock,
            engine=self.engine,
            setup=RunSetup(
                run=number,
                launches_directory=self.root / "launches",
                workdirs=dict.fromkeys(self.nodes, "/w/small-1"),
                archive_name="agent.pyz",
                archive=b"agent",
                owner=wire.Owner("me", "here", "small-1"),
                pythons=dict.fromkeys(self.nodes, "python3"),
                keep_going=keep_going,
            ),
            stop_requested=stop,
            fastest=fastest,
            leave=lambda name: self.left.append((name, self.clock.monotonic_s())),
        ).run()
        self.database.end_run(number, self.clock.utc(), result.exit_code, result.note)
        return result

    def launches(self) -> list[str]:
        """States of the launches in plan order."""
        return [state.value for state, _ in self.database.launch_states().values()]

    def reasons(self) -> list[str | None]:
        """Failure classes of the launches in plan order."""
        states = self.database.launch_states().values()
        return [failure.failure_class if failure else None for _, failure in states]

    def trials(self) -> list[str]:
        """States of the trials in plan order."""
        states = self.database.trial_states()
        return [
            states[trial.trial_id][0].value
            for launch in self.plan.launches
            for trial in launch.trials
        ]

    def directories(self) -> list[str]:
        """Launch directories in plan order, first attempts."""
        return [f"/w/small-1/{launch.launch_id}/1" for launch in self.plan.launches]

    def lines(self) -> Mapping[tuple[str, int, str], list[str]]:
        """Every recorded line, by attempt and file."""
        return {
            (row.launch_id, row.attempt, name): self.database.lines(
                row.launch_id, row.attempt, name
            )
            for row in self.database.attempts()
            for name in (wire.EVENTS_FILE, wire.REQUESTS_FILE)
        }

    def with_more(self, **changes: Any) -> Experiment:
        """The experiment with something changed."""
        return replace(self.experiment, **changes)


class _Watched(InlineLanes):
    """Inline lanes that remember what was started."""

    def __init__(
        self,
        factories: Mapping[str, Callable[[], Node]],
        clock: FakeClock,
        tasks: list[LaunchTask],
    ) -> None:
        super().__init__(factories, clock)
        self._tasks = tasks

    def start(self, node: str, task: LaunchTask) -> None:
        """Remember the task and start it."""
        self._tasks.append(task)
        super().start(node, task)
