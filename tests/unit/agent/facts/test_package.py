"""The engine's Python package: version, origin, changes, earlier instrumentation."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sweep.agent.facts import package

ROOT = str(Path(package.__file__).parents[3])
WORKER = "engine/speculative/eagle_worker.py"


def install(site: Path, files: dict[str, str], origin: dict[str, Any] | None = None) -> None:
    """Put a distribution `engine` 1.2 into a directory, with the hashes of its files."""
    info = site / "engine-1.2.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: engine\nVersion: 1.2\n")
    record = ["engine-1.2.dist-info/METADATA,,"]
    for name, text in files.items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(text)
        digest = hashlib.sha256(text.encode()).digest()
        value = base64.urlsafe_b64encode(digest).decode().rstrip("=")
        record.append(f"{name},sha256={value},{len(text)}")
    if origin is not None:
        (info / "direct_url.json").write_text(json.dumps(origin))
    (info / "RECORD").write_text("\n".join(record) + "\n")


def ask(site: Path, name: str = "engine") -> dict[str, Any]:
    """The facts by a Python that has this directory on its path."""
    code = (
        f"import sys; sys.path[:0] = [{ROOT!r}, {str(site)!r}]; "
        f"from sweep.agent.facts import package; package.main({name!r})"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", code], capture_output=True, check=True, timeout=60
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_an_untouched_package(tmp_path: Path) -> None:
    """Files that draft, verify and schedule are compared; the others are not looked at."""
    install(tmp_path, {WORKER: "a = 1\n", "engine/scheduler.py": "", "engine/other.py": ""})
    found = ask(tmp_path)
    assert (found["version"], found["location"]) == ("1.2", str(tmp_path))
    assert (found["looked_at"], found["changed"], found["state"]) == (2, [], None)
    assert (found["editable"], found["commit"], found["instrumented"]) == (False, None, [])


@pytest.mark.parametrize(
    "patch", ['if os.environ["EAGLE3_PROFILE"]: pass', 'print("EAGLE3_PROF (")']
)
def test_changed_and_instrumented_files(tmp_path: Path, patch: str) -> None:
    """Both are named; the state tells one change from another."""
    install(tmp_path, {WORKER: "a = 1\n", "engine/scheduler.py": "b = 1\n"})
    (tmp_path / WORKER).write_text(patch + "\n")
    found = ask(tmp_path)
    assert (found["changed"], found["instrumented"]) == ([WORKER], [WORKER])
    (tmp_path / WORKER).write_text("a = 2\n")
    again = ask(tmp_path)
    assert (again["changed"], again["instrumented"]) == ([WORKER], [])
    assert found["state"] != again["state"] is not None


def test_a_commit_that_was_installed(tmp_path: Path) -> None:
    """What pip wrote of where it came from."""
    origin = {"url": "https://x/engine", "vcs_info": {"vcs": "git", "commit_id": "c0ffee"}}
    install(tmp_path, {WORKER: ""}, origin)
    assert ask(tmp_path)["commit"] == "c0ffee"


def git(directory: Path, *arguments: str) -> str:
    """Run git without the user's settings."""
    environment = {
        **os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a",
        "GIT_COMMITTER_EMAIL": "a@b",
    }  # fmt: skip
    argv = ["git", "-C", str(directory), *arguments]
    done = subprocess.run(argv, capture_output=True, check=True, text=True, env=environment)
    return done.stdout.strip()


def test_an_editable_install_in_a_repository(tmp_path: Path) -> None:
    """Its commit, and what was changed since."""
    source = tmp_path / "the source"
    (source / "engine" / "speculative").mkdir(parents=True)
    (source / WORKER).write_text("a = 1\n")
    git(tmp_path, "init", "-q", str(source))
    git(source, "add", ".")
    git(source, "commit", "-qm", "first")
    origin = {"url": source.as_uri(), "dir_info": {"editable": True}}
    install(tmp_path / "site", {}, origin)
    found = ask(tmp_path / "site")
    assert (found["editable"], found["location"]) == (True, str(source))
    assert found["commit"] == git(source, "rev-parse", "HEAD")
    assert (found["changed"], found["state"], found["looked_at"]) == ([], None, 1)
    states = []
    for text in ("a = 2\n", "a = 3 # EAGLE3_PROFILE\n"):
        (source / WORKER).write_text(text)
        found = ask(tmp_path / "site")
        assert found["changed"] == [WORKER]
        states.append(found["state"])
    assert found["instrumented"] == [WORKER]
    assert states[0] != states[1]
    assert None not in states


def test_a_package_that_is_not_there(tmp_path: Path) -> None:
    """The interpreter is named."""
    assert ask(tmp_path, "no-such-engine") == {
        "error": f"{sys.executable} has no package no-such-engine"
    }


@pytest.mark.parametrize(
    ("python", "error"),
    [("/nowhere/python", "cannot be run"), ("/bin/true", "cannot be asked: no answer")],
)
def test_an_interpreter_that_is_none(python: str, error: str) -> None:
    """It is an answer, not a failure of the whole inspection."""
    assert error in package.inspect(python, "engine", ROOT, os.environ)["error"]


def test_the_engines_python_is_asked() -> None:
    """Through the archive, as on a node."""
    found = package.inspect(sys.executable, "pytest", ROOT, os.environ)
    assert (found["error"], found["version"]) == (None, pytest.__version__)
