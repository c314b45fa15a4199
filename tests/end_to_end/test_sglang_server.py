"""A sweep of SGLang's real server on a CPU: submitted as a user does, with the file that comes
with the project."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes import sglang_server
from fakes.machine import Finished, Machine

from sweep.agent import wire
from sweep.model.record import AttemptRecord
from sweep.views import record

pytestmark = [
    pytest.mark.ray,
    pytest.mark.sglang,
    pytest.mark.skipif(sglang_server.missing() is not None, reason=str(sglang_server.missing())),
]
FILE = sglang_server.ROOT / "experiments" / "quickstart-sglang-cpu.yaml"
SHORT = {
    "sweep.num_steps": "[1, 3]",
    "workloads.0.max_tokens": "24",
    "workloads.0.concurrency": "[1]",
    "workloads.0.repeats": "{min: 2, max: 2}",
}
SWEEP_S = 900.0
"""Four launches, on a machine that may be busy."""

Rows = list[dict[str, Any]]


class Swept:
    """A sweep that ended."""

    def __init__(self, machine: Machine, ended: Finished) -> None:
        self.ended = ended
        self.directory = machine.directory
        self.rows: Rows = json.loads(machine.run("export", "--format", "json").text)
        self.record = record(machine.directory)

    def row(self, steps: int | None) -> dict[str, Any]:
        """The row with so many steps; None: the first baseline."""
        return next(row for row in self.rows if row["num_steps"] == steps)

    def attempt(self, steps: int | None) -> AttemptRecord:
        """The attempt that a row is of."""
        name = self.row(steps)["launch_id"]
        launch = next(item for item in self.record.launches if item.launch.launch_id == name)
        return launch.attempts[-1]

    def metric(self, steps: int | None, window: int, when: str, name: str) -> float:
        """A metric of the server before or after a window, summed over its labels."""
        attempt = self.attempt(steps)
        scrapes = Path(str(attempt.directory)) / wire.SCRAPES_DIR
        (path,) = scrapes.glob(f"*.{window}.{when}.metrics")
        lines = [line for line in path.read_text().splitlines() if line.startswith(f"{name}{{")]
        return sum(float(line.rpartition(" ")[2]) for line in lines)


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Swept]:
    """Baseline, one step, three steps, baseline again."""
    machine = Machine(tmp_path_factory.mktemp("machine"))
    try:
        words = [word for key, value in SHORT.items() for word in ("--set", f"{key}={value}")]
        yield Swept(machine, machine.run("submit", FILE, "--yes", *words, timeout_s=SWEEP_S))
    finally:
        machine.close()


def test_the_sweep_is_complete(swept: Swept) -> None:
    """Every launch went well, and the node is clean."""
    assert swept.ended.code == 0, swept.ended.text
    assert [row["state"] for row in swept.rows] == ["ok"] * 4
    assert {row["engine_version"] for row in swept.rows} == {"sglang 0.5.23"}
    outcomes = [launch.attempts[-1].outcome for launch in swept.record.launches]
    assert [outcome and (outcome.end, outcome.clean) for outcome in outcomes] == [
        ("done", True)
    ] * 4


def test_accept_lengths_are_within_their_bounds_and_grow(swept: Swept) -> None:
    """At most steps + 1, and p_1 + p_2 … makes up the rest."""
    one, three = swept.row(1), swept.row(3)
    assert 1.2 < one["accept_length"] <= 2.0
    assert one["accept_length"] < three["accept_length"] <= 4.0
    for row in (one, three):
        shares = [row[f"p_{k}"] for k in range(1, row["num_steps"] + 1)]
        assert shares == sorted(shares, reverse=True)
        assert 1 + sum(shares) == pytest.approx(row["accept_length"])
        assert row["drafted_tokens"] == row["cycles"] * row["num_steps"]


def test_the_baseline_does_not_speculate(swept: Swept) -> None:
    """Neither by its answers nor by the server's own counters."""
    row = swept.row(None)
    assert row["is_baseline"]
    assert (row["accept_length"], row["cycles"], row["p_1"]) == (None, None, None)
    assert swept.metric(None, 1, "after", "sglang:spec_verify_calls_total") == 0
    assert row["output_tokens"] == 2 * 6 * 24


def test_counts_are_those_of_the_servers_own_counters(swept: Swept) -> None:
    """Their growth over each window, while nothing else is served."""
    for window in (0, 1):
        records = [
            request
            for request in swept.attempt(3).requests
            if request.role == "measure" and request.window == window
        ]
        for name, counted in {
            "sglang:spec_verify_calls_total": sum(item.meta["spec_verify_ct"] for item in records),
            "sglang:generation_tokens_total": sum(item.output_tokens or 0 for item in records),
            "sglang:num_requests_total": len(records),
        }.items():
            before, after = (swept.metric(3, window, when, name) for when in ("before", "after"))
            assert after - before == counted, name


def test_settings_are_those_that_were_asked(swept: Swept) -> None:
    """The server says what it runs with, and changed nothing."""
    for row in swept.rows:
        doubts = {"settings_changed", "settings_unknown", "cached_prompt", "server_disagrees"}
        assert not doubts & set(row["flags"])
        assert row["settings_note"] is None
    three = swept.row(3)
    assert (three["effective_num_steps"], three["effective_topk"]) == (3, 1)
    assert three["effective_num_draft_tokens"] == 4
    (event,) = [e for e in swept.attempt(3).events if e["event"] == "settings"]
    assert event["values"]["max-running-requests"] == 4
    assert event["values"]["attention-backend"] == "torch_native"


def test_prompts_are_rendered_by_the_servers_tokenizer(swept: Swept) -> None:
    """What is sent are tokens, and the server counts as many."""
    (workload,) = swept.record.experiment.workloads
    lengths = {prompt.prompt_id: len(prompt.token_ids or ()) for prompt in workload.prompts}
    assert min(lengths.values()) > 0
    measured = [item for item in swept.attempt(1).requests if item.role == "measure"]
    assert {item.prompt: item.input_tokens for item in measured} == lengths
    # The cache was flushed: a prompt finds no more than what prompts before it begin with alike.
    assert max(item.cached_tokens or 0 for item in measured) < min(lengths.values()) / 2


def test_the_load_is_told_by_milestones(swept: Swept) -> None:
    """From the arguments to the last word before the server is ready."""
    names = [e["name"] for e in swept.attempt(3).events if e["event"] == "milestone"]
    assert names == [
        "arguments", "distributed", "weights", "shards", "weights_loaded", "cache", "ready",
    ]  # fmt: skip
    assert not any(event["event"] == "pattern" for event in swept.attempt(3).events)
