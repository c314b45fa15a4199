"""Launches on a node with (fake) GPUs."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from typing import Any

from fakes.launching import Bench, document, trial, wait_for
from faults.gpus import gpus

from sweep.agent import wire

DEADLINES = document(nonce="x").deadlines


def test_the_next_launch_waits_for_the_memory_of_the_last(bench: Bench) -> None:
    """Clean is said only when the memory is back."""
    bench.install_gpus(gpus(10))
    launch = bench.launch("--unready", "60", gpus=[0])
    launch.phase("load")
    bench.install_gpus(gpus(90000))
    assert launch.ident is not None
    os.kill(launch.ident["pid"], 15)
    launch.phase("verify")
    assert not launch.events("clean")
    bench.install_gpus(gpus(12))
    assert launch.outcome().clean


def test_memory_that_never_comes_back_makes_the_node_dirty(bench: Bench) -> None:
    """The outcome says which GPU holds how much; the claim is left as a warning to nobody."""
    bench.install_gpus(gpus(10))
    launch = bench.launch("--unready", "60", gpus=[1], deadlines=replace(DEADLINES, verify_s=1.0))
    launch.phase("load")
    bench.install_gpus(gpus(90000))
    assert launch.stop() == {
        "was": "running",
        "clean": False,
        "left": ["GPU 1 has 90000 MiB in use, 10 MiB before the launch"],
    }
    outcome = launch.outcome()
    assert not outcome.clean
    assert launch.event("dirty")["left"] == outcome.left


def test_telemetry_is_sampled(bench: Bench) -> None:
    """One line a second for each of our GPUs, and none of the others."""
    bench.install_gpus(gpus(10))
    launch = bench.launch("--rate", "10", gpus=[1], trials=[trial(requests=20)])
    path = launch.directory / wire.TELEMETRY_FILE
    wait_for(lambda: path.exists() and path.read_text().count("\n") >= 2)
    launch.stop()
    samples = [json.loads(line) for line in path.read_text().splitlines()]
    assert {sample["uuid"] for sample in samples} == {"GPU-1"}
    first = samples[0]
    assert (first["sm_clock_mhz"], first["power_w"]) == (1980.0, 310.5)
    assert first["throttle_reasons"] == "0x0000000000000004"
    assert 0.5 < samples[1]["t_s"] - first["t_s"] < 3
    assert launch.agent_log() == ""


def test_only_the_chosen_gpus_are_shown_to_the_server(bench: Bench) -> None:
    """The server sees what was claimed; a launch's own variable counts more."""
    bench.install_gpus(gpus(10))
    dump = bench.root / "dump"
    bench.launch("--dump", str(dump), gpus=["GPU-1"]).outcome()
    assert json.loads(dump.read_text())["env"]["CUDA_VISIBLE_DEVICES"] == "1"
    own = {"CUDA_VISIBLE_DEVICES": "0,1"}
    bench.launch("--dump", str(dump), gpus=["GPU-1"], env=own).outcome()
    assert json.loads(dump.read_text())["env"]["CUDA_VISIBLE_DEVICES"] == "0,1"


def test_busy_gpus_and_a_silent_server_are_a_stall(bench: Bench) -> None:
    """Processes that spin in a collective do not count as progress."""
    bench.install_gpus(gpus(10))
    spin = "while True: pass"
    launch = bench.launch(
        argv=[bench.python, "-c", spin, "0"],
        port_at=3,
        gpus=[0],
        deadlines=replace(DEADLINES, stall_s=2.0),
    )
    launch.phase("load")
    bench.install_gpus(gpus(10, utilization=100))
    outcome = launch.outcome()
    assert (outcome.end, outcome.detail) == ("stalled", "gpu_busy")
    assert launch.event("stall")["gpu_busy"] is True


def test_a_broken_driver_is_an_error_with_its_words(bench: Bench) -> None:
    """nvidia-smi's own message reaches the outcome, and no server is started."""
    bench.install_gpus({"failure": "NVIDIA-SMI has failed: no communication with the driver"})
    outcome = bench.launch().outcome()
    assert (outcome.end, outcome.server) == ("error", None)
    assert outcome.detail is not None
    assert "no communication with the driver" in outcome.detail


def test_inspect_tells_gpus_and_their_users(bench: Bench) -> None:
    """What the preflight asks for, in one answer."""
    bench.install_gpus(gpus(10, pids=[os.getpid()]))
    asked: dict[str, Any] = {
        "env": {"SHOWN": "1.2.3"},
        "workdir": str(bench.root / "not" / "there"),
        "paths": [str(bench.archive), str(bench.root), "/nowhere"],
        "version_argv": ["sh", "-c", "echo $SHOWN; echo more; exit 3"],
    }
    facts = bench.inspect(asked)
    assert [gpu["uuid"] for gpu in facts["gpus"]] == ["GPU-0", "GPU-1"]
    assert facts["gpus"][0]["memory_total_mib"] == 98304
    assert facts["gpus"][0]["power_limit_w"] == 450
    assert facts["gpus"][0]["compute_capability"] == "12.0"
    user = facts["gpu_processes"][0]
    assert user["command"].startswith(sys.executable)
    assert (user["pid"], user["user"]) == (os.getpid(), facts["user"])
    assert user["name"].startswith(("python", "pytest"))
    assert facts["paths"]["/nowhere"] is None
    assert facts["paths"][str(bench.archive)]["size"] == bench.archive.stat().st_size
    assert facts["paths"][str(bench.root)]["kind"] == "directory"
    assert facts["version"] == {
        "line": "1.2.3", "returncode": 3, "error": None, "details": None,
    }  # fmt: skip
    assert facts["workdir"]["free_bytes"] > 0
    assert facts["workdir"]["network"] is False
    assert facts["machine"]["memory_bytes"] > 2**28
