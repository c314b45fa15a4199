"""When speculation pays: pure formulas over times in seconds."""

from __future__ import annotations


def break_even_accept_length(cycle_s: float, baseline_token_s: float) -> float:
    """Return τ* [tokens per cycle]: the accept length at which speculation gains nothing.

    τ* = time of a cycle ÷ the baseline's time per token, both at the same workload and
    concurrency: a cycle must yield as many tokens as the target alone makes in its time.
    """
    return cycle_s / baseline_token_s


def cycle_time_s(accept_length: float, decode_tok_s: float) -> float:
    """Return the time of a cycle [s] as the client sees it: tokens per cycle ÷ tokens per second.

    `decode_tok_s` is the decode rate of one stream. An instrument inside the engine measures the
    cycle itself; this needs none, and host time between cycles is in it.
    """
    return accept_length / decode_tok_s


def speedup(accept_length: float, break_even: float) -> float:
    """Return τ ÷ τ* [ratio]: the speed-up of decoding that an accept length means."""
    return accept_length / break_even


def batching_efficiency(tokens: int, baseline_step_s: float, verify_s: float) -> float:
    """Return n × baseline step ÷ verify(n) [ratio].

    How many times cheaper it is to verify n tokens at once than to decode them one by one.
    """
    return tokens * baseline_step_s / verify_s
