"""What the login manager's settings mean for a process that is left running."""

from __future__ import annotations

import pytest

from sweep.agent.facts import session

SHOWN = "KillUserProcesses={}\nKillExcludeUsers={}\nKillOnlyUsers={}\n"


@pytest.mark.parametrize(
    ("cgroups", "unit"),
    [
        ("0::/user.slice/user-1000.slice/session-3.scope\n", "session"),
        ("12:pids:/x\n1:name=systemd:/user.slice/user-0.slice/session-c2.scope\n", "session"),
        ("0::/user.slice/user-1000.slice/user@1000.service/app.slice/a.scope\n", "manager"),
        ("0::/system.slice/ssh.service\n", None),
        ("0::/\n", None),
    ],
)
def test_where_a_process_belongs(cgroups: str, unit: str | None) -> None:
    """A login's scope, the user's manager, or neither."""
    assert session.unit_of(cgroups) == unit


@pytest.mark.parametrize(
    ("values", "user", "kills"),
    [
        (("yes", "root", ""), "ann", True),
        (("no", "root", ""), "ann", False),
        (("yes", "root ann", ""), "ann", False),
        (("yes", "root", ""), "root", False),
        (("no", "root", "ann bob"), "ann", True),
        (("yes", "root", "bob"), "ann", False),
    ],
)
def test_whose_processes_are_ended(values: tuple[str, str, str], user: str, kills: bool) -> None:
    """Exclusions count most, then the list of those whose processes end, then the switch."""
    assert session.kills(session.parse_settings(SHOWN.format(*values)), user) is kills


def test_the_default_of_the_distribution_is_not_known() -> None:
    """A config file with nothing but comments says nothing."""
    text = "[Login]\n#KillUserProcesses=yes\n"
    assert session.kills(session.parse_settings(text), "ann") is None


def test_the_last_config_file_counts() -> None:
    """As the files in logind.conf.d are read after logind.conf."""
    text = "KillUserProcesses=yes\n[Login]\n  KillUserProcesses = no\n"
    assert session.kills(session.parse_settings(text), "ann") is False
