"""The summary that is printed into the server's log."""

from __future__ import annotations

from typing import List, Optional, Sequence

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
    """Return the block of some cycles; None when a phase or the accepted tokens are not known."""
    means = [_mean(rows, name) for _, name in _PHASES]
    known = [mean for mean in means if mean is not None]
    accepted = [count for row in rows if (count := row[_AT["accepted"]]) is not None]
    if len(known) < len(means) or len(accepted) < len(rows):
        return None
    turns = round(sum(row[_AT["requests"]] or 0 for row in rows))
    return text(len(rows), turns, round(sum(accepted)) + turns, known)


def text(cycles: int, turns: int, tokens: int, phases_s: Sequence[float]) -> str:
    """Return the block of `cycles` cycles that took `phases_s` each (draft, verify, extend, other).

    `turns`: requests in each cycle, summed. Tokens have the bonus in them. The accept length is
    tokens per turn, so that it is the same at any concurrency.
    """
    total_s = sum(phases_s)
    lines = ["EAGLE3_PROF (%d cycles, %d tok, no sync)" % (cycles, tokens)]
    for (label, _), phase_s in zip(_PHASES, phases_s):
        share = 100 * phase_s / total_s
        lines.append("  %-17s%7.2f ms/cyc  (%5.1f%%)" % (label, 1000 * phase_s, share))
    lines.append("  %-17s%7.2f ms/cyc" % ("TOTAL:", 1000 * total_s))
    lines.append("  Accept len:  %8.2f" % (tokens / turns))
    lines.append("  Eff tok/s:   %8.1f" % (tokens / (total_s * cycles)))
    return "\n".join(lines)


def _mean(rows: List[Row], name: str) -> Optional[float]:
    """Return the mean over the cycles in which a value is known."""
    known = [value for row in rows if (value := row[_AT[name]]) is not None]
    return sum(known) / len(known) if known else None
