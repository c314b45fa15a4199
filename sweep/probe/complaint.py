"""What the probe has to say where it has no file for it."""

from __future__ import annotations

import sys


def complain(message: str) -> None:
    """Say something in the server's log. Never raises."""
    try:
        sys.stderr.write("eagle3_probe: %s\n" % message)
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):
        return
