"""The user's own shell lines: what they change, and which of them failed."""

from __future__ import annotations

import os
import time
import venv
from pathlib import Path
from typing import Any

import pytest

from sweep.agent import procs
from sweep.agent.facts import setup

LOGIN = {"PATH": os.environ["PATH"], "HOME": "/root", "KEPT": "1", "GONE": "2", "CHANGED": "3"}


def capture(*lines: str, **login: str) -> dict[str, Any]:
    """Run lines in a small login."""
    return setup.capture(lines, {**LOGIN, **login})


def test_what_lines_set_change_and_unset_is_told() -> None:
    """Whatever the values hold; what the shell itself keeps, and its functions, are left out."""
    found = capture(
        "export NEW='a b\n\"c\" é='",
        "export CHANGED=4 EMPTY=",
        "unset GONE; cd /tmp; LOCAL=1; f() { :; }; export -f f",
    )
    env = {"CHANGED": "4", "EMPTY": "", "NEW": 'a b\n"c" é='}
    assert found == {
        "env": env, "unset": ["GONE"], "path_first": [], "error": None, "ended": []
    }  # fmt: skip


def test_what_comes_first_in_path_does_not_hold_the_logins_own() -> None:
    """So that a launch's identity is the same from every terminal; a PATH made anew is whole."""
    found = capture("PATH=/opt/b:$PATH", 'PATH="/opt/a x:$PATH"', PATH="/usr/bin:/bin")
    assert (found["path_first"], found["env"]) == (["/opt/a x", "/opt/b"], {})
    whole = capture("export PATH=/usr/bin:/opt/c", PATH="/usr/bin")
    assert (whole["path_first"], whole["env"]) == ([], {"PATH": "/usr/bin:/opt/c"})


def test_no_start_up_file_is_read(tmp_path: Path) -> None:
    """Not even below sshd, where bash reads ~/.bashrc: the login has read it already."""
    (tmp_path / ".bashrc").write_text("export FROM_BASHRC=1\n")
    found = capture("export A=1", HOME=str(tmp_path), SSH_CLIENT="1.2.3.4 5 6", SHLVL="0")
    assert found["env"] == {"A": "1"}


def test_later_lines_see_what_earlier_ones_made() -> None:
    """One shell runs all: functions, variables and the directory stay."""
    found = capture("one() { export ONE=$1; }", "X=5", "one $X", "cd /", "export AT=$PWD")
    assert found["env"] == {"AT": "/", "ONE": "5"}


@pytest.mark.parametrize(
    ("lines", "number", "returncode", "output"),
    [
        (["echo fine", "echo why >&2; no-such-command", "touch {mark}"], 2, 127, "why"),
        (["false || true", "(exit 3)", "touch {mark}"], 2, 3, ""),
        (["echo bye; exit 0", "touch {mark}"], 1, 0, "bye"),
        (["kill -9 $$", "touch {mark}"], 1, -9, ""),
    ],
)
def test_a_line_that_fails_ends_it(
    tmp_path: Path, lines: list[str], number: int, returncode: int, output: str
) -> None:
    """Its number, text, exit code and output are told, and no later line runs."""
    mark = tmp_path / "mark"
    given = [line.replace("{mark}", str(mark)) for line in lines]
    found = capture(*given)
    error = found["error"]
    assert (error["number"], error["line"]) == (number, given[number - 1])
    assert error["returncode"] == returncode
    assert output in error["output"]
    assert (found["env"], found["unset"], found["path_first"]) == ({}, [], [])
    assert not mark.exists()


def test_a_line_that_is_no_shell_is_told() -> None:
    """Each line is read by itself: it cannot swallow the next."""
    error = capture("true", "if true; then", "fi")["error"]
    assert (error["number"], error["line"]) == (2, "if true; then")
    assert "syntax error" in error["output"]


def test_a_line_that_does_not_end_is_killed_with_its_children() -> None:
    """Within the limit, and said to be that; nothing is read from standard input."""
    began_s = time.monotonic()
    error = setup.capture(["echo waiting; sleep 60 | cat"], LOGIN, 0.5)["error"]
    assert time.monotonic() - began_s < 30
    assert (error["number"], error["returncode"], error["output"]) == (1, None, "waiting")
    assert error["killed"] == "did not end within 0.5 s"
    assert capture("read x || export NOTHING=1")["env"] == {"NOTHING": "1"}


def test_a_line_that_writes_without_end_is_killed_at_once() -> None:
    """Long before the limit of time, with the end of what it wrote; the disk is not filled."""
    began_s = time.monotonic()
    error = capture("true", "yes on and on")["error"]
    assert time.monotonic() - began_s < 60
    assert (error["number"], error["returncode"]) == (2, None)
    assert error["killed"] == "wrote more than 1 MiB of output"
    assert "on and on\non and on" in error["output"]
    assert len(error["output"]) <= 1500


@pytest.mark.parametrize("apart", ["", "setsid ", "set -m; "])
def test_what_lines_leave_running_is_ended(apart: str) -> None:
    """It was started by us, whatever group or session it is in; it is told by its command."""
    started = "export LEFT=$!; until grep -q sleep /proc/$LEFT/comm; do :; done"
    found = capture(f"{apart}sleep 778 & {started}")
    assert (found["error"], found["ended"], set(found["env"])) == (None, ["sleep 778"], {"LEFT"})
    left = procs.read(int(found["env"]["LEFT"]))
    assert left is None or left.dead


def test_a_part_of_the_shell_is_told_by_its_name() -> None:
    """Its command line holds every line, and with them what they set."""
    ended = capture("export TOKEN=s3cret", "while :; do sleep 1; done & :")["ended"]
    assert "bash" in ended
    assert set(ended) <= {"bash", "sleep 1", "sleep"}


def test_without_bash_the_shell_is_what_failed() -> None:
    """No line began."""
    error = setup.capture(["true"], {"PATH": "/none"})["error"]
    assert error["line"] is None
    assert "bash cannot be started" in error["output"]


def test_a_value_that_is_no_text_is_refused() -> None:
    """It could not be written down as what it is."""
    assert "not UTF-8" in capture("export RAW=$'\\xff'")["error"]["output"]


def test_a_virtual_environment_is_activated(tmp_path: Path) -> None:
    """The real script: its programs come first in PATH, and it says where it is."""
    home = tmp_path / "a venv"
    venv.create(home, symlinks=True)
    found = capture(f". '{home}/bin/activate'", PYTHONHOME="/old")
    assert found["error"] is None
    assert found["path_first"] == [str(home / "bin")]
    assert found["env"]["VIRTUAL_ENV"] == str(home)
    assert found["unset"] == ["PYTHONHOME"]
    environment = setup.laid_over(LOGIN, found, {}, [])
    assert environment["PATH"] == f"{home}/bin:{LOGIN['PATH']}"


def test_layers_are_laid_in_order() -> None:
    """Login, setup, the file; PATH gets its directories unless the file sets it."""
    layer = {"env": {"CHANGED": "s", "S": "s"}, "unset": ["GONE"], "path_first": ["/s"]}
    login = {**LOGIN, "PATH": "/usr/bin"}
    found = setup.laid_over(login, layer, {"S": "file", "KEPT": None}, ["/python"])
    assert found == {"PATH": "/python:/s:/usr/bin", "HOME": "/root", "CHANGED": "s", "S": "file"}
    assert setup.laid_over(login, layer, {"PATH": "/mine"}, ["/python"])["PATH"] == "/mine"
    assert "PATH" not in setup.laid_over(login, layer, {"PATH": None}, ["/python"])
    assert setup.laid_over({}, None, {}, ["/p"])["PATH"] == f"/p:{os.defpath}"
    assert setup.laid_over(login, None, {}, []) == login
