"""What every process on a node shares: memory, ports, limits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sweep.agent.footprint import SHM_DIRECTORY
from sweep.check.facts import Facts
from sweep.check.line import CheckLine, error, ok, warning
from sweep.check.wording import size

_LEAST_SHM_BYTES = 10**9
_LEAST_OPEN_FILES = 4096


def lines(facts: Facts) -> Iterator[CheckLine]:
    """Yield what is to be said of the machine."""
    machine = facts.answer["machine"]
    yield from _memory(machine)
    yield from _shared_memory(machine, len(facts.gpus))
    yield from _ports(machine)
    yield from _limits(machine)


def _memory(machine: dict[str, Any]) -> Iterator[CheckLine]:
    available = machine["memory_available_bytes"]
    rest = "" if available is None else f", {size(available)} available"
    yield ok("memory", f"{size(machine['memory_bytes'])}{rest}, {machine['cpus']} cores")


def _shared_memory(machine: dict[str, Any], gpus: int) -> Iterator[CheckLine]:
    whole, free = machine["shm_bytes"], machine["shm_free_bytes"]
    if whole is None or free is None:
        yield warning(SHM_DIRECTORY, "it is not there: processes of one server share memory in it")
        return
    finding = f"{size(free)} free of {size(whole)}"
    if gpus > 1 and whole < _LEAST_SHM_BYTES:
        yield warning(
            SHM_DIRECTORY,
            f"{finding}: too little for {gpus} GPUs to exchange data",
            "Docker's default is 64 MB: start the container with --shm-size=16g or --ipc=host",
        )
    elif gpus > 1 and free < _LEAST_SHM_BYTES:
        yield warning(
            SHM_DIRECTORY,
            f"{finding}: too little for {gpus} GPUs to exchange data",
            f"see what earlier servers left there: ls -l {SHM_DIRECTORY}",
        )
    else:
        yield ok(SHM_DIRECTORY, finding)


def _ports(machine: dict[str, Any]) -> Iterator[CheckLine]:
    problem = machine["port_error"]
    if problem is None:
        yield ok("ports", "a server can listen on 127.0.0.1")
    else:
        yield error(
            "ports",
            f"no server can listen on 127.0.0.1: {problem}",
            "bring up the loopback interface: ip link show lo",
        )


def _limits(machine: dict[str, Any]) -> Iterator[CheckLine]:
    (soft, hard), (_, locked) = machine["open_files"], machine["locked_memory_bytes"]
    held = "unlimited" if locked is None else f"at most {size(locked)}"
    finding = f"open files {_count(soft)} (at most {_count(hard)}), locked memory {held}"
    if hard is not None and hard < _LEAST_OPEN_FILES:
        yield warning(
            "limits",
            f"{finding}: servers with many GPUs or connections need more open files",
            "raise nofile in /etc/security/limits.conf, or the container's --ulimit nofile",
        )
    else:
        yield ok("limits", finding)


def _count(value: int | None) -> str:
    return "unlimited" if value is None else str(value)
