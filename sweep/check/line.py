"""One thing that was checked: how it stands, and what to do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """What a line means for a sweep. Exactly the errors keep it from starting."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True)
class CheckLine:
    """What was found of a subject; `remedy` says what to do about it."""

    level: Level
    subject: str
    finding: str
    remedy: str | None = None

    @property
    def sentence(self) -> str:
        """The line as one text, for messages."""
        remedy = f": {self.remedy}" if self.remedy else ""
        return f"{self.subject}: {self.finding}{remedy}"


def ok(subject: str, finding: str) -> CheckLine:
    """Return a line about something that is as it should be."""
    return CheckLine(Level.OK, subject, finding)


def warning(subject: str, finding: str, remedy: str | None = None) -> CheckLine:
    """Return a line about something that may cost results or time."""
    return CheckLine(Level.WARNING, subject, finding, remedy)


def error(subject: str, finding: str, remedy: str | None = None) -> CheckLine:
    """Return a line about something that no launch could work with."""
    return CheckLine(Level.ERROR, subject, finding, remedy)


@dataclass(frozen=True)
class Group:
    """The lines about one node, or about the plan."""

    title: str
    lines: tuple[CheckLine, ...]


def errors(groups: Iterable[Group]) -> list[tuple[str, CheckLine]]:
    """Return the errors of all groups, each with its group's title."""
    return of_level(groups, Level.ERROR)


def of_level(groups: Iterable[Group], level: Level) -> list[tuple[str, CheckLine]]:
    """Return the lines of one level, each with its group's title."""
    return [(group.title, line) for group in groups for line in group.lines if line.level is level]
