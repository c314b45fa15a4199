"""The engine's Python package: which, from where, and whether somebody changed it.

Runs inside the engine's own Python, which alone knows what is installed there.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import platform
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Dict, Iterable, Iterator, List, Mapping, Optional, Tuple
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from importlib import metadata

_BOOTSTRAP = (
    "import sys; sys.path.insert(0, sys.argv[1]); "
    "from sweep.agent.facts import package; package.main(sys.argv[2])"
)
_TIMEOUT_S = 40.0
_GIT_TIMEOUT_S = 10.0
_LOOKED_AT = re.compile(r"specul|spec_decode|eagle|scheduler|worker")
"""In the path of a source file: what drafts, verifies and schedules. All of a large package takes
too long from a cold disk."""
_MOST_FILES = 2000
_INSTRUMENTED = b"EAGLE3_PROF"
_File = Tuple[str, str, Optional[str]]
"""Path, name to show, and the hash that it had when it was installed."""


def inspect(python: str, name: str, archive: str, environment: Mapping[str, str]) -> Dict[str, Any]:
    """Ask the engine's Python for the facts of a distribution; `error` says why there are none."""
    argv = [python, "-c", _BOOTSTRAP, archive, name]
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TIMEOUT_S,
            env=dict(environment),
            check=False,
        )
        found: Dict[str, Any] = json.loads(done.stdout)
    except (OSError, subprocess.TimeoutExpired) as problem:
        return {"error": "%s cannot be run: %s" % (python, problem)}
    except ValueError:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        return {"error": "%s cannot be asked: %s" % (python, said[-1] if said else "no answer")}
    return found


def main(name: str) -> None:
    """Print the facts of a distribution as JSON."""
    json.dump(facts(name), sys.stdout)


def facts(name: str) -> Dict[str, Any]:
    """Return the facts of a distribution of this Python.

    `changed`: files that differ from what was installed, or uncommitted ones of an editable
    install; `state` names their contents, null: none. `instrumented`: files with measuring code
    of somebody else in them. `looked_at`: how many files were compared and searched.
    """
    # Only the engine's Python comes here: importing it would cost every inspection a tenth of 1 s.
    from importlib import metadata  # noqa: PLC0415

    try:
        distribution = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return {"error": "%s has no package %s" % (sys.executable, name)}
    origin, digest = _origin(distribution), hashlib.sha256()
    source = _source(origin)
    repository = _repository(source, digest) if source else {}
    files = _sources_below(source) if source else _recorded(distribution)
    looked_at = _look_at(files, digest)
    changed = [*repository.get("changed", []), *looked_at["changed"]]
    return {
        "error": None,
        "python": platform.python_version(),
        "version": distribution.version,
        "location": source or str(distribution.locate_file("")),
        "editable": source is not None,
        "commit": repository.get("commit") or origin.get("vcs_info", {}).get("commit_id"),
        **looked_at,
        "changed": changed,
        "state": digest.hexdigest()[:16] if changed else None,
    }


def _look_at(files: Iterable[_File], digest: Any) -> Dict[str, Any]:
    """Compare files with the hashes they were installed with, and search them."""
    changed: List[str] = []
    instrumented: List[str] = []
    count = 0
    for path, shown, expected in files:
        count += 1
        data = _content(path)
        if data is not None and _INSTRUMENTED in data:
            instrumented.append(shown)
        actual = None if data is None else _digest_of(data)
        if expected is not None and actual != expected:
            changed.append(shown)
            digest.update(("%s %s\n" % (shown, actual)).encode())
    return {"looked_at": count, "changed": changed, "instrumented": instrumented}


def _origin(distribution: metadata.Distribution) -> Dict[str, Any]:
    try:
        value = json.loads(distribution.read_text("direct_url.json") or "{}")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _source(origin: Dict[str, Any]) -> Optional[str]:
    """Return the directory of an editable install."""
    if not origin.get("dir_info", {}).get("editable"):
        return None
    return unquote(urlsplit(origin.get("url", "")).path) or None


def _repository(source: str, digest: Any) -> Dict[str, Any]:
    """Return commit and uncommitted changes of the git repository that holds a directory."""
    commit = _git(source, "rev-parse", "HEAD")
    if commit is None:
        return {}
    status = _git(source, "status", "--porcelain", "--", ".") or b""
    digest.update(_git(source, "diff", "--no-ext-diff", "--no-textconv", "HEAD", "--", ".") or b"")
    digest.update(status)
    changed = [line[3:].decode("utf-8", "replace") for line in status.splitlines()]
    return {"commit": commit.decode().strip(), "changed": changed}


def _git(directory: str, *arguments: str) -> Optional[bytes]:
    settings = ["-c", "safe.directory=*", "-c", "core.fsmonitor=false"]
    try:
        done = subprocess.run(
            ["git", *settings, "-C", directory, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_GIT_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def _recorded(distribution: metadata.Distribution) -> List[_File]:
    found = [
        (str(distribution.locate_file(file)), str(file), file.hash.value if file.hash else None)
        for file in distribution.files or []
        if file.suffix == ".py" and _LOOKED_AT.search(str(file))
    ]
    return found[:_MOST_FILES]


def _sources_below(directory: str) -> Iterator[_File]:
    count = 0
    for folder, inner, names in os.walk(directory):
        inner[:] = [name for name in inner if not name.startswith(".")]
        for name in names:
            path = os.path.join(folder, name)
            shown = os.path.relpath(path, directory)
            if name.endswith(".py") and _LOOKED_AT.search(shown) and count < _MOST_FILES:
                count += 1
                yield path, shown, None


def _content(path: str) -> Optional[bytes]:
    try:
        with open(path, "rb") as stream:
            return stream.read()
    except OSError:
        return None


def _digest_of(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
