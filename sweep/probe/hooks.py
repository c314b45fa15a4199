"""Methods of the live server's objects, wrapped in place and put back.

Nothing is known of the classes but names of methods, which released versions of SGLang have kept:
which class decodes is seen from the objects that the server made.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any, Callable, List, Optional, Sequence, Tuple

CYCLE = ("forward_batch_speculative_generation", "forward_batch_generation")
"""One decode cycle, or a prefill. Up to 0.5.2 the second is the target's own."""
DRAFT = ("draft",)
VERIFY = ("verify",)
EXTEND = ("_draft_extend_for_decode", "forward_draft_extend_after_decode")
RESULT = ("process_batch_result",)
LOOKUP = ("_prepare_for_speculative_decoding",)
"""How n-grams are drafted: that worker verifies by a call of the target's, and extends nothing."""
FORWARD = ("forward_batch_generation",)
"""Of the target: with `is_verify`, it is a verification."""

Wrap = Callable[[Callable[..., Any]], Callable[..., Any]]


class Hook:
    """A method that can be wrapped: the class that has it, its name, and its original."""

    def __init__(self, owner: type, name: str) -> None:
        self.owner = owner
        self.name = name
        self._original: Callable[..., Any] = owner.__dict__[name]
        self._wrapper: Optional[Callable[..., Any]] = None

    def put(self, wrap: Wrap) -> None:
        """Wrap the method."""
        self._wrapper = functools.wraps(self._original)(wrap(self._original))
        setattr(self.owner, self.name, self._wrapper)

    def remove(self) -> None:
        """Put the original back, unless someone else has wrapped ours."""
        if self._wrapper is not None and self.owner.__dict__.get(self.name) is self._wrapper:
            setattr(self.owner, self.name, self._original)
        self._wrapper = None


def find(objects: Sequence[Any], names: Sequence[str]) -> Optional[Hook]:
    """Return the first of the named methods that an object has: what a call on it would run."""
    for name in names:
        for item in objects:
            owner = _owner(type(item), name)
            if owner is not None:
                return Hook(owner, name)
    return None


def _owner(kind: type, name: str) -> Optional[type]:
    for base in kind.__mro__:
        if name in base.__dict__:
            method = base.__dict__[name]
            abstract = getattr(method, "__isabstractmethod__", False)
            return base if inspect.isfunction(method) and not abstract else None
    return None


def worker_objects(worker: Any) -> Tuple[Any, ...]:
    """Return a worker and the one that drafts for it, where that is another object."""
    drafting = getattr(worker, "draft_worker", None)
    return (worker,) if drafting is None else (worker, drafting)


def remove_all(hooks: List[Hook]) -> None:
    """Put every original back."""
    while hooks:
        hooks.pop().remove()
