"""Reading a generation answer: text, token counts and raw values by the engine's key paths."""

from __future__ import annotations

from typing import Any, Dict, List, Optional

from sweep.agent import wire
from sweep.agent.http import lookup

MESSAGE_LIMIT = 500
"""Characters of a server's error message that are kept."""


class Reading:
    """What an answer has said so far; `take` every JSON value of it, in order.

    A chunk with output is one that brings text or makes the token count grow.
    """

    def __init__(self, answer: wire.Answer) -> None:
        self._answer = answer
        self._texts: List[str] = []
        self._tokens_so_far: Optional[int] = None
        self.chunk_s: List[float] = []
        self.first_chunk_tokens: Optional[int] = None
        self.output_tokens: Optional[int] = None
        self.input_tokens: Optional[int] = None
        self.cached_tokens: Optional[int] = None
        self.meta: Dict[str, Any] = {}

    def take(self, value: Any, at_s: float) -> bool:
        """Read one value that arrived `at_s` after the request; True when it holds output."""
        answer = self._answer
        so_far = _count(value, answer.tokens_so_far_at)
        grew = so_far is not None and so_far > (self._tokens_so_far or 0)
        has_output = self._take_text(value) or grew
        if has_output:
            if not self.chunk_s:
                self.first_chunk_tokens = so_far
            self.chunk_s.append(at_s)
        if so_far is not None:
            self._tokens_so_far = so_far
        self.output_tokens = _latest(value, answer.output_tokens_at, self.output_tokens)
        self.input_tokens = _latest(value, answer.input_tokens_at, self.input_tokens)
        self.cached_tokens = _latest(value, answer.cached_tokens_at, self.cached_tokens)
        for name, path in answer.meta_at.items():
            found = lookup(value, path)
            if found is not None:
                self.meta[name] = found
        return has_output

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join(self._texts)

    def _take_text(self, value: Any) -> bool:
        for path in self._answer.text_at:
            text = lookup(value, path)
            if text and isinstance(text, str):
                break
        else:
            return False
        if not self._answer.text_cumulative:
            self._texts.append(text)
            return True
        changed = self._texts != [text]
        self._texts = [text]
        return changed


def error_in(value: Any) -> Optional[str]:
    """Return the message of an error object, None when `value` is no error.

    Servers report trouble inside an answer of status 200 as {"error": …} or as
    {"object": "error", "message": …}.
    """
    if not isinstance(value, dict):
        return None
    error = value if value.get("object") == "error" else value.get("error")
    if error is None:
        return None
    message = error.get("message", error) if isinstance(error, dict) else error
    return str(message)[:MESSAGE_LIMIT]


def _count(value: Any, paths: List[wire.KeyPath]) -> Optional[int]:
    for path in paths:
        found = lookup(value, path)
        if isinstance(found, int) and not isinstance(found, bool):
            return found
    return None


def _latest(value: Any, paths: List[wire.KeyPath], before: Optional[int]) -> Optional[int]:
    found = _count(value, paths)
    return before if found is None else found
