"""How the probe gets into a server: processes that spawn others, of every Python it must run in."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from fakes import stub_sglang
from fakes.running import python_3_9

from sweep.agent import cycles
from sweep.probe.layout import lay_out

PYTHONS = [sys.executable, *filter(None, [python_3_9()])]


class Installation:
    """A stub of SGLang, the laid-out probe, and a directory to write into."""

    def __init__(self, root: Path, *, plugins: bool) -> None:
        self.root = root
        self.probe = root / "the probe"
        self.out = root / "out"
        self.out.mkdir()
        stub_sglang.write(root / "site", plugins=plugins)
        lay_out(str(self.probe))

    def serve(
        self, python: str, *flags: str, path: Sequence[Path] = (), **env: str
    ) -> subprocess.CompletedProcess[str]:
        """Run the server to its end; `path` stands between the probe and the server."""
        places = [self.probe, *path, self.root / "site"]
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.pathsep.join(map(str, places)),
            "EAGLE3_PROFILE": "1",
            "EAGLE3_PROFILE_DIR": str(self.out),
            "EAGLE3_PROFILE_EVERY": "3",
        }
        return subprocess.run(
            [python, *flags, "-m", "sglang.launch_server"],
            capture_output=True, text=True, check=False, timeout=60, cwd=self.root,
            env={name: value for name, value in (environment | env).items() if value},
        )  # fmt: skip

    def files(self) -> list[cycles.CycleFile]:
        """What the ranks wrote."""
        return [cycles.decode(path.read_text()) for path in sorted(self.out.iterdir())]


def check(done: subprocess.CompletedProcess[str], installation: Installation) -> None:
    """Both ranks were timed from their first cycle, once, and the first printed."""
    assert (done.returncode, done.stderr) == (0, "")
    files = installation.files()
    assert [found.armed.rank for found in files if found.armed] == [0, 1]
    for found in files:
        assert found.armed is not None
        assert (found.armed.missing, found.errors) == ((), ())
        assert found.armed.engine_version == "0.5.99"
        assert found.armed.module is not None
        assert found.armed.module.endswith("eagle_worker_v2.py")
        assert found.columns["n"] == [1, 2, 3, 4, 5, 6]
        assert found.columns["accepted"] == [1] * 6
        verify = sorted(value for value in found.columns["verify_s"] if value)
        assert 0.005 <= verify[0] < 0.05
    assert done.stdout.count("EAGLE3_PROF (3 cycles, 6 tok, no sync)") == 2


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("plugins", [False, True])
def test_every_generation_is_armed_once(plugins: bool, python: str, tmp_path: Path) -> None:
    """Older versions by the import hook, newer ones by plugin and hook together."""
    installation = Installation(tmp_path, plugins=plugins)
    check(installation.serve(python), installation)


@pytest.mark.parametrize("python", PYTHONS)
def test_the_plugin_alone_is_enough(python: str, tmp_path: Path) -> None:
    """Where Python runs no sitecustomize (-S), the server itself loads the probe."""
    installation = Installation(tmp_path, plugins=True)
    check(installation.serve(python, "-S"), installation)


FIRST = """
import sys
from importlib.machinery import PathFinder

class First(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return super().find_spec(name, path, target) if name.startswith("sglang") else None

sys.meta_path.insert(0, First)
"""


def test_a_finder_of_another_sitecustomize(tmp_path: Path) -> None:
    """It comes behind ours, whatever it does to get to the front."""
    installation = Installation(tmp_path, plugins=False)
    other = tmp_path / "other"
    other.mkdir()
    (other / "sitecustomize.py").write_text(FIRST)
    check(installation.serve(sys.executable, path=[other]), installation)


def test_a_finder_that_comes_first(tmp_path: Path) -> None:
    """It takes the import away from ours, and a later import is a second chance."""
    installation = Installation(tmp_path, plugins=False)
    package = tmp_path / "site" / "sglang" / "__init__.py"
    package.write_text(package.read_text() + FIRST)
    check(installation.serve(sys.executable), installation)


@pytest.mark.parametrize("python", PYTHONS)
def test_a_sitecustomize_behind_ours_runs_as_ever(python: str, tmp_path: Path) -> None:
    """Whether the probe is active or not, and it is the one that others see."""
    installation = Installation(tmp_path, plugins=False)
    other = tmp_path / "other"
    other.mkdir()
    (other / "sitecustomize.py").write_text("import os\nos.environ['THEIRS'] = __name__\n")
    show = "import os, sitecustomize; print(os.environ['THEIRS'], sitecustomize.__file__)"
    for active in ("0", "1"):
        done = subprocess.run(
            [python, "-c", show], capture_output=True, text=True, check=True, timeout=60,
            env={
                "PYTHONPATH": os.pathsep.join(map(str, (installation.probe, other))),
                "EAGLE3_PROFILE": active,
                "EAGLE3_PROFILE_DIR": str(installation.out),
            },
        )  # fmt: skip
        assert done.stdout == f"sitecustomize {other / 'sitecustomize.py'}\n"
        assert done.stderr == ""


@pytest.mark.parametrize("value", ["", "0", "true"])
def test_without_the_variable_nothing_happens(value: str, tmp_path: Path) -> None:
    """Not even a module of the probe is imported by hook or plugin."""
    installation = Installation(tmp_path, plugins=True)
    done = installation.serve(sys.executable, EAGLE3_PROFILE=value)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert list(installation.out.iterdir()) == []


def test_a_directory_that_cannot_be_written_is_said_in_the_log(tmp_path: Path) -> None:
    """The server serves without the probe."""
    installation = Installation(tmp_path, plugins=True)
    done = installation.serve(sys.executable, EAGLE3_PROFILE_DIR=str(tmp_path / "missing"))
    assert done.returncode == 0
    assert "eagle3_probe: cannot attach: FileNotFoundError" in done.stderr
    assert "EAGLE3_PROF " not in done.stdout


def test_a_scheduler_that_is_no_longer_where_it_was(tmp_path: Path) -> None:
    """No handshake is written, and nothing else happens."""
    installation = Installation(tmp_path, plugins=True)
    scheduler = tmp_path / "site" / "sglang" / "srt" / "managers" / "scheduler.py"
    scheduler.write_text(scheduler.read_text().replace("Scheduler", "Planner"))
    done = installation.serve(sys.executable)
    assert (done.returncode, done.stderr) == (0, "")
    assert list(installation.out.iterdir()) == []


def test_sources_that_were_instrumented_by_hand_are_reported(tmp_path: Path) -> None:
    """The block is then theirs to print: two of one name could not be told apart."""
    installation = Installation(tmp_path, plugins=True)
    folder = tmp_path / "site" / "sglang" / "srt" / "speculative"
    worker = folder / "eagle_worker_v2.py"
    worker.write_text(worker.read_text() + "# print EAGLE3_PROF here\n")
    done = installation.serve(sys.executable)
    assert (done.returncode, done.stdout) == (0, "")
    first = (installation.out / "cycles.0.jsonl").read_text().splitlines()[0]
    assert json.loads(first)["patched"] == [str(worker)]
    found = installation.files()[0]
    assert found.armed is not None
    assert found.armed.patched == (str(worker),)
    assert len(found.columns["n"]) == 6
