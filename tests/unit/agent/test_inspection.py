"""Groups of facts: one that hangs or fails must not hide the others."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from sweep.agent.inspection import _at_once, _storage


def fail() -> None:
    """As a disk does."""
    raise OSError(5, "Input/output error")


def test_groups_that_hang_or_fail_are_named() -> None:
    """All of them are waited for together, not one after the other."""
    never = threading.Event()
    groups: dict[str, Callable[[], Any]] = {
        "quick": lambda: 1,
        "hung": never.wait,
        "hung too": never.wait,
        "broken": fail,
        "odd": lambda: {"a": 1}["key"],
    }
    began_s = time.monotonic()
    found, unknown = _at_once(groups, 0.5)
    never.set()
    assert time.monotonic() - began_s < 5
    assert found == {"quick": 1, "hung": None, "hung too": None, "broken": None, "odd": None}
    assert unknown == {
        "hung": "no answer within 0.5 s",
        "hung too": "no answer within 0.5 s",
        "broken": "[Errno 5] Input/output error",
        "odd": "'key'",
    }


def test_the_largest_model_is_the_one_to_time() -> None:
    """Nothing is where there is no model file."""
    assert _storage({}) is None
    assert _storage({"m": {"size_bytes": 0, "largest": None}}) is None
    found = _storage(
        {
            "draft": {"size_bytes": 1, "largest": "/nowhere"},
            "target": {"size_bytes": 2, "largest": __file__},
        }
    )
    assert found is not None
    assert found["path"] == __file__
