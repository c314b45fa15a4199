"""A builder of sweep records: launches with trials whose requests take times given by the test."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sweep.agent.wire import Outcome, RequestRecord, ServerIdent
from sweep.model.canonical import identity
from sweep.model.experiment import Axes, EngineSpec, Experiment, Prompt, Repeats, Variant, Workload
from sweep.model.plan import (
    Configuration,
    PlannedLaunch,
    PlannedTrial,
    Role,
    ServerCommand,
    SkippedConfiguration,
)
from sweep.model.record import AttemptRecord, LaunchRecord, SweepRecord, TrialRecord
from sweep.model.states import Failure, LaunchState, TrialState
from sweep.ports import Counters

BASELINE = Configuration(algorithm=None)
START = dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)


def steps(count: int, **changes: Any) -> Configuration:
    """A chain of `count` draft steps."""
    fields: dict[str, Any] = {
        "num_steps": count,
        "topk": 1,
        "num_draft_tokens": count + 1,
    } | changes
    return Configuration("draft", **fields)


def workload(name: str = "code", prompts: int = 5, **changes: Any) -> Workload:
    """A workload with numbered prompts, 100 tokens asked and three windows at least."""
    texts = tuple(Prompt(f"{name}-{n}", text=f"Prompt {n} of {name}") for n in range(prompts))
    fields: dict[str, Any] = {"max_tokens": 100, "repeats": Repeats(min=3)} | changes
    return Workload(name=name, prompts=texts, **fields)


def experiment(*workloads: Workload, **changes: Any) -> Experiment:
    """An experiment of the given workloads."""
    fields: dict[str, Any] = {
        "name": "test",
        "engine": EngineSpec("llama.cpp", "/models/target.gguf", draft_model="/models/draft.gguf"),
        "workloads": workloads or (workload(),),
        "axes": Axes(num_steps=(1, 2, 3)),
    } | changes
    return Experiment(**fields)


def count(record: RequestRecord) -> Counters:
    """Read counts as the builder wrote them into `meta`."""
    return Counters(
        output_tokens=record.output_tokens,
        cycles=record.meta.get("cycles"),
        drafted_tokens=record.meta.get("drafted"),
        accepted_tokens=record.meta.get("accepted"),
        cycles_estimated=bool(record.meta.get("estimated")),
    )


def request(n: int, trial: str, prompt: str, sent_s: float, **changes: Any) -> RequestRecord:
    """One answered request: 101 tokens, the first after 0.1 s, the last after 1.1 s."""
    fields: dict[str, Any] = {
        "window": 0, "role": "measure", "stream": 0, "first_s": 0.1, "last_s": 1.1, "end_s": 1.1,
        "status": 200, "error": None, "chunks": 100, "first_chunk_tokens": 1,
        "output_tokens": 101, "input_tokens": 20, "cached_tokens": 0, "text_sha256": "same",
        "meta": {},
    }  # fmt: skip
    return RequestRecord(n=n, trial=trial, prompt=prompt, sent_s=sent_s, **(fields | changes))


def failed_request(n: int, trial: str, prompt: str, sent_s: float, **changes: Any) -> RequestRecord:
    """One request that was answered with a status of 500."""
    fields: dict[str, Any] = {
        "status": 500, "error": "HTTP 500", "first_s": None, "last_s": None, "end_s": 9.0,
        "chunks": 0, "first_chunk_tokens": None, "output_tokens": None, "text_sha256": None,
    }  # fmt: skip
    return request(n, trial, prompt, sent_s, **(fields | changes))


@dataclass
class Timeline:
    """Events of one attempt, by a clock that the test moves."""

    now_s: float = 1000.0
    zero_s: float = 1000.0
    events: list[Mapping[str, Any]] = field(default_factory=list)

    def add(self, event: str, after_s: float = 0.0, **fields: Any) -> None:
        """Append an event `after_s` later."""
        self.now_s += after_s
        utc = START + dt.timedelta(seconds=self.now_s - self.zero_s)
        self.events.append(
            {
                "v": 1,
                "n": len(self.events),
                "t_s": self.now_s,
                "utc": utc.isoformat().replace("+00:00", "Z"),
                "event": event,
                **fields,
            }
        )

    def phase(self, name: str, after_s: float = 0.0, **fields: Any) -> None:
        """Append the entry into a phase."""
        self.add("phase", after_s, phase=name, **({"trial": None, "window": None} | fields))


@dataclass
class TrialPlan:
    """What a trial of the builder measures: seconds for 100 tokens after the first.

    `time_s(window, prompt index)` is the decode time of a request; `accepted` of `cycles` per
    request give the accept length.
    """

    workload: Workload
    concurrency: int = 1
    windows: int = 3
    time_s: Callable[[int, int], float] = lambda _window, _prompt: 1.0
    cycles: int | None = None
    accepted: int | None = None
    drafted: int | None = None
    text: Callable[[int], str] = lambda prompt: f"text {prompt}"
    changes: Mapping[str, Any] = field(default_factory=dict)
    state: TrialState = TrialState.OK
    failure: Failure | None = None


class RecordBuilder:
    """Collects launches into a SweepRecord; the node's clock runs on from launch to launch."""

    def __init__(self, spec: Experiment) -> None:
        self.experiment = spec
        self.launches: list[LaunchRecord] = []
        self.trials: list[TrialRecord] = []
        self.skipped: list[SkippedConfiguration] = []
        self.now_s = 1000.0

    def launch(
        self,
        configuration: Configuration,
        *plans: TrialPlan,
        role: Role = Role.MAIN,
        arm: str = "default-arm",
        node: str = "node-a",
        command: ServerCommand | None = None,
        directory: str | None = None,
        log_tail: Sequence[str] = (),
    ) -> None:
        """Add a launch that ended ok, with one trial for each plan."""
        planned = self._planned(
            configuration, plans, role=role, arm=arm, node=node, command=command
        )
        line = self._started(load_s=8.0)
        requests: list[RequestRecord] = []
        for trial, plan in zip(planned.trials, plans, strict=True):
            self._measure(line, requests, trial, plan)
            self.trials.append(TrialRecord(trial, planned, plan.state, plan.failure, 1))
        line.phase("stop")
        line.add("stopped", 0.5, how="term", seconds=0.5)
        line.add("outcome", 0.1, end="done", phase="release", clean=True)
        self._ended(planned, line, requests, directory=directory, log_tail=log_tail)

    def failed_launch(
        self,
        configuration: Configuration,
        *workloads: Workload,
        failure: Failure,
        log_tail: Sequence[str] = (),
        role: Role = Role.MAIN,
        arm: str = "default-arm",
        node: str = "node-a",
        command: ServerCommand | None = None,
    ) -> None:
        """Add a launch that failed while loading."""
        plans = [
            TrialPlan(item, concurrency) for item in workloads for concurrency in item.concurrency
        ]
        planned = self._planned(
            configuration, plans, role=role, arm=arm, node=node, command=command
        )
        line = Timeline(self.now_s)
        line.add("agent", boot_id="boot-1", pid=1, python="3.9", host="gpu-a", user="me")
        line.phase("load")
        line.add("server_started", 0.1, pid=2, port=8000)
        line.phase("stop", 4.0)
        line.add("outcome", 0.5, end="server_exit", phase="load", clean=True)
        self.trials += [
            TrialRecord(trial, planned, TrialState.FAILED, failure, 1) for trial in planned.trials
        ]
        self._ended(planned, line, [], failure=failure, log_tail=log_tail)

    def not_run(self, configuration: Configuration, item: Workload) -> None:
        """Add a launch that was never started."""
        planned = self._planned(configuration, [TrialPlan(item)])
        self.launches.append(LaunchRecord(planned, LaunchState.NOT_RUN, None, ()))
        self.trials.append(TrialRecord(planned.trials[0], planned, TrialState.NOT_RUN, None, None))

    def skip(self, configuration: Configuration, reason: str) -> None:
        """Add a configuration that the engine's rules refuse."""
        self._know(configuration)
        key = identity(configuration)
        self.skipped.append(SkippedConfiguration(key, configuration, reason))

    def _know(self, configuration: Configuration) -> None:
        """Make sure that the experiment has a configuration's variant."""
        axes, name = self.experiment.axes, configuration.variant
        if name not in {variant.name for variant in axes.variants}:
            axes = replace(axes, variants=(*axes.variants, Variant(name)))
            self.experiment = replace(self.experiment, axes=axes)

    def record(self, driver_note: str | None = None) -> SweepRecord:
        """Return what was collected."""
        return SweepRecord(
            sweep_id="test-20260102T030405Z-abcd",
            experiment=self.experiment,
            launches=tuple(self.launches),
            trials=tuple(self.trials),
            skipped=tuple(self.skipped),
            created_utc="2026-01-02T03:04:00.000Z",
            driver_note=driver_note,
        )

    def _planned(
        self,
        configuration: Configuration,
        plans: Sequence[TrialPlan],
        *,
        role: Role = Role.MAIN,
        arm: str = "default-arm",
        node: str = "node-a",
        command: ServerCommand | None = None,
    ) -> PlannedLaunch:
        self._know(configuration)
        launch_id = identity(configuration, role, arm, node)
        trials = tuple(
            PlannedTrial(
                identity(launch_id, plan.workload.name, plan.concurrency),
                identity(configuration),
                configuration,
                plan.workload,
                plan.concurrency,
                pinned=role is Role.SCAN,
            )
            for plan in plans
        )
        server = command or ServerCommand(("llama-server", "--port", "PORT"), 2)
        return PlannedLaunch(launch_id, role, arm, node, server, trials)

    def _started(self, load_s: float) -> Timeline:
        line = Timeline(self.now_s)
        line.add("agent", boot_id="boot-1", pid=1, python="3.9", host="gpu-a", user="me")
        line.phase("claim")
        line.phase("start", 0.2)
        line.add("server_started", 0.1, pid=2, port=8000)
        line.phase("load", 0.1)
        line.add("healthy", load_s - 0.5)
        line.phase("ready")
        line.add("first_token", 0.4)
        return line

    def _measure(
        self,
        line: Timeline,
        requests: list[RequestRecord],
        trial: PlannedTrial,
        plan: TrialPlan,
    ) -> None:
        place: dict[str, Any] = {"trial": trial.trial_id}
        line.phase("warmup", 0.1, **place)
        for window in range(plan.windows):
            line.phase("flush", 1.0, **place, window=window)
            line.add("flush", 0.1, confirmed=True, tries=1, status=200)
            line.phase("measure", 0.1, **place, window=window)
            start_s = line.now_s
            for index, prompt in enumerate(plan.workload.prompts):
                decode_s = plan.time_s(window, index)
                meta = {"cycles": plan.cycles, "accepted": plan.accepted, "drafted": plan.drafted}
                fields: dict[str, Any] = {
                    "window": window,
                    "last_s": 0.1 + decode_s,
                    "end_s": 0.1 + decode_s,
                    "text_sha256": plan.text(index),
                    "meta": meta,
                } | dict(plan.changes)
                requests.append(
                    request(len(requests), trial.trial_id, prompt.prompt_id, line.now_s, **fields)
                )
                line.now_s += 0.1 + decode_s
            line.add(
                "window", **place, window=window, complete=True, start_s=start_s, end_s=line.now_s
            )
        line.add("trial_end", **place, end="complete", windows=plan.windows, detail=None)

    def _ended(
        self,
        planned: PlannedLaunch,
        line: Timeline,
        requests: Sequence[RequestRecord],
        *,
        failure: Failure | None = None,
        directory: str | None = None,
        log_tail: Sequence[str] = (),
    ) -> None:
        state = LaunchState.DONE if failure is None else LaunchState.FAILED
        end = "done" if failure is None else "server_exit"
        outcome = Outcome(
            end, "release", None, ServerIdent(2, 3, 8000, 0), [], list(log_tail), True, [], {}, {}
        )  # fmt: skip
        attempt = AttemptRecord(
            launch_id=planned.launch_id,
            attempt=1,
            node=planned.node,
            intent_utc="2026-01-02T03:04:04.000Z",
            state=state,
            failure=failure,
            events=tuple(line.events),
            requests=tuple(requests),
            outcome=outcome,
            directory=directory,
            engine_version="b6000",
        )
        self.launches.append(LaunchRecord(planned, state, failure, (attempt,)))
        self.now_s = line.now_s + 1.0
