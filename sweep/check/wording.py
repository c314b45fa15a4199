"""Figures as people read them."""

from __future__ import annotations

from collections.abc import Sequence

_PREFIXES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


def size(count: float) -> str:
    """Return bytes with a decimal prefix: 595 GB, 2.4 MB."""
    for unit, name in _PREFIXES:
        if count >= unit:
            return f"{count / unit:.3g} {name}"
    return f"{count:.0f} B"


def mebibytes(count: float) -> str:
    """Return MiB, as nvidia-smi counts, with the prefix that suits: 96 GiB, 500 MiB."""
    return f"{count / 1024:.0f} GiB" if count >= 1024 else f"{count:.0f} MiB"  # noqa: PLR2004


def minutes(seconds: float) -> str:
    """Return a duration that nobody needs exactly: 0.3 s, 45 s, 16 min, 2.5 h."""
    if seconds < 90:  # noqa: PLR2004 - below, a minute says too little
        return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"  # noqa: PLR2004
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.2g} h"  # noqa: PLR2004


def some(names: Sequence[str], most: int = 3) -> str:
    """Return the first names and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def counted(count: int, noun: str) -> str:
    """Return a count with its noun."""
    return f"{count} {noun}{'' if count == 1 else 's'}"
