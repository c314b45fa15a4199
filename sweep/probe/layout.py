"""The directory that is put on a server's PYTHONPATH, and what else must be in its environment.

eagle3_probe/                this package
eagle3_probe-1.dist-info/    names the plugin to SGLang 0.5.11 and newer, as if it were installed
sitecustomize.py             arms older ones, and those whose plugins are switched off
"""

from __future__ import annotations

import importlib.resources
import os
from typing import Dict, Mapping, Optional

from .arming import EVERY_VARIABLE

PACKAGE = "eagle3_probe"

_OUTSIDE = ("__init__.py", "layout.py", "sitecustomize.py")
_INIT = '"""Phase timings of every decode cycle; laid out by sweep, deleted with its launch."""\n'
_DIST_INFO = {
    "METADATA": "Metadata-Version: 2.1\nName: %s\nVersion: 1\n" % PACKAGE,
    "entry_points.txt": "[sglang.srt.plugins]\n%s = %s.arming:arm\n" % (PACKAGE, PACKAGE),
}


def lay_out(directory: str) -> None:
    """Write the directory; what is there already is overwritten. Raises OSError."""
    package = os.path.join(directory, PACKAGE)
    dist_info = os.path.join(directory, "%s-1.dist-info" % PACKAGE)
    for made in (package, dist_info):
        os.makedirs(made, mode=0o700, exist_ok=True)
    sources = importlib.resources.files(__package__)
    for entry in sources.iterdir():
        if entry.name.endswith(".py") and entry.name not in _OUTSIDE:
            _write(os.path.join(package, entry.name), entry.read_text(encoding="utf-8"))
    _write(os.path.join(package, "__init__.py"), _INIT)
    for name, text in _DIST_INFO.items():
        _write(os.path.join(dist_info, name), text)
    hook = sources.joinpath("sitecustomize.py").read_text(encoding="utf-8")
    _write(os.path.join(directory, "sitecustomize.py"), hook)


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8") as stream:
        stream.write(text)


def variables(
    environment: Mapping[bytes, bytes],
    directory: str,
    *,
    every_cycles: int,
    allow_list: Optional[str],
) -> Dict[bytes, bytes]:
    """Return what the environment needs for the laid-out directory, beside the variables that say
    that the probe is active and where it writes.

    `allow_list` names the variable that lists the plugins which an engine may load; an empty or
    missing one allows all.
    """
    found = {
        b"PYTHONPATH": os.pathsep.encode().join(
            part for part in (os.fsencode(directory), environment.get(b"PYTHONPATH")) if part
        ),
        EVERY_VARIABLE.encode(): b"%d" % every_cycles,
    }
    allowed = environment.get(allow_list.encode()) if allow_list else None
    if allow_list and allowed:
        found[allow_list.encode()] = allowed + b"," + PACKAGE.encode()
    return found
