"""Lines of a table: configurations that differ in their number of draft steps alone."""

from __future__ import annotations

from typing import Any

from sweep.analysis.glossary import ARGUMENT_PREFIX
from sweep.analysis.wording import known


def line_name(row: Any) -> str:
    """Name of the line that a row belongs to: everything of its configuration but the steps."""
    parts = [str(row["variant"])]
    if known(row["topk"]) and row["topk"] != 1:
        parts.append(f"topk {row['topk']}")
        if known(row["num_draft_tokens"]):
            parts.append(f"{row['num_draft_tokens']} tokens")
    parts += [
        f"{name.removeprefix(ARGUMENT_PREFIX)}={value}"
        for name, value in row.items()
        if str(name).startswith(ARGUMENT_PREFIX) and known(value)
    ]
    return ", ".join(parts)
