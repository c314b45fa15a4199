"""The verb check: what it says of this machine and of a node behind SSH, and that submit agrees."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes.machine import LLAMA_SERVER, Machine, eventually, finished, workload
from fakes.model_files import gguf
from faults.gpus import FakeGpus
from faults.remote import node_behind_ssh, remote_node

from sweep.agent import procs

UNUSABLE = 3
GPU = {
    "name": "Fake 6000", "memory.total": 98304, "memory.used": 600, "driver_version": "580.1",
    "power.limit": 450, "power.default_limit": 600, "compute_cap": "12.0",
    "persistence_mode": "Enabled",
}  # fmt: skip
ENOUGH = [workload("code", windows=3)]


def gpus(pid: int | None = None) -> dict[str, Any]:
    """Two GPUs, and a process on the second one."""
    rows = [{"index": n, "uuid": f"GPU-{n}", **GPU} for n in range(2)]
    used = [] if pid is None else [{"gpu_uuid": "GPU-1", "pid": pid, "used_memory": 40960}]
    return {"gpus": rows, "processes": used}


def lines(machine: Machine, file: Path, code: int = 0) -> dict[tuple[str, str], list[Any]]:
    """(group, subject) → [level, finding, remedy] of each line of `check --json`."""
    ended = machine.run("check", "--json", file)
    assert ended.code == code, ended.text
    found: dict[tuple[str, str], list[Any]] = {}
    for group in json.loads(ended.text)["groups"]:
        for line in group["lines"]:
            shown = [line["level"], line["finding"], line["remedy"]]
            found.setdefault((group["title"], line["subject"]), []).append(shown)
    return found


def levels(found: dict[tuple[str, str], list[Any]]) -> dict[str, list[tuple[str, str]]]:
    """Level → (group, subject) of its lines."""
    by_level: dict[str, list[tuple[str, str]]] = {}
    for place, shown in found.items():
        for level, _, _ in shown:
            by_level.setdefault(level, []).append(place)
    return by_level


@contextlib.contextmanager
def somebody() -> Iterator[int]:
    """A process of somebody else."""
    with subprocess.Popen(["sleep", "60"]) as process:
        try:
            yield process.pid
        finally:
            process.kill()


def test_a_usable_machine(machine: Machine) -> None:
    """Exit code 0, the groups, and nothing made: no results, no launch, no file left."""
    found = lines(machine, machine.experiment([1, 2], workloads=ENOUGH))
    assert set(levels(found)) == {"ok"}
    assert {group for group, _ in found} == {"plan", "local"}
    assert found["plan", "plan"][0][1].startswith(
        "2 configurations asked: 2 launches, 2 trials, at least "
    )
    assert found["local", "engine"][0][1] == "version: 1 (fake)"
    assert not machine.results.exists()
    assert not list((machine.root / "state").rglob("preflight-*"))
    shown = machine.run("check", machine.experiment([1], workloads=ENOUGH))
    assert shown.code == 0
    assert "nothing stands in the way; looked at in" in shown.text


def test_everything_wrong_at_once_and_submit_agrees(machine: Machine) -> None:
    """Exit code 3 with every error; submit refuses with exactly these, and starts nothing."""
    cut = machine.root / "cut.gguf"
    cut.write_bytes(gguf()[:-100])
    engine = {
        "kind": "llama.cpp",
        "command": [sys.executable, LLAMA_SERVER],
        "model": "/no/such/model.gguf",
        "draft_model": str(cut),
    }
    with somebody() as pid:
        machine.environment |= FakeGpus(machine.root, gpus(pid)).environment
        file = machine.experiment([1], engine=engine)
        found = lines(machine, file, UNUSABLE)
        refused = machine.run("submit", file)
    errors = [line for shown in found.values() for line in shown if line[0] == "error"]
    assert len(errors) == 3
    assert [place for _, place in levels(found)["error"]] == ["GPUs", "model", "drafter"]
    user = f"GPU 1 is used by {found['local', 'node'][0][1].split(' as ')[1]}: pid {pid} (sleep 60)"
    assert found["local", "GPUs"][1][1] == f"{user}, 40 GiB"
    assert refused.code == UNUSABLE
    assert "nothing was started, for 3 errors" in refused.text
    for _, finding, remedy in errors:
        assert finding in refused.text
        assert remedy in refused.text
    assert machine.sweeps() == []


def test_warnings_refuse_nothing(machine: Machine) -> None:
    """On two GPUs that differ, check ends with 0, and a submit says so and runs."""
    state = gpus()
    state["gpus"][1]["power.limit"] = 600
    machine.environment |= FakeGpus(machine.root, state).environment
    file = machine.experiment([1])
    found = lines(machine, file)
    assert levels(found)["warning"] == [("plan", "plan"), ("local", "GPUs")]
    assert "at most 2 windows are measured" in found["plan", "plan"][1][1]
    assert machine.inline_to_end("submit", file) == 0
    machine.require_quiet()


def test_a_wrong_file_is_a_usage_error(machine: Machine) -> None:
    """Code 2, with every place, before any node is asked."""
    file = machine.root / "wrong.yaml"
    file.write_text("name: wrong\nengine: {kind: llama.cp}\n")
    ended = machine.run("check", file)
    assert ended.code == 2
    assert f"{file}:2:" in ended.text


def test_a_node_behind_ssh(machine: Machine) -> None:
    """Who, where, which key; settings without effect; its GPUs; its models."""
    environment = FakeGpus(machine.root, gpus()).environment
    with node_behind_ssh(machine, "Ciphers aes128-ctr", environment=environment) as server:
        file = machine.experiment([1], node=remote_node(machine))
        found = lines(machine, file)
        connection, ignored = found["gpu-a", "SSH"]
        assert f"@127.0.0.1:{server.port}" in connection[1]
        assert server.fingerprint(server.host_key) in connection[1]
        assert ignored[:2] == ["warning", "without effect here: gpu-a: ciphers aes128-ctr"]
        assert found["gpu-a", "clock"][0][0] == "ok"
        assert found["gpu-a", "GPUs"][0][1].startswith("2 × Fake 6000 (96 GiB, power limit 450")
        assert found["gpu-a", "model"][0][0] == "ok"
    assert list((machine.root / "node").iterdir()) == []


@pytest.mark.parametrize(
    ("verb", "number", "remote"),
    [("check", signal.SIGINT, False), ("submit", signal.SIGTERM, False),
     ("check", signal.SIGTERM, True), ("submit", signal.SIGINT, True)],
)  # fmt: skip
def test_an_interruption_leaves_nothing_on_the_node(
    machine: Machine, verb: str, number: signal.Signals, *, remote: bool
) -> None:
    """While the node is asked: its directory is removed, and the user's shell ends."""
    mark = machine.root / "pid"
    engine = {
        "kind": "llama.cpp",
        "command": [sys.executable, LLAMA_SERVER],
        "model": str(machine.model),
        "draft_model": str(machine.model),
        "setup": [f"echo $$ > {mark}.part; mv {mark}.part {mark}; sleep 100"],
    }
    fields: dict[str, Any] = {"engine": engine}
    with contextlib.ExitStack() as stack:
        if remote:
            stack.enter_context(node_behind_ssh(machine))
            fields["node"] = remote_node(machine)
        asking = machine.start(verb, machine.experiment([1], **fields))
        eventually(mark.exists)
        assert list(machine.root.rglob("preflight-*"))
        asking.send_signal(number)
        assert finished(asking, 30).code == 130
    shell = procs.read(int(mark.read_text()))
    assert shell is None or shell.dead
    assert not list(machine.root.rglob("preflight-*"))
    assert machine.sweeps() == []


def test_a_host_that_is_not_known(machine: Machine) -> None:
    """An error with the remedy; the plan is told all the same."""
    with node_behind_ssh(machine) as server:
        (Path(machine.environment["HOME"]) / ".ssh" / "known_hosts").write_text("")
        found = lines(machine, machine.experiment([1], node=remote_node(machine)), UNUSABLE)
    ((level, finding, remedy),) = found["gpu-a", "node"]
    assert level == "error"
    assert finding.startswith(f"the host key of [127.0.0.1]:{server.port} is not known")
    assert "known_hosts" in remedy
    assert found["plan", "plan"]


def test_a_busy_node_of_our_own_sweep_is_no_error(machine: Machine) -> None:
    """What submit would continue holds the node: check knows it by name."""
    file = machine.experiment([1])
    machine.serve_with("--rate 40")
    running = machine.inline("submit", file)
    machine.wait_for_sweep()
    machine.wait_for_phase(1, "measure")
    found = lines(machine, file)
    assert found["plan", "results"][0][1].startswith(f"continues {machine.directory.name}")
    assert found["local", "claims"][0][0] == "ok"
    other = lines(machine, machine.experiment([1], name="other"), UNUSABLE)
    assert machine.directory.name in other["local", "claims"][0][1]
    running.join(60)
    assert running.exitcode == 0
