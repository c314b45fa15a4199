"""A sweep that cannot work is refused before anything is started, with every reason; and a node
or a sweep that is in use is left to who uses it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from fakes.launching import wait_for
from fakes.machine import Machine, finished

from sweep.model.errors import UnusableError
from sweep.store.directory import check_results_directory

USAGE, UNUSABLE = 2, 3


def contents(machine: Machine) -> list[str]:
    """Every sweep, launch directory and file of a server that there is."""
    places = (machine.results, machine.root / "state")
    found = [str(path) for place in places for path in place.rglob("*") if path.is_dir()]
    return sorted([*found, *map(str, machine.starts())])


def test_wrong_file(machine: Machine) -> None:
    """Every problem is told at once, with its place, and nothing is created."""
    file = machine.root / "wrong.yaml"
    file.write_text(
        "name: wrong\n"
        "engine:\n"
        "  kind: llama.cp\n"
        f"  model: {machine.model}\n"
        "sweep:\n"
        "  num-stepz: [1]\n"
        "workloads:\n"
        "  - name: code\n"
        "    prompts: []\n"
        "    max_tokens: many\n"
    )
    before = contents(machine)
    ended = machine.run("submit", file)
    assert ended.code == USAGE
    for place in (":3:", ":6:", ":9:", ":10:"):
        assert f"{file}{place}" in ended.text, ended.text
    assert "num_steps" in ended.text
    assert contents(machine) == before
    assert not machine.results.exists()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"model": "/no/such/model.gguf"}, "/no/such/model.gguf does not exist"),
        ({"command": ["/no/such/server"]}, "/no/such/server does not exist"),
    ],
)
def test_missing_files(machine: Machine, changes: dict[str, object], reason: str) -> None:
    """A model or a server that is not there is told before start."""
    engine = {
        "kind": "llama.cpp",
        "command": [sys.executable, str(machine.model)],
        "model": str(machine.model),
        "draft_model": str(machine.model),
        **changes,
    }
    ended = machine.run("submit", machine.experiment([1], engine=engine))
    assert ended.code == UNUSABLE
    assert reason in ended.text
    assert not machine.sweeps()


def test_results_below_a_file(machine: Machine) -> None:
    """A results directory that cannot be made is refused with what to do."""
    machine.results.write_text("a file")
    ended = machine.run("submit", machine.experiment([1]))
    assert ended.code == UNUSABLE
    assert "--results" in ended.text
    assert machine.starts() == []


@pytest.mark.parametrize(
    ("mount", "reason"),
    [
        ("size=64k", "0 MiB free"),
        ("size=80m,nr_inodes=2", "No space left"),
        ("ro,size=80m", "Read-only"),
    ],
)
def test_results_that_cannot_be_written(machine: Machine, mount: str, reason: str) -> None:
    """A full and a read-only disk are refused before start; needs root for its mounts."""
    machine.results.mkdir()
    command = 'mount -t tmpfs -o "$1" tmpfs "$2" && exec "$3" submit "$4"'
    program = str(Path(sys.executable).with_name("sweep"))
    file = str(machine.experiment([1]))
    argv = ["unshare", "-m", "sh", "-c", command, "sh", mount, str(machine.results), program, file]
    if subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode:
        pytest.skip("mounts need root")
    ended = subprocess.run(
        argv, capture_output=True, text=True, env=machine.environment, timeout=60, check=False
    )
    assert ended.returncode == UNUSABLE, ended.stderr
    assert reason in ended.stderr
    assert str(machine.results) in ended.stderr
    assert machine.starts() == []


def test_results_on_a_network_file_system(tmp_path: Path) -> None:
    """SQLite is not safe there, so nothing is created."""
    results = tmp_path / "results"
    with pytest.raises(UnusableError, match=r"network file system \(nfs4\)"):
        check_results_directory(
            results, {"network": True, "file_system": "nfs4", "free_bytes": None}
        )
    assert not results.exists()


def test_node_in_use(machine: Machine) -> None:
    """A sweep that another holds the node against is refused naming it, or waits its turn."""
    other = machine.experiment([1], name="other")
    machine.serve_with("--rate 40")
    running = machine.inline("submit", other)
    machine.wait_for_sweep()
    machine.wait_for_phase(1, "measure")
    before = contents(machine)
    owner = machine.directory.name
    both = [machine.start("submit", machine.experiment([1], name="mine"))]
    both.append(machine.start("submit", other))
    ended, twice = (finished(process, 60) for process in both)
    assert ended.code == UNUSABLE
    assert owner in ended.text
    assert "on_busy: wait" in ended.text
    assert contents(machine) == before
    assert twice.code == UNUSABLE
    assert f"driver pid {running.pid}" in twice.text
    waiting = machine.experiment([1], name="mine", node={"on_busy": "wait"})
    second = machine.inline("submit", waiting)
    machine.wait_for_sweep(2)
    wait_for(lambda: machine.events(1, "claim_wait"))
    assert owner in machine.events(1, "claim_wait")[0]["owner"]
    running.join(60)
    second.join(60)
    assert (running.exitcode, second.exitcode) == (0, 0), machine.inline_log()
    for directory in machine.sweeps():
        with machine.database(directory) as database:
            assert [state for state, _, _ in database.trial_states().values()] == ["ok"]
    machine.require_quiet()
