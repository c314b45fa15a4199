"""Samples of the GPUs once a second, into telemetry.jsonl. Nothing at all without GPUs."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from typing import Callable, Dict, List, Optional, Sequence, Set, Tuple

from sweep.agent import gpus, wire
from sweep.agent.gpus import Gpu
from sweep.agent.journal import utc_now

FIELDS = (
    "uuid", "clocks.sm", "clocks.mem", "power.draw", "temperature.gpu",
    "clocks_throttle_reasons.active", "memory.used", "utilization.gpu",
)  # fmt: skip
_NAMES = (
    "uuid", "sm_clock_mhz", "memory_clock_mhz", "power_w", "temperature_c",
    "throttle_reasons", "memory_used_mib", "utilization_percent",
)  # fmt: skip
_PERIOD_S = 1.0
_BUSY_PERCENT = 90.0
_PROCESSES_PERIOD_S = 10.0
_END_S = 5.0


def parse_sample(line: str) -> Optional[Dict[str, object]]:
    """Read one line of nvidia-smi; None when it is not one. Figures not reported are null."""
    cells = [cell.strip() for cell in line.split(",")]
    if len(cells) != len(_NAMES):
        return None
    sample: Dict[str, object] = dict(zip(_NAMES, cells))
    for name in _NAMES:
        if name not in ("uuid", "throttle_reasons"):
            sample[name] = gpus.number(str(sample[name]))
    return sample


class Telemetry:
    """Runs one nvidia-smi that repeats itself: starting one each second would cost the node more
    than the samples are worth. `ours` returns the pids of our processes."""

    def __init__(self, directory: str, chosen: Sequence[Gpu], ours: Callable[[], Set[int]]) -> None:
        self._path = os.path.join(directory, wire.TELEMETRY_FILE)
        self._uuids = [gpu.uuid for gpu in chosen]
        self._ours = ours
        self._over = threading.Event()
        self._program: Optional[subprocess.Popen[bytes]] = None
        self._threads: List[threading.Thread] = []
        self._latest: Dict[str, Dict[str, object]] = {}
        self._lock = threading.Lock()

    def start(self) -> None:
        """Begin to sample, where there are GPUs."""
        if self._uuids:
            for work in (self._sample, self._look_for_others):
                thread = threading.Thread(target=work, name="telemetry", daemon=True)
                thread.start()
                self._threads.append(thread)

    def finish(self) -> None:
        """End sampling."""
        self._over.set()
        with self._lock:
            if self._program is not None:
                self._program.kill()
        for thread in self._threads:
            thread.join(_END_S)  # a driver that hangs must not hold up the launch

    def load(self) -> Tuple[Optional[float], Optional[bool]]:
        """Return (memory in use on our GPUs [MiB], whether all of them are near 100 %)."""
        samples = list(self._latest.values())
        memory = [s["memory_used_mib"] for s in samples]
        busy = [s["utilization_percent"] for s in samples]
        used = [value for value in memory if isinstance(value, float)]
        rates = [value for value in busy if isinstance(value, float)]
        return (
            sum(used) if used and len(used) == len(samples) else None,
            min(rates) >= _BUSY_PERCENT if rates else None,
        )

    def _append(self, line: Dict[str, object]) -> None:
        stamp = {"v": wire.WIRE_VERSION, "t_s": round(time.monotonic(), 6), "utc": utc_now()}
        with self._lock, open(self._path, "a", encoding="utf-8") as stream:
            stream.write(wire.encode({**stamp, **line}) + "\n")

    def _sample(self) -> None:
        argv = ["nvidia-smi", "--query-gpu=" + ",".join(FIELDS), "--format=csv,noheader,nounits"]
        argv += ["-i", ",".join(self._uuids), "-l", "%d" % _PERIOD_S]
        while not self._over.is_set():
            with self._lock:
                if self._over.is_set():
                    return
                self._program = subprocess.Popen(
                    argv,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                )
            with self._program as program:
                for line in program.stdout or ():
                    self._take(line.decode("utf-8", "replace"))
            self._over.wait(_PERIOD_S)  # it ended by itself: ask again

    def _take(self, line: str) -> None:
        sample = parse_sample(line)
        if sample is not None and sample["uuid"] in self._uuids:
            self._latest[str(sample["uuid"])] = sample
            self._append(sample)

    def _look_for_others(self) -> None:
        while not self._over.wait(_PROCESSES_PERIOD_S):
            try:
                found = gpus.list_processes()
            except gpus.GpuError:
                continue
            ours = self._ours()
            others = sorted(
                {p.pid for p in found if p.gpu_uuid in self._uuids and p.pid not in ours}
            )
            self._append({"foreign_pids": others})
