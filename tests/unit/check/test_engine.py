"""The engine on a node."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from fakes.facts import DISK, facts, gpu, package

from sweep.check import engine
from sweep.check.line import CheckLine, Level
from sweep.ports import Installation

PROGRAM = Installation(models=("m.gguf",))
PACKAGE = Installation(("org/m",), True, "sglang", ("/opt/venv/bin/python",))
TOOLS = {"gcc": "/usr/bin/gcc", "g++": "/usr/bin/g++", "ninja": "/v/ninja", "nvcc": "/cuda/nvcc"}


def lines(
    installation: Installation = PROGRAM, *found: dict[str, Any], **changes: Any
) -> list[CheckLine]:
    """All lines about the engine."""
    return list(engine.lines(facts(*found, **changes), installation))


def packaged(**changes: Any) -> list[CheckLine]:
    """The lines about a package with these differences."""
    packages = {"/opt/venv/bin/python": package(**changes)}
    return [line for line in lines(PACKAGE, packages=packages) if "sglang" in line.finding]


def test_a_program() -> None:
    """Its version; compilers and caches are no matter of it."""
    (line,) = lines()
    assert (line.level, line.subject, line.finding) == (Level.OK, "engine", "v1")


@pytest.mark.parametrize(
    ("version", "level", "finding"),
    [
        ({"returncode": 1, "line": "no such lib", "error": None}, Level.ERROR, "run: no such lib"),
        ({"returncode": None, "line": None, "error": "not found"}, Level.ERROR, "run: not found"),
        ({"returncode": 3, "line": None, "error": None}, Level.ERROR, "cannot be run: exit 3"),
        ({"returncode": 0, "line": None, "error": None}, Level.WARNING, "says nothing"),
    ],
)
def test_a_version_that_is_not_told(version: Any, level: Level, finding: str) -> None:
    """A server that cannot say its version cannot serve."""
    (line,) = lines(version=version)
    assert line.level is level
    assert finding in line.finding


@pytest.mark.parametrize(
    ("installation", "named_by"), [(PROGRAM, "engine.command"), (PACKAGE, "engine.python")]
)
def test_what_names_the_program_is_to_be_corrected(
    installation: Installation, named_by: str
) -> None:
    """Each kind of engine has one key for it."""
    version = {"returncode": 127, "line": None, "error": "not found"}
    line = lines(installation, version=version)[0]
    assert (line.finding, line.remedy) == (
        "the server's program cannot be run: not found", f"correct {named_by}"
    )  # fmt: skip


def test_prompts_that_cannot_be_rendered_are_told() -> None:
    """Before anything is started, with the tokenizer's own words."""
    version = {"line": "v1", "returncode": 0, "details": {"rendering_error": "OSError: no file"}}
    _, line = lines(version=version)
    assert line.level is Level.ERROR
    assert line.finding == "its tokenizer cannot render the prompts: OSError: no file"


def test_without_a_version_command_nothing_is_said() -> None:
    """The engine has none."""
    assert lines(version=None) == []


def test_a_file_of_the_command_that_is_not_there() -> None:
    """Models are told as models; that it cannot be run either follows, and is not told again."""
    there = {"/bin/server": None, "m.gguf": None}
    version = {"returncode": None, "line": None, "error": "No such file or directory"}
    answer = {**facts().answer, "paths": there, "version": version}
    asked = replace(facts(), paths=tuple(there), answer=answer)
    (line,) = engine.lines(asked, PROGRAM)
    assert (line.level, line.finding) == (Level.ERROR, "/bin/server does not exist")
    assert line.remedy == "correct engine.command"
    line, ran = engine.lines(
        replace(asked, answer={**answer, "version": facts().answer["version"]}), PROGRAM
    )
    assert ran.level is Level.OK


def test_an_untouched_package() -> None:
    """Version, place and how many files say so."""
    (line,) = packaged()
    assert line.level is Level.OK
    assert line.finding == (
        "sglang 0.5.23 (/opt/venv/lib/python3.12/site-packages) of /opt/venv/bin/python, "
        "unchanged in 40 files"
    )


def test_an_editable_package_at_a_commit() -> None:
    """Its commit names the code."""
    (line,) = packaged(editable=True, location="/src/sglang", commit="0123456789abcdef")
    assert line.level is Level.OK
    assert "(editable, /src/sglang, commit 0123456789ab)" in line.finding


def test_a_changed_package_is_a_warning() -> None:
    """Files, and a name for the state that they are in."""
    changed = ["a.py", "b.py", "c.py", "d.py"]
    (line,) = packaged(changed=changed, state="feed")
    assert line.level is Level.WARNING
    assert "4 files differ from what was installed: a.py, b.py, c.py and 1 more" in line.finding
    assert "(state feed)" in line.finding
    (line,) = packaged(changed=["a.py"], state="feed", editable=True)
    assert "1 file differs from its commit: a.py" in line.finding


def test_instrumentation_of_somebody_else_is_a_warning() -> None:
    """It may cost more than half of the throughput."""
    packages = {"p": package(instrumented=["sglang/srt/speculative/eagle_worker.py"])}
    found = [line for line in lines(PACKAGE, packages=packages) if "EAGLE3_PROF" in line.finding]
    assert [line.level for line in found] == [Level.WARNING]
    assert "eagle_worker.py" in found[0].finding


def test_a_package_that_is_not_there_is_an_error() -> None:
    """Which Python lacks it."""
    packages = {"p": {"error": "p has no package sglang"}}
    line = next(line for line in lines(PACKAGE, packages=packages) if line.level is Level.ERROR)
    assert line.finding == "p has no package sglang"
    assert line.remedy == "install sglang there, or correct engine.python"


def test_one_cause_is_told_once() -> None:
    """Without the package its version command fails as well."""
    version = {"returncode": 1, "line": "No module named sglang", "error": None}
    packages = {"p": {"error": "p has no package sglang"}, "q": package(changed=["a"], state="b")}
    found = lines(PACKAGE, packages=packages, version=version)
    assert [line.level for line in found if line.subject == "engine"] == [
        Level.ERROR,
        Level.WARNING,
    ]


def of(subject: str, *found: dict[str, Any], **changes: Any) -> list[CheckLine]:
    """The lines about one subject for an engine that is a package."""
    return [line for line in lines(PACKAGE, *found, **changes) if line.subject == subject]


def test_compilers() -> None:
    """Those for GPUs matter where there are GPUs."""
    (line,) = of("compilers", gpu(0), compilers=TOOLS)
    assert (line.level, line.finding) == (
        Level.OK, "/usr/bin/gcc, /usr/bin/g++, /v/ninja, /cuda/nvcc",
    )  # fmt: skip
    (line,) = of("compilers", gpu(0), compilers={**TOOLS, "g++": None, "nvcc": None})
    assert (line.level, line.finding) == (Level.WARNING, "not found: g++, nvcc")
    (line,) = of("compilers", compilers={**TOOLS, "ninja": None, "nvcc": None})
    assert line.level is Level.OK
    assert of("compilers", compilers=None) == []


def test_caches() -> None:
    """One that cannot be written is named with its place."""
    triton = {"name": "Triton", **DISK, "path": "/home/ann/.triton/cache"}
    cuda = {"name": "CUDA", **DISK}
    (line,) = of("caches", caches=[triton, cuda])
    assert (line.level, line.finding) == (Level.OK, "writable: Triton, CUDA")
    (line,) = of("caches", caches=[{**triton, "writable": False}, cuda])
    assert line.level is Level.WARNING
    assert line.finding.startswith("/home/ann/.triton/cache (Triton) cannot be written")
    assert of("caches", caches=None) == []
