"""Server-sent events are split the same way however they arrive."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from sweep.agent.sse import Decoder

STREAM = (
    b": a comment\n\n"
    b'data: {"text": "one\\ntwo"}\n\n'
    b"event: message\nid: 7\ndata:{\r\ndata: }\r\n\r\n"
    b"data:  padded\n\n\n"
    b'error: {"code": 500}\n\n'
    b"data: [DONE]\n\n"
)
EVENTS = [b'{"text": "one\\ntwo"}', b"{\n}", b" padded", b'{"error":{"code": 500}}', b"[DONE]"]


def test_whole_stream() -> None:
    """Comments and other fields are left out, data lines are joined, one space is taken off."""
    assert Decoder().feed(STREAM) == EVENTS


@given(st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_any_pieces_give_the_same_events(cuts: list[int]) -> None:
    """Where the network cuts the stream makes no difference."""
    bounds = [0, *sorted(cuts), len(STREAM)]
    decoder = Decoder()
    events = []
    for begin, end in itertools.pairwise(bounds):
        events += decoder.feed(STREAM[begin:end])
    assert events + decoder.close() == EVENTS


def test_event_is_given_with_its_empty_line() -> None:
    """An event is not held back until the next one comes."""
    decoder = Decoder()
    assert decoder.feed(b"data: 1\n") == []
    assert decoder.feed(b"\n") == [b"1"]


def test_last_event_without_empty_line() -> None:
    """The end of the stream ends the last event, with or without its newline."""
    decoder = Decoder()
    assert decoder.feed(b"data: 1\n\ndata: 2") == [b"1"]
    assert decoder.close() == [b"2"]
