"""Lines of llama-server's log that mean something: milestones of a load, and reasons to fail.

Texts were read from the log of the server itself, each provoked once.
"""

from __future__ import annotations

import re
from dataclasses import replace

from sweep.agent.wire import Outcome, Pattern
from sweep.engines.classify import LogSign, quotable
from sweep.model.states import Failure

MILESTONES = (
    Pattern("target", r"loading model '"),
    Pattern("draft", r"loading draft model '"),
    Pattern("slots", r"initializing, n_slots = "),
    Pattern("loaded", r"\bmodel loaded\b"),
    Pattern("listening", r"listening on http"),
)

SIGNS = (
    LogSign(
        "out_of_memory",
        r"insufficient memory|failed to allocate|out of memory|std::bad_alloc|cudaMalloc failed",
        "oom",
        "the server ran out of memory: lower ctx-size, parallel or the GPU layers",
    ),
    LogSign(
        "file_missing",
        r"failed to open GGUF file|No such file or directory",
        "missing_file",
        "a model file cannot be opened",
    ),
    LogSign(
        "file_damaged",
        r"not within the file bounds|invalid magic characters|corrupted or incomplete"
        r"|failed to read magic",
        "missing_file",
        "a model file is incomplete, empty or no GGUF: fetch it again",
    ),
    LogSign(
        "port_in_use",
        r"couldn't bind HTTP server socket|Address already in use",
        "port_in_use",
        "another process has the port",
    ),
    LogSign(
        "argument_removed",
        r"argument .*has been removed",
        "bad_args",
        "this version of llama-server has removed an argument",
    ),
    LogSign(
        "argument_invalid",
        r"^error: (unknown|invalid) argument|^error: argument |error while handling argument",
        "bad_args",
        "llama-server does not take an argument or its value",
    ),
    LogSign(
        "no_mtp_layers",
        r"failed to create MTP context|doesn't contain MTP layers",
        "bad_args",
        "draft-mtp: the model has no MTP layers",
    ),
    LogSign(
        "speculation_refused",
        r"failed to initialize speculative decoding context",
        "speculation_inactive",
        "the draft does not fit the target: the server serves without speculation",
    ),
)
"""In order of precedence: the first that was seen names the failure."""


def with_log_line(failure: Failure, outcome: Outcome) -> Failure:
    """Return a failure with the line of the log that says it: of a wrong argument or model the
    last that shows the sign, of an unknown end the last line at all."""
    line = _telling_line(failure, outcome)
    return replace(failure, message=f"{failure.message}; its log: {line}") if line else failure


def _telling_line(failure: Failure, outcome: Outcome) -> str | None:
    if failure.failure_class == "unknown" and outcome.end == "server_exit":
        regexes = [r"\S"]
    elif failure.failure_class in ("bad_args", "missing_file"):
        shown = (sign for sign in SIGNS if sign.name in outcome.patterns)
        regexes = [sign.regex for sign in shown if sign.failure_class == failure.failure_class][:1]
    else:
        return None
    for line in reversed(outcome.log_tail):
        if any(re.search(regex, line) for regex in regexes):
            return quotable(line)
    return None
