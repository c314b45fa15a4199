"""Models by their name on the Hugging Face hub: where they lie in this node's cache."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Mapping, Optional

_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
_TRUE = ("1", "ON", "YES", "TRUE")
_OFFLINE_VARIABLES = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")


@dataclass(frozen=True)
class Snapshot:
    """A revision of a model in the cache; `partial_files` are downloads that did not end."""

    directory: str
    revision: str
    partial_files: int


def is_name(text: str) -> bool:
    """Return whether a text can be a model's name on the hub."""
    return _NAME.fullmatch(text) is not None


def offline(environment: Mapping[str, str]) -> bool:
    """Return whether a server with this environment would download nothing."""
    return any(environment.get(name, "").upper() in _TRUE for name in _OFFLINE_VARIABLES)


def cache_directory(environment: Mapping[str, str]) -> str:
    """Return where the hub's library keeps models, by its variables."""
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if environment.get(name):
            return os.path.expanduser(environment[name])
    home = environment.get("HF_HOME") or os.path.join(
        environment.get("XDG_CACHE_HOME") or "~/.cache", "huggingface"
    )
    return os.path.join(os.path.expanduser(home), "hub")


def find(name: str, environment: Mapping[str, str]) -> Optional[Snapshot]:
    """Return the snapshot that a server would load: that of `main`, else the newest. None: the
    cache has none."""
    base = os.path.join(cache_directory(environment), "models--" + name.replace("/", "--"))
    revision = _main(base) or _newest(os.path.join(base, "snapshots"))
    if revision is None:
        return None
    directory = os.path.join(base, "snapshots", revision)
    if not os.path.isdir(directory):
        return None
    return Snapshot(directory, revision, _partial_files(os.path.join(base, "blobs")))


def _main(base: str) -> Optional[str]:
    try:
        with open(os.path.join(base, "refs", "main"), encoding="utf-8") as stream:
            return stream.read().strip() or None
    except OSError:
        return None


def _newest(snapshots: str) -> Optional[str]:
    try:
        found = [entry for entry in os.scandir(snapshots) if entry.is_dir()]
    except OSError:
        return None
    return max(found, key=lambda entry: entry.stat().st_mtime).name if found else None


def _partial_files(blobs: str) -> int:
    try:
        return sum(name.endswith(".incomplete") for name in os.listdir(blobs))
    except OSError:
        return 0
