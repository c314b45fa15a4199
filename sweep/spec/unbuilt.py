"""What the experiment file documents and this version cannot do yet: the only list of it.

Each is refused by name, so that nobody waits hours for a sweep that left out what was asked.
Remove an entry together with building it, and declare the key in `spec.schema`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sweep.spec.yaml_tree import Path, Tree

KEYS: Mapping[Path, str] = {
    ("engine", "container"): "this version starts servers as plain processes",
}
"""Path of a key → what holds instead."""

VALUES: Mapping[Path, Mapping[str, str]] = {
    ("engine", "kind"): {"vllm": "this version runs sglang and llama.cpp"},
    ("strategy",): {"guided": "this version launches the whole grid"},
}
"""Path of a key → its values that are not built, with what holds instead."""

STAND_INS: Mapping[Path, str] = {("engine", "kind"): "llama.cpp", ("strategy",): "grid"}
"""What the rest of the file is checked with once the value was refused."""


def refuse_unbuilt(tree: Tree) -> None:
    """Report what the file asks for and is not built, and take it out of `tree`."""
    for path, instead in KEYS.items():
        container = _container(tree, path)
        if container is not None and path[-1] in container:
            tree.add(path, f"`{_dotted(path)}` is not built yet", hint=instead, of_key=True)
            del container[path[-1]]
    for path, values in VALUES.items():
        container = _container(tree, path)
        value = container.get(path[-1]) if container is not None else None
        if container is not None and isinstance(value, str) and value in values:
            message = f"`{_dotted(path)}: {value}` is not built yet"
            tree.add(path, message, hint=values[value])
            container[path[-1]] = STAND_INS[path]


def _container(tree: Tree, path: Path) -> dict[str | int, Any] | None:
    value = tree.value
    for key in path[:-1]:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else None


def _dotted(path: Path) -> str:
    return ".".join(map(str, path))
