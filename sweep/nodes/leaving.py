"""Leaving a node: what a sweep keeps there is given back, and its directories are removed."""

from __future__ import annotations

from collections.abc import Iterable

from sweep.model.experiment import NodeSpec
from sweep.nodes.access import agent_python
from sweep.nodes.archive import agent_archive
from sweep.ports import Node

_TIMEOUT_S = 30.0


def leave(
    node: Node, spec: NodeSpec, sweep_id: str, directories: Iterable[str], *, remove: bool
) -> list[str]:
    """Give back the claim that a sweep keeps between its launches, and remove its directories if
    told to; returns those that were there. Raises NodeError; the claim then lapses by itself."""
    name, _ = agent_archive()
    there = []
    for path in sorted(set(directories)):
        archive = f"{path}/{name}"
        if node.read(archive, 0, 1) is not None:
            argv = [agent_python(spec), "-I", archive, "release", sweep_id]
            node.run(argv, timeout_s=_TIMEOUT_S)
        if node.run(["test", "-e", path], timeout_s=_TIMEOUT_S).returncode == 0:
            there.append(path)
            if remove:
                node.remove_tree(path)
    return there
