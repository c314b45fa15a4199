"""Types of single values in the file: how source text becomes text, numbers and durations.

Each is a pydantic type whose validator takes what `yaml_tree` made. A value is never turned
into something else than what was written: what could mean two things is refused with advice.
"""

from __future__ import annotations

import math
import re
from typing import Annotated, Any, NoReturn

from pydantic import BeforeValidator, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from sweep.agent.wire import NONCE_VARIABLE
from sweep.model.experiment import Scalar
from sweep.spec.yaml_tree import Plain, unusable_character

_NULLS = ("", "~", "null", "Null", "NULL")
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]{0,17})\Z")
_FLOAT = re.compile(r"[-+]?(0|[1-9][0-9]*)(\.[0-9]*)?([eE][-+]?[0-9]+)?\Z|[-+]?\.[0-9]+\Z")
_DURATION = re.compile(r"(?:([0-9.]+)h)?(?:([0-9.]+)m)?(?:([0-9.]+)s)?\Z")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")
_ARGUMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\Z")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_WORDS_FOR_TRUE = ("yes", "on")
_WORDS_FOR_FALSE = ("no", "off")
_OWN_VARIABLES = (NONCE_VARIABLE, "SPT_NOENV")


def refuse(message: str, hint: str | None = None) -> NoReturn:
    """Refuse a value inside a validator; `spec.load` places the message and the hint."""
    context = {"message": message, "hint": hint or ""}
    raise PydanticCustomError("refused", "{message}", context)


def is_null(value: Any) -> bool:
    """Whether nothing, `~` or `null` was written."""
    return value is None or (isinstance(value, Plain) and value in _NULLS)


def _scalar(value: Any, wanted: str) -> str:
    if isinstance(value, (dict, list)):
        refuse(f"must be {wanted}, not a {'mapping' if isinstance(value, dict) else 'list'}")
    if is_null(value):
        refuse("has no value", f"write {wanted}, or remove the key")
    if not isinstance(value, str):
        refuse(f"must be {wanted}, not {value!r}")
    if unusable := unusable_character(value):
        refuse(f"holds {unusable}")
    return str(value)


def _text(value: Any) -> str:
    text = _scalar(value, "a text")
    if not text.strip():
        refuse("is an empty text", "write a text, or remove the key")
    return text


def _unquoted(value: Any, wanted: str) -> str:
    text = _scalar(value, wanted)
    if not isinstance(value, Plain):
        refuse(f'must be {wanted}; "{text}" in quotes is text', "remove the quotes")
    return text


def _integer(value: Any) -> int:
    text = _unquoted(value, "a whole number")
    if not _INTEGER.match(text):
        refuse(f"`{text}` is not a whole number", "write digits only, without a leading zero")
    return int(text)


def _number(value: Any) -> float:
    text = _unquoted(value, "a number")
    if not _FLOAT.match(text) or not math.isfinite(float(text)):
        refuse(f"`{text}` is not a number", "write it like 2, 0.5 or 1e-3")
    return float(text)


def _boolean(value: Any) -> bool:
    text = _unquoted(value, "true or false").lower()
    if text in ("true", "false"):
        return text == "true"
    hints = dict.fromkeys(_WORDS_FOR_TRUE, "write true") | dict.fromkeys(
        _WORDS_FOR_FALSE, "write false"
    )
    refuse(f"`{value}` is neither true nor false", hints.get(text))


def duration_s(text: str) -> float | None:
    """Return a duration such as 90s, 30m or 1h30m in seconds; None: it is none."""
    match = _DURATION.match(text)
    if not match or not text:
        return None
    try:
        hours, minutes, seconds = (float(part or 0) for part in match.groups())
    except ValueError:
        return None
    return hours * 3600 + minutes * 60 + seconds


def _duration(value: Any) -> float:
    text = _scalar(value, "a duration")
    seconds = duration_s(text)
    if seconds is None:
        unit = f"write {text}s for seconds" if _INTEGER.match(text) else None
        refuse(f"`{text}` is not a duration", unit or "write it like 90s, 30m, 2h or 1h30m")
    if not 0 < seconds < math.inf:
        refuse(f"`{text}` must be longer than nothing")
    return seconds


def _name(value: Any) -> str:
    text = _scalar(value, "a name")
    if not _NAME.match(text):
        refuse(
            f'"{text}" cannot be a name, because names become file names',
            "use up to 64 letters, digits, dots, dashes and underscores, a letter or digit first",
        )
    return text


def _argument_name(value: Any) -> str:
    text = str(value)
    if text.startswith("-"):
        refuse(
            f"`{text}` is written with dashes in front",
            f"write the long name without them, such as {text.lstrip('-') or 'tp-size'}",
        )
    if not _ARGUMENT.match(text):
        refuse(f'"{text}" cannot be the name of an argument')
    return text.replace("_", "-")


def _argument(value: Any) -> Scalar:
    if isinstance(value, (dict, list)):
        refuse("an argument takes one value here", "values to try stand in sweep.args")
    if is_null(value):
        refuse("the argument has no value", "write true for a bare flag, false to leave it out")
    text = str(value)
    if not isinstance(value, Plain):
        return text
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if text.lower() in _WORDS_FOR_TRUE + _WORDS_FOR_FALSE:
        flag = "true" if text.lower() in _WORDS_FOR_TRUE else "false"
        refuse(
            f"`{text}` can mean a flag or the word",
            f'write {flag} for the flag, "{text}" in quotes for the word',
        )
    if _INTEGER.match(text):
        return int(text)
    if _FLOAT.match(text) and math.isfinite(float(text)):
        return float(text)
    return text


def _variable_name(value: Any) -> str:
    text = str(value)
    if not _VARIABLE.match(text):
        refuse(f'"{text}" cannot be the name of an environment variable')
    if text in _OWN_VARIABLES:
        refuse(f"{text} is set by sweep itself, to know its own processes", "remove it")
    return text


def _variable(value: Any) -> str | None:
    if isinstance(value, (dict, list)):
        refuse("the value of an environment variable is one text")
    if not is_null(value) or value == "~":
        return None if is_null(value) else str(value)
    refuse(
        f"`{value}` can mean unset, empty or the word" if value else "the variable has no value",
        'write ~ for unset, "" for empty, "null" in quotes for the word',
    )


def _or_none(value: Any) -> Any:
    return None if is_null(value) else value


OrNone = BeforeValidator(_or_none)
"""Lets `~` stand for "not given"; annotates an optional type."""

Text = Annotated[str, BeforeValidator(_text)]
Integer = Annotated[int, BeforeValidator(_integer)]
Positive = Annotated[int, Field(ge=1, le=10**9), BeforeValidator(_integer)]
Number = Annotated[float, BeforeValidator(_number)]
Boolean = Annotated[bool, BeforeValidator(_boolean)]
Name = Annotated[str, BeforeValidator(_name)]
Duration = Annotated[
    float,
    BeforeValidator(_duration),
    WithJsonSchema({"type": "string", "examples": ["90s", "30m", "1h30m"]}),
]
_SCALARS = ["string", "number", "boolean"]
ArgumentName = Annotated[str, BeforeValidator(_argument_name)]
Argument = Annotated[
    str | int | float | bool,
    BeforeValidator(_argument),
    WithJsonSchema({"type": _SCALARS}),
]
VariableName = Annotated[str, BeforeValidator(_variable_name)]
Variable = Annotated[
    str | None, BeforeValidator(_variable), WithJsonSchema({"type": [*_SCALARS, "null"]})
]
