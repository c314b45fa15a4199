"""engine.setup from the file to the server: a real virtual environment on a node behind SSH."""

from __future__ import annotations

import json
import venv
from pathlib import Path
from typing import Any

import pytest
from fakes.machine import LLAMA_SERVER, Machine, finished
from faults.remote import node_behind_ssh, remote_node

pytestmark = pytest.mark.ray


def experiment(machine: Machine, *lines: str, **fields: Any) -> Path:
    """An experiment whose server is started by the `python` of its setup."""
    engine = {
        "kind": "llama.cpp",
        "command": ["python", LLAMA_SERVER],
        "model": str(machine.model),
        "draft_model": str(machine.model),
        "setup": list(lines),
        **fields,
    }
    return machine.experiment([2], node=remote_node(machine), engine=engine)


def server_environment(machine: Machine) -> dict[str, str]:
    """What the running server was started with."""
    data = Path(f"/proc/{machine.server(2)[0]}/environ").read_bytes()
    entries = [entry.decode().partition("=") for entry in data.split(b"\0") if entry]
    return {name: value for name, _, value in entries}


def test_a_virtual_environment_is_activated_for_every_launch(machine: Machine) -> None:
    """Its `python` runs the server, the file's variables win, and plan shows it without secrets."""
    home = machine.root / "venv"
    venv.create(home, symlinks=True)
    machine.serve_with("--rate 40")
    file = experiment(
        machine,
        f"source {home}/bin/activate",
        "export OVERRIDDEN=setup API_TOKEN=s3cret",
        env={"OVERRIDDEN": "file"},
    )
    with node_behind_ssh(machine):
        plan = machine.run("plan", "--json", file)
        (row,) = json.loads(plan.text)["rows"]
        assert row["path_first"] == [str(home / "bin")]
        assert row["env"]["VIRTUAL_ENV"] == str(home)
        assert row["env"]["OVERRIDDEN"] == "file"
        assert "s3cret" not in plan.text + machine.run("plan", file).text
        sweep = machine.start("submit", file)
        machine.wait_for_phase(2, "measure")
        seen = server_environment(machine)
        assert finished(sweep).code == 0
    assert seen["PATH"].split(":")[0] == str(home / "bin")
    assert (seen["VIRTUAL_ENV"], seen["OVERRIDDEN"], seen["API_TOKEN"]) == (
        str(home), "file", "s3cret",
    )  # fmt: skip
    assert "s3cret" not in (machine.directory / "report.html").read_text()
    machine.require_quiet()


def test_a_line_that_fails_is_told_before_anything_starts(machine: Machine) -> None:
    """Node, line, exit code and what it wrote; every verb that plans says so, with exit code 3."""
    file = experiment(machine, "true", "echo no such environment >&2; exit 5")
    with node_behind_ssh(machine):
        for verb in ("plan", "submit", "check"):
            refused = machine.run(verb, file)
            assert refused.code == 3, refused.text
            assert "gpu-a" in refused.text
            assert "line 2, `echo no such environment >&2; exit 5`, failed (exit 5): no such" in (
                " ".join(refused.text.split())
            )
    assert machine.sweeps() == []
    assert machine.starts() == []
