"""`--set key.path=value`: values given on the command line, laid over the file's."""

from __future__ import annotations

from typing import Any

from sweep.model.errors import Problem
from sweep.spec.yaml_tree import MAX_VALUES, Mark, Path, Tree, parse, same_name


def apply_override(tree: Tree, override: str) -> None:
    """Set one value of `tree`; `override` is the text after `--set`.

    The path's parts are keys, either spelling, or indices of a list from 0; missing mappings
    are made. The value is YAML, so `[1, 2]` is a list. Problems go into the tree and name the
    override.
    """
    mark = Mark(override=override)
    key_path, equals, text = override.partition("=")
    keys = key_path.strip().split(".")
    if not equals or not all(keys):
        _refuse(
            tree, override, "is not of the form key.path=value", "such as engine.args.threads=2"
        )
        return
    given = parse(text, lambda _: mark)
    if given.problems:
        reasons = "; ".join(problem.message for problem in given.problems)
        tree.problems.append(Problem(_named(override, reasons)))
        return
    if not given.marks:
        _refuse(tree, override, "gives no value", 'write "" for the empty text')
        return
    container, path = _descend(tree, keys, override)
    if container is None:
        return
    key = path[-1]
    if isinstance(container, list):
        container[int(key)] = given.value
    else:
        container[key] = given.value
    for marks in (tree.marks, tree.key_marks):
        for at in [at for at in marks if at[: len(path)] == path]:
            del marks[at]
    tree.key_marks[path] = mark
    tree.marks.update({(*path, *at): mark for at in given.marks})
    tree.key_marks.update({(*path, *at): mark for at in given.key_marks})


def _descend(tree: Tree, keys: list[str], override: str) -> tuple[Any, Path]:
    """Return the container of the last key and the whole path; (None, …) after a problem."""
    if not isinstance(tree.value, dict):
        tree.value = {}
    container: Any = tree.value
    path: Path = ()
    for position, key in enumerate(keys):
        at = _existing(container, key)
        if at is None:
            _refuse(tree, override, f"there is no `{'.'.join(keys[: position + 1])}` to set")
            return None, path
        path = (*path, at)
        if position == len(keys) - 1:
            return container, path
        if isinstance(container, dict) and not isinstance(container.get(at), (dict, list)):
            container[at] = {}
            tree.marks[path] = tree.key_marks[path] = Mark(override=override)
        container = container[at]
    raise AssertionError("an override has at least one key")


def _existing(container: Any, key: str) -> str | int | None:
    """Return the key or index that `key` means in `container`; None: it can mean none."""
    if isinstance(container, dict):
        return next((known for known in container if same_name(known) == same_name(key)), key)
    if (
        isinstance(container, list)
        and key.isdecimal()
        and len(key) < len(str(MAX_VALUES))
        and int(key) < len(container)
    ):
        return int(key)
    return None


def _named(override: str, message: str) -> str:
    return f"--set {override}: {message}"


def _refuse(tree: Tree, override: str, message: str, hint: str | None = None) -> None:
    tree.problems.append(Problem(_named(override, message), hint=hint))
