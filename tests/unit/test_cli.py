"""What verbs refuse, and how they end, without a sweep."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from fakes.sweeps import small_experiment, small_plan

from sweep.app import require_launches
from sweep.model.errors import UsageError
from sweep.model.plan import Configuration, Plan, SkippedConfiguration

SHOW_CHECK_MARK = """
import click
from sweep.cli import cli, main
cli.command("check-mark")(lambda: click.echo("ok \u2713"))
import sys
sys.argv = ["sweep", "check-mark"]
main()
"""


def test_a_plan_with_a_launch_may_go_on() -> None:
    """One launch is something to do, whatever else was excluded."""
    require_launches(small_plan(small_experiment()))


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (Plan(()), "asks for no configuration"),
        (Plan((), excluded=3, asked=3), "of 3 configurations, 3 are excluded and 0 are invalid"),
        (
            Plan(
                (),
                (
                    SkippedConfiguration("c1", Configuration("a", 1), "a needs a draft model"),
                    SkippedConfiguration("c2", Configuration("a", 2), "another"),
                ),
                excluded=1,
                asked=3,
            ),
            "1 are excluded and 2 are invalid, the first because a needs a draft model",
        ),
    ],
)
def test_nothing_to_launch_is_refused(plan: Plan, words: str) -> None:
    """A plan without launches is a mistake of the file, with how many went and the first reason."""
    with pytest.raises(UsageError, match="nothing to launch") as caught:
        require_launches(plan)
    assert words in caught.value.message
    assert caught.value.exit_code == 2


def test_submit_of_nothing_makes_nothing(tmp_path: Path) -> None:
    """It ends with code 2 before there is a results directory."""
    (tmp_path / "m.gguf").write_text("m")
    (tmp_path / "e.yaml").write_text(
        "name: none\nbaseline: false\n"
        "engine: {kind: llama.cpp, model: ./m.gguf, draft_model: ./m.gguf, command: [echo]}\n"
        "sweep: {num_steps: 1}\nexclude: [{num_steps: 1}]\n"
        "workloads: [{name: w, prompts: [a]}]\n"
    )
    ended = subprocess.run(
        [sys.executable, "-m", "sweep", "submit", "e.yaml", "--results", "r"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "HOME": str(tmp_path)},
        timeout=60,
        check=False,
    )
    assert ended.returncode == 2, ended.stderr
    assert "nothing to launch: of 1 configurations, 1 are excluded" in ended.stderr
    assert not (tmp_path / "r").exists()


def test_a_full_disk_under_the_output_is_told_plainly() -> None:
    """One sentence and code 1: it is no internal error, and Python adds nothing at exit."""
    with Path("/dev/full").open("wb") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "sweep", "schema"],
            stdout=full,
            stderr=subprocess.PIPE,
            timeout=60,
            check=False,
        )
    assert ended.stderr.decode() == "error: [Errno 28] No space left on device\n"
    assert ended.returncode == 1


def test_an_output_that_knows_few_characters() -> None:
    """What a terminal cannot show becomes a question mark; no error comes of it."""
    ended = subprocess.run(
        [sys.executable, "-c", SHOW_CHECK_MARK],
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": "latin-1:strict"},
        timeout=60,
        check=False,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"ok ?\n", b"")
