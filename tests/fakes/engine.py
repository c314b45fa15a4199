"""An engine for tests of planning, with SGLang's rules of trees and nothing behind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sweep.agent.wire import Answer, EngineDoc, Expected, HttpCall, Outcome, Request, RequestRecord
from sweep.model.errors import Problem
from sweep.model.experiment import Experiment, Prompt, Workload
from sweep.model.plan import Configuration, PlannedTrial, ServerCommand, ServerFile
from sweep.model.states import Failure
from sweep.ports import Counters, EngineFacts, Installation, Judged, ServerCounters

POOL_RULE = "num_draft_tokens - 1 must be at most topk + (num_steps - 1) * topk^2"


class FakeScan:
    """Holds chains, unless an obstacle is given, in a server that is told all steps."""

    def __init__(self, obstacle: str | None = None) -> None:
        self._obstacle = obstacle

    def obstacle(
        self, configuration: Configuration, experiment: Experiment, known: EngineFacts | None
    ) -> str | None:
        """Refuse trees, and whatever the constructor says."""
        return "trees" if configuration.topk != 1 else self._obstacle

    def server(
        self, configurations: Sequence[Configuration], experiment: Experiment
    ) -> ServerCommand:
        """Return the first one's server with the steps of all in a file."""
        plain = FakeEngine().server(configurations[0], experiment)
        steps = " ".join(str(each.num_steps) for each in configurations)
        argv = (*plain.argv, "--hold", "steps")
        return replace(plain, argv=argv, files=(ServerFile(len(argv) - 1, "steps", steps),))

    def asking(self, request: Request, num_steps: int) -> Request:
        """Put the steps into the body."""
        return replace(request, body={**request.body, "steps": num_steps})

    def in_force(self, num_steps: int) -> tuple[Expected, ...]:
        """Return where the fake server says which steps are in force."""
        return (Expected(["steps"], num_steps),)


class FakeEngine:
    """Argv is all that is known; arguments named `spec-…` matter to speculation only."""

    def __init__(self, problems: Sequence[Problem] = (), scan: FakeScan | None = None) -> None:
        self._problems = tuple(problems)
        self._scan = scan

    @property
    def kind(self) -> str:
        """As `engine.kind` in the file."""
        return "fake"

    def problems(self, experiment: Experiment) -> tuple[Problem, ...]:
        """Return the problems given to the constructor."""
        return self._problems

    def judge(
        self, configuration: Configuration, experiment: Experiment, known: EngineFacts | None
    ) -> Judged:
        """Apply the pool rule to trees, and the number of tokens of a chain."""
        steps, topk = configuration.num_steps, configuration.topk
        if configuration.is_baseline and steps is None:
            args = {k: v for k, v in configuration.args.items() if not k.startswith("spec-")}
            return Judged(Configuration(None, variant=configuration.variant, args=args))
        configuration = replace(configuration, algorithm=configuration.algorithm or "EAGLE3")
        if steps is None or topk is None:
            return Judged(configuration, reason="num_steps and topk must be given together")
        pool = topk + (steps - 1) * topk**2
        draft = configuration.num_draft_tokens
        if topk == 1:
            note = None
            if draft not in (None, steps + 1):
                note = "num_draft_tokens is num_steps + 1 when topk is 1"
            return Judged(replace(configuration, num_draft_tokens=steps + 1), note=note)
        if draft is None:
            return Judged(replace(configuration, num_draft_tokens=min(64, pool + 1)))
        if draft - 1 > pool:
            return Judged(configuration, reason=f"{POOL_RULE}: {draft - 1} > {pool}")
        return Judged(configuration)

    def server(self, configuration: Configuration, experiment: Experiment) -> ServerCommand:
        """Return an argv with everything that the server is started with."""
        variant = next(v for v in experiment.axes.variants if v.name == configuration.variant)
        args = {**experiment.engine.args, **variant.args, **configuration.args}
        argv = ["server", "--model", experiment.engine.model, "--port", "0"]
        if configuration.is_baseline:
            args = {name: value for name, value in args.items() if not name.startswith("spec-")}
        else:
            draft = variant.draft_model or experiment.engine.draft_model
            argv += ["--draft", str(draft), "--steps", str(configuration.num_steps)]
            argv += ["--topk", str(configuration.topk)]
            argv += ["--tokens", str(configuration.num_draft_tokens)]
        argv += [word for name, value in args.items() for word in (f"--{name}", str(value))]
        env = {**experiment.engine.env, **variant.env}
        return ServerCommand(
            tuple(argv),
            port_at=4,
            env={name: value for name, value in env.items() if value is not None},
            unset=tuple(name for name, value in env.items() if value is None),
        )

    @property
    def scan(self) -> FakeScan | None:
        """As given to the constructor."""
        return self._scan

    def identity_paths(self, experiment: Experiment) -> tuple[str, ...]:
        """Return the model."""
        return (experiment.engine.model,)

    def installation(self, experiment: Experiment) -> Installation:
        """Return the model."""
        return Installation(models=(experiment.engine.model,))

    def version_argv(self, experiment: Experiment) -> tuple[str, ...]:
        """Return a command that prints one line."""
        return ("server", "--version")

    def version_input(self, experiment: Experiment) -> Mapping[str, Any]:
        """Return nothing."""
        return {}

    def document(self, experiment: Experiment) -> EngineDoc:
        """Return a document for a server that has a health path and nothing else."""
        answer = Answer([["text"]], [["tokens"]], [["prompt_tokens"]])
        request = Request("/generate", {"n": 1}, "ready")
        return EngineDoc("fake", HttpCall("/health"), request, answer, None, [], [], [])

    def request(self, workload: Workload, prompt: Prompt) -> Request:
        """Return a request that holds the prompt and the output rule."""
        body = {"prompt": prompt.text, "n": workload.max_tokens}
        return Request("/generate", body, prompt.prompt_id)

    def throwaway(self, workload: Workload) -> Request:
        """Return a one-token request."""
        return Request("/generate", {"prompt": "unrelated", "n": 1}, "throwaway")

    def answer(self, workload: Workload) -> Answer:
        """Return where the fake server puts things."""
        return Answer([["text"]], [["tokens"]], [["prompt_tokens"]])

    def count(self, record: RequestRecord) -> Counters:
        """Return the output tokens; nothing else is reported."""
        return Counters(output_tokens=record.output_tokens)

    def server_counters(self, metrics: str) -> ServerCounters:
        """Return nothing: counts come with the answers."""
        return ServerCounters()

    def classify_launch(self, outcome: Outcome) -> Failure | None:
        """Return a failure of class unknown unless the launch is done."""
        return None if outcome.end == "done" else Failure("unknown", outcome.end)

    def classify_trial(
        self, trial: PlannedTrial, records: Sequence[RequestRecord]
    ) -> Failure | None:
        """Return nothing: this engine has no ways of its own to fail."""
        return None
