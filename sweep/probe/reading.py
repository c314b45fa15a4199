"""What the objects of SGLang say, in all the spellings of its versions (0.4.6 to 0.5.23).

Nothing here waits for the device: of tensors only shapes are read, and values of those that the
server itself has brought to the host.
"""

from __future__ import annotations

import sys
from typing import Any, List, Optional, Tuple

HEALTH_CHECK = "HEALTH_CHECK"
"""Request ids of SGLang's own health checks begin with it."""
STEPS_ASKED = "sweep_num_steps"
"""The draft steps that a request asks for, among its custom parameters."""

_ACCEPTED_LISTS = (
    "num_correct_drafts_per_req_cpu",  # 0.5.12 and newer
    "num_accepted_drafts_per_req_cpu",  # 0.5.11
    "accept_length_per_req_cpu",  # 0.5.7 to 0.5.10; later a field of diffusion models, then None
)
_ACCEPTED_SUMS = ("num_correct_drafts", "num_accepted_drafts", "num_accepted_tokens")
_TUPLE_LENGTH, _ACCEPTED_IN_TUPLE = 5, 3


def entry(batch: Any) -> Tuple[int, Optional[int], bool]:
    """Return what matters of a batch when its call begins: its requests, the lengths of their
    sequences, summed, as far as the host knows them, and whether it only keeps ranks in step."""
    return batch_size(batch), context_tokens(batch), bool(batch.forward_mode.is_idle())


def batch_size(batch: Any) -> int:
    """Return the requests in a batch; 0 when there are none."""
    seq_lens = getattr(batch, "seq_lens", None)
    if seq_lens is not None:
        return int(seq_lens.shape[0])
    return len(getattr(batch, "reqs", None) or ())


def context_tokens(batch: Any) -> Optional[int]:
    """Return the lengths of a batch's sequences, summed, as far as the host knows them."""
    total = getattr(batch, "seq_lens_sum", None)
    if total is not None:
        return int(total)
    lengths = getattr(batch, "seq_lens_cpu", None)
    return None if lengths is None else int(lengths.sum())


def is_adaptive(scheduler: Any) -> bool:
    """Whether a scheduler's server was asked to hold several step counts, and does."""
    arguments = getattr(scheduler, "server_args", None)
    return getattr(arguments, "speculative_adaptive", None) is True


def pinned_steps(batch: Any) -> Optional[int]:
    """Return the draft steps that a batch's requests ask for, by the first that does."""
    for request in getattr(batch, "reqs", None) or ():
        asked = getattr(getattr(request, "sampling_params", None), "custom_params", None)
        steps = asked.get(STEPS_ASKED) if isinstance(asked, dict) else None
        if isinstance(steps, int):
            return steps
    return None


def speculation(worker: Any) -> Tuple[Optional[int], Optional[int]]:
    """Return draft steps and draft tokens (the root included) that are in effect."""
    of_ngrams = getattr(worker, "draft_token_num", None)  # their only name for it up to 0.5.14
    return (
        getattr(worker, "speculative_num_steps", None),
        getattr(worker, "speculative_num_draft_tokens", of_ngrams),
    )


def returned_accepted(returned: Any) -> Optional[int]:
    """Return the accepted draft tokens that a cycle's call itself reports: up to 0.5.2 only."""
    if isinstance(returned, tuple) and len(returned) == _TUPLE_LENGTH:
        return int(returned[_ACCEPTED_IN_TUPLE])
    return None


def running(batch: Any, result: Any) -> Optional[List[bool]]:
    """Return which requests of a decode batch the result still counts for.

    To be asked before the scheduler processes the result; None when it is of no decode batch. With
    overlap a request that ended in one cycle is still in the next one, and gets nothing of it.
    Health checks count for nobody.
    """
    requests = getattr(batch, "reqs", None)
    if not requests or not batch.forward_mode.is_decode():
        return None
    counted = [not str(request.rid).startswith(HEALTH_CHECK) for request in requests]
    if getattr(result, "accept_lens", None) is not None:
        for at, request in enumerate(requests):
            if request.finished() or request.is_retracted:
                counted[at] = False
    return counted


def goes_on(batch: Any) -> bool:
    """Whether any request of a processed batch is still running."""
    for request in batch.reqs:  # noqa: SIM110 - a third of what any() takes
        if not request.finished():
            return True
    return False


def accepted(result: Any, counted: List[bool]) -> Optional[int]:
    """Return the draft tokens accepted for the counted requests of a processed result."""
    per_request = _accepted_list(result)
    if per_request is not None and len(per_request) == len(counted):
        if all(counted):
            return sum(per_request)
        return sum(number for number, counts in zip(per_request, counted) if counts)
    if getattr(result, "accept_lens", None) is not None or not all(counted):
        return None  # a sum would include those that do not count
    for name in _ACCEPTED_SUMS:
        total = getattr(result, name, None)
        if total is not None:
            return int(total)
    return None


def _accepted_list(result: Any) -> Optional[List[int]]:
    for name in _ACCEPTED_LISTS:
        values = getattr(result, name, None)
        if values is not None:
            found: List[int] = values
            return found
    lengths = getattr(result, "accept_lens", None)
    if lengths is None or str(lengths.device) != "cpu":
        return None
    return [length - 1 for length in lengths.tolist()]  # 0.5.3 to 0.5.6: the bonus is in it


def device(scheduler: Any) -> str:
    """Return the kind of device that a scheduler's server computes on."""
    found = getattr(scheduler, "device", None) or scheduler.server_args.device
    return str(found).partition(":")[0]


def rank(scheduler: Any) -> Tuple[int, int]:
    """Return this process's rank and how many there are."""
    distributed = getattr(sys.modules.get("torch"), "distributed", None)
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_rank()), int(distributed.get_world_size())
    return int(getattr(scheduler, "tp_rank", 0) or 0), int(getattr(scheduler, "tp_size", 1) or 1)
