"""The canonical form of a value and its identity: key order does not count, types do."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any


def canonical(value: Any) -> Any:
    """Return `value` as JSON types: dataclasses and mappings as objects, sequences as lists."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: canonical(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): canonical(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [canonical(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted(canonical(item) for item in value)
    return value


def identity(*parts: Any) -> str:
    """Return 12 hex digits that name `parts`; equal canonical forms have equal identities."""
    text = json.dumps(canonical(parts), sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:12]
