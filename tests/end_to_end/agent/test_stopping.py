"""Launches that are stopped, and launches whose agent is killed."""

from __future__ import annotations

import os
import signal
import sys
import time
from dataclasses import replace

import pytest
from fakes.launching import Bench, LaunchUnderTest, document, kinds, trial, wait_for

from sweep.agent import procs, wire

DEADLINES = document(nonce="x").deadlines
LONG = [trial(requests=200)]


def server_of(launch: LaunchUnderTest) -> procs.Identity:
    """The server's pid and start ticks."""
    event = launch.event("server_started")
    return (event["pid"], event["start_ticks"])


@pytest.mark.parametrize("phase", ["load", "warmup", "measure"])
def test_sigterm_stops_in_good_order(bench: Bench, phase: str) -> None:
    """The server is stopped, the node proven clean, and the outcome says so."""
    options = ["--unready", "60"] if phase == "load" else ["--rate", "10"]
    launch = bench.launch(*options, trials=LONG)
    launch.phase(phase)
    assert launch.ident is not None
    os.kill(launch.ident["pid"], signal.SIGTERM)
    outcome = launch.outcome()
    assert (outcome.end, outcome.phase, outcome.clean) == ("stopped", phase, True)
    assert launch.event("stopping")["by"] == "SIGTERM"
    assert launch.ours() == []
    assert launch.port_is_free()
    ends = [event["end"] for event in launch.events("trial_end")]
    assert ends == ([] if phase == "load" else ["stopped"])


def test_stop_ends_a_live_launch(bench: Bench) -> None:
    """The verb waits for the outcome, and may be repeated."""
    launch = bench.launch("--rate", "10", trials=LONG)
    launch.phase("measure")
    assert launch.stop() == {"was": "running", "clean": True, "left": []}
    assert launch.outcome().end == "stopped"
    before = {path: path.read_bytes() for path in launch.directory.iterdir() if path.is_file()}
    assert launch.stop() == {"was": "finished", "clean": True, "left": []}
    assert {path: path.read_bytes() for path in before} == before


def test_stop_twice_at_once_while_the_server_lingers(bench: Bench) -> None:
    """A second signal changes nothing."""
    deadlines = replace(DEADLINES, stop_s=1.0)
    launch = bench.launch("--ignore-term", "--unready", "60", deadlines=deadlines)
    launch.phase("load")
    assert launch.ident is not None
    os.kill(launch.ident["pid"], signal.SIGTERM)
    launch.phase("stop")
    os.kill(launch.ident["pid"], signal.SIGINT)
    assert launch.outcome().clean
    assert kinds(launch.events()).count("stopping") == 1
    assert launch.agent_log() == ""


@pytest.mark.parametrize("phase", ["load", "measure"])
@pytest.mark.parametrize("grandchild", ["same-group", "own-session"])
def test_stop_after_the_agent_was_killed(bench: Bench, phase: str, grandchild: str) -> None:
    """The server lived on; now nothing of it does, and nothing claims an outcome."""
    options = ["--unready", "60"] if phase == "load" else ["--rate", "10"]
    launch = bench.launch(*options, "--grandchild", grandchild, trials=LONG)
    launch.phase(phase)
    launch.kill_agent()
    assert launch.status()["state"] == "dead"
    assert procs.alive(server_of(launch))
    assert launch.stop() == {"was": "dead", "clean": True, "left": []}
    assert launch.ours() == []
    assert launch.port_is_free()
    assert not (launch.directory / wire.OUTCOME_FILE).exists()
    assert kinds(launch.events())[-2:] == ["stopping", "clean"]
    assert [event["n"] for event in launch.events()] == list(range(len(launch.events())))
    assert launch.stop()["clean"]
    assert launch.run()["already"] is True


def test_half_a_line_of_a_dead_agent_is_cut_off(bench: Bench) -> None:
    """What follows it is readable."""
    launch = bench.launch("--unready", "60")
    launch.phase("load")
    launch.kill_agent()
    with (launch.directory / wire.EVENTS_FILE).open("ab") as stream:
        stream.write(b'{"v":1,"n":')
    launch.stop()
    assert kinds(launch.events())[-2:] == ["stopping", "clean"]


HIDDEN = """
import os, subprocess, sys, time
child = "import socket, time; s = socket.create_server(('127.0.0.1', %s)); time.sleep(60)"
subprocess.Popen([sys.executable, "-c", child % sys.argv[1]], env={}, start_new_session=True)
print("child started", flush=True)
time.sleep(60)
"""


def test_a_child_that_threw_its_environment_away(bench: Bench) -> None:
    """Recorded while the agent lived, it is found without the nonce."""
    launch = bench.launch(argv=[sys.executable, "-c", HIDDEN, "0"], port_at=3)
    wait_for(lambda: procs.listening_sockets(launch.event("server_started")["port"]))
    recorded = launch.directory / wire.FOOTPRINT_FILE
    wait_for(lambda: recorded.read_text().count("], [") >= 1)
    launch.kill_agent()
    os.kill(launch.event("server_started")["pid"], signal.SIGKILL)
    assert launch.stop() == {"was": "dead", "clean": True, "left": []}
    assert launch.port_is_free()


def test_a_frozen_agent_is_ended(bench: Bench) -> None:
    """An agent that answers to nothing is killed, and cleaned up after."""
    deadlines = replace(DEADLINES, stop_s=0.2, verify_s=0.2)
    launch = bench.launch("--unready", "60", deadlines=deadlines)
    launch.phase("load")
    assert launch.ident is not None
    os.kill(launch.ident["pid"], signal.SIGSTOP)
    begin_s = time.monotonic()
    assert launch.stop() == {"was": "running", "clean": True, "left": []}
    assert time.monotonic() - begin_s > 5
    assert launch.ours() == []
