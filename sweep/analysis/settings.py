"""What a server says it runs with, against what it was asked: an engine may change either."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sweep.model.plan import ServerCommand

EFFECTIVE = ("num_steps", "topk", "num_draft_tokens")
"""Settings that have a column of what is in effect."""


@dataclass(frozen=True)
class Settings:
    """Columns and flags of a trial's server."""

    row: Mapping[str, Any]
    flags: tuple[str, ...] = ()


def read_settings(
    server: ServerCommand, events: Iterable[Mapping[str, Any]], *, is_baseline: bool
) -> Settings:
    """Compare what was asked with the latest `settings` event of an attempt."""
    if not server.settings:
        return Settings({})
    seen = list(events)
    told = [event["values"] for event in seen if event["event"] == "settings"]
    if not told or told[-1] is None:
        asked = bool(told) or any(event["event"] == "first_token" for event in seen)
        # A server that never generated was never asked.
        return Settings({}, ("settings_unknown",) if asked else ())
    values: Mapping[str, Any] = told[-1]
    changed = [
        f"{name}: {_shown(setting.value)} asked, {_shown(values[name])} in effect"
        for name, setting in server.settings.items()
        if name in values and not setting.holds(values[name])
    ]
    row: dict[str, Any] = {"settings_note": "; ".join(changed) or None}
    if not is_baseline:
        counts = {name: values.get(name) for name in EFFECTIVE}
        row |= {f"effective_{name}": n for name, n in counts.items() if isinstance(n, int)}
    return Settings(row, ("settings_changed",) if changed else ())


def _shown(value: Any) -> str:
    return "nothing" if value is None else str(value)
