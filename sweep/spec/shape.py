"""Checking a file's shape: pydantic's errors as problems with line and column.

The shape is checked in rounds: what is wrong is reported and taken out, and the rest is checked
again, so that the checks of meaning which follow can still speak and all problems come at once.
"""

from __future__ import annotations

import copy
from types import UnionType
from typing import Annotated, Any, get_args, get_origin

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from sweep.spec.fields import Section, suggestion
from sweep.spec.scalars import is_null
from sweep.spec.schema import ExperimentFile
from sweep.spec.yaml_tree import Path, Tree, same_name

_ROUNDS = 4
_STAND_INS: dict[Path, Any] = {
    ("engine",): {},
    ("engine", "kind"): "llama.cpp",
    ("workloads",): [{}],
}
"""What takes the place of something that is missing; else a word."""


_MAPPING_ERRORS = ("model_type", "dict_type", "model_attributes_type")
_WORDS: dict[str, tuple[str, str | None]] = {
    **dict.fromkeys(_MAPPING_ERRORS, ("must be a mapping of keys to values", None)),
    "tuple_type": ("must be a list", "write it as [a, b] or with a dash before each item"),
}

_SECTIONS = ("node", "engine", "sweep", "objective", "timeouts", "profile")
_PLACES: dict[Path, str] = {
    (): "at the top level",
    **{(key,): f"into {key}" for key in _SECTIONS},
    ("workloads", 0): "into an entry of workloads",
}


def check_shape(tree: Tree) -> tuple[ExperimentFile | None, frozenset[Path]]:
    """Report what is wrong with the shape of `tree`; return what is left, and the wrong paths.

    The file is None when too much is wrong to go on. A path in the set was changed or removed:
    what is said of it, of what it stands in or of what stands in it may not be meant.
    """
    value = copy.deepcopy(tree.value)
    wrong: set[Path] = set()
    for turn in range(_ROUNDS):
        try:
            return ExperimentFile.model_validate(value), frozenset(wrong)
        except ValidationError as error:
            for detail in error.errors(include_url=False):
                path = tuple(part for part in detail["loc"] if part != "[key]")
                if turn == 0:
                    _report(tree, path, detail)
                wrong.add(path)
                _mend(value, path, missing=detail["type"] == "missing")
    return None, frozenset(wrong)


def dotted(path: Path) -> str:
    """Return a path as people write it, such as workloads[0].name."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".") or "the file"


def explain(detail: ErrorDetails) -> tuple[str, str | None]:
    """Return what pydantic found, in our words, and what to do about it."""
    kind, context = detail["type"], detail.get("ctx", {})
    if kind == "refused":
        return context["message"], context["hint"] or None
    if kind == "literal_error":
        expected = context["expected"]
        options = expected.replace("'", "").replace(" or ", ", ").split(", ")
        return f"must be {expected}", suggestion(str(detail["input"]), options)
    if kind in _MAPPING_ERRORS and is_null(detail["input"]):
        return "has no value", "write {} for an empty mapping, or remove the key"
    return _WORDS.get(kind, (detail["msg"].replace("Input should be", "must be"), None))


def _report(tree: Tree, path: Path, detail: ErrorDetails) -> None:
    if detail["type"] == "missing":
        tree.add(path[:-1], f"{dotted(path)} is missing", of_key=bool(path[:-1]))
    elif detail["type"] == "extra_forbidden":
        message, hint = _unknown(path)
        tree.add(path, message, hint=hint, of_key=True)
    else:
        message, hint = explain(detail)
        of_key = detail["loc"][-1:] == ("[key]",)
        tree.add(path, f"{dotted(path)}: {message}", hint=hint, of_key=of_key)


def _unknown(path: Path) -> tuple[str, str | None]:
    """Say that a key is unknown, and which was meant: one near it in spelling, or elsewhere."""
    key, known = str(path[-1]), keys_at(path[:-1])
    message = f"unknown key `{key}` in {dotted(path[:-1])}"
    for name in known:
        if same_name(name) == same_name(key):
            return message, f"write it {name}"
    hint = suggestion(key, known)
    for place, name in _PLACES.items():
        if hint is None and key in keys_at(place):
            hint = f"it belongs {name}"
    return message, hint or f"known are {', '.join(known)}"


def _mend(value: Any, path: Path, *, missing: bool) -> None:
    """Take what is wrong out of `value`, or put something in the place of what is missing."""
    container, at = value, 0
    for depth, part in enumerate(path[:-1]):
        try:
            below = container[part]
        except (KeyError, IndexError, TypeError):
            break
        if not isinstance(below, (dict, list)):
            break
        container, at = below, depth + 1
    key = path[at] if path else None
    if isinstance(container, dict) and missing and at == len(path) - 1:
        container[key] = copy.deepcopy(_STAND_INS.get(path, "unnamed"))
    elif isinstance(container, dict):
        container.pop(key, None)
    elif isinstance(container, list) and isinstance(key, int) and path[:at] == ("workloads",):
        container[key] = {}
    else:
        _drop_list(value, path[:at])


def _drop_list(value: Any, path: Path) -> None:
    """Remove the list at `path` from the mapping that it stands in."""
    while path and isinstance(path[-1], int):
        path = path[:-1]
    for part in path[:-1]:
        value = value[part]
    if path and isinstance(value, dict):
        value.pop(path[-1], None)


def keys_at(path: Path) -> tuple[str, ...]:
    """Return the keys that the mapping at `path` may have; none when it takes any."""
    shape: Any = ExperimentFile
    for part in path:
        shape = _below(_bare(shape), part)
    shape = _bare(shape)
    if isinstance(shape, type) and issubclass(shape, Section):
        return tuple(shape.model_fields)
    return ()


def _bare(shape: Any) -> Any:
    """Return a type without Annotated and without its None."""
    while get_origin(shape) in (Annotated, UnionType):
        shape = get_args(shape)[0]
    return shape


def _below(shape: Any, part: str | int) -> Any:
    if get_origin(shape) is dict:
        return get_args(shape)[1]
    if get_origin(shape) is tuple:
        return get_args(shape)[0]
    if isinstance(shape, type) and issubclass(shape, Section) and part in shape.model_fields:
        return shape.model_fields[str(part)].annotation
    return None
