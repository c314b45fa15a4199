"""A sweep of SGLang's real server on a CPU behind SSH: submitted as a user does, with the file
that comes with the project."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes import sglang_server
from fakes.machine import Finished, Machine
from faults.remote import ALIAS, node_behind_ssh

from sweep.agent import cycles, wire
from sweep.model.record import AttemptRecord
from sweep.views import record

pytestmark = [
    pytest.mark.ray,
    pytest.mark.sglang,
    pytest.mark.skipif(sglang_server.missing() is not None, reason=str(sglang_server.missing())),
]
FILE = sglang_server.ROOT / "experiments" / "sglang-cpu.yaml"
THERE = {
    "node.host": ALIAS,
    "engine.python": str(sglang_server.PYTHON),
    "engine.model": str(sglang_server.MODELS / "tiny-target"),
    "engine.draft_model": str(sglang_server.MODELS / "tiny-eagle3"),
    "sweep.variants.standalone.draft_model": str(sglang_server.MODELS / "tiny-draft"),
}
SHORT = {
    "engine.args.decode-log-interval": "1",  # a line a cycle
    "sweep.num_steps": "[1, 3]",
    "workloads.0.max_tokens": "24",
    "workloads.0.repeats": "{min: 2, max: 2}",
}
TOKENS = 2 * 6 * 24
"""Of all answers of a trial: windows, prompts, tokens each."""
DRAFTED = {(1, "default"): 1, (3, "default"): 3, (3, "tree"): 7, (3, "standalone"): 3}
"""(steps, variant) → draft tokens a cycle, the root not counted."""
SWEEP_S = 1200.0
"""Seven launches, on a machine that may be busy."""

Rows = list[dict[str, Any]]


class Swept:
    """A sweep that ended."""

    def __init__(self, machine: Machine, ended: Finished) -> None:
        self.ended = ended
        self.directory = machine.directory
        self.rows: Rows = json.loads(machine.run("export", "--format", "json").text)
        self.record = record(machine.directory)

    def row(self, steps: int | None, variant: str = "default") -> dict[str, Any]:
        """The row with so many steps; None: the first baseline, and n-gram drafting."""
        return next(
            row for row in self.rows if (row["num_steps"], row["variant"]) == (steps, variant)
        )

    @property
    def drafting(self) -> Rows:
        """The rows with speculation."""
        return [row for row in self.rows if not row["is_baseline"]]

    def attempt(self, steps: int | None, variant: str = "default") -> AttemptRecord:
        """The attempt that a row is of."""
        name = self.row(steps, variant)["launch_id"]
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
    """Baseline, one step, three steps, a tree, a draft model, n-grams, baseline again."""
    machine = Machine(tmp_path_factory.mktemp("machine"))
    given = {**THERE, **SHORT, "node.workdir": str(machine.root / "node")}
    words = [word for key, value in given.items() for word in ("--set", f"{key}={value}")]
    try:
        with node_behind_ssh(machine):
            ended = machine.run("submit", FILE, "--yes", *words, timeout_s=SWEEP_S)
        yield Swept(machine, ended)
    finally:
        machine.close()


def test_the_sweep_is_complete(swept: Swept) -> None:
    """Every launch went well, and the node is clean."""
    assert swept.ended.code == 0, swept.ended.text
    assert [row["state"] for row in swept.rows] == ["ok"] * 7
    assert {row["engine_version"] for row in swept.rows} == {"sglang 0.5.23"}
    outcomes = [launch.attempts[-1].outcome for launch in swept.record.launches]
    assert [outcome and (outcome.end, outcome.clean) for outcome in outcomes] == [
        ("done", True)
    ] * 7


def test_accept_lengths_are_within_their_bounds_and_grow(swept: Swept) -> None:
    """At most steps + 1, and p_1 + p_2 … makes up the rest. Of three steps, a tree has at least
    what its chain has."""
    lengths = {key: swept.row(*key)["accept_length"] for key in DRAFTED}
    assert 1.2 < lengths[1, "default"] <= 2.0
    assert lengths[1, "default"] < lengths[3, "default"] <= lengths[3, "tree"] <= 4.0
    assert 1.2 < lengths[3, "standalone"] <= 4.0
    for key, drafted in DRAFTED.items():
        row = swept.row(*key)
        shares = [row[f"p_{k}"] for k in range(1, row["num_steps"] + 1)]
        assert shares == sorted(shares, reverse=True)
        assert 1 + sum(shares) == pytest.approx(row["accept_length"])
        assert row["drafted_tokens"] == row["cycles"] * drafted


def test_n_grams_are_drafted(swept: Swept) -> None:
    """Without steps and without a drafter; what is accepted is counted all the same."""
    row = swept.row(None, "ngram")
    assert (row["algorithm"], row["num_steps"], row["num_draft_tokens"]) == ("NGRAM", None, 8)
    assert row["accept_length"] >= 1.0
    assert row["cycles"] > 0


def test_the_probe_counts_what_the_answers_say(swept: Swept) -> None:
    """Every cycle of the windows is timed, whatever drafts, and its tokens are the client's."""
    for row in swept.drafting:
        assert row["timed_cycles"] == row["cycles"], row["configuration"]
        assert row["instrument_accept_length"] == pytest.approx(row["accept_length"])
        assert row["verify_ms"] > 0
        assert row["draft_ms"] > 0
        assert (row["extend_ms"] is None) == (row["variant"] == "ngram")  # nothing to extend


@pytest.mark.parametrize("variant", ["default", "tree", "standalone"])
def test_the_servers_log_tells_the_same_accept_length(variant: str, swept: Swept) -> None:
    """The mean of its lines is that of the probe's cycles, warm-ups included; the server's own
    requests for its health, which the probe leaves out, are few."""
    directory = Path(str(swept.attempt(3, variant).directory))
    log = (directory / wire.LOG_FILE).read_text()
    logged = [float(length) for length in re.findall(r"Decode batch.* accept len: ([\d.]+)", log)]
    accepted = cycles.decode((directory / "cycles.0.jsonl").read_text()).columns["accepted"]
    assert len(logged) == pytest.approx(len(accepted), rel=0.03)
    mean = 1 + sum(count or 0 for count in accepted) / len(accepted)
    assert sum(logged) / len(logged) == pytest.approx(mean, rel=0.03)


def test_answers_are_those_of_the_baseline(swept: Swept) -> None:
    """Token by token; where arithmetic in another order turned one, the row says so."""
    for row in swept.drafting:
        assert row["same_as_baseline_share"] >= 0.5
        assert ("output_differs" in row["flags"]) == (row["same_as_baseline_share"] < 1)


def test_the_baseline_does_not_speculate(swept: Swept) -> None:
    """Neither by its answers nor by the server's own counters."""
    row = swept.row(None)
    assert row["is_baseline"]
    assert (row["accept_length"], row["cycles"], row["p_1"]) == (None, None, None)
    assert swept.metric(None, 1, "after", "sglang:spec_verify_calls_total") == 0
    assert row["output_tokens"] == TOKENS


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
