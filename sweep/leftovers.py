"""Ending a sweep and removing what it left, on all of its nodes. Prints nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from sweep import views
from sweep.app import signal_driver
from sweep.driver.clock import SystemClock
from sweep.model.errors import SweepError
from sweep.model.experiment import NodeSpec
from sweep.model.states import LaunchState
from sweep.nodes.access import node_factory, on_each
from sweep.nodes.leaving import leave
from sweep.ports import Node
from sweep.store.directory import SweepLock
from sweep.store.sweep_db import AttemptRow, SweepDb


def cancel(directory: Path, environment: Mapping[str, str]) -> int | None:
    """Stop a sweep. With a living driver: ask it, and return its pid to follow. Without: stop
    on the nodes themselves what still runs, and return None."""
    database = SweepDb.open(directory)
    try:
        runs, attempts = database.runs(), database.attempts()
    finally:
        database.close()
    if runs and views.driver_lives(runs[-1]):
        signal_driver(runs[-1].pid)
        return runs[-1].pid
    lock = SweepLock.take(directory)
    try:
        _stop_what_runs(directory, lock, attempts, environment)
    finally:
        lock.release()
    return None


def _stop_what_runs(
    directory: Path,
    lock: SweepLock,
    attempts: Sequence[AttemptRow],
    environment: Mapping[str, str],
) -> None:
    if not any(row.state is LaunchState.RUNNING for row in attempts):
        return
    from sweep.driver.process import stop_what_runs  # noqa: PLC0415 - scipy takes half a second

    stop_what_runs(directory, lock, environment)


@dataclass(frozen=True)
class Cleaned:
    """What `clean` stopped, as launches, and removed, as node:path or path, and why it could not
    remove the rest."""

    stopped: tuple[str, ...]
    removed: tuple[str, ...]
    problems: tuple[str, ...]


def clean(directory: Path, environment: Mapping[str, str]) -> Cleaned:
    """Stop and remove what a sweep left on its nodes, those too that its file no longer names; a
    node that does not answer keeps nobody from cleaning the others."""
    lock = SweepLock.take(directory)
    try:
        _, before = _recorded(directory)
        _stop_what_runs(directory, lock, before, environment)
        sweep_id, attempts = _recorded(directory)
    finally:
        lock.release()
    names = sorted({row.node for row in attempts})
    factories = {
        name: node_factory(NodeSpec.named(name), environment, SystemClock()) for name in names
    }

    def remove(name: str, node: Node) -> list[str]:
        return _remove(
            node, NodeSpec.named(name), sweep_id, [row for row in attempts if row.node == name]
        )

    found = on_each(factories, remove)
    return Cleaned(
        stopped(before, attempts),
        tuple(path for each in found.values() if isinstance(each, list) for path in each),
        tuple(each.message for each in found.values() if isinstance(each, SweepError)),
    )


def stopped(before: Sequence[AttemptRow], after: Sequence[AttemptRow]) -> tuple[str, ...]:
    """Return the launches, as `launch ID on NODE`, that ran before and do not after."""

    def running(rows: Sequence[AttemptRow]) -> dict[tuple[str, int], AttemptRow]:
        own = [row for row in rows if row.state is LaunchState.RUNNING]
        return {(row.launch_id, row.attempt): row for row in own}

    left = running(after)
    return tuple(
        f"launch {row.launch_id} on {row.node}"
        for key, row in running(before).items()
        if key not in left
    )


def _recorded(directory: Path) -> tuple[str, list[AttemptRow]]:
    database = SweepDb.open(directory)
    try:
        return database.sweep_id, database.attempts()
    finally:
        database.close()


def _remove(node: Node, spec: NodeSpec, sweep_id: str, attempts: Sequence[AttemptRow]) -> list[str]:
    """Remove a sweep's directories from one node, and return what was there."""
    running = [row for row in attempts if row.state is LaunchState.RUNNING]
    if running:
        raise SweepError(f"launch {running[0].launch_id} may still run on node {spec.name}")
    directories = [str(PurePosixPath(row.directory).parent.parent) for row in attempts]
    removed = leave(node, spec, sweep_id, directories, remove=True)
    return removed if spec.host is None else [f"{spec.name}:{path}" for path in removed]
