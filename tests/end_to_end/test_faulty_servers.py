"""Servers that fail in every way, in one sweep: each gets its class, and costs no other launch."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fakes.machine import Machine, workload
from fakes.model_files import gguf

from sweep.agent import wire

FLOOD_BYTES = 50_000_000


def records(machine: Machine, steps: int, role: str = "measure") -> list[wire.RequestRecord]:
    """Recorded requests of a launch."""
    row = machine.attempts(steps)[-1]
    with machine.database() as database:
        lines = database.lines(row.launch_id, row.attempt, wire.REQUESTS_FILE)
    return [record for record in map(wire.decode_request, lines) if record.role == role]


def event_s(machine: Machine, steps: int, kind: str) -> float:
    """When a launch had an event, on the node's clock [s]."""
    return float(machine.events(steps, kind)[0]["t_s"])


def table(machine: Machine) -> dict[int, dict[str, Any]]:
    """Rows of the exported table by draft length."""
    rows = json.loads(machine.run("export", "--format", "json").text)
    return {row["num_steps"]: row for row in rows}


@pytest.mark.ray
def test_each_fault_has_its_class_and_the_next_launch_runs(machine: Machine) -> None:
    """Out of memory, never ready, stalls, errors, short answers, floods: one sweep meets all."""
    asked = machine.root / "requests.jsonl"
    prompts = [f"prompt number {number}" for number in range(20)]
    file = machine.experiment(
        range(1, 9),
        workloads=[workload("twenty", prompts=prompts, max_tokens=16)],
        timeouts={"load": "8s", "stall": "60s", "request": "3s", "claim": "20s"},
    )
    machine.serve_with(
        "--rate 2000",
        s1="--port-late 60 --exit-at 0.5 --exit-message 'CUDA error: out of memory'",
        s2=f"--port-late 1 --unready 1 --request-log {asked}",
        s3="--unready 3600",
        s4="--stall-after 6",  # ready, warm-up, throw-away, and three that are measured
        s5="--error-every 7",  # requests 7, 14 and 21: three of the first window's twenty
        s6="--short 1",
        s7="--first-request-delay 1",
        s8=f"--flood {FLOOD_BYTES}",
    )
    idle = "import time; time.sleep(600)"
    argv = [sys.executable, "-c", idle, "sglang.launch_server", "llama-server"]
    with subprocess.Popen(argv) as bystander:
        ended = machine.run("submit", file, "--keep-going", timeout_s=180)
        assert bystander.poll() is None
        bystander.kill()
    assert ended.code == 1, ended.text
    rows = table(machine)
    found = {steps: (row["state"], row["failure_class"]) for steps, row in rows.items()}
    assert found[1] == ("failed", "oom")
    assert found[2] == ("ok", None)
    assert found[3] == ("failed", "load_timeout")
    assert found[4][1] == "stalled"
    assert found[5][1] == "request_errors"
    assert found[7] == ("ok", None)
    assert found[8] == ("ok", None)
    assert [len(machine.attempts(steps)) for steps in range(1, 9)] == [1] * 8
    require_out_of_memory(machine)
    require_no_early_request(machine, asked)
    require_kept(machine, rows)
    require_flood(machine)
    machine.require_quiet()


def require_out_of_memory(machine: Machine) -> None:
    """The reason is known in seconds, not at the load deadline, with exit code and log."""
    row = machine.attempts(1)[-1]
    assert row.outcome is not None
    outcome = wire.decode_outcome(row.outcome)
    assert outcome.server is not None
    assert outcome.server.returncode == 1
    assert any("out of memory" in line for line in outcome.log_tail)
    assert machine.events(1, "outcome")[0]["t_s"] - event_s(machine, 1, "server_started") < 8


def require_no_early_request(machine: Machine, asked: Path) -> None:
    """Nothing is generated before health is good, and every step of a load has its time."""
    requests = [json.loads(line) for line in asked.read_text().splitlines()]
    first_s = min(request["t_s"] for request in requests if request["path"] == "/completion")
    steps = ("server_started", "port_open", "healthy", "first_token", "window", "stopped")
    times = [event_s(machine, 2, kind) for kind in steps]
    assert times == sorted(times)
    assert first_s > event_s(machine, 2, "healthy") - 0.1
    assert event_s(machine, 2, "healthy") - event_s(machine, 2, "server_started") > 2


def require_kept(machine: Machine, rows: dict[int, dict[str, Any]]) -> None:
    """What was measured before a fault is kept, and ranks as no throughput it is not."""
    good = [record for record in records(machine, 4) if record.error is None]
    assert len(good) == 3
    assert rows[4]["output_tok_s"] is None
    errors = [record.error for record in records(machine, 5)[:20]]
    assert (errors.count(None), errors.count("http 500")) == (17, 3)
    assert [record.output_tokens for record in records(machine, 6)] == [1] * 40
    assert rows[6]["output_tokens"] == 40
    assert "short_output" in str(rows[6]["flags"]) + str(rows[6]["failure_class"])
    first = event_s(machine, 7, "first_token") - event_s(machine, 7, "healthy")
    assert first > 1
    assert all((record.end_s or 0) < 1 for record in records(machine, 7))
    assert {record.role for record in records(machine, 7, "warmup")} == {"warmup"}


def require_flood(machine: Machine) -> None:
    """A server that floods its output neither blocks nor fills the disk, and the log says so."""
    fetched = machine.attempts(8)[-1].fetched
    assert fetched is not None
    log = Path(fetched) / wire.LOG_FILE
    assert 1_000_000 < log.stat().st_size <= 2 * FLOOD_BYTES + 1_000_000


def test_failed_baseline_ends_the_sweep(machine: Machine) -> None:
    """Without a baseline nothing can be compared; with --keep-going each is tried once."""
    file = machine.experiment([1, 2], baseline=True)
    machine.serve_with("--rate 2000", s0="--exit-at 0 --exit-code 3")
    assert machine.inline_to_end("submit", file) == 1
    assert [start["steps"] for start in machine.starts()] == [0]
    assert "baseline failed" in (machine.last_run().note or "")
    assert machine.states() == {"failed": 1, "not_run": 3}
    machine.starts_file.unlink()
    assert machine.inline_to_end("submit", file, "--new", keep_going=True) == 1
    assert [start["steps"] for start in machine.starts()] == [0, 1, 2, 0]
    assert machine.states() == {"failed": 2, "ok": 2}
    machine.require_quiet()


def test_only_what_changed_runs_again(machine: Machine) -> None:
    """Order and comments change nothing, a value added adds a launch, other prompts or another
    model file leave nothing to reuse."""
    file = machine.experiment([1, 2])
    machine.serve_with("--rate 2000")
    assert machine.inline_to_end("submit", file) == 0
    text = file.read_text()
    name, *sections = text.split("\nengine:")
    assert len(sections) == 1
    file.write_text(f"# reordered\nengine:{sections[0]}\n{name}  # a comment\n")
    ended = machine.run("submit", file)
    assert ended.code == 0, ended.text
    assert "nothing to run" in ended.text
    assert steps_started(machine) == [1, 2]
    assert machine.inline_to_end("submit", machine.experiment([1, 2, 3])) == 0
    assert steps_started(machine) == [3]
    changed = [workload("code", prompts=["another", "and one more"])]
    assert machine.inline_to_end("submit", machine.experiment([1, 2, 3], workloads=changed)) == 0
    assert steps_started(machine) == [1, 2, 3]
    assert machine.inline_to_end("submit", machine.experiment([1, 2, 3])) == 0
    assert steps_started(machine) == []  # what was measured before is there again
    machine.model.write_bytes(gguf(vocabulary=2000))
    assert machine.inline_to_end("submit", machine.experiment([1, 2, 3])) == 0
    assert steps_started(machine) == [1, 2, 3]
    assert len(machine.sweeps()) == 1
    machine.require_quiet()


def steps_started(machine: Machine) -> list[int]:
    """Draft lengths of the servers that were started since the last look."""
    found = [start["steps"] for start in machine.starts()]
    machine.starts_file.unlink(missing_ok=True)
    return found
