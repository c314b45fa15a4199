"""`sweep rehearse`: the whole of an experiment of a real engine, against the simulated server."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fakes.machine import Machine

UNUSABLE = 3


def rows(machine: Machine) -> list[dict[str, Any]]:
    """The exported table of the latest sweep."""
    table: list[dict[str, Any]] = json.loads(machine.run("export", "--format", "json").text)
    return table


@pytest.mark.ray
def test_every_launch_and_trial_is_rehearsed(machine: Machine) -> None:
    """Plan, launches, trials, plots and report of the file with nothing of its server started; and
    the real sweep afterwards keeps not a row of it."""
    file = machine.experiment([1, 2])
    ended = machine.run("rehearse", file)
    assert ended.code == 0, ended.text
    assert "the rehearsal ran every launch" in ended.text
    assert machine.directory.name.startswith("e2e-rehearsal-")
    table = rows(machine)
    assert len(table) == 2
    assert {row["state"] for row in table} == {"ok"}
    assert all("simulated" in row["flags"] for row in table)
    assert {row["num_steps"] for row in table} == {1, 2}
    assert machine.starts() == []
    assert "SIMULATED" in (machine.directory / "report.html").read_text()
    assert list((machine.directory / "plots").glob("*.png"))
    assert machine.inline_to_end("submit", file) == 0, machine.inline_log()
    assert not machine.directory.name.startswith("e2e-rehearsal-")
    assert not any("simulated" in row["flags"] for row in rows(machine))


def test_a_missing_model_is_found_by_the_rehearsal(machine: Machine) -> None:
    """As by the real sweep, before anything is started."""
    engine = {"kind": "llama.cpp", "model": "/no/such/model.gguf", "algorithm": "ngram-simple"}
    ended = machine.run("rehearse", machine.experiment([1], engine=engine))
    assert ended.code == UNUSABLE
    assert "/no/such/model.gguf does not exist" in ended.text
    assert machine.sweeps() == []
