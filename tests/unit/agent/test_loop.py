"""What a pass over the requests amounts to."""

from __future__ import annotations

from typing import Any

import pytest

from sweep.agent.load import Sent
from sweep.agent.loop import Pass
from sweep.agent.trials import StopSignal, describe


def sent(**fields: Any) -> Sent:
    """An answered request of 10 tokens from 1 s to 2 s."""
    values: dict[str, Any] = {
        "prompt": "p",
        "sent_s": 1.0,
        "end_s": 1.1,
        "streamed": True,
        "status": 200,
        "error": None,
        "chunk_s": [0.5, 1.0],
        "text": "ab",
        "first_chunk_tokens": 1,
        "output_tokens": 10,
        "input_tokens": 2,
        "cached_tokens": 0,
        "meta": {},
        **fields,
    }
    return Sent(**values)


def whole(*sents: Sent) -> Pass:
    """A complete pass."""
    return Pass(list(sents), complete=True, stalled=False)


def test_throughput_is_tokens_over_first_sent_to_last_output() -> None:
    """20 tokens from 1 s to 4 s, the end of the answers left out: 20 / 3 tokens/s."""
    measured = whole(sent(), sent(sent_s=3.0, end_s=9.0))
    assert (measured.start_s, measured.end_s, measured.output_tokens) == (1.0, 4.0, 20)
    assert measured.throughput == pytest.approx(20 / 3)


def test_failed_requests_give_no_tokens_and_are_kept_apart() -> None:
    """A failed request's partial count is not output of the window."""
    measured = whole(sent(), sent(error="timeout", output_tokens=7))
    assert (len(measured.answered), len(measured.failed)) == (1, 1)
    assert measured.output_tokens == 10


def test_one_missing_count_makes_the_sum_unknown() -> None:
    """A sum over some of the requests would pass for the whole."""
    measured = whole(sent(), sent(output_tokens=None))
    assert measured.output_tokens is None
    assert measured.throughput is None


def test_nothing_answered() -> None:
    """No answer: no tokens, no end, no throughput; not 0."""
    measured = whole(sent(error="http 500", chunk_s=[], text="", output_tokens=None))
    assert (measured.output_tokens, measured.end_s, measured.throughput) == (None, None, None)


def test_record_of_a_streamed_answer() -> None:
    """First and last output, their number and the text's hash are in the record."""
    record = sent().record(4, "t1", 2, "measure", 3)
    assert (record.n, record.trial, record.window, record.stream) == (4, "t1", 2, 3)
    assert (record.first_s, record.last_s, record.chunks) == (0.5, 1.0, 2)
    assert record.text_sha256 == "fb8e20fc2e4c3f248c60c39bd652f3c1347298bb977b8b4d5903b85055620603"


def test_record_of_a_whole_answer_has_no_first_token_time() -> None:
    """When the first token of an answer that does not stream came is not known."""
    record = sent(streamed=False, chunk_s=[1.0]).record(0, None, None, "ready", 0)
    assert (record.first_s, record.last_s) == (None, 1.0)


def test_record_of_a_failed_request_has_no_hash() -> None:
    """Half a text is not an output to compare."""
    assert sent(error="stopped").record(0, None, None, "ready", 0).text_sha256 is None


def test_half_characters_can_be_hashed() -> None:
    """Lone surrogates, which servers send for bytes of a cut character, are text too."""
    assert sent(text="\ud83d").record(0, None, None, "ready", 0).text_sha256 is not None


def test_description_names_classes_and_the_servers_words() -> None:
    """The sentence about failed requests says how many, of what, and why."""
    failed = sent(error="http 500", meta={"error_message": "no memory"})
    assert describe([sent(), failed, failed, sent(error="timeout")]) == (
        "3 of 4 requests failed (http 500: 2, timeout: 1); the server said: no memory"
    )


def test_first_reason_to_stop_stays() -> None:
    """A server that exits because it was told to stop was stopped."""
    stop = StopSignal()
    assert (stop.reason, stop.event.is_set()) == (None, False)
    stop.set("stopped")
    stop.set("server_exit")
    assert (stop.reason, stop.event.is_set()) == ("stopped", True)


def test_unknown_reason_to_stop_is_refused() -> None:
    """Only reasons that are ends of trials stop them."""
    with pytest.raises(ValueError, match="unknown reason to stop: bored"):
        StopSignal().set("bored")
