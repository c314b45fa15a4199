"""The GPUs that an experiment asks for, and who else holds or uses them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from sweep.check.facts import Facts
from sweep.check.line import CheckLine, error, ok, warning
from sweep.check.wording import mebibytes, some
from sweep.model.redaction import redact_argv

_SEEN_MIB = 1500.0
"""Less is what drivers and display servers keep for themselves."""
_KIND = ("name", "memory_total_mib", "power_limit_w", "compute_capability")


def lines(facts: Facts, sweep_id: str | None) -> Iterator[CheckLine]:
    """Yield what is to be said of GPUs and of others; claims of sweep `sweep_id` are our own."""
    failure = facts.answer["gpu_error"]
    if failure is not None:
        yield error("GPUs", f"nvidia-smi fails: {failure}", "repair the driver, or the node's PATH")
        return
    wrong = _wrong_list(facts)
    yield from [wrong] if wrong else _found(facts)
    closed = facts.answer["claim_error"]
    if closed is not None:
        yield error(
            "claims",
            f"no claim can be taken: {closed}",
            "let SWEEP_CLAIM_DIR on the node name a directory that all its users may write, or "
            "unset it",
        )
    others = [*_holders(facts, sweep_id), *_users(facts, sweep_id)]
    yield from others
    # Of GPUs that are not there, nothing is as it should be.
    if not (others or wrong or closed):
        yield ok("claims", f"nobody else holds or uses {'them' if facts.gpus else 'the node'}")
    yield from _unseen(facts, sweep_id)


def _wrong_list(facts: Facts) -> CheckLine | None:
    asked = facts.spec.gpus
    if asked is None or len(facts.gpus) == len(asked):
        return None
    there = [gpu["index"] for gpu in facts.answer["gpus"]]
    return error(
        "GPUs", f"node.gpus asks for {list(asked)}, the node has {there}", "correct node.gpus"
    )


def _found(facts: Facts) -> Iterator[CheckLine]:
    gpus = facts.gpus
    if not gpus:
        yield ok("GPUs", "none: a launch claims the node as a whole")
    kinds: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for gpu in gpus:
        kinds.setdefault(tuple(gpu.get(name) for name in _KIND), []).append(gpu)
    shown = "; ".join(_kind(members) for members in kinds.values())
    if len(kinds) > 1:
        yield warning(
            "GPUs",
            f"they differ: {shown}",
            "the slowest sets the pace of all: choose alike ones by node.gpus",
        )
    elif kinds:
        yield ok("GPUs", shown)


def _kind(gpus: list[Mapping[str, Any]]) -> str:
    """Describe GPUs that are alike by the first of them."""
    gpu = gpus[0]
    facts = [
        mebibytes(gpu["memory_total_mib"]) if gpu["memory_total_mib"] is not None else None,
        _power(gpu),
        f"compute capability {gpu['compute_capability']}"
        if gpu.get("compute_capability")
        else None,
        f"driver {gpu['driver']}",
        f"persistence {gpu['persistence'].lower()}" if gpu.get("persistence") else None,
    ]
    return f"{len(gpus)} × {gpu['name']} ({', '.join(fact for fact in facts if fact)})"


def _power(gpu: Mapping[str, Any]) -> str | None:
    limit, default = gpu.get("power_limit_w"), gpu.get("power_default_limit_w")
    if limit is None:
        return None
    of = f" of {default:.0f}" if default is not None and default != limit else ""
    return f"power limit {limit:.0f}{of} W"


def _ours(facts: Facts, sweep_id: str | None) -> set[str]:
    return {
        claim["resource"]
        for claim in facts.answer["claims"]
        if claim["holder"]["sweep"] == sweep_id
    }


def _busy(facts: Facts, subject: str, finding: str) -> CheckLine:
    """Return a line about somebody else: what it means is the experiment's decision."""
    if facts.spec.on_busy == "wait":
        return warning(subject, finding, "launches wait for it, as node.on_busy says")
    return error(subject, finding, "wait until it ends, or set node.on_busy: wait")


def _holders(facts: Facts, sweep_id: str | None) -> Iterator[CheckLine]:
    indices = {f"gpu-{gpu['uuid']}": str(gpu["index"]) for gpu in facts.gpus}
    by_holder: dict[str, list[str]] = {}
    for claim in facts.answer["claims"]:
        if claim["resource"] in facts.claimed - _ours(facts, sweep_id):
            by_holder.setdefault(claim["reason"], []).append(claim["resource"])
    for reason, held in by_holder.items():
        gpus = [indices[resource] for resource in held if resource in indices]
        what = "GPU " if len(gpus) == 1 else "GPUs "
        verb = "is" if len(held) == 1 else "are"
        subject = what + ", ".join(gpus) if gpus else "the node"
        yield _busy(facts, "claims", f"{subject} {verb} held: {reason}")


def _users(facts: Facts, sweep_id: str | None) -> Iterator[CheckLine]:
    """Yield the processes on GPUs that no claim speaks for; on ours, they are the server that we
    are going to attach to."""
    claimed = {claim["resource"] for claim in facts.answer["claims"]} | _ours(facts, sweep_id)
    free = [gpu for gpu in facts.gpus if f"gpu-{gpu['uuid']}" not in claimed]
    by_process: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for gpu in free:
        for process in facts.answer["gpu_processes"]:
            if process["gpu_uuid"] == gpu["uuid"]:
                key = (process["user"], process["pid"], _command(process))
                by_process.setdefault(key, []).append({**gpu, "used": process})
    for (user, pid, command), used in by_process.items():
        indices = ", ".join(str(gpu["index"]) for gpu in used)
        memory = _sum(gpu["used"].get("memory_used_mib") for gpu in used)
        held = "" if memory is None else f", {mebibytes(memory)}"
        which = f"GPU {indices}" if len(used) == 1 else f"GPUs {indices}"
        verb = "is" if len(used) == 1 else "are"
        yield _busy(facts, "GPUs", f"{which} {verb} used by {user}: pid {pid} ({command}){held}")


def _command(process: Mapping[str, Any]) -> str:
    words = str(process.get("command") or process["name"]).split(" ")
    return " ".join(redact_argv(words))


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _unseen(facts: Facts, sweep_id: str | None) -> Iterator[CheckLine]:
    """Yield a line about memory that nobody seems to use: processes of other containers are not
    shown."""
    ours = _ours(facts, sweep_id)
    seen = {process["gpu_uuid"] for process in facts.answer["gpu_processes"]}
    held = [
        f"GPU {gpu['index']} {mebibytes(gpu['memory_used_mib'])}"
        for gpu in facts.gpus
        if (gpu["memory_used_mib"] or 0) > _SEEN_MIB
        and gpu["uuid"] not in seen
        and f"gpu-{gpu['uuid']}" not in ours
    ]
    if held:
        yield warning(
            "GPUs",
            f"memory in use by processes that cannot be seen from here: {some(held, 8)}",
            "look for other containers on the node",
        )
