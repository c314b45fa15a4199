"""Whether the node's login manager ends what a user leaves running after logging out."""

from __future__ import annotations

import glob
import os
import re
import subprocess
from typing import Any, Dict, Mapping, Optional

_SYSTEMD = "/run/systemd/system"
_LINGERING = "/var/lib/systemd/linger"
_PROPERTIES = ("KillUserProcesses", "KillExcludeUsers", "KillOnlyUsers")
_CONFIGS = (
    "/usr/lib/systemd/logind.conf", "/usr/lib/systemd/logind.conf.d/*.conf",
    "/etc/systemd/logind.conf", "/etc/systemd/logind.conf.d/*.conf",
)  # fmt: skip
"""Later ones count more."""
_TIMEOUT_S = 5.0
_SESSION = re.compile(r"/session-[^/]+\.scope")
_MANAGER = re.compile(r"/user@\d+\.service(/|$)")


def inspect(user: str) -> Optional[Dict[str, Any]]:
    """Return where this process is and what logging out does there; None: systemd does not run.

    `unit`: "session", the scope of a login, whose processes are ended at its end when `kills` is
    true; "manager", the user's service manager, which ends with the last session unless
    `lingers`; null: neither, and nothing is ended. `kills` is null where it cannot be told.
    """
    if not os.path.isdir(_SYSTEMD):
        return None
    with open("/proc/self/cgroup", encoding="utf-8") as stream:
        unit = unit_of(stream.read())
    settings = parse_settings(_shown() or _configured())
    return {
        "unit": unit,
        "kills": kills(settings, user),
        "lingers": os.path.exists(os.path.join(_LINGERING, user)),
    }


def unit_of(cgroups: str) -> Optional[str]:
    """Read the kind of unit out of /proc/PID/cgroup."""
    if _MANAGER.search(cgroups):
        return "manager"
    return "session" if _SESSION.search(cgroups) else None


def parse_settings(text: str) -> Dict[str, str]:
    """Read the settings that matter from lines NAME=VALUE; the last line of a name counts."""
    found: Dict[str, str] = {}
    for line in text.splitlines():
        name, equals, value = line.strip().partition("=")
        if equals and name.strip() in _PROPERTIES:
            found[name.strip()] = value.strip()
    return found


def kills(settings: Mapping[str, str], user: str) -> Optional[bool]:
    """Return whether the processes of a session of this user are ended with it; None when only
    the distribution's default says."""
    if user in settings.get("KillExcludeUsers", "root").split():
        return False
    only = settings.get("KillOnlyUsers", "").split()
    if only:
        return user in only
    value = settings.get("KillUserProcesses")
    return None if value is None else value.lower() in ("yes", "true", "1", "on")


def _shown() -> str:
    """Return what the running login manager says of its settings; empty when it does not."""
    argv = ["loginctl", "show-session", *("--property=" + name for name in _PROPERTIES)]
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else ""


def _configured() -> str:
    paths = [path for pattern in _CONFIGS for path in sorted(glob.glob(pattern))]
    return "\n".join(_text(path) for path in paths)


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read()
    except OSError:
        return ""
