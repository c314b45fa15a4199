"""What an engine knows of a server that speaks as SGLang does, whatever answers behind it."""

from __future__ import annotations

from collections.abc import Sequence

from sweep.agent.wire import Answer, Outcome, Request, RequestRecord
from sweep.engines.sglang import counts, log, wire
from sweep.engines.sglang.metrics import server_counters
from sweep.model.experiment import Prompt, Workload
from sweep.model.plan import PlannedTrial
from sweep.model.states import Failure
from sweep.ports import Counters, ServerCounters


class Surface:
    """The half of ports.Engine that concerns requests, answers and ends."""

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
        """Read the raw counts of one answered request."""
        return counts.count(record)

    def server_counters(self, metrics: str) -> ServerCounters:
        """Read the server's own counters from a scrape of its metrics."""
        return server_counters(metrics)

    def classify_launch(self, outcome: Outcome) -> Failure | None:
        """Name why a launch failed."""
        return log.classify(outcome)

    def classify_trial(
        self, trial: PlannedTrial, records: Sequence[RequestRecord]
    ) -> Failure | None:
        """Speculation that was not asked for, that never ran, or that ran with other settings."""
        return counts.classify_trial(trial, records)
