"""The end of an inspection: of all that it started, and of what earlier ones left behind."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import threading
import time
from typing import Iterator

from sweep.agent import procs, wire
from sweep.agent.ours import send
from sweep.agent.server import become_subreaper

_POLL_S = 0.5
_KILL_S = 2.0
_KILL_POLL_S = 0.01
_ABANDONED_S = 3600.0
"""An inspection takes minutes at most."""
_DIRECTORY = re.compile(re.escape(wire.INSPECTION_PREFIX) + "[0-9a-f]{8}")
_FILE = re.compile(
    r"(agent-[0-9a-f]{12}\.pyz|%s|%s)(\.[0-9a-f]{8}\.part)?"
    % (re.escape(wire.ASKED_FILE), re.escape(wire.STOP_FILE))
)


@contextlib.contextmanager
def while_wanted(directory: str) -> Iterator[None]:
    """Run the block as the inspection of `directory`: what it leaves running is ended after it.
    Once the directory is gone, or holds a stop file, this process ends, with all it started."""
    become_subreaper()
    threading.Thread(target=_watch, args=(directory,), name="wanted", daemon=True).start()
    try:
        yield
    finally:
        _end_descendants()


def _watch(directory: str) -> None:
    while os.path.isdir(directory) and not os.path.exists(os.path.join(directory, wire.STOP_FILE)):
        time.sleep(_POLL_S)
    _end_descendants()
    os._exit(1)


def _end_descendants() -> None:
    until_s = time.monotonic() + _KILL_S
    while True:
        everyone = procs.descendants(procs.snapshot(), os.getpid())
        living = [process for process in everyone if not process.dead]
        for process in living:
            send(process, signal.SIGKILL)
        if not living or time.monotonic() >= until_s:
            return
        time.sleep(_KILL_POLL_S)


def remove_abandoned(directory: str) -> None:
    """Remove, beside the directory of an inspection, those of which nobody came back to remove
    them. A directory that holds anything else is somebody's own."""
    parent = os.path.dirname(directory)
    for name in os.listdir(parent):
        path = os.path.join(parent, name)
        if path == directory or not _DIRECTORY.fullmatch(name):
            continue
        with contextlib.suppress(OSError):  # another inspection may remove it at the same time
            inside = os.listdir(path)
            old = time.time() - os.lstat(path).st_mtime > _ABANDONED_S
            if old and not os.path.islink(path) and all(map(_FILE.fullmatch, inside)):
                for file in inside:
                    os.unlink(os.path.join(path, file))
                os.rmdir(path)
