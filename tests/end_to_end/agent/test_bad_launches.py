"""Servers that fail, stall, or are killed, and what is told of them."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from fakes.launching import FAKE_SERVER, Bench, LaunchUnderTest, document, trial, wait_for

from sweep.agent import wire

DEADLINES = document(nonce="x").deadlines


def kill_server(launch: LaunchUnderTest) -> float:
    """SIGKILL for the server; returns when."""
    os.kill(launch.event("server_started")["pid"], signal.SIGKILL)
    return time.monotonic()


def assert_nothing_left(launch: LaunchUnderTest) -> None:
    """No process with the nonce, no listener, no word of the agent's own trouble."""
    assert launch.ours() == []
    assert launch.port_is_free()
    assert launch.agent_log() == ""


def test_a_server_that_runs_out_of_memory(bench: Bench) -> None:
    """The exit is seen at once, with code, pattern and the log's last lines."""
    message = "RuntimeError: CUDA out of memory. Tried to allocate 2 GiB"
    launch = bench.launch("--port-late", "60", "--exit-at", "0.5", "--exit-message", message)
    outcome = launch.outcome()
    assert (outcome.end, outcome.phase, outcome.clean) == ("server_exit", "load", True)
    assert outcome.server is not None
    assert outcome.server.returncode == 1
    assert outcome.patterns == ["oom"]
    assert message in outcome.log_tail
    exit_event = launch.event("server_exit")
    assert exit_event["returncode"] == 1
    assert exit_event["t_s"] - launch.event("server_started")["t_s"] < 2
    assert_nothing_left(launch)


def test_a_server_killed_while_it_loads(bench: Bench) -> None:
    """A signal is a negative return code, seen within a fraction of a second."""
    launch = bench.launch("--unready", "60")
    launch.phase("load")
    killed_s = kill_server(launch)
    outcome = launch.outcome()
    assert (outcome.end, outcome.phase) == ("server_exit", "load")
    assert launch.event("server_exit")["returncode"] == -9
    assert launch.event("server_exit")["t_s"] - killed_s < 0.5
    assert_nothing_left(launch)


def test_a_server_killed_in_a_window(bench: Bench) -> None:
    """The trial ends with the server, and what was measured before stays."""
    launch = bench.launch("--rate", "20", trials=[trial(requests=40), trial("t2")])
    launch.phase("measure")
    wait_for(lambda: (launch.directory / wire.REQUESTS_FILE).stat().st_size > 2000)
    kill_server(launch)
    outcome = launch.outcome()
    assert (outcome.end, outcome.phase, outcome.clean) == ("server_exit", "measure", True)
    assert [(e["trial"], e["end"]) for e in launch.events("trial_end")] == [("t1", "server_exit")]
    lines = (launch.directory / wire.REQUESTS_FILE).read_text().splitlines()
    assert any(wire.decode_request(line).role == "measure" for line in lines)
    assert_nothing_left(launch)


def test_a_server_that_is_never_ready(bench: Bench) -> None:
    """The load deadline ends it; the next launch is not affected."""
    launch = bench.launch("--unready", "60", deadlines=replace(DEADLINES, load_s=1.0))
    outcome = launch.outcome()
    assert (outcome.end, outcome.phase, outcome.clean) == ("load_timeout", "load", True)
    assert outcome.detail == "after 1 s: health /health answers 503"
    assert launch.event("deadline")["which"] == "load"
    assert_nothing_left(launch)
    assert bench.launch().outcome().end == "done"


def test_healthy_but_unable_to_generate(bench: Bench) -> None:
    """Good health alone is not ready."""
    launch = bench.launch("--hang-generate", deadlines=replace(DEADLINES, load_s=1.5))
    outcome = launch.outcome()
    assert (outcome.end, outcome.phase) == ("not_ready", "ready")
    assert outcome.detail is not None
    assert "generation fails: timeout" in outcome.detail
    assert launch.events("healthy")
    assert not launch.events("first_token")
    assert_nothing_left(launch)


def test_no_progress_while_loading(bench: Bench) -> None:
    """A silent idle server ends long before the load deadline."""
    launch = bench.launch("--unready", "60", deadlines=replace(DEADLINES, stall_s=2.0))
    outcome = launch.outcome()
    assert (outcome.end, outcome.phase) == ("stalled", "load")
    assert launch.event("stall")["gpu_busy"] is None
    assert_nothing_left(launch)


def test_a_loading_server_that_talks_is_not_stalled(bench: Bench) -> None:
    """Each line in the log is progress."""
    lines = [word for second in range(6) for word in ("--log", f"{second}:shard {second}")]
    deadlines = replace(DEADLINES, stall_s=2.5)
    launch = bench.launch("--unready", "5", *lines, deadlines=deadlines)
    assert launch.outcome().end == "done"


def test_an_argv_that_cannot_be_executed(bench: Bench) -> None:
    """A missing program and a file that is none are told as such."""
    missing = bench.launch(argv=["/nowhere/server", "0"], port_at=1).outcome()
    assert (missing.end, missing.phase, missing.server) == ("start_failed", "start", None)
    assert missing.detail is not None
    assert "/nowhere/server" in missing.detail
    data = bench.root / "data"
    data.write_bytes(b"\x00\x01")
    data.chmod(0o755)
    unfit = bench.launch(argv=[str(data), "0"], port_at=1).outcome()
    assert unfit.end == "start_failed"
    assert unfit.clean


def test_the_deadline_of_the_whole_launch(bench: Bench) -> None:
    """Nothing outlives it, not even a trial in good order."""
    deadlines = replace(DEADLINES, launch_s=2.5)
    launch = bench.launch("--rate", "20", trials=[trial(requests=100)], deadlines=deadlines)
    outcome = launch.outcome()
    assert (outcome.end, outcome.phase) == ("deadline", "measure")
    assert launch.event("deadline") | {"which": "launch", "limit_s": 2.5} == launch.event(
        "deadline"
    )
    assert launch.event("trial_end")["end"] == "deadline"
    assert_nothing_left(launch)


@pytest.mark.parametrize("option", ["same-group", "own-session"])
def test_a_grandchild_that_will_not_go(bench: Bench, option: str) -> None:
    """It ignores SIGTERM and holds the port: killed, and proven gone."""
    launch = bench.launch("--grandchild", option)
    outcome = launch.outcome()
    assert (outcome.end, outcome.clean) == ("done", True)
    assert_nothing_left(launch)


def test_a_server_that_ends_and_leaves_a_child(bench: Bench) -> None:
    """What it leaves is adopted, ended and proven gone, though nobody asked the server to end."""
    options = ["--exit-at", "0.3", "--exit-code", "0", "--unready", "60"]
    launch = bench.launch("--grandchild", "own-session", *options)
    outcome = launch.outcome()
    assert (outcome.end, outcome.phase, outcome.clean) == ("server_exit", "load", True)
    assert launch.event("stopped")["how"] == "itself"
    assert_nothing_left(launch)


def test_a_disk_that_fills_up(bench: Bench) -> None:
    """When nothing more can be written, the server is still stopped and the claim given back."""
    limited = ["/bin/sh", "-c", 'ulimit -f 6; exec "$0" "$@"', bench.python]
    launch = bench.prepare(trials=[trial(windows=20)])
    command = [*limited, "-I", str(bench.archive), "run", str(launch.directory)]
    done = subprocess.run(command, capture_output=True, check=True, env=bench.environment)
    launch.ident = json.loads(done.stdout)["ident"]
    wait_for(lambda: launch.status()["state"] in ("dead", "finished"))
    assert launch.ours() == []
    assert launch.port_is_free()
    assert "File too large" in launch.agent_log()
    assert launch.stop()["clean"]
    assert bench.launch().outcome().end == "done"


def test_a_directory_for_claims_that_is_not_there(bench: Bench) -> None:
    """It has its own class, with the cause, and no server is started."""
    bench.environment["SWEEP_CLAIM_DIR"] = "/proc/nowhere"
    launch = bench.launch()
    outcome = launch.outcome()
    assert (outcome.end, outcome.phase, outcome.server) == ("claim_failed", "claim", None)
    assert "/proc/nowhere" in str(outcome.detail)


def test_a_server_that_ignores_sigterm(bench: Bench) -> None:
    """It is killed after stop_s."""
    deadlines = replace(DEADLINES, stop_s=0.5)
    launch = bench.launch("--ignore-term", deadlines=deadlines)
    assert launch.outcome().clean
    stopped = launch.event("stopped")
    assert stopped["how"] == "kill"
    assert 0.5 <= stopped["seconds"] < 3
    assert launch.event("server_exit")["returncode"] == -9
    assert_nothing_left(launch)


def test_someone_else_answers_on_our_port(bench: Bench) -> None:
    """A foreign listener is named, never asked and never touched."""
    launch = bench.launch("--port-late", "60", deadlines=replace(DEADLINES, load_s=4.0, verify_s=1))
    port = launch.event("server_started")["port"]
    with subprocess.Popen([sys.executable, "-I", FAKE_SERVER, "--port", str(port)]) as foreign:
        outcome = launch.outcome()
        assert foreign.poll() is None
        foreign.kill()
    assert outcome.end == "load_timeout"
    assert outcome.detail is not None
    assert f"port {port} is held by a process that is not ours: pid {foreign.pid}" in outcome.detail
    assert not launch.events("port_open")
    assert not outcome.clean
    assert str(foreign.pid) in outcome.left[0]
    assert str(port) in outcome.left[0]


def test_processes_that_only_look_like_ours_survive(bench: Bench) -> None:
    """Nothing is ended by the words on its command line."""
    command = [sys.executable, "-c", "import time; time.sleep(60)", "sglang", FAKE_SERVER, "sweep"]
    with subprocess.Popen(command) as bystander:
        launch = bench.launch("--grandchild", "own-session")
        launch.outcome()
        killed = bench.launch("--unready", "60")
        killed.event("server_started")
        killed.kill_agent()
        killed.stop()
        assert bystander.poll() is None
        bystander.kill()


SHARED_MEMORY = """
import os, signal, socket, sys, time
name = "/dev/shm/" + sys.argv[2]
kept = open(name, "w")
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
time.sleep(60)
"""


def test_shared_memory_of_the_server_is_removed(bench: Bench) -> None:
    """Entries that our processes held go; what others put there in the meantime stays."""
    ours, theirs = (Path(f"/dev/shm/test-{os.getpid()}-{who}") for who in ("ours", "theirs"))
    argv = [sys.executable, "-c", SHARED_MEMORY, "0", ours.name]
    launch = bench.launch(argv=argv, port_at=3, deadlines=replace(DEADLINES, load_s=2.5))
    try:
        wait_for(ours.exists)
        theirs.write_text("a model")
        assert launch.outcome().end == "load_timeout"
        assert not ours.exists()
        assert theirs.exists()
    finally:
        for path in (ours, theirs):
            path.unlink(missing_ok=True)


def test_a_free_port_means_free_for_everyone() -> None:
    """The tests' own check of a port can fail."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        from sweep.agent import procs  # noqa: PLC0415

        assert procs.listening_sockets(listener.getsockname()[1])
