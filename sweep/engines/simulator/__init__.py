"""The simulated server: SGLang's arguments and API over a cost model, to rehearse with.

arguments  flags: what the file may set, what sweep sets, what speculation needs
rules      problems of an experiment, and what the server makes of a configuration

Requests, answers, counts and lines of the log are those of `engines/sglang`. The server itself is
`sweep.simulator`, which travels in the agent's archive.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sweep.agent.wire import EngineDoc
from sweep.engines.sglang import wire
from sweep.engines.sglang.scan import StepScan, obstacle_in_shape
from sweep.engines.sglang.surface import Surface
from sweep.engines.simulator import arguments, rules
from sweep.model.errors import Problem
from sweep.model.experiment import Experiment
from sweep.model.plan import Configuration, ServerCommand
from sweep.ports import EngineFacts, Installation, Judged


class SimulatedScan(StepScan):
    """SGLang's scan on a server of one version, whose requests choose the steps themselves."""

    def obstacle(
        self,
        configuration: Configuration,
        experiment: Experiment,  # noqa: ARG002 - one version's rules
        facts: EngineFacts | None,  # noqa: ARG002
    ) -> str | None:
        """Say why a configuration needs a server of its own."""
        return obstacle_in_shape(configuration)


class Simulator(Surface):
    """The engine `simulator`."""

    @property
    def kind(self) -> str:
        """As `engine.kind` in the file."""
        return "simulator"

    def problems(self, experiment: Experiment) -> tuple[Problem, ...]:
        """What is wrong with the experiment for this engine, before any planning."""
        return rules.problems(experiment)

    def judge(
        self,
        configuration: Configuration,
        experiment: Experiment,
        known: EngineFacts | None,  # noqa: ARG002 - one version's rules
    ) -> Judged:
        """Apply SGLang's rules to one configuration."""
        return rules.judge(configuration, experiment)

    def server(self, configuration: Configuration, experiment: Experiment) -> ServerCommand:
        """How a server for this configuration is started."""
        return arguments.server(configuration, experiment)

    @property
    def scan(self) -> StepScan:
        """As SGLang does: the simulated server takes the same flags and requests."""
        return SimulatedScan(arguments.server)

    def identity_paths(self, experiment: Experiment) -> tuple[str, ...]:
        """Calibration files on the node."""
        return arguments.identity_paths(experiment)

    def installation(self, experiment: Experiment) -> Installation:
        """Nothing: the simulator travels with the agent, and its models are names."""
        return Installation(load_s=arguments.load_s(experiment))

    def version_argv(self, experiment: Experiment) -> tuple[str, ...]:
        """The simulator's own --version: a hash of its sources and its own calibration."""
        return (*arguments.command(experiment.engine.python), "--version")

    def version_input(self, experiment: Experiment) -> Mapping[str, Any]:  # noqa: ARG002 - like every engine
        """Nothing."""
        return {}

    def document(self, experiment: Experiment) -> EngineDoc:
        """What the agent needs to know of this engine."""
        return wire.document("simulator", experiment)
