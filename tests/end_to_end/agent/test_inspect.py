"""The verb inspect from the agent's archive, by old and new Pythons."""

from __future__ import annotations

import json
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from fakes.launching import Bench, wait_for
from fakes.model_files import DRAFTER, TARGET, write_hub, write_model
from fakes.running import python_3_9

from sweep.agent import procs


@pytest.mark.parametrize("python", [sys.executable, python_3_9()])
def test_every_group_is_told(tmp_path: Path, python: str | None) -> None:
    """Models by path and by name, a package in another Python, the server's own environment."""
    if python is None:
        pytest.skip("there is no Python 3.9")
    bench = Bench(tmp_path, python)
    target = str(write_model(tmp_path / "target", TARGET))
    write_hub(tmp_path / "hub", "org/draft", DRAFTER)
    facts = bench.inspect(
        {
            "workdir": str(tmp_path),
            "paths": [target],
            "models": [target, "org/draft", "org/absent"],
            "from_hub": True,
            "package": "pytest",
            "pythons": [sys.executable],
            "env": {"HF_HUB_CACHE": str(tmp_path / "hub"), "HF_HUB_OFFLINE": "1", "HF_HOME": None},
            "version_argv": ["sh", "-c", "echo v1"],
        }
    )
    assert facts["unknown"] == {}
    models = facts["models"]
    assert [model["kind"] for model in models.values()] == ["directory", "hub", "hub"]
    assert [model["problems"] for model in models.values()] == [[], [], []]
    assert models["org/draft"]["config"]["layers"] == [1, 3, 6]
    assert (models["org/absent"]["path"], models["org/absent"]["offline"]) == (None, True)
    assert facts["packages"][sys.executable]["version"] == pytest.__version__
    assert facts["storage"]["path"] == models[target]["largest"]
    assert facts["storage"]["bytes_per_s"] is None
    assert facts["version"]["line"] == "v1"
    assert len(facts["caches"]) == 5
    assert facts["machine"]["port_error"] is None


@pytest.mark.parametrize("python", [sys.executable, python_3_9()])
def test_what_setup_makes_is_what_the_version_command_has(
    tmp_path: Path, python: str | None
) -> None:
    """The engine's Python first, then what setup puts before PATH; the file's values win."""
    if python is None:
        pytest.skip("there is no Python 3.9")
    bench = Bench(tmp_path, python)
    asked = {
        "setup": ["export A=setup B=setup", "PATH=/setup:$PATH"],
        "env": {"B": "file"},
        "path_first": ["/engine/bin"],
        "version_argv": ["sh", "-c", "echo $A $B $PATH"],
    }
    facts = bench.inspect(asked)
    path = bench.environment["PATH"]
    assert facts["version"]["line"] == f"setup file /engine/bin:/setup:{path}"
    assert facts["setup"]["env"] == {"A": "setup", "B": "setup"}
    engine = tmp_path / "engine"
    venv.create(engine, symlinks=True)
    activated = {"setup": [f". {engine}/bin/activate"], "package": "none", "pythons": ["python3"]}
    package = bench.inspect(activated)["packages"]["python3"]
    assert package["error"] == f"{engine}/bin/python3 has no package none"
    failed = bench.inspect({**asked, "setup": ["false"]})
    assert failed["setup"]["error"]["number"] == 1
    assert (failed["version"], failed["unknown"]) == (None, {})


@pytest.mark.parametrize("end", ["removed", "stop file"])
def test_an_inspection_that_nobody_wants_ends(tmp_path: Path, end: str) -> None:
    """With all that it started, soon after its directory is gone or it is told to stop."""
    bench = Bench(tmp_path)
    directory, mark = tmp_path / "preflight-0123abcd", tmp_path / "pids"
    directory.mkdir()
    asked = directory / "asked.json"
    asked.write_text(json.dumps({"setup": [f"setsid sleep 779 & echo $$ $! >> {mark}; sleep 780"]}))
    inspector = subprocess.Popen(
        [bench.python, "-I", str(bench.archive), "inspect", str(asked)], env=bench.environment
    )
    pids = wait_for(lambda: mark.exists() and mark.read_text().split())
    assert len(pids) == 2
    if end == "removed":
        asked.unlink()
        directory.rmdir()
    else:
        (directory / "stop").touch()
    inspector.wait(20)
    assert not any(living(int(pid)) for pid in pids)


def living(pid: int) -> bool:
    """Whether there is such a process."""
    process = procs.read(pid)
    return process is not None and not process.dead
