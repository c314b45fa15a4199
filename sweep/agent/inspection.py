"""The verb `inspect`: facts of a node for the checks before a sweep."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from dataclasses import asdict
from typing import Any, Dict, List, Optional

from sweep.agent import claim, gpus, procs
from sweep.agent.footprint import SHM_DIRECTORY

_NETWORK_TYPES = frozenset(
    ["nfs", "nfs4", "cifs", "smb3", "smbfs", "ceph", "lustre", "gpfs", "beegfs", "glusterfs",
     "fuse.sshfs", "fuse.glusterfs", "fuse.juicefs", "afs", "9p", "pvfs2", "orangefs"]
)  # fmt: skip
_VERSION_TIMEOUT_S = 120.0
"""Importing an engine from a cold disk takes a while."""


def inspect(asked: Dict[str, Any]) -> Dict[str, Any]:
    """Return the facts. `asked` may hold workdir, paths, programs (lists) and version_argv."""
    workdir = os.path.expanduser(asked.get("workdir") or "~")
    return {
        "host": platform.node(),
        "user": procs.user_name(os.geteuid()),
        "boot_id": procs.boot_id(),
        "python": platform.python_version(),
        "cpus": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        **_gpu_facts(),
        "claim_directory": claim.directory(),
        "claims": claim.list_held(claim.directory()),
        "workdir": disk_facts(workdir),
        "shm_free_bytes": _free_bytes(SHM_DIRECTORY),
        "paths": {path: path_facts(path) for path in asked.get("paths") or []},
        "programs": {name: _program(name) for name in asked.get("programs") or []},
        "version": _version(asked.get("version_argv")),
    }


def _gpu_facts() -> Dict[str, Any]:
    try:
        found = gpus.list_gpus()
        using = gpus.list_processes() if found else []
    except gpus.GpuError as problem:
        return {"gpus": [], "gpu_processes": [], "gpu_error": str(problem)}
    processes = [
        {
            **asdict(item),
            "user": procs.user_name(procs.user_id(item.pid)),
            "name": procs.name_of(item.pid),
        }
        for item in using
    ]
    shown = [asdict(gpu) for gpu in found]
    return {"gpus": shown, "gpu_processes": processes, "gpu_error": None}


def _existing(path: str) -> str:
    """Return the deepest directory on the way to a path that exists."""
    path = os.path.abspath(path)
    while not os.path.isdir(path):
        path = os.path.dirname(path)
    return path


def disk_facts(path: str) -> Dict[str, Any]:
    """Return free space and file-system type of where a directory is or would be."""
    existing = _existing(path)
    kind = file_system(os.path.realpath(existing), _mounts())
    return {
        "path": os.path.abspath(path),
        "free_bytes": _free_bytes(existing),
        "writable": os.access(existing, os.W_OK | os.X_OK),
        "file_system": kind,
        "network": kind in _NETWORK_TYPES,
    }


def _mounts() -> str:
    with open("/proc/self/mounts", encoding="utf-8", errors="surrogateescape") as stream:
        return stream.read()


def file_system(path: str, mounts: str) -> Optional[str]:
    """Return the type of the file system that holds a real path, by /proc/self/mounts."""
    best, kind = "", None
    for line in mounts.splitlines():
        fields = line.split(" ")
        point = fields[1].replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\")
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):  # a later mount on the same point hides the first
            best, kind = point, fields[2]
    return kind


def _free_bytes(path: str) -> Optional[int]:
    try:
        found = os.statvfs(path)
    except OSError:
        return None
    return found.f_bavail * found.f_frsize


def path_facts(path: str) -> Optional[Dict[str, Any]]:
    """Return size, newest change and kind of a file or of a whole directory; None: not there."""
    path = os.path.expanduser(path)
    try:
        entry = os.stat(path)
    except OSError:
        return None
    if not os.path.isdir(path):
        return {"size": entry.st_size, "mtime_ns": entry.st_mtime_ns, "kind": "file"}
    size, newest = 0, entry.st_mtime_ns
    for folder, _, names in os.walk(path):
        for name in names:
            try:
                inner = os.stat(os.path.join(folder, name))
            except OSError:
                continue
            size += inner.st_size
            newest = max(newest, inner.st_mtime_ns)
    return {"size": size, "mtime_ns": newest, "kind": "directory"}


def _program(name: str) -> Optional[str]:
    import shutil  # noqa: PLC0415 - start-up time counts

    found = shutil.which(os.path.expanduser(name))
    return None if found is None else os.path.abspath(found)


def _version(argv: Optional[List[str]]) -> Optional[Dict[str, Any]]:
    """Run the engine's version command: its first line, and a JSON object on its last."""
    if not argv:
        return None
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_VERSION_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as problem:
        return {"line": None, "returncode": None, "error": str(problem), "details": None}
    lines = done.stdout.decode("utf-8", "replace").strip().splitlines()
    return {
        "line": lines[0] if lines else None,
        "returncode": done.returncode,
        "error": None,
        "details": _details(lines[-1]) if lines else None,
    }


def _details(line: str) -> Optional[Dict[str, Any]]:
    try:
        details = json.loads(line)
    except ValueError:
        return None
    return details if isinstance(details, dict) else None
