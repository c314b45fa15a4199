"""SGLang's HTTP server, `python -m sglang.launch_server`.

arguments    flags: what the file may set, what sweep sets, what speculation needs
speculation  what the algorithms make of steps, branches and draft tokens
rules        problems of an experiment, and what a server makes of a configuration
wire         requests, answers and calls, as data for the agent
profiling    what the probe inside the server needs
counts       the counts of an answer, in all their spellings
scan         one server for several step counts
log          lines of the server's log that mean something
surface      what all servers that speak as SGLang have in common
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sweep.agent.wire import EngineDoc
from sweep.engines.given import models
from sweep.engines.sglang import arguments, rules, scan, wire
from sweep.engines.sglang.surface import Surface
from sweep.model.errors import Problem
from sweep.model.experiment import Experiment
from sweep.model.plan import Configuration, ServerCommand
from sweep.ports import EngineFacts, Installation, Judged


class SGLang(Surface):
    """The engine `sglang`."""

    @property
    def kind(self) -> str:
        """As `engine.kind` in the file."""
        return "sglang"

    def problems(self, experiment: Experiment) -> tuple[Problem, ...]:
        """What is wrong with the experiment for this engine, before any planning."""
        return rules.problems(experiment)

    def judge(
        self, configuration: Configuration, experiment: Experiment, known: EngineFacts | None
    ) -> Judged:
        """Apply the rules of the node's SGLang to one configuration."""
        return rules.judge(configuration, experiment, known)

    def server(self, configuration: Configuration, experiment: Experiment) -> ServerCommand:
        """How a server for this configuration is started."""
        return arguments.server(configuration, experiment)

    @property
    def scan(self) -> scan.StepScan:
        """By adaptive speculation."""
        return scan.StepScan(arguments.server)

    def identity_paths(self, experiment: Experiment) -> tuple[str, ...]:
        """Model directories and the parts of the command that are paths."""
        return arguments.identity_paths(experiment)

    def installation(self, experiment: Experiment) -> Installation:
        """The package `sglang`, and models by path or by their name on the hub."""
        return Installation(
            models(experiment), True, "sglang", arguments.pythons(experiment), arguments.START_S
        )

    def version_argv(self, experiment: Experiment) -> tuple[str, ...]:
        """The installed package's version, and what else only its own Python knows."""
        return (arguments.python_of(experiment), "-c", arguments.ASKING)

    def version_input(self, experiment: Experiment) -> Mapping[str, Any]:
        """Which prompts are to be rendered, by which tokenizer."""
        return {
            "tokenizer": arguments.tokenizer(experiment),
            "prompts": wire.prompts_to_render(experiment),
        }

    def document(self, experiment: Experiment) -> EngineDoc:
        """What the agent needs to know of this engine."""
        return wire.document("sglang", experiment)
