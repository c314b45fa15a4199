"""Two GPUs by a fake nvidia-smi, whose answers follow a script."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

PROGRAM = Path(__file__).with_name("nvidia_smi.py")


def gpus(
    memory_mib: float,
    *,
    utilization: float = 0,
    pids: Sequence[int] = (),
    sm_clock_mhz: float = 1980,
    throttle_reasons: int = 0x4,
) -> Any:
    """Two GPUs with this much memory in use; `pids` compute on the first."""
    shared = {
        "name": "Fake", "memory.total": 98304, "memory.used": memory_mib, "driver_version": "1.0",
        "utilization.gpu": utilization, "clocks.sm": sm_clock_mhz, "clocks.mem": 2619,
        "power.draw": 310.5, "power.limit": 450, "compute_cap": "12.0", "temperature.gpu": 54,
        "clocks_throttle_reasons.active": f"0x{throttle_reasons:016x}",
    }  # fmt: skip
    rows = [{"index": n, "uuid": f"GPU-{n}", **shared} for n in range(2)]
    processes = [{"gpu_uuid": "GPU-0", "pid": pid} for pid in pids]
    return {"gpus": rows, "processes": processes}


class FakeGpus:
    """The program in a directory, and its script. `environment` makes others find it."""

    def __init__(self, root: Path, state: Any) -> None:
        self._script = root / "gpus.json"
        program = root / "bin" / "nvidia-smi"
        program.parent.mkdir()
        program.write_text(f"""#!/bin/sh\nexec '{sys.executable}' -I '{PROGRAM}' "$@"\n""")
        program.chmod(0o755)
        self.environment = {
            "PATH": f"{program.parent}:{os.environ['PATH']}",
            "FAKE_NVIDIA_SMI": str(self._script),
        }
        self.show(state)

    def show(self, *states: Any, every_s: float = 0.0) -> float:
        """Answer with the first state from now on, and with each further one so much later than
        the one before. Returns the monotonic time of now."""
        now_s = time.monotonic()
        series = [[now_s + number * every_s, state] for number, state in enumerate(states)]
        partial = self._script.with_suffix(".part")
        partial.write_text(json.dumps(series))
        partial.rename(self._script)
        return now_s
