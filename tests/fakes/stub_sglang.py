"""A package that calls itself sglang and has of it what the probe's way in depends on.

Written into a directory: a parent that spawns a scheduler process, the scheduler, a worker, and
from 0.5.11 on the plugins.
"""

from __future__ import annotations

from pathlib import Path

_WORKER = """
from sglang.srt.managers.scheduler import busy

class EagleDraftWorker:
    def draft(self, batch, *, with_topology=False):
        busy(0.002)
    def _draft_extend_for_decode(self, batch, batch_result, *, kv_loc_plan=None):
        busy(0.001)

class EAGLEWorkerV2:
    speculative_num_steps, speculative_num_draft_tokens = 3, 4
    def __init__(self):
        self.draft_worker = EagleDraftWorker()
    def forward_batch_generation(self, batch, on_publish=None):
        self.draft_worker.draft(batch)
        result = self.verify(batch, grammar_barrier=None)
        self.draft_worker._draft_extend_for_decode(batch, result)
        return result
    def verify(self, batch, grammar_barrier=None):
        busy(0.005)
        return Result()

class Result:
    accept_lens = None
    num_correct_drafts = 1
"""

_SCHEDULER = """
import time

def busy(seconds):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass

class Mode:
    def is_idle(self): return False
    def is_decode(self): return True

class Lengths:
    shape = (1,)

class Req:
    rid = "r"
    def finished(self): return False

class Batch:
    forward_mode, seq_lens, seq_lens_sum, reqs = Mode(), Lengths(), 7, [Req()]

class Scheduler:
    def __init__(self, server_args, rank):
        from sglang.srt.speculative.eagle_worker_v2 import EAGLEWorkerV2
        self.device, self.tp_rank, self.tp_size = "cpu", rank, 2
        self.draft_worker = EAGLEWorkerV2()
        self.results = []
    def process_batch_result(self, batch, result, launch_done=None):
        self.results.append(result.num_correct_drafts)

def run_scheduler_process(rank, cycles):
    PLUGINS
    import wave  # as any server imports more before it makes its scheduler
    scheduler = Scheduler(None, rank)
    for _ in range(cycles):
        batch = Batch()
        result = scheduler.draft_worker.forward_batch_generation(batch)
        scheduler.process_batch_result(batch, result)
    assert scheduler.results == [1] * cycles
"""

_PLUGINS = """
from importlib.metadata import entry_points

def load_plugins():
    found = entry_points()
    group = "sglang.srt.plugins"
    chosen = found.get(group, ()) if isinstance(found, dict) else found.select(group=group)
    for entry in chosen:
        entry.load()()
"""

_LAUNCH = """
import multiprocessing

def main():
    import sglang.srt.managers.scheduler as scheduler
    multiprocessing.set_start_method("spawn", force=True)
    processes = [
        multiprocessing.Process(target=scheduler.run_scheduler_process, args=(rank, 6))
        for rank in range(2)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    raise SystemExit(max(process.exitcode for process in processes))

if __name__ == "__main__":
    main()
"""


def write(directory: Path, *, plugins: bool) -> None:
    """Write the package; without plugins it is one of 0.5.10 or older."""
    load = "from sglang.srt.plugins import load_plugins; load_plugins()" if plugins else "pass"
    files = {
        "__init__": '__version__ = "0.5.99"\n',
        "launch_server": _LAUNCH,
        "srt/__init__": "",
        "srt/managers/__init__": "",
        "srt/managers/scheduler": _SCHEDULER.replace("PLUGINS", load),
        "srt/speculative/__init__": "",
        "srt/speculative/eagle_worker_v2": _WORKER,
    }
    if plugins:
        files["srt/plugins/__init__"] = _PLUGINS
    for name, text in files.items():
        path = directory / "sglang" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
