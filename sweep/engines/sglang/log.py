"""Lines of SGLang's log that mean something: milestones of a load, and reasons to fail.

Texts are those of versions 0.4.6 to 0.5.23; the simulated server writes them too.
"""

from __future__ import annotations

from sweep.agent.wire import Pattern
from sweep.engines.classify import LogSign

MILESTONES = (
    Pattern("arguments", r"server_args="),
    Pattern("distributed", r"Init torch distributed ends"),
    Pattern("weights", r"Load weight begin"),
    Pattern("shards", r"Loading safetensors checkpoint shards:\s+(\d+)%"),
    Pattern("weights_loaded", r"Load weight end"),
    Pattern("cache", r"KV Cache is allocated"),
    Pattern("graphs", r"(?i)Capture .*cuda graph begin"),
    Pattern("graphs_captured", r"(?i)Capture .*cuda graph end"),
    Pattern("ready", r"The server is fired up and ready to roll!"),
)

SIGNS = (
    LogSign(
        "out_of_memory",
        r"torch\.OutOfMemoryError|CUDA out of memory",
        "oom",
        "a GPU ran out of memory: lower mem-fraction-static or the batch",
    ),
    LogSign(
        "memory_fraction",
        r"Not enough memory\. Please try to increase --mem-fraction-static",
        "oom",
        "the cache does not fit: raise mem-fraction-static",
    ),
    LogSign(
        "graph_capture",
        r"Capture cuda graph failed",
        "graph_capture",
        "the CUDA graphs cannot be captured",
    ),
    LogSign(
        "nccl",
        r"NCCL error|ncclUnhandledCudaError|ncclInternalError"
        r"|Watchdog caught collective operation timeout",
        "nccl_hang",
        "a collective operation failed",
    ),
    LogSign(
        "port_in_use",
        r"(?i)address already in use|Port is already in use|used by a process already",
        "port_in_use",
        "another process has the port",
    ),
    LogSign(
        "bad_arguments",
        r"error: unrecognized arguments|error: argument |simulator: error:",
        "bad_args",
        "the server does not take an argument or its value",
    ),
    LogSign(
        "file_missing",
        r"does not appear to have a file named|No such file or directory|FileNotFoundError",
        "missing_file",
        "a model file is missing",
    ),
    LogSign(
        "illegal_access",
        r"illegal memory access",
        "server_died",
        "a kernel accessed memory that is not its own",
    ),
)
"""In order of precedence: the first that was seen names the failure."""
