"""Inspections of nodes: asking the agent, and ending what was asked."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import secrets
import threading
from collections.abc import Iterator, Mapping
from typing import Any

from sweep.agent import wire
from sweep.model.errors import NodeError
from sweep.nodes.access import agent_answer
from sweep.nodes.archive import agent_archive
from sweep.ports import Clock, Node

_INSPECT_TIMEOUT_S = 150.0
_SETUP_TIMEOUT_S = 125.0
"""Above the limit of the agent's own, which comes before the rest."""


class Inspections:
    """Those of several nodes at the same time, each from a thread of its own."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._stopped = False
        self._running: dict[str, Node] = {}

    def ask(
        self, node: Node, python: str, home: str, asked: Mapping[str, Any]
    ) -> tuple[dict[str, Any], float]:
        """Return what the agent answers, and how far its time of day is ahead of ours [s]. Raises
        NodeError. Nothing of it stays below `home` on the node."""
        name, archive = agent_archive()
        with self._directory(node, home) as directory:
            node.put(f"{directory}/{name}", archive)
            asked_file = f"{directory}/{wire.ASKED_FILE}"
            node.put(asked_file, json.dumps(asked).encode())
            argv = [python, "-I", f"{directory}/{name}", "inspect", asked_file]
            more_s = _SETUP_TIMEOUT_S if asked["setup"] else 0.0
            ended = node.run(argv, timeout_s=_INSPECT_TIMEOUT_S + more_s)
            now_s = dt.datetime.fromisoformat(self._clock.utc()).timestamp()
        failed = "the agent cannot inspect the node"
        answer = agent_answer(node.name, failed, python, ended)
        return answer, answer["machine"]["utc_s"] - now_s

    @contextlib.contextmanager
    def _directory(self, node: Node, home: str) -> Iterator[str]:
        """Give the name of a new directory on a node, which is removed after the block."""
        directory = f"{home}/{wire.INSPECTION_PREFIX}{secrets.token_hex(4)}"
        with self._lock:
            if self._stopped:
                raise NodeError(f"{node.name}: interrupted")
            self._running[directory] = node
        try:
            yield directory
        except BaseException:
            self._forget(directory)
            with contextlib.suppress(NodeError):  # what failed first is what is to be told
                node.remove_tree(directory)
            raise
        self._forget(directory)
        node.remove_tree(directory)

    def _forget(self, directory: str) -> None:
        with self._lock:
            del self._running[directory]

    def stop(self) -> None:
        """End the inspections that run, and let none begin."""
        with self._lock:
            self._stopped = True
            for directory, node in self._running.items():
                # A file and no command: a node behind SSH runs one command at a time.
                with contextlib.suppress(NodeError):
                    node.put(f"{directory}/{wire.STOP_FILE}", b"")
