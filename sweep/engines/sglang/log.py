"""Lines of SGLang's log that mean something: milestones of a load, and reasons to fail.

Texts are those of versions 0.4.6 to 0.5.23, read in their sources and, for 0.5.23 on a CPU, in
the logs of servers that were made to fail; the simulated server writes them too.
"""

from __future__ import annotations

import re
from dataclasses import replace

from sweep.agent.wire import Outcome, Pattern
from sweep.engines.classify import (
    BEFORE_TRIALS,
    WITHOUT_GRAPH,
    LogSign,
    classify_outcome,
    quotable,
)
from sweep.model.states import Failure

MILESTONES = (
    Pattern("arguments", r"server_args="),
    Pattern("distributed", r"Init (torch distributed|parallel) ends"),
    Pattern("weights", r"Load weight begin"),
    Pattern("shards", r"[Ll]oading (safetensors checkpoint )?shards:\s+(\d+)%"),
    Pattern("weights_loaded", r"Load weight end"),
    Pattern("cache", r"KV Cache is allocated"),
    Pattern("graphs", r"(?i)Capture .*cuda graph begin"),
    Pattern("graphs_captured", r"(?i)Capture .*cuda graph end"),
    Pattern("ready", r"The server is fired up and ready to roll!"),
    Pattern(WITHOUT_GRAPH, r"Decode batch.*cuda graph: False"),
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
        r"Not enough memory\. Please try to increase --mem-fraction-static"
        r"|leave no GPU memory for the KV cache",
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
        r"(?i)address already in use|Port is already in use|used by a process already"
        r"|port \d+ is (already in use|not available)",
        "port_in_use",
        "another process has the port",
    ),
    LogSign(
        "too_few_candidates",
        r"selected index k out of range",
        "bad_args",
        "the tree has fewer candidates than draft tokens are asked",
    ),
    LogSign(
        "draft_does_not_fit",
        r"mat1 and mat2 shapes cannot be multiplied|object has no attribute 'hot_token_id'"
        r"|The size of tensor a \(\d+\) must match the size of tensor b"
        r"|Attempted to load weight \(torch\.Size",
        "bad_args",
        "the draft model is not made for this target: hidden sizes or layers do not fit",
    ),
    LogSign(
        "not_compiled",
        r"Failed to build JIT module|Error building extension|ninja: build stopped"
        r"|Could not find nvcc|Ninja is required to load C\+\+ extensions",
        "not_compiled",
        "a kernel cannot be compiled on the node: `sweep check` names the compilers that it has",
    ),
    LogSign(
        "file_damaged",
        r"safetensors_rust\.SafetensorError|Error while deserializing header",
        "missing_file",
        "a model file is incomplete: fetch it again",
    ),
    LogSign(
        "file_missing",
        r"does not appear to have a file named|No such file or directory|FileNotFoundError"
        r"|Repo id must be in the form|is not a local folder and is not a valid model identifier"
        r"|LocalEntryNotFoundError|Cannot find any model weights",
        "missing_file",
        "a model is not there",
    ),
    LogSign(
        "bad_arguments",
        r"error: unrecognized arguments|error: argument |error: ambiguous option"
        r"|Unknown speculative algorithm name|simulator: error:",
        "bad_args",
        "the server does not take an argument or its value",
    ),
    LogSign(
        "refused",
        r"^(ValueError|NotImplementedError|AssertionError)\b",
        "bad_args",
        "the server refuses its arguments",
    ),
    LogSign(
        "illegal_access",
        r"illegal memory access",
        "server_died",
        "a kernel accessed memory that is not its own",
    ),
    LogSign(
        "watchdog",
        r"[Ww]atchdog timeout",
        "server_died",
        "a forward pass took longer than watchdog-timeout",
    ),
)
"""In order of precedence: the first that was seen names the failure."""

_WHILE_LOADING = ("refused",)
"""Signs that mean something else later."""
_QUOTED = ("bad_args", "missing_file", "not_compiled", "oom", "unknown")


def classify(outcome: Outcome) -> Failure | None:
    """Name why a launch failed, with the line of the log that says it.

    The exit code says nothing: the launcher kills its own tree whatever the reason. A launch that
    ended well may have all of this in its log: the server catches what it can do without.
    """
    if outcome.end == "done":
        return None
    loading = outcome.phase in BEFORE_TRIALS
    signs = [sign for sign in SIGNS if loading or sign.name not in _WHILE_LOADING]
    failure = classify_outcome(outcome, signs)
    if failure is None or failure.failure_class not in _QUOTED:
        return failure
    line = _telling_line(outcome)
    return replace(failure, message=f"{failure.message}; its log: {line}") if line else failure


def _telling_line(outcome: Outcome) -> str | None:
    """Return the last line that shows the sign that counted, else the last error of a traceback."""
    shown = [sign.regex for sign in SIGNS if sign.name in outcome.patterns]
    for regex in [*shown[:1], r"^\w*(Error|Exception)\b"]:
        for line in reversed(outcome.log_tail):
            if re.search(regex, line):
                return quotable(line)
    return None
