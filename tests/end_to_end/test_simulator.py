"""The simulated server, measured like any other: through the agent and the store."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fakes.launching import Bench, LaunchUnderTest
from fakes.machine import Machine, workload

from sweep.agent import wire
from sweep.analysis.glossary import INSTRUMENT_FLAGS
from sweep.driver.documents import trial_document
from sweep.engines.simulator import Simulator
from sweep.model.experiment import EngineSpec, Experiment, Prompt, Repeats, Workload
from sweep.model.plan import Configuration, PlannedTrial
from sweep.simulator import faults

PROMPT = "Write a guide to B-trees in Rust for a programmer who knows binary trees well."


def simulated(machine: Machine, load_speedup: int, **sections: Any) -> Path:
    """Write an experiment on the simulated server."""
    engine = {
        "kind": "simulator",
        "python": sys.executable,
        "model": "target",
        "draft_model": "draft",
        "algorithm": "EAGLE3",
        "args": {"load-speedup": load_speedup},
    }
    return machine.experiment([1], engine=engine, **sections)


def rows(machine: Machine) -> list[dict[str, Any]]:
    """The exported table."""
    table: list[dict[str, Any]] = json.loads(machine.run("export", "--format", "json").text)
    return table


def verify_shares(log: Path) -> list[float]:
    """Percent of the cycle that verification takes, from every block of the profiler."""
    return [float(share) for share in re.findall(r"Target verify: .*\( *(.+)%\)", log.read_text())]


def test_the_reference_case_is_reproduced(machine: Machine) -> None:
    """Four throughputs within 3 %, verification 95 to 96 % of the cycle, the same winner."""
    file = simulated(
        machine,
        3000,
        sweep={
            "num_steps": [2, 5, 10],
            "nccl": {"default": {}, "low-latency": {"NCCL_PROTO": "LL"}},
        },
        exclude=[{"variant": "low-latency", "num_steps": steps} for steps in (5, 10)],
        baseline=True,
        workloads=[workload("guide", prompts=[PROMPT], max_tokens=150)],
        profile={"every_cycles": 50},
    )
    assert machine.inline_to_end("submit", file) == 0, machine.inline_log()
    table = rows(machine)
    found = {(row["num_steps"], row["variant"], row["role"]): row for row in table}
    rates = {key: row["output_tok_s"] for key, row in found.items()}
    assert rates[None, "default", "baseline_first"] == pytest.approx(88.8, rel=0.03)
    assert rates[None, "default", "baseline_last"] == pytest.approx(88.8, rel=0.03)
    assert rates[5, "default", "main"] == pytest.approx(71, rel=0.03)
    assert rates[10, "default", "main"] == pytest.approx(60, rel=0.03)
    assert rates[2, "low-latency", "main"] == pytest.approx(94, rel=0.03)
    assert max(rates, key=lambda key: rates[key]) == (2, "low-latency", "main")
    for row in table:
        assert "simulated" in row["flags"]
        assert row["engine"] == "simulator"
        assert row["same_as_baseline_share"] == 1.0
    drafting = found[5, "default", "main"]
    assert drafting["drafted_tokens"] == 5 * drafting["cycles"]
    assert drafting["accept_length"] == pytest.approx(2.12, rel=0.03)
    assert drafting["break_even_accept_length"] == pytest.approx(29.9 / 11.245, rel=0.03)
    fetched = machine.attempts(5)[-1].fetched
    assert fetched is not None
    shares = verify_shares(Path(fetched) / wire.LOG_FILE)
    assert shares
    assert all(95 <= share <= 96 for share in shares)
    require_reference_phases(drafting)
    assert not set(drafting["flags"]) & set(INSTRUMENT_FLAGS)
    machine.require_quiet()


def test_the_probe_is_compared_and_each_configuration_traced(machine: Machine) -> None:
    """By the whole of a sweep: a launch without the probe, and what verification consists of."""
    file = simulated(
        machine,
        9000,
        sweep={"num_steps": [2, 5]},
        baseline=True,
        workloads=[workload("guide", prompts=[PROMPT, "another"], max_tokens=60)],
        profile={"compare": True, "trace": True},
    )
    assert machine.inline_to_end("submit", file) == 0, machine.inline_log()
    found = {(row["num_steps"], row["role"]): row for row in rows(machine)}
    require_comparison(found[2, "main"], found[2, "unprofiled"])
    scopes = {key: row["trace_scope"] for key, row in found.items()}
    assert scopes == {
        (None, "baseline_first"): "decode", (2, "main"): "verify", (2, "unprofiled"): None,
        (5, "main"): "verify", (None, "baseline_last"): None,
    }  # fmt: skip
    traced = [row for row in found.values() if row["trace_scope"] is not None]
    assert {row["trace_steps"] for row in traced} == {10}
    for row in traced:
        assert row["trace_experts_share"] == pytest.approx(0.4)
        assert row["trace_idle_share"] == pytest.approx(0.05, abs=1e-4)
    assert not any("trace_missing" in row["flags"] for row in found.values())
    assert not any("server_disagrees" in row["flags"] for row in found.values())
    machine.require_quiet()


def require_comparison(with_it: dict[str, Any], without: dict[str, Any]) -> None:
    """Fail unless the first configuration was measured without the probe too; a simulated probe
    costs nothing."""
    difference = with_it["probe_difference_tok_s"]
    assert difference == pytest.approx(with_it["output_tok_s"] - without["output_tok_s"])
    assert abs(difference) < 0.02 * with_it["output_tok_s"]
    lo, hi = (with_it[f"probe_difference_tok_s_{end}"] for end in ("lo", "hi"))
    assert lo <= difference <= hi
    assert with_it["accept_length"] == without["accept_length"]
    assert (with_it["cycle_ms"] is None, without["cycle_ms"] is None) == (False, True)
    assert "probe_slows" not in with_it["flags"]


def require_reference_phases(row: dict[str, Any]) -> None:
    """Fail unless a row of 5 steps has the phases of the reference, from its file of cycles."""
    phases = {"draft_ms": 0.87, "verify_ms": 28.7, "extend_ms": 0.29, "cycle_ms": 29.9}
    assert {name: row[name] for name in phases} == pytest.approx(phases, rel=0.01)
    assert 0.95 <= row["verify_ms"] / row["cycle_ms"] <= 0.97
    assert row["timed_cycles"] == row["cycles"]
    assert row["instrument_tok_s"] == pytest.approx(row["decode_tok_s"], rel=0.02)
    assert row["instrument_accept_length"] == pytest.approx(row["accept_length"])
    assert 1 + sum(row[f"p_{k}"] for k in range(1, 6)) == pytest.approx(row["accept_length"])
    assert row["speedup_by_cycle"] == pytest.approx(row["speedup"], rel=0.03)
    assert row["batching_efficiency"] == pytest.approx(6 * 11.245 / 28.7, rel=0.02)
    assert row["draft_headroom"] < 1 < row["verify_headroom"]


SCANNED = [workload("guide", prompts=[PROMPT, "Another guide, to hash tables."], max_tokens=40)]


def test_a_scan_counts_what_plain_launches_count(machine: Machine) -> None:
    """One load for three step counts, each proven by its cycles; the fastest is launched again."""
    sweep: dict[str, Any] = {"num_steps": [1, 2, 5], "scan": True}
    sections: dict[str, Any] = {"workloads": SCANNED, "profile": {}, "baseline": True}
    file = simulated(machine, 3000, sweep=sweep, **sections)
    assert machine.inline_to_end("submit", file) == 0, machine.inline_log()
    scanned = rows(machine)
    assert [row["role"] for row in scanned] == [
        "baseline_first", "scan", "scan", "scan", "confirm", "baseline_last",
    ]  # fmt: skip
    assert {row["state"] for row in scanned} == {"ok"}
    found = {row["num_steps"]: row for row in scanned if row["role"] == "scan"}
    for steps, row in found.items():
        assert (row["effective_num_steps"], row["timed_cycles"]) == (steps, row["cycles"])
        assert not {"steps_unproven", "settings_changed"} & set(row["flags"])
    alone = next(row for row in scanned if row["role"] == "confirm")
    assert (
        alone["configuration"]
        == max(found.values(), key=lambda row: row["output_tok_s"])["configuration"]
    )
    assert alone["vs_scan"] == pytest.approx(1.0, abs=0.1)
    file = simulated(machine, 3000, sweep=sweep | {"scan": False}, **sections)
    assert machine.inline_to_end("submit", file, "--new") == 0, machine.inline_log()
    for row in rows(machine):
        if row["num_steps"] is not None:
            counts = ("cycles", "drafted_tokens", "accepted_tokens", "p_1", "output_tokens")
            assert {name: row[name] for name in counts} == {
                name: found[row["num_steps"]][name] for name in counts
            }
    machine.require_quiet()


def test_steps_that_are_not_in_force_are_never_measured(machine: Machine) -> None:
    """The largest is what such a server runs anyway; the others fail with their own class."""
    faulty = {"env": {faults.VARIABLE: json.dumps({"no_pin": True})}}
    file = simulated(
        machine,
        3000,
        sweep={"num_steps": [1, 5], "scan": True, "variants": {"default": faulty}},
        workloads=SCANNED,
        profile={},
        baseline=False,
    )
    assert machine.inline_to_end("submit", file) == 1, machine.inline_log()
    found = {(row["num_steps"], row["role"]): row for row in rows(machine)}
    assert found[1, "scan"]["failure_class"] == "not_pinned"
    assert "speculative_num_steps is 5, not 1" in found[1, "scan"]["reason"]
    assert found[1, "scan"]["windows"] is None
    assert found[5, "scan"]["state"] == "ok"
    assert found[5, "confirm"]["state"] == "ok"


def test_each_fault_has_its_class(machine: Machine) -> None:
    """Every one in one sweep; those that a tool must bear are measured all the same."""
    classes = {
        "oom": ({"fail": "oom"}, "oom"),
        "memory-fraction": ({"fail": "memory_fraction"}, "oom"),
        "nccl": ({"fail": "nccl"}, "nccl_hang"),
        "graph-capture": ({"fail": "graph_capture"}, "graph_capture"),
        "port": ({"fail": "port"}, "port_in_use"),
        "bad-args": ({"fail": "bad_args"}, "bad_args"),
        "missing-file": ({"fail": "missing_file"}, "missing_file"),
        "unknown-fault": ({"no_such_fault": 1}, "bad_args"),
        "exit": ({"exit_at_s": 0, "exit_code": 3, "exit_message": "farewell"}, "unknown"),
        "unready": ({"unready_s": 3600}, "load_timeout"),
        "hang-generate": ({"hang_generate": True}, "not_ready"),
        "stall": ({"stall_after": 3}, "stalled"),
        "errors": ({"error_every": 5}, "request_errors"),
        "dies": ({"die_in_request": 4}, "server_died"),
        "no-usage": ({"no_usage": True}, "short_output"),
        "inactive": ({"no_speculation": True}, "speculation_inactive"),
        "changed": ({"changed": {"speculative_num_steps": 4}}, "bad_args"),
        "port-late": ({"port_late_s": 0.3, "unready_s": 0.3}, None),
        "slow-first": ({"first_request_delay_s": 0.5}, None),
        "chunks": ({"chunk_tokens": 9}, None),
        "lifetime": ({"lifetime_cycles": 1000}, None),
        "busy-flush": ({"flush_busy": 2}, None),
        "flood": ({"log_flood_bytes": 3_000_000}, None),
    }
    variants = {
        name: {"env": {faults.VARIABLE: json.dumps(fault)}} for name, (fault, _) in classes.items()
    }
    file = simulated(
        machine,
        9000,
        sweep={"num_steps": [2], "variants": variants},
        exclude=[{"variant": "default"}],
        workloads=[workload("two", prompts=["one prompt", "and another"], max_tokens=16)],
        timeouts={"load": "4s", "stall": "60s", "request": "2s", "claim": "20s"},
    )
    code = machine.inline_to_end("submit", file, keep_going=True)
    assert code == 1, machine.inline_log()
    found = {row["variant"]: row for row in rows(machine)}
    assert {name: row["failure_class"] for name, row in found.items()} == {
        name: failure_class for name, (_, failure_class) in classes.items()
    }
    good = [found[name] for name, (_, failure_class) in classes.items() if failure_class is None]
    assert {row["state"] for row in good} == {"ok"}
    # The same prompts and seed: counts do not depend on what else went wrong.
    assert len({(row["cycles"], row["accepted_tokens"]) for row in good}) == 1
    assert found["lifetime"]["accept_length"] < 3.9
    assert "changed its arguments" in found["changed"]["reason"]
    machine.require_quiet()


def launch(bench: Bench, fault: dict[str, Any], **fields: Any) -> LaunchUnderTest:
    """Start the simulated server by the agent, for one short trial."""
    engine = Simulator()
    prompts = (Prompt("1", text="one"), Prompt("2", text="two"))
    guide = Workload("guide", prompts, max_tokens=8, repeats=Repeats(2, 2, 0.5))
    spec = EngineSpec(
        "simulator", "m", python=sys.executable, draft_model="d", args={"load-speedup": 9000}
    )
    experiment = Experiment("e", spec, (guide,))
    asked = Configuration("EAGLE3", 2, 1, 3)
    server = engine.server(asked, experiment)
    trial = PlannedTrial("t", "c", asked, replace(guide, **fields), 1)
    return bench.launch(
        argv=list(server.argv),
        port_at=server.port_at,
        env={faults.VARIABLE: json.dumps(fault)},
        engine=engine.document(experiment),
        trials=[trial_document(trial, engine)],
        deadlines=wire.Deadlines(
            claim_s=5, load_s=20, stall_s=2, request_s=10, launch_s=60, stop_s=1, verify_s=5
        ),
    )


@pytest.mark.parametrize("how", ["same-group", "own-session"])
def test_a_process_left_behind_is_ended(tmp_path: Path, how: str) -> None:
    """It ignores SIGTERM and holds the port, in the server's group or in a session of its own."""
    bench = Bench(tmp_path)
    try:
        started = launch(bench, {"grandchild": how, "ignore_term": True})
        outcome = started.outcome()
        assert (outcome.end, outcome.clean) == ("done", True)
        assert started.events("stopped")[0]["how"] == "kill"
        assert "grandchild" in (started.directory / wire.LOG_FILE).read_text()
        assert started.ours() == []
    finally:
        bench.close()


def test_a_load_that_hangs_is_a_stall(tmp_path: Path) -> None:
    """Noticed by silence, long before the load's deadline."""
    bench = Bench(tmp_path)
    try:
        outcome = launch(bench, {"hang_load": True}).outcome()
        failure = Simulator().classify_launch(outcome)
        assert failure is not None
        assert (outcome.end, outcome.phase) == ("stalled", "load")
        assert failure.failure_class == "stalled"
    finally:
        bench.close()


def test_what_it_was_started_with_can_be_seen(tmp_path: Path) -> None:
    """Command line, environment and nonce, byte by byte."""
    bench = Bench(tmp_path)
    try:
        dump = tmp_path / "dump.json"
        started = launch(bench, {"dump": str(dump)})
        assert started.outcome().end == "done"
        seen = json.loads(dump.read_text())
        assert seen["argv"][1:3] == ["--port", str(started.event("server_started")["port"])]
        assert seen["env"][wire.NONCE_VARIABLE] == started.doc.nonce
        assert seen["env"][wire.AGENT_VARIABLE] == str(bench.archive)
    finally:
        bench.close()


def test_chat_counts_what_the_native_call_counts(tmp_path: Path) -> None:
    """Text and usage come by other keys; counts are those of the same cycles."""
    bench = Bench(tmp_path)
    try:
        started = launch(bench, {}, api="chat")
        assert started.outcome().end == "done"
        lines = (started.directory / wire.REQUESTS_FILE).read_text().splitlines()
        records = [record for record in map(wire.decode_request, lines) if record.role == "measure"]
        assert len(records) == 4
        for record in records:
            counts = Simulator().count(record)
            assert (record.error, counts.output_tokens) == (None, 8)
            assert counts.cycles is not None
            assert counts.accepted_tokens is not None
            assert counts.drafted_tokens == 2 * counts.cycles
            assert 8 <= 1 + counts.cycles + counts.accepted_tokens <= 10
    finally:
        bench.close()
