"""What was checked before a sweep, on a terminal."""

from __future__ import annotations

import pytest

from sweep.check.line import CheckLine, Group, Level, ok
from sweep.report.terminal_check import show

COMMAND = "echo '[localhost]:36777 ssh-ed25519 " + "A" * 68 + "' >> /home/somebody/.ssh/known_hosts"


def test_commands_stay_whole_to_be_copied(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However narrow the terminal is."""
    monkeypatch.setenv("COLUMNS", "80")
    unknown = CheckLine(Level.ERROR, "SSH", "host key not known", COMMAND)
    show([Group("gpu-a", (ok("Python", "3.11"), unknown))], 1.0)
    told = capsys.readouterr().out.splitlines()
    assert f"→ {COMMAND}" in [line.strip() for line in told]
    assert told[0] == "gpu-a"
    assert told[1].split() == ["ok", "Python", "3.11"]
    assert told[1].index("3.11") == told[2].index("host key") == told[3].index("→")
    assert told[-1] == "1 error; looked at in 1.0 s"


def test_empty_lines_of_a_program_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    """What a node's program printed may hold some."""
    show([Group("gpu-a", (ok("Python", "one\n\ntwo"),))], 1.0)
    assert [line.strip() for line in capsys.readouterr().out.splitlines()[1:-1]] == [
        "ok       Python  one",
        "two",
    ]
