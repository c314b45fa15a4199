"""An engine in rehearsal: its rules, the files and the version on the node are real; the server
that answers is the simulated one.

What would break before the first token (paths, Python, setup, arguments that cannot work) and
everything that sweep does around a server is tried this way; what the engine makes of its
arguments is not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sweep.agent.wire import Answer, EngineDoc, Expected, Outcome, Request, RequestRecord
from sweep.engines.sglang.speculation import MAX_DRAFT_TOKENS, largest_pool
from sweep.engines.simulator import Simulator, arguments
from sweep.model.errors import Problem
from sweep.model.experiment import Experiment, Prompt, Workload
from sweep.model.plan import Configuration, PlannedTrial, ServerCommand
from sweep.model.states import Failure
from sweep.ports import (
    Counters,
    Engine,
    EngineFacts,
    Installation,
    Judged,
    ServerCounters,
    StepScan,
)

LOAD_SPEEDUP = 300
"""The packaged calibration's load of 900 s takes 3 s."""


class Rehearsed:
    """Implements ports.Engine: rules of a real engine, behaviour of the simulated server."""

    def __init__(self, real: Engine) -> None:
        self._real = real
        self._simulator = Simulator()

    @property
    def kind(self) -> str:
        """What answers: the simulator."""
        return self._simulator.kind

    def problems(self, experiment: Experiment) -> tuple[Problem, ...]:
        """What is wrong with the experiment for the real engine."""
        return self._real.problems(experiment)

    def judge(
        self, configuration: Configuration, experiment: Experiment, known: EngineFacts | None
    ) -> Judged:
        """Apply the real engine's rules to one configuration."""
        return self._real.judge(configuration, experiment, known)

    def server(self, configuration: Configuration, experiment: Experiment) -> ServerCommand:
        """How the simulated server for a configuration is started, with the real arguments."""
        return arguments.server(_simulated(configuration), _hurried(experiment))

    @property
    def scan(self) -> StepScan | None:
        """As the real engine's would be, on the simulated server."""
        real = self._real.scan
        return None if real is None else _RehearsedScan(real, self._simulator.scan)

    def identity_paths(self, experiment: Experiment) -> tuple[str, ...]:
        """The real engine's and models' files: a rehearsal finds out that they are there."""
        return self._real.identity_paths(experiment)

    def installation(self, experiment: Experiment) -> Installation:
        """The real engine's package and models, and the simulated load."""
        load_s = arguments.load_s(_hurried(experiment))
        return replace(self._real.installation(experiment), load_s=load_s)

    def version_argv(self, experiment: Experiment) -> tuple[str, ...]:
        """The real engine's version command: a rehearsal finds out that it can be run."""
        return self._real.version_argv(experiment)

    def version_input(self, experiment: Experiment) -> Mapping[str, Any]:
        """What the real engine's version command is given: prompts are rendered as for it."""
        return self._real.version_input(experiment)

    def document(self, experiment: Experiment) -> EngineDoc:
        """What the agent needs to know of the simulated server."""
        return self._simulator.document(experiment)

    def request(self, workload: Workload, prompt: Prompt) -> Request:
        """The simulated server's request for a prompt of a workload."""
        return self._simulator.request(workload, prompt)

    def throwaway(self, workload: Workload) -> Request:
        """A short request unrelated to every prompt."""
        return self._simulator.throwaway(workload)

    def answer(self, workload: Workload) -> Answer:
        """Where things stand in the simulated server's answers."""
        return self._simulator.answer(workload)

    def count(self, record: RequestRecord) -> Counters:
        """Read the raw counts of one answered request."""
        return self._simulator.count(record)

    def server_counters(self, metrics: str) -> ServerCounters:
        """Read the simulated server's own counters."""
        return self._simulator.server_counters(metrics)

    def classify_launch(self, outcome: Outcome) -> Failure | None:
        """Name why a launch failed."""
        return self._simulator.classify_launch(outcome)

    def classify_trial(
        self, trial: PlannedTrial, records: Sequence[RequestRecord]
    ) -> Failure | None:
        """Speculation that ran otherwise than the simulated server was asked to."""
        simulated = replace(trial, configuration=_simulated(trial.configuration))
        return self._simulator.classify_trial(simulated, records)


class _RehearsedScan:
    """Implements ports.StepScan: what the real engine could share, the simulated server does."""

    def __init__(self, real: StepScan, simulated: StepScan) -> None:
        self._real = real
        self._simulated = simulated

    def obstacle(
        self, configuration: Configuration, experiment: Experiment, known: EngineFacts | None
    ) -> str | None:
        """Why a configuration needs a server of its own, by the real engine's rules."""
        return self._real.obstacle(configuration, experiment, known)

    def server(
        self, configurations: Sequence[Configuration], experiment: Experiment
    ) -> ServerCommand:
        """How the simulated server that holds all of these is started."""
        return self._simulated.server(
            [_simulated(each) for each in configurations], _hurried(experiment)
        )

    def asking(self, request: Request, num_steps: int) -> Request:
        """The same request, asking for a step count."""
        return self._simulated.asking(request, num_steps)

    def in_force(self, num_steps: int) -> tuple[Expected, ...]:
        """What the simulated server says of itself."""
        return self._simulated.in_force(num_steps)


def _hurried(experiment: Experiment) -> Experiment:
    args = {**experiment.engine.args, arguments.LOAD_SPEEDUP: LOAD_SPEEDUP}
    return replace(experiment, engine=replace(experiment.engine, args=args))


def _simulated(configuration: Configuration) -> Configuration:
    """Return what the simulated server is asked for in a configuration's place: it counts draft
    tokens as SGLang does, the root included, and knows no algorithm without draft steps."""
    if configuration.is_baseline:
        return configuration
    topk = configuration.topk or 1
    steps = configuration.num_steps or max(1, (configuration.num_draft_tokens or 2) - 1)
    tree = configuration.num_draft_tokens or min(MAX_DRAFT_TOKENS, largest_pool(steps, topk))
    return replace(
        configuration,
        algorithm=arguments.DEFAULT_ALGORITHM,
        num_steps=steps,
        topk=topk,
        num_draft_tokens=steps + 1 if topk == 1 else min(tree, largest_pool(steps, topk)),
    )
