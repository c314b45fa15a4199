"""Lines of the log, as SGLang writes them, and the block of the phase profiler."""

from __future__ import annotations

import sys
import threading
import time
from typing import List, Sequence, Tuple

from sweep.probe import summary
from sweep.simulator.calibration import Phases

_lock = threading.Lock()


def say(text: str, rank: bool = True) -> None:
    """Write a line of the log with the time, and the rank for what a scheduler says."""
    stamp = time.strftime("%Y-%m-%d %H:%M:%S")
    line = "[%s%s] %s\n" % (stamp, " TP0" if rank else "", text)
    with _lock:
        sys.stderr.write(line)
        sys.stderr.flush()


def write(text: str) -> None:
    """Write text as it is, in one piece."""
    with _lock:
        sys.stderr.write(text)
        sys.stderr.flush()


READY = "The server is fired up and ready to roll!"

_SHARDS = 8


def load_script(speculative: bool) -> List[Tuple[float, str, str]]:
    """Return what a load says: (share of its time, step of the load, line), in order."""
    lines = [
        (0.00, "start", "server_args=ServerArgs(...)"),
        (0.02, "distributed", "Init torch distributed begin."),
        (0.04, "distributed", "Init torch distributed ends. mem usage=0.71 GB"),
        (0.05, "weights", "Load weight begin. avail mem=94.21 GB"),
    ]
    for shard in range(1, _SHARDS + 1):
        share = 0.05 + 0.75 * shard / _SHARDS
        percent = 100 * shard // _SHARDS
        text = "Loading safetensors checkpoint shards: %3d%% Completed" % percent
        lines.append((share, "weights", "%s | %d/%d" % (text, shard, _SHARDS)))
    lines.append((0.82, "weights", "Load weight end. type=KimiK25ForConditionalGeneration"))
    lines.append((0.85, "cache", "KV Cache is allocated. #tokens: 212992"))
    lines.append((0.86, "cache", "Memory pool end. avail mem=9.03 GB"))
    if not speculative:
        lines.append((0.87, "graphs", "Capture cuda graph begin. This can take several minutes."))
        lines.append((0.95, "graphs", "Capture cuda graph end. Time elapsed: 60.00 s."))
    else:
        lines.append((0.87, "graphs", "Capture target verify CUDA graph begin."))
        lines.append((0.92, "graphs", "Capture target verify CUDA graph end."))
        lines.append((0.93, "graphs", "Load weight begin. avail mem=8.11 GB"))
        lines.append((0.96, "graphs", "Load weight end. type=LlamaForCausalLMEagle3"))
        lines.append((0.97, "graphs", "Capture draft CUDA graph begin."))
        lines.append((0.99, "graphs", "Capture draft CUDA graph end."))
    return lines


def decode_line(
    running: int, tokens: int, accept: Sequence[float], throughput: float, waiting: int
) -> str:
    """Return the line of a stretch of decoding; `accept` is (length, rate), or empty."""
    spec = "accept len: %.2f, accept rate: %.2f, " % tuple(accept) if accept else ""
    return (
        "Decode batch, #running-req: %d, #token: %d, token usage: 0.00, %s"
        "cuda graph: True, gen throughput (token/s): %.2f, #queue-req: %d"
        % (running, tokens, spec, throughput, waiting)
    )


def profile_block(cycles: int, tokens: int, mean: Phases) -> str:
    """Return the profiler's summary of `cycles` cycles that yielded `tokens` tokens."""
    phases_ms = (mean.draft_ms, mean.verify_ms, mean.extend_ms, mean.other_ms)
    return summary.text(cycles, cycles, tokens, [ms / 1000.0 for ms in phases_ms]) + "\n"
