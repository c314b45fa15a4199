"""Launches that go well, and the verbs around them."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from fakes.launching import Bench, document, kinds, trial

from sweep.agent import wire


def old_python() -> str | None:
    """A Python 3.9, the oldest that the agent supports, if this machine has one."""
    places = [*Path("~/.pyenv/versions").expanduser().glob("3.9.*/bin/python"), "python3.9"]
    for place in map(str, places):
        try:
            done = subprocess.run([place, "-V"], capture_output=True, check=False)
        except OSError:
            continue
        if done.returncode == 0:
            return place
    return None


@pytest.mark.parametrize("python", [sys.executable, old_python()])
def test_a_launch_runs_by_itself_to_its_outcome(tmp_path: Path, python: str | None) -> None:
    """From the archive alone, a launch measures its trials and leaves a clean node."""
    if python is None:
        pytest.skip("no Python 3.9 on this machine")
    bench = Bench(tmp_path, python)
    try:
        launch = bench.launch()
        outcome = launch.outcome()
    finally:
        bench.close()
    assert (outcome.end, outcome.clean, outcome.left) == ("done", True, [])
    assert outcome.server is not None
    assert outcome.server.returncode == -15
    assert launch.agent_log() == ""
    assert launch.ours() == []
    assert launch.port_is_free()
    records = (launch.directory / wire.REQUESTS_FILE).read_text().splitlines()
    measured = [record for record in map(wire.decode_request, records) if record.role == "measure"]
    assert [record.output_tokens for record in measured] == [5] * 8


def test_events_tell_the_launch_in_order(bench: Bench) -> None:
    """Each step of a launch is an event, numbered from 0, on one clock."""
    launch = bench.launch()
    launch.outcome()
    events = launch.events()
    assert [event["n"] for event in events] == list(range(len(events)))
    assert [event["t_s"] for event in events] == sorted(event["t_s"] for event in events)
    order = ["agent", "server_started", "port_open", "healthy", "first_token", "trial_end",
             "server_exit", "stopped", "clean", "outcome"]  # fmt: skip
    assert [kind for kind in kinds(events) if kind in order] == order
    assert events[0]["event"] == "agent"
    assert events[-1]["event"] == "outcome"
    phases = [event["phase"] for event in launch.events("phase")]
    assert phases[:5] == ["claim", "clean", "start", "load", "ready"]
    assert phases[-4:] == ["collect", "stop", "verify", "release"]


def test_the_outcome_proves_every_other_file(bench: Bench) -> None:
    """A reader can check each file of the directory by size and hash."""
    launch = bench.launch()
    outcome = launch.outcome()
    names = {
        str(path.relative_to(launch.directory))
        for path in launch.directory.rglob("*")
        if path.is_file()
    }
    assert set(outcome.files) == names - {"outcome.json", "agent.lock"}
    for name, proof in outcome.files.items():
        data = (launch.directory / name).read_bytes()
        assert (len(data), hashlib.sha256(data).hexdigest()) == (proof.size, proof.sha256)
    assert sum(outcome.phases_s.values()) > 0.02 * len(outcome.phases_s) / len(wire.PHASES)
    assert {"claim", "load", "measure", "verify"} <= set(outcome.phases_s)


def test_a_directory_is_run_once(bench: Bench) -> None:
    """A second `run` finds the agent, alive or finished, and starts nothing."""
    launch = bench.launch("--rate", "50")
    first = launch.ident
    assert launch.run() == {"ident": first, "already": True}
    assert launch.status() == {"state": "running", "ident": first}
    launch.outcome()
    assert launch.run() == {"ident": first, "already": True}
    assert launch.status() == {"state": "finished", "ident": first}
    assert kinds(launch.events()).count("server_started") == 1


def test_two_runs_at_once_start_one_agent(bench: Bench) -> None:
    """The lock of the directory decides between two that start together."""
    launch = bench.prepare()
    command = [bench.python, "-I", str(bench.archive), "run", str(launch.directory)]
    both = [
        subprocess.Popen(command, stdout=subprocess.PIPE, env=bench.environment) for _ in range(2)
    ]
    answers = [json.loads(process.communicate()[0]) for process in both]
    launch.ident = answers[0]["ident"]
    assert sorted(answer["already"] for answer in answers) == [False, True]
    assert answers[0]["ident"] == answers[1]["ident"]
    launch.outcome()


def test_states_before_the_start(bench: Bench) -> None:
    """Nothing there, and there but not started, are two states."""
    launch = bench.prepare()
    assert launch.status() == {"state": "new", "ident": None}
    assert launch.stop() == {"was": "new", "clean": True, "left": []}
    nowhere = str(bench.root / "nowhere")
    assert bench.verb("status", nowhere) == {"state": "absent", "ident": None}
    assert "FileNotFoundError" in bench.verb("run", nowhere)["error"]


def test_another_wire_version_is_refused_by_name(bench: Bench) -> None:
    """An agent does not run what it may misread."""
    launch = bench.prepare()
    path = launch.directory / wire.LAUNCH_FILE
    path.write_text(path.read_text().replace(f'"wire":{wire.WIRE_VERSION}', '"wire":7'))
    error = launch.run()["error"]
    assert "version 7" in error
    assert f"speaks {wire.WIRE_VERSION}" in error


def test_the_server_gets_the_environment_asked_for(
    bench: Bench,
) -> None:
    """Set, unset, empty and inherited variables arrive as said; Ray's do not."""
    bench.environment.update(INHERITED="yes", GONE="x", RAY_ADDRESS="nowhere")
    dump = bench.root / "dump.json"
    launch = bench.launch(
        "--dump", str(dump), env={"NCCL_PROTO": "LL", "EMPTY": ""}, unset=["GONE"]
    )
    launch.outcome()
    environment = json.loads(dump.read_text())["env"]
    wanted = {"INHERITED": "yes", "NCCL_PROTO": "LL", "EMPTY": "", "SPT_NOENV": "1"}
    assert {**environment, **wanted, "SWEEP_NONCE": launch.doc.nonce} == environment
    assert not {"GONE", "RAY_ADDRESS"} & set(environment)


def test_no_request_is_sent_before_health_is_good(bench: Bench) -> None:
    """A late port and then 503: only health is asked until it answers 200."""
    log = bench.root / "requests"
    launch = bench.launch("--port-late", "0.5", "--unready", "0.7", "--request-log", str(log))
    assert launch.outcome().end == "done"
    paths = [json.loads(line)["path"] for line in log.read_text().splitlines()]
    first = paths.index("/v1/completions")
    assert set(paths[:first]) == {"/health"}
    assert "/health" not in paths[first:]
    healthy, opened = launch.event("healthy"), launch.event("port_open")
    assert healthy["t_s"] - opened["t_s"] > 0.5


def test_a_flood_of_output_neither_blocks_nor_gets_lost(bench: Bench) -> None:
    """50 MB on each output at the start: `run` returns at once, the log is whole."""
    begin_s = time.monotonic()
    launch = bench.launch(
        "--flood", "50000000", "--log", "0:weights loaded", "--rate", "20",
        trials=[trial(requests=20)],
    )  # fmt: skip
    assert time.monotonic() - begin_s < 5
    outcome = launch.outcome()
    assert outcome.end == "done"
    assert outcome.files[wire.LOG_FILE].size >= 100_000_000
    assert [event["name"] for event in launch.events("milestone")] == ["weights"]
    assert 0 < len(outcome.log_tail) <= 40


def test_ports_are_not_used_again_at_once(bench: Bench) -> None:
    """The next launch gets another port."""
    ports = set()
    for _ in range(3):
        launch = bench.launch(trials=[trial(windows=2, requests=1)])
        launch.outcome()
        ports.add(launch.event("server_started")["port"])
    assert len(ports) == 3


def test_a_server_tells_what_it_runs_with(bench: Bench) -> None:
    """By the first call that it answers; what it does not say is left out."""
    engine = document(nonce="n").engine
    calls = [wire.HttpCall("/no_such_call"), wire.HttpCall("/server_info")]
    at: dict[str, wire.KeyPath] = {"steps": ["num_steps"], "other": ["no_such_setting"]}
    told = bench.launch(
        "--override", "num_steps=3",
        engine=replace(engine, settings=calls), settings_at=at,
    )  # fmt: skip
    told.outcome()
    silent = bench.launch(engine=replace(engine, settings=calls[:1]), settings_at=at)
    silent.outcome()
    assert [event["values"] for event in told.events("settings")] == [{"steps": "3"}]
    assert [event["values"] for event in silent.events("settings")] == [None]
