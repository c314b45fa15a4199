"""Reaching a node and staying on it: connection, Python, time of day, what logging out ends."""

from __future__ import annotations

from collections.abc import Iterator

from sweep.check.facts import Facts
from sweep.check.line import CheckLine, error, ok, warning
from sweep.check.wording import minutes
from sweep.ports import Reached

_OLDEST_PYTHON = (3, 9)
_CLOCK_S = 60.0
"""More than this, and a time of day in a log misleads."""


def lines(facts: Facts) -> Iterator[CheckLine]:
    """Yield what is to be said of the way to a node."""
    answer = facts.answer
    if facts.reached is None:
        yield ok("node", f"this machine, {answer['host']}, as {answer['user']}")
    else:
        yield from _connection(facts.reached, answer["host"])
    yield _python(answer["machine"]["python"])
    yield from _clock(facts.clock_ahead_s)
    yield from _session(facts)


def _python(version: str) -> CheckLine:
    if tuple(map(int, version.split(".")[:2])) < _OLDEST_PYTHON:
        return error(
            "Python", f"`python3` is {version}, the agent needs 3.9", "install a newer one"
        )
    return ok("Python", f"{version} runs the agent")


def _connection(reached: Reached, host: str) -> Iterator[CheckLine]:
    way = f" through {', '.join(reached.through)}" if reached.through else ""
    yield ok(
        "SSH",
        f"{reached.user}@{reached.address}{way} ({host}) in {minutes(reached.seconds)}, "
        f"known host key {reached.host_key}",
    )
    yield from not_honoured(reached.not_honoured)


def not_honoured(settings: tuple[str, ...]) -> Iterator[CheckLine]:
    """Yield a line about settings of the SSH config that sweep does not know."""
    if settings:
        yield warning(
            "SSH",
            f"without effect here: {'; '.join(settings)}",
            "make sure that the node is reached as it should be without them",
        )


def _clock(ahead_s: float | None) -> Iterator[CheckLine]:
    if ahead_s is None:
        return
    how = f"{minutes(abs(ahead_s))} {'ahead of' if ahead_s >= 0 else 'behind'} this machine's"
    if abs(ahead_s) <= _CLOCK_S:
        yield ok("clock", how)
    else:
        yield warning(
            "clock",
            f"{how}: times of day in logs and events mislead, durations do not",
            "have the clocks set by NTP",
        )


def _session(facts: Facts) -> Iterator[CheckLine]:
    session, user = facts.answer["session"], facts.answer["user"]
    if session is None or session["unit"] is None:
        return
    if session["unit"] == "manager" and not session["lingers"]:
        yield warning(
            "logout",
            f"what runs under the service manager of {user} ends with the last login: a launch "
            "would not outlive it",
            f"have it go on: loginctl enable-linger {user}",
        )
    elif session["unit"] == "session" and session["kills"]:
        yield warning(
            "logout",
            f"the login manager ends what {user} leaves running (KillUserProcesses): a launch "
            "would not outlive a lost connection",
            f"ask for KillExcludeUsers={user} in /etc/systemd/logind.conf; lingering does not "
            "help what was started in a login session",
        )
    elif session["unit"] == "session" and session["kills"] is None:
        yield warning(
            "logout",
            "whether the login manager ends what is left running cannot be told",
            "on the node: loginctl show-session --property=KillUserProcesses",
        )
    else:
        yield ok("logout", f"what {user} leaves running goes on")
