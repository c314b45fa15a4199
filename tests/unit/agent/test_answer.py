"""Answers are read by key paths, and missing counts stay missing."""

from __future__ import annotations

from typing import Any

import pytest
from fakes.running import CHAT, COMPLETION, GENERATE

from sweep.agent import wire
from sweep.agent.answer import Reading, error_in
from sweep.agent.http import lookup


def delta(text: str | None) -> dict[str, Any]:
    """One chunk of a chat answer."""
    return {"choices": [{"delta": {"content": text}}], "usage": None}


def test_chat_counts_come_from_usage_not_from_chunks() -> None:
    """Two chunks with text carry the 25 tokens that usage reports; the role chunk is none."""
    reading = Reading(CHAT)
    taken = [reading.take(delta(text), at) for text, at in (("", 0.1), ("ab", 0.2), ("c", 0.4))]
    reading.take({"choices": [], "usage": {"completion_tokens": 25, "prompt_tokens": 3}}, 0.5)
    assert taken == [False, True, True]
    assert (reading.text, reading.chunk_s) == ("abc", [0.2, 0.4])
    assert (reading.output_tokens, reading.input_tokens) == (25, 3)
    assert reading.first_chunk_tokens is None


def test_missing_usage_is_none() -> None:
    """Without usage the counts are None, whatever text came."""
    reading = Reading(CHAT)
    reading.take(delta("ab"), 0.1)
    assert (reading.output_tokens, reading.input_tokens, reading.cached_tokens) == (None,) * 3


def test_counts_that_are_no_integers_are_not_counts() -> None:
    """True, text and fractions are not taken for token counts."""
    for wrong in (True, "5", 5.0):
        reading = Reading(CHAT)
        reading.take({"usage": {"completion_tokens": wrong}}, 0.1)
        assert reading.output_tokens is None


def test_cumulative_text_is_not_joined() -> None:
    """Where each chunk repeats the text so far, the last one is the text."""
    reading = Reading(GENERATE)
    for tokens, text in ((2, "a b"), (4, "a b c d")):
        reading.take({"text": text, "meta_info": {"completion_tokens": tokens}}, tokens / 10)
    assert (reading.text, reading.chunk_s) == ("a b c d", [0.2, 0.4])
    assert (reading.first_chunk_tokens, reading.output_tokens) == (2, 4)


def test_tokens_without_text_are_output() -> None:
    """Half a character gives no text yet, but the token count grew: output has come."""
    reading = Reading(COMPLETION)
    assert reading.take({"content": "", "tokens_predicted": 1}, 0.1)
    assert not reading.take({"content": "", "tokens_predicted": 1}, 0.2)
    assert reading.take({"content": "é", "tokens_predicted": 2}, 0.3)
    assert (reading.chunk_s, reading.first_chunk_tokens) == ([0.1, 0.3], 1)


def test_alternative_paths_and_empty_text() -> None:
    """The first alternative with text counts, so that reasoning text is not lost."""
    answer = wire.Answer(
        text_at=[["content"], ["reasoning"]],
        output_tokens_at=[["a"], ["b"]],
        input_tokens_at=[],
    )
    reading = Reading(answer)
    reading.take({"content": "", "reasoning": "hm", "a": None, "b": 3}, 0.1)
    assert (reading.text, reading.output_tokens) == ("hm", 3)


def test_meta_keeps_the_last_value_found() -> None:
    """Raw values are copied as they are; a later null does not erase one."""
    reading = Reading(COMPLETION)
    for value in ({"timings": {"draft_n": 1}}, {"timings": {"draft_n": 7}}, {"timings": None}):
        reading.take(value, 0.1)
    assert reading.meta == {"timings": {"draft_n": 7}}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"error": {"message": "out of memory", "code": 500}}, "out of memory"),
        ({"error": "busy"}, "busy"),
        ({"object": "error", "message": "too long", "code": 400}, "too long"),
        ({"error": {"code": 500}}, "{'code': 500}"),
        ({"error": None, "text": "fine"}, None),
        ({"text": "error"}, None),
        ([1], None),
    ],
)
def test_error_objects(value: object, message: str | None) -> None:
    """Error objects in an answer of status 200 are seen in each of their forms."""
    assert error_in(value) == message


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (["a", 1, "b"], 5),
        (["a", -1, "b"], 5),
        (["a", 2], None),
        (["a", "b"], None),
        (["x", "y"], None),
        (["s", 0], None),
        ([], {"a": [0, {"b": 5}], "s": "text"}),
    ],
)
def test_lookup(path: list[Any], found: object) -> None:
    """Paths follow keys and indices; those that lead nowhere give None."""
    assert lookup({"a": [0, {"b": 5}], "s": "text"}, path) == found
