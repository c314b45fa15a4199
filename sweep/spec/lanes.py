"""Which node runs which arm. Pure functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class ArmSize:
    """An arm as far as its place matters: the variants that it serves, and its launches."""

    variants: Collection[str]
    launches: int
    is_default: bool = False


def assign(
    arms: Sequence[ArmSize],
    nodes: Sequence[str],
    together: Sequence[Collection[str]],
    *,
    extra: int,
) -> list[str]:
    """Return the node of each arm.

    In order, each goes to the node with the fewest launches so far, the first of several; one
    that shares an entry of `together` with an earlier arm goes where that is. So an arm that is
    appended moves none of the others. A node without the default arm has `extra` launches more.
    """
    entries = _joined(arms, together)
    count = dict.fromkeys(nodes, 0)
    has_default = set() if any(arm.is_default for arm in arms) else set(nodes)
    chosen: dict[int, str] = {}
    found = []
    for arm in arms:
        entry = next((at for at, names in enumerate(entries) if names & set(arm.variants)), None)
        node = chosen.get(entry) if entry is not None else None
        if node is None:
            node = min(nodes, key=lambda name: count[name])
        if entry is not None:
            chosen[entry] = node
        if arm.is_default:
            has_default.add(node)
        if not count[node] and node not in has_default:
            count[node] += extra
        count[node] += arm.launches
        found.append(node)
    return found


def _joined(arms: Sequence[ArmSize], together: Sequence[Collection[str]]) -> list[set[str]]:
    """Return the entries of `together`; those that one arm serves at once are one entry."""
    entries = [set(names) for names in together]
    for arm in arms:
        touched = [names for names in entries if names & set(arm.variants)]
        if len(touched) > 1:
            entries = [names for names in entries if names not in touched]
            entries.append(set().union(*touched))
    return entries


def describe(
    arms: Sequence[tuple[str, str]], nodes: Sequence[str], default: str | None
) -> list[str]:
    """Return what to tell of (arm, node) pairs on several nodes; nothing for one node.

    `default` is the arm whose baseline runs on every node, None without one.
    """
    if len(nodes) == 1:
        return []
    parts, idle = [], []
    busy = Counter(node for _, node in arms)
    for node in nodes:
        names = [arm for arm, where in arms if where == node]
        if not names:
            idle.append(node)
            continue
        also = ""
        if default is not None and default not in names:
            also = f" (and the baseline of {default})"
        parts.append(f"{node} runs {'; '.join(names)}{also}")
    notes = [f"node {part}" for part in parts]
    if len(busy) > 1:
        notes.append(
            "rows of different nodes are never ranked together; variants in one list of "
            "sweep.together share a node"
        )
    if idle:
        notes.append(
            f"nothing to run on {', '.join(idle)}: configurations that are ranked together stay "
            "on one node"
        )
    return notes
