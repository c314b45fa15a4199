"""llama.cpp's HTTP server, `llama-server`, and whatever speaks its flags and its API.

arguments  flags: what the file may set, what sweep sets, what speculation needs
rules      problems of an experiment, and what the server makes of a configuration
wire       requests, answers and calls, as data for the agent
log        lines of the server's log that mean something
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sweep.agent.wire import Answer, EngineDoc, Outcome, Request, RequestRecord
from sweep.engines.classify import classify_outcome
from sweep.engines.given import models
from sweep.engines.llama_cpp import arguments, log, rules, wire
from sweep.model.errors import Problem
from sweep.model.experiment import Experiment, Prompt, Workload
from sweep.model.plan import Configuration, PlannedTrial, ServerCommand
from sweep.model.states import Failure
from sweep.ports import Counters, EngineFacts, Installation, Judged, ServerCounters


class LlamaCpp:
    """The engine `llama.cpp`. Verified against llama.cpp b11549."""

    @property
    def kind(self) -> str:
        """As `engine.kind` in the file."""
        return "llama.cpp"

    def problems(self, experiment: Experiment) -> tuple[Problem, ...]:
        """What is wrong with the experiment for this engine, before any planning."""
        return rules.problems(experiment)

    def judge(
        self,
        configuration: Configuration,
        experiment: Experiment,
        known: EngineFacts | None,  # noqa: ARG002 - one version's rules
    ) -> Judged:
        """Apply the server's own rules to one configuration."""
        return rules.judge(configuration, experiment)

    def server(self, configuration: Configuration, experiment: Experiment) -> ServerCommand:
        """How a server for this configuration is started."""
        return arguments.server(configuration, experiment)

    @property
    def scan(self) -> None:
        """One server drafts one length."""
        return None

    def identity_paths(self, experiment: Experiment) -> tuple[str, ...]:
        """Model files, and the parts of the command that are paths."""
        return arguments.identity_paths(experiment)

    def installation(self, experiment: Experiment) -> Installation:
        """Model files; the server is a program."""
        return Installation(models=models(experiment))

    def version_argv(self, experiment: Experiment) -> tuple[str, ...]:
        """The server's own --version."""
        return (*arguments.command(experiment), "--version")

    def version_input(self, experiment: Experiment) -> Mapping[str, Any]:  # noqa: ARG002 - like every engine
        """Nothing."""
        return {}

    def document(self, experiment: Experiment) -> EngineDoc:  # noqa: ARG002 - alike for all
        """What the agent needs to know of this engine."""
        return wire.document()

    def request(self, workload: Workload, prompt: Prompt) -> Request:
        """The generation request for a prompt of a workload."""
        return wire.request(workload, prompt)

    def throwaway(self, workload: Workload) -> Request:
        """A short request unrelated to every prompt."""
        return wire.throwaway(workload)

    def answer(self, workload: Workload) -> Answer:
        """Where things stand in the answers to this workload's requests."""
        return wire.answer(workload.api)

    def count(self, record: RequestRecord) -> Counters:
        """Read the raw counts of one answered request.

        Cycles are an estimate: the server does not report them per request. Every decoding step
        after the first token, which prefill produces, yields its accepted draft tokens and one
        more, hence predicted_n - 1 - draft_n_accepted. It exceeds the server's own count of
        drafts (llamacpp:spec_decode_num_drafts_total) by at most 1 per request, when a single
        last token is decoded without a draft, and, with n-gram drafting, by every step that
        found no match.
        """
        drafted = record.meta.get("draft_n")
        accepted = record.meta.get("draft_n_accepted")
        predicted = record.meta.get("predicted_n")
        if drafted is None or accepted is None or predicted is None:
            return Counters(output_tokens=record.output_tokens)
        return Counters(
            output_tokens=record.output_tokens,
            cycles=predicted - 1 - accepted,
            drafted_tokens=drafted,
            accepted_tokens=accepted,
            cycles_estimated=True,
        )

    def server_counters(self, metrics: str) -> ServerCounters:  # noqa: ARG002 - like every engine
        """Return nothing: counts come with the answers."""
        return ServerCounters()

    def classify_launch(self, outcome: Outcome) -> Failure | None:
        """Name why a launch failed; a draft that was not loaded fails it though it served."""
        failure = classify_outcome(outcome, log.SIGNS)
        return failure and log.with_log_line(failure, outcome)

    def classify_trial(
        self, trial: PlannedTrial, records: Sequence[RequestRecord]
    ) -> Failure | None:
        """A warm cache, speculation that never drafted, or a baseline that drafted."""
        cached = [record for record in records if record.cached_tokens]
        if cached:
            return Failure(
                "unknown",
                f"{len(cached)} of {len(records)} requests were answered from the prompt cache "
                "though each asked for a cold one: their times are not comparable",
            )
        drafted = sum(record.meta.get("draft_n") or 0 for record in records)
        if trial.configuration.is_baseline:
            return _drafting_baseline(drafted) if drafted else None
        answered = any(record.output_tokens for record in records)
        return _never_drafted() if answered and not drafted else None


def _drafting_baseline(drafted: int) -> Failure:
    return Failure(
        "bad_args",
        f"the baseline drafted {drafted} tokens: the server speculates though it was not asked "
        "to; look for LLAMA_ARG_ variables in its environment",
    )


def _never_drafted() -> Failure:
    return Failure(
        "speculation_inactive",
        "the server answered without a single draft token: its log says why (`sweep logs`); for "
        "n-gram drafting, the prompts repeat nothing; answers of fewer than "
        f"{rules.SHORTEST_DRAFTED_ANSWER} tokens hold no draft",
    )
