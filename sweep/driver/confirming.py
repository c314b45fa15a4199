"""Launches that confirm scans: they come into the plan when a scan has ended."""

from __future__ import annotations

import traceback
from collections.abc import Callable

from sweep.model.plan import PlannedLaunch
from sweep.ports import Clock
from sweep.spec.scans import confirmation
from sweep.store.sweep_db import SweepDb


class Confirming:
    """Adds to a sweep's plan the fastest of each scan on a server of its own."""

    def __init__(
        self, database: SweepDb, fastest: Callable[[str], str | None], clock: Clock
    ) -> None:
        """Prepare; `fastest` returns the configuration that a scan, by its launch id, found to be
        the fastest, None: there is none."""
        self._database = database
        self._fastest = fastest
        self._clock = clock

    def owed(self) -> list[PlannedLaunch]:
        """Return the scans of the plan that no launch confirms yet."""
        launches = self._database.plan().launches
        confirmed = {launch.confirms for launch in launches}
        return [each for each in launches if each.alone and each.launch_id not in confirmed]

    def add(self, scan: PlannedLaunch) -> PlannedLaunch | None:
        """Plan the launch that confirms a scan whose files are here; None: there is nothing to
        confirm, or it is planned already."""
        try:
            fastest = self._fastest(scan.launch_id)
        except Exception as problem:  # noqa: BLE001 - whatever it is, the measurements are safe
            traceback.print_exc()
            print(f"{self._clock.utc()} the fastest of {scan.label} is not known: {problem!r}")
            return None
        if fastest is None:
            print(f"{self._clock.utc()} nothing of {scan.label} can be confirmed")
            return None
        launch = confirmation(scan, fastest)
        if launch.launch_id in self._database.launch_states():
            return None
        self._database.add_launch(launch, scan.launch_id)
        return launch
