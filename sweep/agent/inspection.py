"""The verb `inspect`: facts of a node for the checks before a sweep."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import threading
import time
from dataclasses import asdict
from typing import Any, Callable, Dict, List, Optional, Tuple

from sweep.agent import claim, gpus, procs, wire
from sweep.agent.facts import machine, models, package, session, setup, storage, toolchain

_VERSION_TIMEOUT_S = 120.0
"""Importing an engine from a cold disk takes a while."""
_GROUP_TIMEOUT_S = 45.0
_COMMAND_CHARACTERS = 200
_AS_THE_SERVER = ("version", "models", "packages", "compilers", "caches")
"""Groups that are looked at with the server's environment."""
Environment = Dict[str, str]


def inspect(asked: Dict[str, Any]) -> Dict[str, Any]:
    """Return the facts.

    `asked` may hold workdir, paths, version_argv with version_input, the server's env (null:
    unset) with setup (shell lines) under it and path_first, models with from_hub, and package
    with pythons. Groups are asked at the same time; one that fails is null, and `unknown` says
    why; those of the server's environment are null when its setup fails. How fast storage reads
    is measured afterwards.
    """
    user = procs.user_name(os.geteuid())
    login, lines = dict(os.environ), asked.get("setup")
    layer = setup.capture(lines, login) if lines else None
    env, path_first = asked.get("env") or {}, asked.get("path_first") or []
    environment = setup.laid_over(login, layer, env, path_first)
    pythons = asked.get("pythons") or []
    groups: Dict[str, Callable[[], Any]] = {
        "gpu": _gpu_facts,
        "version": lambda: _version(
            asked.get("version_argv"), asked.get("version_input"), environment
        ),
        "models": lambda: models.inspect(
            asked.get("models") or [], bool(asked.get("from_hub")), environment
        ),
        "packages": lambda: _packages(pythons, asked.get("package"), environment),
        "session": lambda: session.inspect(user),
        "compilers": lambda: toolchain.compilers(environment, pythons[0] if pythons else None),
        "caches": lambda: toolchain.caches(environment, user),
        "paths": lambda: {path: path_facts(path) for path in asked.get("paths") or []},
        "workdir": lambda: storage.disk_facts(os.path.expanduser(asked.get("workdir") or "~")),
    }
    left_out = _AS_THE_SERVER if layer and layer["error"] else ()
    found, unknown = _at_once({name: ask for name, ask in groups.items() if name not in left_out})
    found.update(dict.fromkeys(left_out))
    measured, unmeasured = _at_once({"storage": lambda: _storage(found["models"] or {})})
    return {
        "host": platform.node(),
        "user": user,
        "boot_id": procs.boot_id(),
        "setup": layer,
        "claim_directory": claim.directory(),
        "claim_error": claim.unusable(claim.directory()),
        "claims": claim.list_held(claim.directory()),
        "machine": machine.inspect(),
        **(found.pop("gpu") or {"gpus": [], "gpu_processes": [], "gpu_error": unknown["gpu"]}),
        **found,
        **measured,
        "unknown": {**unknown, **unmeasured},
    }


def _at_once(
    groups: Dict[str, Callable[[], Any]], limit_s: float = _GROUP_TIMEOUT_S
) -> Tuple[Dict[str, Any], Dict[str, str]]:
    """Ask every group in a thread of its own: a disk that hangs must not hide the rest. Return
    what they said, and why the others said nothing. The version command has its own limit."""
    found: Dict[str, Any] = {}
    unknown: Dict[str, str] = {}

    def ask(name: str, group: Callable[[], Any]) -> None:
        try:
            found[name] = group()
        except Exception as problem:  # noqa: BLE001 - nor must a file that nobody foresaw
            unknown[name] = str(problem) or type(problem).__name__

    threads = {
        name: threading.Thread(target=ask, args=(name, group), daemon=True)
        for name, group in groups.items()
    }
    began_s = time.monotonic()
    for thread in threads.values():
        thread.start()
    for name, thread in threads.items():
        allowed_s = _VERSION_TIMEOUT_S + 1 if name == "version" else limit_s
        thread.join(max(0.0, began_s + allowed_s - time.monotonic()))
        if thread.is_alive():
            unknown[name] = "no answer within %g s" % allowed_s
    return {name: None if name in unknown else found[name] for name in groups}, unknown


def _gpu_facts() -> Dict[str, Any]:
    try:
        found = gpus.list_gpus()
        details = gpus.list_details() if found else {}
        using = gpus.list_processes() if found else []
    except gpus.GpuError as problem:
        return {"gpus": [], "gpu_processes": [], "gpu_error": str(problem)}
    processes = [
        {
            **asdict(item),
            "user": procs.user_name(procs.user_id(item.pid)),
            "name": procs.name_of(item.pid),
            "command": procs.command_line(item.pid)[:_COMMAND_CHARACTERS],
        }
        for item in using
    ]
    shown = [{**asdict(gpu), **details.get(gpu.uuid, {})} for gpu in found]
    return {"gpus": shown, "gpu_processes": processes, "gpu_error": None}


def _packages(pythons: List[str], name: Optional[str], environment: Environment) -> Dict[str, Any]:
    if name is None:
        return {}
    archive = os.environ[wire.AGENT_VARIABLE]
    return {python: package.inspect(python, name, archive, environment) for python in pythons}


def _storage(found: Dict[str, Any]) -> Optional[Dict[str, Any]]:
    """Measure where the largest file of the models lies; None: there is none."""
    sizes = [
        (model["size_bytes"], model["largest"]) for model in found.values() if model["largest"]
    ]
    return storage.read_speed(max(sizes)[1]) if sizes else None


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


def _version(
    argv: Optional[List[str]], given: Any, environment: Environment
) -> Optional[Dict[str, Any]]:
    """Run the engine's version command, with JSON on its standard input: its first line, and a
    JSON object on its last."""
    if not argv:
        return None
    try:
        done = subprocess.run(
            argv,
            input=json.dumps(given).encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_VERSION_TIMEOUT_S,
            env=environment,
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
