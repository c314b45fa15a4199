"""Watches a server while it loads and works: what its log says, and whether it makes progress."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass
from typing import Callable, Dict, FrozenSet, List, Optional, Sequence

from sweep.agent import procs, wire
from sweep.agent.journal import Journal
from sweep.agent.logfile import LogFile
from sweep.agent.ours import Ours

_LOG_POLL_S = 0.1
_VITALS_POLL_S = 1.0
_CALM_POLL_S = 2.0
"""While requests are measured, the watch keeps still."""

_CPU_SHARE = 0.05
"""Of one core: polling for health costs a server less, loading costs it more."""
_DISK_BYTES_PER_S = 256 * 1024
_MEMORY_MIB = 1.0

COMPILERS = frozenset(
    ["nvcc", "cicc", "ptxas", "ninja", "cc1plus", "cc1", "gcc", "g++", "c++", "cc",
     "clang", "clang++", "ld", "cudafe++", "fatbinary", "nvlink"]
)  # fmt: skip

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Vitals:
    """What shows that a server works. GPU figures are null where there are no GPUs."""

    at_s: float
    log_bytes: int
    cpu_s: Dict[int, float]
    """CPU time of each of our processes by pid."""
    disk_bytes: Dict[int, int]
    compiling: bool
    gpu_memory_mib: Optional[float]
    gpu_busy: Optional[bool]
    """Whether all our GPUs are near 100 %."""


def _moved(before: Optional[float], now: Optional[float]) -> bool:
    return before is not None and now is not None and abs(now - before) > _MEMORY_MIB


def _growth(before: Dict[int, float], now: Dict[int, float]) -> float:
    return sum(max(0.0, value - before.get(pid, 0.0)) for pid, value in now.items())


def progressed(before: Vitals, now: Vitals) -> bool:
    """Return whether a server did something between two looks.

    Processes that wait for a collective spin: where the GPUs are busy, CPU time and I/O prove
    nothing, and only the log, the GPU memory or a compiler do.
    """
    if now.compiling or now.log_bytes != before.log_bytes:
        return True
    if _moved(before.gpu_memory_mib, now.gpu_memory_mib):
        return True
    if now.gpu_busy:
        return False
    elapsed_s = max(now.at_s - before.at_s, 1e-3)
    if _growth(before.cpu_s, now.cpu_s) > _CPU_SHARE * elapsed_s:
        return True
    disk = {pid: float(value) for pid, value in now.disk_bytes.items()}
    disk_before = {pid: float(value) for pid, value in before.disk_bytes.items()}
    return _growth(disk_before, disk) > _DISK_BYTES_PER_S * elapsed_s


def is_compiling(processes: Sequence[procs.Process], compilers: FrozenSet[str] = COMPILERS) -> bool:
    """Return whether a compiler runs among processes."""
    return any(process.name in compilers for process in processes)


class Watch:
    """A thread from the server's start to its end.

    `on_stall(gpu_busy)` is called once, when a loading server makes no progress for `stall_s`.
    `gpus` returns (used memory [MiB], all busy), both None without GPUs.
    """

    def __init__(
        self,
        log: LogFile,
        ours: Ours,
        journal: Journal,
        *,
        fatal: Sequence[wire.Pattern],
        stall_s: float,
        on_stall: Callable[[Optional[bool]], None],
        gpus: Callable[[], tuple[Optional[float], Optional[bool]]],
    ) -> None:
        self._log = log
        self._ours = ours
        self._journal = journal
        self._fatal = {pattern.name for pattern in fatal}
        self._stall_s = stall_s
        self._on_stall = on_stall
        self._gpus = gpus
        self._over = threading.Event()
        self._calm = False
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self.patterns: List[str] = []

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def calm(self) -> None:
        """The server is ready: from now on look rarely, and no longer for stalls."""
        self._calm = True

    def finish(self) -> None:
        """Stop watching, and search what the log still holds."""
        self._over.set()
        self._thread.join()
        self._tell(self._log.finish())

    def _tell(self, hits: Sequence[tuple[wire.Pattern, str]]) -> None:
        for pattern, line in hits:
            if pattern.name in self._fatal:
                if pattern.name not in self.patterns:
                    self.patterns.append(pattern.name)
                self._journal.event("pattern", name=pattern.name, line=line)
            else:
                self._journal.event("milestone", name=pattern.name, line=line)

    def _look(self) -> Vitals:
        living = self._ours.scan()
        memory_mib, busy = self._gpus()
        if not self._calm:
            self._ours.note_shared_memory(living)
        return Vitals(
            at_s=time.monotonic(),
            log_bytes=self._log.size(),
            cpu_s={process.pid: process.cpu_ticks / _TICKS_PER_S for process in living},
            disk_bytes={process.pid: procs.disk_bytes(process.pid) for process in living},
            compiling=is_compiling(living),
            gpu_memory_mib=memory_mib,
            gpu_busy=busy,
        )

    def _run(self) -> None:
        vitals = self._look()
        progress_s = vitals.at_s
        while not self._over.wait(_CALM_POLL_S if self._calm else _LOG_POLL_S):
            self._tell(self._log.read())
            self._log.bound()
            if time.monotonic() - vitals.at_s < _VITALS_POLL_S:
                continue
            before, vitals = vitals, self._look()
            if self._calm or progressed(before, vitals):
                progress_s = vitals.at_s
            elif vitals.at_s - progress_s >= self._stall_s:
                self._journal.event("stall", limit_s=self._stall_s, gpu_busy=vitals.gpu_busy)
                self._on_stall(vitals.gpu_busy)
                progress_s = float("inf")
