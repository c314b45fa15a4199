"""Reaching a node and staying on it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from fakes.facts import REACHED, facts, machine

from sweep.check import access
from sweep.check.line import CheckLine, Level


def lines(subject: str, **changes: Any) -> list[CheckLine]:
    """The lines about one subject."""
    return [line for line in access.lines(facts(**changes)) if line.subject == subject]


def test_a_node_behind_ssh() -> None:
    """As whom, where, through what, how long it took, and by which known key."""
    (line,) = lines("SSH")
    assert line.level is Level.OK
    assert line.finding == (
        "ann@10.0.0.7:22 through jump (gpu-box) in 0.084 s, known host key ssh-ed25519 SHA256:abc"
    )
    assert lines("node") == []


def test_settings_without_effect_are_a_warning() -> None:
    """Whoever wrote them may rely on them."""
    reached = replace(REACHED, not_honoured=("gpu: ciphers aes128-ctr", "gpu: setenv A=b"))
    _, line = lines("SSH", reached=reached)
    assert line.level is Level.WARNING
    assert line.finding == "without effect here: gpu: ciphers aes128-ctr; gpu: setenv A=b"


def test_this_machine() -> None:
    """There is no connection, and one clock."""
    (line,) = lines("node", reached=None, clock_ahead_s=None)
    assert line.finding == "this machine, gpu-box, as ann"
    assert lines("SSH", reached=None) == []
    assert lines("clock", reached=None, clock_ahead_s=None) == []


def test_the_agents_python() -> None:
    """The version that answered, unless launches need a newer one."""
    (line,) = lines("Python")
    assert (line.level, line.finding) == (Level.OK, "3.11.2 runs the agent")
    (line,) = lines("Python", machine=machine(python="3.10.0"))
    assert line.level is Level.OK
    (line,) = lines("Python", machine=machine(python="3.8.18"))
    assert (line.level, line.finding) == (Level.ERROR, "`python3` is 3.8.18, the agent needs 3.9")


@pytest.mark.parametrize(
    ("ahead_s", "level", "finding"),
    [
        (0.2, Level.OK, "0.2 s ahead of this machine's"),
        (-59.0, Level.OK, "59 s behind this machine's"),
        (-7200.0, Level.WARNING, "2 h behind this machine's: times of day"),
        (61.0, Level.WARNING, "61 s ahead of this machine's: times of day"),
    ],
)
def test_clocks(ahead_s: float, level: Level, finding: str) -> None:
    """A minute apart misleads whoever reads two logs."""
    (line,) = lines("clock", clock_ahead_s=ahead_s)
    assert line.level is level
    assert line.finding.startswith(finding)


def session(unit: str | None, *, kills: bool | None, lingers: bool) -> dict[str, Any]:
    """What the node says of its login manager."""
    return {"unit": unit, "kills": kills, "lingers": lingers}


@pytest.mark.parametrize(
    ("told", "level", "remedy"),
    [
        (session("session", kills=True, lingers=True), Level.WARNING, "KillExcludeUsers=ann"),
        (session("session", kills=None, lingers=False), Level.WARNING, "loginctl show-session"),
        (session("manager", kills=False, lingers=False), Level.WARNING, "enable-linger ann"),
        (session("manager", kills=True, lingers=True), Level.OK, None),
        (session("session", kills=False, lingers=False), Level.OK, None),
    ],
)
def test_what_logging_out_ends(told: dict[str, Any], level: Level, remedy: str | None) -> None:
    """Lingering helps in the user's manager, an exclusion in a login's scope."""
    (line,) = lines("logout", session=told)
    assert line.level is level
    assert (remedy or "") in (line.remedy or "")


def test_without_systemd_there_is_nothing_to_say() -> None:
    """Nor where the agent belongs to no login."""
    assert lines("logout", session=None) == []
    assert lines("logout", session=session(None, kills=True, lingers=False)) == []
