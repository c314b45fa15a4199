"""Disks of a node: how long reading the model takes, and room for what launches write."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sweep.check.facts import Facts
from sweep.check.line import CheckLine, error, ok, warning
from sweep.check.wording import minutes, size
from sweep.ports import Installation
from sweep.spec.estimate import ExpectedLoad

_REFERENCE_BYTES_PER_S = 0.6e9
_LEAST_FREE_BYTES = 256 * 1024 * 1024
"""For a server's log at its limit."""


@dataclass(frozen=True)
class Reading:
    """How long reading the models of a launch takes."""

    size_bytes: int
    """The target and the largest drafter."""
    cached_share: float
    """Of the largest file, in the page cache at the moment."""
    bytes_per_s: float

    @property
    def seconds(self) -> float:
        """What is not in the page cache, at the measured speed."""
        return self.size_bytes * (1 - self.cached_share) / self.bytes_per_s


def reading(facts: Facts, installation: Installation) -> Reading | None:
    """Return how long a launch reads; None when it was not or could not be measured."""
    storage = facts.answer["storage"]
    if storage is None or storage["bytes_per_s"] is None or not _complete(facts, installation):
        return None
    return Reading(
        _launch_bytes(facts, installation), storage["cached_share"] or 0.0, storage["bytes_per_s"]
    )


def _complete(facts: Facts, installation: Installation) -> bool:
    """Whether every model is there: the size of a part says nothing."""
    models = facts.answer["models"]
    return bool(models) and all(models[name]["size_bytes"] for name in installation.models)


def _launch_bytes(facts: Facts, installation: Installation) -> int:
    models = facts.answer["models"] or {}
    sizes = [models[name]["size_bytes"] for name in installation.models if name in models]
    return sum([*sizes[:1], max(sizes[1:], default=0)])


def expected_load(facts: Facts, installation: Installation) -> ExpectedLoad:
    """Return how long a load may take before any was measured: what the engine knows of it, or as
    long as reading takes and never less than the reference's, 550 GB in 900 s on 8 GPUs. Without
    files on the node: the reference's."""
    if installation.load_s is not None:
        return ExpectedLoad(installation.load_s, "simulated")
    sizes = [entry["size"] for entry in facts.files.values() if entry]
    count = _launch_bytes(facts, installation) or sum(sizes)
    if not count:
        return ExpectedLoad()
    measured = reading(facts, installation)
    usual_s, start_s = count / _REFERENCE_BYTES_PER_S, installation.start_s
    if measured is not None and measured.seconds > usual_s:
        basis = f"reading at {size(measured.bytes_per_s)}/s"
        return ExpectedLoad(start_s + measured.seconds, basis)
    return ExpectedLoad(max(start_s, usual_s))


def lines(facts: Facts, installation: Installation, load_s: float) -> Iterator[CheckLine]:
    """Yield what is to be said of disks; `load_s` is the experiment's deadline for a load."""
    measured = reading(facts, installation)
    if measured is not None:
        yield _load(facts, measured, load_s)
    elif facts.answer["storage"] is not None and _complete(facts, installation):
        yield _unmeasured(facts, installation)
    yield from _workdir(facts)


def _load(facts: Facts, measured: Reading, load_s: float) -> CheckLine:
    storage, memory = facts.answer["storage"], facts.answer["machine"]["memory_bytes"]
    place = f"{storage['file_system']} on {storage['device']}"
    cached = measured.cached_share
    rest = f", {cached:.0%} of it in the page cache now" if cached else ""
    finding = (
        f"{size(measured.size_bytes)} at {size(measured.bytes_per_s)}/s ({place}){rest}: "
        f"{minutes(measured.seconds)} of a load is reading, timeouts.load is {minutes(load_s)}"
    )
    if measured.size_bytes < memory:
        finding += f"; memory ({size(memory)}) can hold it for the next load"
    else:
        finding += f"; memory ({size(memory)}) cannot hold it: every load reads it again"
    remedy = "slow storage: copy the model to a faster disk, or raise timeouts.load"
    if measured.seconds > load_s:
        return error("load time", finding, remedy)
    if measured.seconds > load_s / 2:
        return warning("load time", finding, remedy)
    return ok("load time", finding)


def _unmeasured(facts: Facts, installation: Installation) -> CheckLine:
    storage = facts.answer["storage"]
    place = f"{storage['file_system']} on {storage['device']}"
    why = (
        "it is in the page cache, so the disk was not timed"
        if storage["cached_share"]
        else "too little to time"
    )
    return ok("load time", f"{size(_launch_bytes(facts, installation))} ({place}): {why}")


def _workdir(facts: Facts) -> Iterator[CheckLine]:
    disk = facts.answer["workdir"]
    if disk is None:
        return
    path, free = disk["path"], disk["free_bytes"]
    found: list[CheckLine] = []
    if not disk["writable"]:
        found.append(error("disk", f"{path} cannot be written", "set node.workdir"))
    if disk["network"]:
        found.append(
            error(
                "disk",
                f"{path} is on a network file system ({disk['file_system']})",
                "set node.workdir to a local disk",
            )
        )
    if free is not None and free < _LEAST_FREE_BYTES:
        found.append(
            error("disk", f"{path} has {size(free)} free", "free space there, or set node.workdir")
        )
    yield from found
    if not found:
        room = "" if free is None else f", {size(free)} free"
        yield ok("disk", f"launches write to {path} ({disk['file_system']}{room})")
