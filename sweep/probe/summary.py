"""The summary that is printed into the server's log."""

from __future__ import annotations

from typing import List, Optional

from .recording import FIELDS, Row

_PHASES = (
    ("Draft steps:", "draft_s"),
    ("Target verify:", "verify_s"),
    ("Draft re-extend:", "extend_s"),
    ("Other overhead:", "other_s"),
)
_AT = {name: at for at, name in enumerate(FIELDS)}


class Summary:
    """Collects rows and turns every so many of them into a block of text."""

    def __init__(self, every_cycles: int) -> None:
        self._every = every_cycles
        self._rows: List[Row] = []

    def take(self, row: Row) -> Optional[str]:
        """Return a block when enough rows came together."""
        self._rows.append(row)
        if len(self._rows) < self._every:
            return None
        rows, self._rows = self._rows, []
        return block(rows)


def block(rows: List[Row]) -> Optional[str]:
    """Return the block of some cycles; None when a phase or the accepted tokens are not known.

    Tokens have the bonus in them. The accept length is per request and cycle, so that it is the
    same at any concurrency.
    """
    means = [_mean(rows, name) for _, name in _PHASES]
    accepted = [row[_AT["accepted"]] for row in rows]
    if any(mean is None for mean in means) or any(count is None for count in accepted):
        return None
    total = sum(mean or 0.0 for mean in means)
    turns = sum(row[_AT["requests"]] or 0 for row in rows)
    tokens = sum(count or 0 for count in accepted) + turns
    lines = ["EAGLE3_PROF (%d cycles, %d tok, no sync)" % (len(rows), tokens)]
    for (label, _), mean in zip(_PHASES, means):
        share = 100 * (mean or 0.0) / total
        lines.append("  %-17s%7.2f ms/cyc  (%5.1f%%)" % (label, 1000 * (mean or 0.0), share))
    lines.append("  %-17s%7.2f ms/cyc" % ("TOTAL:", 1000 * total))
    lines.append("  Accept len:  %8.2f" % (tokens / turns))
    lines.append("  Eff tok/s:   %8.1f" % (tokens / (total * len(rows))))
    return "\n".join(lines)


def _mean(rows: List[Row], name: str) -> Optional[float]:
    """Return the mean over the cycles in which a value is known."""
    known = [value for row in rows if (value := row[_AT[name]]) is not None]
    return sum(known) / len(known) if known else None
