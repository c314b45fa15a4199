"""Leaving nodes while others still work: nobody waits for a node that does not answer."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import PurePosixPath

from sweep.model.errors import SweepError
from sweep.model.experiment import NodeSpec
from sweep.nodes.access import on_each
from sweep.nodes.leaving import leave
from sweep.ports import Clock, Node
from sweep.store.sweep_db import SweepDb


class Departures:
    """Gives back what a sweep keeps on a node, and removes its directories from it when they hold
    nothing more, in a thread, as soon as nothing is left to be done there."""

    def __init__(
        self,
        database: SweepDb,
        specs: Mapping[str, NodeSpec],
        factories: Mapping[str, Callable[[], Node]],
        clock: Clock,
        *,
        keep: bool,
    ) -> None:
        self._database = database
        self._sweep_id = database.sweep_id
        self._specs = specs
        self._factories = factories
        self._clock = clock
        self._keep = keep
        self._pool = ThreadPoolExecutor(len(factories), thread_name_prefix="leave")
        self._staying = set(specs)
        self._late: dict[str, set[str]] = {}
        self._begun: list[Future[None]] = []

    def begin(self, name: str) -> None:
        """Leave a node on which nothing of the sweep runs and from which all was fetched that can
        be; may be repeated when something ran there once more."""
        rows = [row for row in self._database.attempts() if row.node == name]
        self._staying.discard(name)
        if not rows:
            return
        directories = {str(PurePosixPath(row.directory).parent.parent) for row in rows}
        fetched = all(row.outcome is not None and row.fetched is not None for row in rows)
        removable = directories if fetched and not self._keep else set()
        # Nodes may share their file system: where another one still works is left alone.
        self._late[name] = removable & self._in_use()
        self._submit(name, removable - self._late[name], directories)

    def end(self) -> None:
        """Leave what other nodes seemed to use, and wait until every node is left."""
        for future in self._begun:
            future.result()
        self._begun.clear()
        for name, directories in self._late.items():
            if directories:
                self._submit(name, directories, set())
        for future in self._begun:
            future.result()
        self._pool.shutdown()

    def _in_use(self) -> set[str]:
        nodes = self._database.nodes()
        return {
            f"{nodes[name].workdir}/{self._sweep_id}" for name in self._staying if name in nodes
        }

    def _submit(self, name: str, removed: set[str], kept: set[str]) -> None:
        self._begun.append(self._pool.submit(self._leave, name, removed, kept - removed))

    def _leave(self, name: str, removed: set[str], kept: set[str]) -> None:
        def leave_one(_: str, node: Node) -> None:
            leave(node, self._specs[name], self._sweep_id, kept, remove=False)
            leave(node, self._specs[name], self._sweep_id, removed, remove=True)

        failed = on_each({name: self._factories[name]}, leave_one)[name]
        if isinstance(failed, SweepError):  # nothing is lost; `clean` can do it later
            print(f"{self._clock.utc()} {failed.message}", file=sys.stderr)
