#!/usr/bin/env python3
"""Record what the probe hooks, from wheels of SGLang: names of classes, methods and arguments.

    sglang_signatures.py WHEEL... > tests/unit/probe/signatures.json

Wheels are read as archives and nothing of them is executed. What is written are the speculative
workers with their bases, the class that drafts for each, whether they have a controller of
adaptive speculation, what that cannot be combined with, and of the methods of all of them and the
scheduler's those that the probe looks for.
"""

from __future__ import annotations

import ast
import json
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sweep.probe.hooks import CYCLE, DRAFT, EXTEND, LOOKUP, RESULT, VERIFY
from sweep.probe.pinning import POLICY

_WORKERS = "sglang/srt/speculative/"
_SCHEDULER = "sglang/srt/managers/scheduler.py"
_ADAPTIVE = {"AdaptiveController", "AdaptiveSpeculativeParams"}
_CONTROLLER = "self.adaptive_controller"
_REFUSAL = "adaptive_unsupported_reason"
_REFUSING = "sglang/srt/speculative/adaptive_spec_params.py"
_METHODS = {*CYCLE, *DRAFT, *LOOKUP, *VERIFY, *EXTEND}
_PINNED = {"activate_step_by_batch", "candidate_steps", *POLICY}


def classes(source: str) -> Iterator[ast.ClassDef]:
    """Yield the classes of a module."""
    yield from (node for node in ast.parse(source).body if isinstance(node, ast.ClassDef))


def methods(kind: ast.ClassDef, names: set[str]) -> dict[str, list[str]]:
    """Return the arguments of those methods of a class that are named; abstract ones are none."""
    return {
        node.name: [argument.arg for argument in (*node.args.args, *node.args.kwonlyargs)]
        for node in kind.body
        if isinstance(node, ast.FunctionDef)
        and node.name in names
        and not any("abstract" in ast.unparse(decorator) for decorator in node.decorator_list)
    }


def drafting(kind: ast.ClassDef) -> str | None:
    """Return the class that a worker makes to draft for it."""
    for node in ast.walk(kind):
        if isinstance(node, ast.Assign):
            # On some pipeline stages there is no drafting: then the value is a condition.
            made = node.value.body if isinstance(node.value, ast.IfExp) else node.value
            targets = [ast.unparse(target) for target in node.targets]
            if "self._draft_worker" in targets and isinstance(made, ast.Call):
                return ast.unparse(made.func)
    return None


def assigned(kind: ast.ClassDef) -> set[str]:
    """Return what a class assigns to attributes of its objects."""
    found: set[str] = set()
    for node in ast.walk(kind):
        if isinstance(node, ast.Assign):
            found |= {ast.unparse(target) for target in node.targets}
        elif isinstance(node, ast.AnnAssign):
            found.add(ast.unparse(node.target))
    return found


def refusing(source: str) -> list[str]:
    """Return the arguments by which adaptive speculation is refused, none in versions that decide
    that elsewhere. A helper that is asked about the arguments counts by its own name."""
    found: set[str] = set()
    for function in ast.parse(source).body:
        if isinstance(function, ast.FunctionDef) and function.name == _REFUSAL:
            for node in ast.walk(function):
                if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                    found.add(node.attr)
                elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                    found.add(node.func.id)
    return sorted(found)


def record(wheel: Path) -> dict[str, Any]:
    """Return what the probe meets in one version."""
    workers: dict[str, Any] = {}
    adaptive: dict[str, Any] = {}
    with zipfile.ZipFile(wheel) as archive:
        for name in sorted(archive.namelist()):
            if not name.startswith(_WORKERS) or not name.endswith(".py"):
                continue
            for kind in classes(archive.read(name).decode()):
                if "worker" in name:
                    workers[kind.name] = {
                        "bases": [ast.unparse(base) for base in kind.bases],
                        "drafting": drafting(kind),
                        "adaptive": _CONTROLLER in assigned(kind),
                        "methods": methods(kind, _METHODS),
                    }
                elif kind.name in _ADAPTIVE:
                    adaptive[kind.name] = {
                        "policy": "self.params" in assigned(kind),
                        "methods": methods(kind, _PINNED),
                    }
        named = _REFUSING in archive.namelist()
        refused = refusing(archive.read(_REFUSING).decode()) if named else []
        (scheduler,) = (
            kind for kind in classes(archive.read(_SCHEDULER).decode()) if kind.name == "Scheduler"
        )
    return {
        "workers": workers,
        "adaptive": adaptive,
        "refusing": refused,
        "scheduler": methods(scheduler, set(RESULT)),
    }


def main() -> None:
    """Print the wheels' versions, one a line."""
    found = {Path(path).name.split("-")[1]: record(Path(path)) for path in sys.argv[1:]}
    lines = [f'"{version}":{json.dumps(found[version], sort_keys=True)}' for version in found]
    print("{\n" + ",\n".join(lines) + "\n}")


if __name__ == "__main__":
    main()
