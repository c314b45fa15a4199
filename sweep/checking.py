"""The verb check: all that a submit would stand on, and nothing started."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sweep.agent.facts.storage import disk_facts
from sweep.app import (
    Loaded,
    ask,
    latest_of_name,
    plan_summary,
    planned_for,
    require_launches,
)
from sweep.check import planning
from sweep.check.facts import Facts
from sweep.check.line import CheckLine, Group, Level, error, of_level, ok
from sweep.driver.clock import SystemClock
from sweep.engines import engine_of
from sweep.model.errors import UnusableError
from sweep.preflight import check_all
from sweep.store.directory import check_results_directory


@dataclass(frozen=True)
class Checked:
    """What was found before a sweep, and how long looking took."""

    groups: tuple[Group, ...]
    seconds: float

    @property
    def exit_code(self) -> int:
        """That of a submit which refused for the same errors; 0 when there are none."""
        return UnusableError.exit_code if of_level(self.groups, Level.ERROR) else 0


def check(loaded: Loaded, environment: Mapping[str, str], results: Path) -> Checked:
    """Look at everything that a submit of the file would stand on, and start nothing. Raises
    UsageError when the file asks for nothing."""
    clock, experiment = SystemClock(), loaded.experiment
    began_s = clock.monotonic_s()
    asked = ask(experiment, environment)
    facts = tuple(each for each in asked if isinstance(each, Facts))
    planned = planned_for(experiment, facts)
    require_launches(planned.plan)
    earlier, line = _kept_in(results, experiment.name)
    plan_group = Group("plan", (*planning.lines(plan_summary(experiment, planned)), line))
    groups = check_all(asked, experiment, engine_of(experiment.engine), earlier)
    return Checked((plan_group, *groups), clock.monotonic_s() - began_s)


def _kept_in(results: Path, name: str) -> tuple[str | None, CheckLine]:
    """Return the sweep that a submit would continue, and what is to be said of its directory."""
    disk = disk_facts(str(results))
    try:
        check_results_directory(results, disk, make=False)
        earlier = latest_of_name(results, name)
    except UnusableError as why:
        return None, error("results", why.message, why.hint)
    if earlier is None:
        return None, ok("results", f"kept in {results} ({disk['file_system']})")
    return earlier.sweep_id, ok("results", f"continues {earlier.sweep_id} in {results}")
