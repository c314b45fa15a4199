"""What SGLang makes of steps, branches and draft tokens: the rules of its algorithms.

The rules of every version since 0.4.6, read from its argument code and its workers; a rule that
came or went with a version says so.
"""

from __future__ import annotations

from dataclasses import replace

from sweep.engines.sglang import arguments
from sweep.model.plan import Configuration
from sweep.ports import Judged

EAGLE_LIKE = ("EAGLE", "EAGLE3", "NEXTN", "STANDALONE")
"""Algorithms with steps, branches and draft tokens."""
NGRAM = "NGRAM"
ALGORITHMS = (*EAGLE_LIKE, NGRAM)

REFUSED_ALGORITHMS = dict.fromkeys(
    ("DFLASH", "FROZEN_KV_MTP", "DSPARK", "UNO"), "it was never tried with sweep"
)
"""SGLang's own, and why not."""

NGRAM_NOTE = (
    "n-gram drafting learns from what the server has generated: repeats of a prompt get faster"
)
"""Seen in 0.5.23: 1 of 230 draft tokens accepted at first, 38 of 45 when the prompt came again."""

MAX_DRAFT_TOKENS = 64
"""Of a tree whose size is left to sweep."""


def largest_pool(steps: int, topk: int) -> int:
    """Return how many draft tokens a tree can hold, the root included.

    SGLang chooses them out of topk + (steps - 1)·topk² candidates (organize_draft_results); one
    more fails with "selected index k out of range" when the graphs are captured.
    """
    return 1 + topk + (steps - 1) * topk**2


def sized(configuration: Configuration) -> Judged:
    """Return a configuration of an EAGLE-like algorithm with the draft tokens that SGLang would
    verify, or why it cannot run."""
    steps, topk = configuration.num_steps, configuration.topk or 1
    if steps is None:
        reason = "the draft steps must be given (num_steps): SGLang's default differs by model"
        return Judged(configuration, reason=reason)
    if steps < 1:
        reason = f"num_steps {steps}: a draft has at least 1 step (0 is the baseline)"
        return Judged(configuration, reason=reason)
    if topk < 1:
        return Judged(configuration, reason=f"topk {topk}: there is at least 1 branch")
    resolved = replace(configuration, topk=topk)
    return _chain(resolved, steps) if topk == 1 else _tree(resolved, steps, topk)


def _chain(configuration: Configuration, steps: int) -> Judged:
    note = None
    if configuration.num_draft_tokens not in (None, steps + 1):
        note = "topk 1: SGLang sets num_draft_tokens to num_steps + 1, whatever is asked"
    return Judged(replace(configuration, num_draft_tokens=steps + 1), note=note)


def _tree(configuration: Configuration, steps: int, topk: int) -> Judged:
    asked = configuration.num_draft_tokens
    pool = largest_pool(steps, topk)
    if asked is None:
        tokens = min(MAX_DRAFT_TOKENS, pool)
        note = f"num_draft_tokens auto: the largest tree that SGLang allows, at most {tokens}"
        if tokens < MAX_DRAFT_TOKENS:
            note = "num_draft_tokens auto: the largest tree that SGLang allows for steps and topk"
        return Judged(replace(configuration, num_draft_tokens=tokens), note=note)
    if not 2 <= asked <= pool:  # noqa: PLR2004 - the root and one draft token
        reason = (
            f"num_draft_tokens {asked}: a tree of {steps} steps and topk {topk} holds 2 to {pool} "
            "tokens, the root included: 1 + topk + (steps - 1)·topk² (SGLang's candidates)"
        )
        return Judged(configuration, reason=reason)
    return Judged(configuration)


def ngram(configuration: Configuration) -> Judged:
    """Return a configuration of n-gram drafting, whose length is its draft tokens alone."""
    if configuration.num_steps is not None or configuration.topk not in (None, 1):
        reason = (
            "NGRAM has neither steps nor topk: give sweep.num_draft_tokens, and the breadth as "
            "the argument speculative-ngram-max-bfs-breadth"
        )
        return Judged(configuration, reason=reason)
    if configuration.num_draft_tokens is None:
        reason = "NGRAM needs sweep.num_draft_tokens: SGLang's default differs between versions"
        return Judged(configuration, reason=reason)
    if configuration.num_draft_tokens < 2:  # noqa: PLR2004 - the root and one draft token
        reason = f"num_draft_tokens {configuration.num_draft_tokens}: the root is one of them"
        return Judged(configuration, reason=reason)
    return Judged(replace(configuration, topk=None), note=NGRAM_NOTE)


def baseline(configuration: Configuration) -> Configuration:
    """Return a configuration without speculation and without the arguments that only it reads."""
    args = {
        name: value
        for name, value in configuration.args.items()
        if not arguments.is_speculative(name)
    }
    return Configuration(algorithm=None, variant=configuration.variant, args=args)
