"""What starting a verb costs: heavy libraries are imported by those that need them only."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from fakes.node import fails
from fakes.sweeps import SmallSweep

HEAVY = ("ray", "pandas", "matplotlib", "scipy", "numpy", "paramiko")
SHOW = """
import sys
from sweep.cli import main
sys.argv = ["sweep", *sys.argv[1:]]
try:
    main()
finally:
    names = {name.partition(".")[0] for name in sys.modules}
    print("imported:", *sorted(names), file=sys.stderr)
"""


def imported(*words: str, root: Path) -> tuple[int, set[str]]:
    """Return exit code and top-level modules of a verb in a process of its own."""
    argv = [sys.executable, "-c", SHOW, *words]
    ended = subprocess.run(argv, capture_output=True, text=True, cwd=root, timeout=60, check=False)
    last = ended.stderr.splitlines()[-1]
    assert last.startswith("imported:"), ended.stderr
    return ended.returncode, set(last.split()[1:])


@pytest.mark.parametrize("words", [["--help"], ["submit", "--help"], ["--version"]])
def test_help_imports_nothing_heavy(words: list[str], tmp_path: Path) -> None:
    """Nor does it import the rest of sweep."""
    code, modules = imported(*words, root=tmp_path)
    assert code == 0
    assert not modules & {*HEAVY, "pydantic", "yaml", "rich", "sqlite3"}


@pytest.mark.parametrize(
    ("words", "also"),
    [
        (["list"], ()),
        (["status"], ()),
        (["status", "--json"], ()),
        (["logs"], ()),
        (["schema"], ()),
        (["plan", "missing.yaml"], ()),
        (["check", "missing.yaml"], ()),
        (["check", "small.yaml"], ()),
        (["view", "--no-open"], ("pandas", "matplotlib", "scipy", "numpy")),
        (["export"], ("pandas", "scipy", "numpy")),
    ],
)
def test_reading_verbs_never_import_ray(
    words: list[str], also: tuple[str, ...], tmp_path: Path
) -> None:
    """Those that draw or compute import what they need for that, and nothing else."""
    sweep = tmp_path / "results" / "small-1"
    sweep.mkdir(parents=True)
    small = SmallSweep(sweep, fails(patterns=["oom"]))
    small.run()
    fetched = small.database.attempts()[-1].fetched
    assert fetched is not None
    Path(fetched, "server.log").write_text("out of memory")
    small.database.close()
    (tmp_path / "small.yaml").write_text(
        f"name: s\nnode: {{workdir: {tmp_path}}}\nengine: {{kind: simulator, model: m}}\n"
        "workloads: [{name: w, prompts: [a]}]\n"
    )
    code, modules = imported(*words, root=tmp_path)
    assert code == (2 if "missing.yaml" in words else 0)
    assert not modules & (set(HEAVY) - set(also))


def test_a_reader_that_stops_reading_causes_no_traceback(tmp_path: Path) -> None:
    """`sweep schema | true`: the code says that not all was written, and that is all."""
    command = 'set -o pipefail; "$0" -c "$1" schema | true'
    show = "import time; time.sleep(0.3); from sweep.cli import main; main()"
    ended = subprocess.run(
        ["bash", "-c", command, sys.executable, show],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=60,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (1, "")
