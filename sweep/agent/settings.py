"""What a server says it runs with."""

from __future__ import annotations

import json
from typing import Any, Sequence

from sweep.agent import wire
from sweep.agent.http import Reply, call

_OK = 200
_CALL_S = 30.0
"""Longest wait for an answer."""


def ask(port: int, calls: Sequence[wire.HttpCall]) -> Any:
    """Return the first good answer to one of the calls, as JSON; None: there is none."""
    answers = (_json(call(port, each, _CALL_S)) for each in calls)
    return next((answer for answer in answers if answer is not None), None)


def _json(reply: Reply) -> Any:
    if reply.error is not None or reply.status != _OK:
        return None
    try:
        return json.loads(reply.body)
    except ValueError:
        return None
