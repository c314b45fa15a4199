"""All that is checked of one node, in the order in which it would stop a launch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sweep.check import access, engine, gpus, machine, models, setup, storage
from sweep.check.facts import Facts
from sweep.check.line import CheckLine, Group, error, warning
from sweep.model.experiment import Experiment
from sweep.ports import Installation

_UNKNOWN = {
    "models": "models", "packages": "engine", "session": "logout", "compilers": "compilers",
    "caches": "caches", "storage": "load time",
}  # fmt: skip
"""Group of facts → subject of the line that says that they are missing."""
_NEEDED = {"version": "engine", "paths": "models", "workdir": "disk"}
"""The same, of what no launch can do without."""


def check_node(
    facts: Facts, experiment: Experiment, installation: Installation, sweep_id: str | None
) -> Group:
    """Return the lines about a node; what sweep `sweep_id` holds there is our own."""
    lines = [
        *access.lines(facts),
        *gpus.lines(facts, sweep_id),
        *setup.lines(facts),
        *engine.lines(facts, installation),
        *models.lines(facts, installation, experiment.drafters),
        *storage.lines(facts, installation, experiment.timeouts.load_s),
        *machine.lines(facts),
        *_unknown(facts),
    ]
    return Group(facts.node, tuple(lines))


def _unknown(facts: Facts) -> Iterator[CheckLine]:
    for name, why in facts.answer["unknown"].items():
        if name in _NEEDED:
            yield error(_NEEDED[name], f"not told: {why}", "see what the node's disks are doing")
        elif name in _UNKNOWN:
            yield warning(_UNKNOWN[name], f"not told: {why}")


def together(facts: Sequence[Facts]) -> Iterator[CheckLine]:
    """Yield what is wrong with nodes beside each other: two that are one machine and would claim
    the same of it, and tokenizers that do not agree."""
    yield from _one_machine(facts)
    rendered = [each.engine.details.get("token_ids") or {} for each in facts]
    if any(tokens != rendered[0] for tokens in rendered):
        yield error(
            "models",
            "the nodes' tokenizers render the prompts differently: it is not the same model",
            "the same engine and the same model files on every node",
        )


def _one_machine(facts: Sequence[Facts]) -> Iterator[CheckLine]:
    seen: dict[tuple[str, str, str], str] = {}
    told: set[tuple[str, str]] = set()
    for each in facts:
        for resource in sorted(each.claimed):
            key = (each.answer["boot_id"], each.answer["claim_directory"], resource)
            other = seen.setdefault(key, each.node)
            if other != each.node and (other, each.node) not in told:
                told.add((other, each.node))
                yield error("nodes", f"{other} and {each.node} are one machine", "name it once")
