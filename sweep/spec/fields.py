"""Types of an experiment file's keys: axes, choices, mappings of arguments and variables."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from sweep.spec.scalars import (
    Argument,
    ArgumentName,
    Integer,
    OrNone,
    Positive,
    Text,
    Variable,
    VariableName,
    refuse,
)
from sweep.spec.yaml_tree import Plain

MAX_AXIS = 1000
"""Values of one axis."""
_GPU = {"type": ["integer", "string"]}


class Section(BaseModel):
    """A mapping of the file; a key that is not declared is a problem."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def _choice(value: Any) -> Any:
    return str(value) if isinstance(value, str) else value


Choice = BeforeValidator(_choice)
"""Annotates a Literal: pydantic looks up exact texts only."""


class _Range(Section):
    """A run of whole numbers, both ends included."""

    first: Integer = Field(alias="from")
    last: Integer = Field(alias="to")
    step: Positive = 1

    def values(self) -> list[Plain]:
        """Return the numbers as source text, to be typed like written ones."""
        if self.first > self.last:
            refuse(
                f"from {self.first} to {self.last} holds nothing", "`from` must not be above `to`"
            )
        numbers = range(self.first, self.last + 1, self.step)
        if len(numbers) > MAX_AXIS:
            refuse(f"holds more than {MAX_AXIS} values")
        return [Plain(number) for number in numbers]


def _expand(value: Any) -> Any:
    """Return an axis as a list: of one value, of the values written, or of a range."""
    if isinstance(value, dict):
        if unknown := value.keys() - {"from", "to", "step"}:
            refuse(f"a range has from, to and step, not {', '.join(sorted(unknown))}")
        return _Range.model_validate(value).values()
    if not isinstance(value, list):
        return [value]
    if not value:
        refuse("is an empty axis", "give a value, or remove the key")
    if len(value) > MAX_AXIS:
        refuse(f"holds more than {MAX_AXIS} values")
    return value


def _expand_or_auto(value: Any) -> Any:
    return None if value == "auto" else _expand(value)


def _distinct(values: tuple[Any, ...] | None) -> tuple[Any, ...] | None:
    """Refuse a value that stands twice on an axis; 1 and true are two values."""
    seen: set[tuple[bool, Any]] = set()
    for value in values or ():
        key = (isinstance(value, bool), value)
        if key in seen:
            refuse(f"{value} stands there twice", "remove one")
        seen.add(key)
    return values


def one_of(options: tuple[str, ...]) -> BeforeValidator:
    """Annotates a text that must be one of `options`."""

    def check(value: Any) -> str:
        if not isinstance(value, str) or value not in options:
            refuse(f"must be one of {', '.join(options)}", suggestion(str(value), options))
        return str(value)

    return BeforeValidator(check)


def enum(options: tuple[str, ...]) -> WithJsonSchema:
    """Say the same as `one_of` in the JSON Schema."""
    return WithJsonSchema({"type": "string", "enum": list(options)})


def suggestion(word: str, known: Iterable[str]) -> str | None:
    """Return the hint that names the known word closest to `word`, None when none is close."""
    near = difflib.get_close_matches(word.replace("-", "_"), list(known), n=1)
    near = near or difflib.get_close_matches(word, list(known), n=1)
    return f"did you mean {near[0]}?" if near else None


def _gpu(value: Any) -> int | str:
    text = str(value) if isinstance(value, str) else ""
    if text.isdecimal() and len(text) < 4:  # noqa: PLR2004 - an index has few digits
        return int(text)
    if not text.startswith(("GPU-", "MIG-")):
        refuse("must be an index from 0 or a UUID such as GPU-…")
    return text


def _not_empty(value: Any) -> Any:
    if value == []:
        refuse("is empty", "give at least one entry, or remove the key")
    return value


NonEmpty = BeforeValidator(_not_empty)
"""Annotates a list: pydantic's own check counts good entries only, and would speak too often."""


def _axis_schema(item: dict[str, Any], *more: dict[str, Any]) -> WithJsonSchema:
    integer = {"type": "integer"}
    span = {
        "type": "object",
        "properties": {"from": integer, "to": integer, "step": {"type": "integer", "minimum": 1}},
        "required": ["from", "to"],
        "additionalProperties": False,
    }
    several = {"type": "array", "items": item, "minItems": 1, "maxItems": MAX_AXIS}
    return WithJsonSchema({"anyOf": [item, several, span, *more]})


_COUNT = {"type": "integer", "minimum": 1}
_SCALAR = {"type": ["string", "number", "boolean"]}

Counts = Annotated[
    tuple[Positive, ...],
    BeforeValidator(_expand),
    AfterValidator(_distinct),
    _axis_schema(_COUNT),
]
CountsOrAuto = Annotated[
    tuple[Positive, ...] | None,
    BeforeValidator(_expand_or_auto),
    AfterValidator(_distinct),
    _axis_schema(_COUNT, {"const": "auto"}),
]
Arguments = dict[ArgumentName, Argument]
AxisValues = Annotated[
    tuple[Argument, ...],
    BeforeValidator(_expand),
    AfterValidator(_distinct),
    _axis_schema(_SCALAR),
]
SweptArguments = dict[ArgumentName, AxisValues]
Environment = dict[VariableName, Variable]
OptionalText = Annotated[Text | None, OrNone]


Gpu = Annotated[int | str, BeforeValidator(_gpu), WithJsonSchema(_GPU)]
Gpus = Annotated[tuple[Gpu, ...] | None, AfterValidator(_distinct), NonEmpty, OrNone]
