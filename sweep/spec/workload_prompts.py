"""Prompts of a workload: from the file itself, a file beside it, or a packaged set."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from sweep.model.experiment import Prompt
from sweep.spec.schema import Message, PromptEntry
from sweep.spec.shape import dotted, explain
from sweep.spec.yaml_tree import Plain

MAX_PROMPTS = 10_000


@dataclass(frozen=True)
class Prompts:
    """The prompts that could be read, and what is wrong with the others."""

    prompts: tuple[Prompt, ...]
    problems: tuple[str, ...] = ()

    @property
    def distinct(self) -> int:
        """How many different prompts there are, whatever their ids."""
        return len({(prompt.text, prompt.messages) for prompt in self.prompts})


def from_entries(entries: Sequence[PromptEntry]) -> Prompts:
    """Return the prompts of entries; one without an id is named by its number from 1."""
    prompts = tuple(_prompt(entry, number) for number, entry in enumerate(entries, 1))
    return Prompts(prompts, tuple(_repeated_ids(prompts)))


def from_json_lines(text: str) -> Prompts:
    """Read one JSON object a line: `prompt` or `messages`, and an `id` or none."""
    return _from_lines(text, _json)


def from_text_lines(text: str) -> Prompts:
    """Read one prompt a line; empty lines do not count."""
    return _from_lines(text, lambda line: {"prompt": line})


def _from_lines(text: str, parse: Callable[[str], Any]) -> Prompts:
    entries: list[PromptEntry] = []
    problems: list[str] = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            entries.append(PromptEntry.model_validate(parse(line.rstrip("\r"))))
        except ValidationError as error:
            problems += [f"line {number}: {message}" for message in _explained(error)]
        except (ValueError, RecursionError) as error:
            problems.append(f"line {number}: not JSON ({error})")
    return _bounded(entries, problems)


def _bounded(entries: Sequence[PromptEntry], problems: list[str]) -> Prompts:
    if len(entries) > MAX_PROMPTS:
        problems.append(f"more than {MAX_PROMPTS} prompts")
    elif not entries and not problems:
        problems.append("holds no prompts")
    read = from_entries(entries[:MAX_PROMPTS])
    return Prompts(read.prompts, (*problems, *read.problems))


def _json(line: str) -> Any:
    """Parse a line; numbers stay as written, so that an id may be one."""
    return json.loads(line, parse_int=Plain, parse_float=Plain, parse_constant=Plain)


def _explained(error: ValidationError) -> Iterator[str]:
    for detail in error.errors(include_url=False):
        where = dotted(tuple(detail["loc"])) if detail["loc"] else "the line"
        if detail["type"] == "extra_forbidden":
            yield f"unknown key `{where}`; known are id, prompt, messages"
        elif detail["type"] == "missing":
            yield f"{where} is missing"
        else:
            yield f"{where}: {explain(detail)[0]}"


def as_pairs(messages: Sequence[Message]) -> tuple[tuple[str, str], ...]:
    """Return chat messages as (role, content)."""
    return tuple((message.role, message.content) for message in messages)


def _prompt(entry: PromptEntry, number: int) -> Prompt:
    name = entry.id or str(number)
    if entry.messages is None:
        return Prompt(name, text=entry.prompt)
    return Prompt(name, messages=as_pairs(entry.messages))


def _repeated_ids(prompts: Sequence[Prompt]) -> Iterator[str]:
    seen: set[str] = set()
    for prompt in prompts:
        if prompt.prompt_id in seen:
            yield f'two prompts have the id "{prompt.prompt_id}"'
        seen.add(prompt.prompt_id)
