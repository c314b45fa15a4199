"""Single requests and calls against real servers that misbehave in every way they can."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import pytest
from fakes.running import (
    CHAT,
    COMPLETION,
    GENERATE,
    chat,
    completion,
    free_port,
    generate,
    running,
    saying,
)

from sweep.agent import http, load, wire
from sweep.agent.loop import Pass, closed_loop

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
WHOLE_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


def ask(port: int, request: wire.Request, answer: wire.Answer, timeout_s: float = 5.0) -> load.Sent:
    """Send one request that nothing stops."""
    return load.send(port, request, answer, timeout_s, threading.Event())


def pass_over(
    port: int,
    requests: list[wire.Request],
    *,
    concurrency: int = 1,
    timeout_s: float = 5.0,
    stop: threading.Event | None = None,
) -> Pass:
    """Send the requests from a closed loop and return what came of it."""
    return closed_loop(
        port,
        requests,
        GENERATE,
        concurrency=concurrency,
        timeout_s=timeout_s,
        stop=stop or threading.Event(),
        keep=lambda *_: None,
    )


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("api", ["chat", "completion"])
def test_answers_of_each_api(api: str, stream: bool) -> None:
    """Text and token counts are the same whether an answer streams or not; only a stream tells
    when its first token came."""
    request, answer = (chat, CHAT) if api == "chat" else (completion, COMPLETION)
    with running("--chunk-tokens", 4) as fake:
        sent = ask(fake.port, request("hello", 10, stream=stream), answer)
        again = ask(fake.port, request("hello", 10, stream=not stream), answer)
    assert (sent.status, sent.error, sent.output_tokens) == (200, None, 10)
    assert sent.chunks == (3 if stream else 1)
    assert (sent.record(0, None, None, "ready", 0).first_s is not None) == stream
    assert len(sent.text.split()) == 10
    assert sent.text == again.text


def test_cumulative_stream_with_speculation() -> None:
    """SGLang's cumulative text is read once, and its raw counters are copied as they are."""
    with running("--chunk-tokens", 4, "--draft-tokens", 3) as fake:
        sent = ask(fake.port, generate("hello", 10), GENERATE)
    assert len(sent.text.split()) == 10
    assert (sent.chunks, sent.first_chunk_tokens, sent.output_tokens) == (3, 4, 10)
    info = sent.meta["meta_info"]
    assert (info["spec_verify_ct"], info["spec_num_correct_drafts"]) == (3, 7)
    assert info["spec_correct_drafts_histogram"] == [0, 1, 0, 2]


def test_tokens_are_not_chunks() -> None:
    """100 tokens in 25 chunks are 100 tokens."""
    with running("--chunk-tokens", 4, "--rate", 2000) as fake:
        sent = ask(fake.port, chat("hello", 100), CHAT)
    assert (sent.chunks, sent.output_tokens) == (25, 100)


def test_missing_usage_is_unknown_not_an_error() -> None:
    """Text without counts is an answer whose tokens nobody knows."""
    with running("--no-usage") as fake:
        sent = ask(fake.port, chat("hello"), CHAT)
    assert (sent.error, sent.output_tokens, sent.chunks) == (None, None, 20)


def test_arrivals_follow_the_servers_schedule() -> None:
    """Tokens at 50 per second after 0.2 s arrive then, none before it was sent."""
    with running("--rate", 50, "--first-delay", 0.2, "--stamp") as fake:
        sent = ask(fake.port, completion("hello", 10), COMPLETION)
    stamps_s = [float(stamp) - sent.sent_s for stamp in sent.text.split()]
    assert all(a >= s for a, s in zip(sent.chunk_s, stamps_s, strict=True))
    assert sent.chunk_s[0] >= 0.22
    assert sent.chunk_s[-1] - sent.chunk_s[0] == pytest.approx(9 / 50, abs=0.05)


@pytest.mark.parametrize(
    ("options", "error", "status", "chunks"),
    [
        (["--error-every", 1], "http 500", 500, 0),
        (["--unready", 60], "http 503", 503, 0),
        (["--stream-error-every", 1], "error in answer", 200, 1),
        (["--bad-json-every", 1], "bad json", 200, 1),
        (["--drop-every", 1], "connection reset", 200, 1),
        (["--die-in-request", 1], "connection closed", 200, 1),
    ],
)
def test_failures_are_classed_and_what_came_is_kept(
    options: list[object], error: str, status: int, chunks: int
) -> None:
    """Each way to fail has its class; text that came before stays in the record."""
    with running(*options) as fake:
        sent = ask(fake.port, chat("hello"), CHAT)
    assert (sent.error, sent.status, sent.chunks) == (error, status, chunks)
    assert len(sent.text.split()) == chunks


def test_the_servers_words_are_kept() -> None:
    """What a server says of a failure is in the record, from a status and from a stream."""
    for option in ("--error-every", "--stream-error-every"):
        with running(option, 1) as fake:
            sent = ask(fake.port, chat("hello"), CHAT)
        assert sent.meta["error_message"] == "injected failure"


def test_nobody_listens() -> None:
    """A refused connection is an error of its own, at once."""
    sent = ask(free_port(), chat("hello"), CHAT)
    assert (sent.error, sent.status, sent.end_s) == ("connection refused", None, None)


@pytest.mark.parametrize(
    "options", [["--hang-generate"], ["--trickle"], ["--stall-after", 0, "--stall-mid"]]
)
def test_deadline_is_absolute(options: list[object]) -> None:
    """Silence, comments for ever and a stream that stops half-way end at the deadline."""
    with running(*options) as fake:
        begin_s = time.monotonic()
        sent = ask(fake.port, chat("hello"), CHAT, timeout_s=0.4)
        took_s = time.monotonic() - begin_s
    assert (sent.error, sent.end_s) == ("timeout", None)
    assert 0.4 <= took_s < 1.0
    assert sent.chunks == (1 if "--stall-mid" in options else 0)


@pytest.mark.parametrize("options", [["--hang-generate"], ["--trickle"], ["--rate", 5]])
def test_stop_ends_a_blocked_request(options: list[object]) -> None:
    """A stop wakes whoever is blocked in recv, within 0.2 s (here with time to spare)."""
    stop = threading.Event()
    with running(*options) as fake:
        timer = threading.Timer(0.3, stop.set)
        timer.start()
        begin_s = time.monotonic()
        sent = load.send(fake.port, chat("hello", 100), CHAT, 30.0, stop)
        took_s = time.monotonic() - begin_s
    assert sent.error == "stopped"
    assert 0.3 <= took_s < 0.8


def test_stop_ends_every_stream_and_keeps_what_came() -> None:
    """Each of eight blocked streams gives a record, with the text that it has received."""
    stop = threading.Event()
    with running("--rate", 20) as fake:
        threading.Timer(0.4, stop.set).start()
        begin_s = time.monotonic()
        done = pass_over(
            fake.port,
            [generate(f"p{n}", 1000) for n in range(16)],
            concurrency=8,
            stop=stop,
            timeout_s=30,
        )
        took_s = time.monotonic() - begin_s
    assert took_s < 1.0
    assert (done.complete, done.stalled) == (False, False)
    assert [sent.error for sent in done.sents] == ["stopped"] * 8
    assert all(sent.text for sent in done.sents)


@pytest.mark.parametrize(
    ("pieces", "error"),
    [
        ([b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n", b"Content-Type: text/event-stream\r\n\r\n",
          b'data: {"text":"a"}\n\n'], "connection closed"),
        ([HEAD, b": nothing\n\n", b"data: [DONE]\n\n"], "no output"),
        ([HEAD, b'data: {"text":"","meta_info":{"completion_tokens":0}}\n\n'], "no output"),
        ([HEAD, b'data: {"text":"","meta_info":{"completion_tokens":1}}\n\n'], None),
        ([HEAD, b'data: {"text":"a"}\n\n', b"data: oops\n\n"], "bad json"),
        ([HEAD, b'error: {"code":500,"message":"no slot"}\n\n'], "error in answer"),
        ([WHOLE_HEAD + b"\r\n", b'{"object":"error","message":"x"}'], "error in answer"),
        ([WHOLE_HEAD + b"\r\n", b'{"text": "a"'], "bad json"),
        ([b"SSH-2.0-OpenSSH_9.2\r\n"], "bad http"),
        ([], "connection closed"),
    ],
)  # fmt: skip
def test_odd_answers(pieces: list[bytes], error: str | None) -> None:
    """Broken and empty answers are failures; one token without text is an answer."""
    with saying(*pieces) as port:
        sent = ask(port, generate("hello"), GENERATE)
    assert sent.error == error


def test_stream_in_tiny_pieces() -> None:
    """Events that arrive byte by byte, characters cut in two, are read whole."""
    payload = (
        ': hi\n\ndata: {"text": "héé",\r\ndata:  "meta_info": {"completion_tokens": 3}}\r\n\r\n'
        "data: [DONE]\n\n"
    ).encode()
    with saying(HEAD, *[bytes([byte]) for byte in payload]) as port:
        sent = ask(port, generate("hello"), GENERATE)
    assert (sent.error, sent.text, sent.output_tokens) == (None, "héé", 3)


def test_answer_ends_with_done_even_when_the_body_does_not() -> None:
    """A server that never ends its body after [DONE] costs time, not the answer."""
    with saying(HEAD, b'data: {"text":"a"}\n\ndata: [DONE]\n\n', hold=True) as port:
        sent = ask(port, generate("hello"), GENERATE, timeout_s=0.4)
    assert (sent.error, sent.text) == (None, "a")
    assert sent.end_s is not None
    assert sent.end_s < 0.3


def test_each_request_has_its_own_connection(tmp_path: Path) -> None:
    """No request is sent on a connection that its server may be closing at that moment."""
    with running("--request-log", tmp_path / "log") as fake:
        done = pass_over(fake.port, [generate(f"p{n}", 2) for n in range(5)])
    assert [sent.error for sent in done.sents] == [None] * 5
    sent_on = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert len({line["peer"] for line in sent_on if line["path"] == "/generate"}) == 5


def test_requests_are_sent_in_order_by_as_many_streams_as_asked() -> None:
    """Four streams keep four requests running, and the list's order is kept."""
    with running("--rate", 200) as fake:
        done = pass_over(fake.port, [generate(f"p{n}") for n in range(12)], concurrency=4)
    by_time = sorted(done.sents, key=lambda sent: sent.sent_s)
    for turn in range(3):
        prompts = {sent.prompt for sent in by_time[4 * turn : 4 * turn + 4]}
        assert prompts == {f"p{n}" for n in range(4 * turn, 4 * turn + 4)}
    assert by_time[3].sent_s - by_time[0].sent_s < 0.05
    assert done.complete


def test_window_throughput_is_the_servers_rate() -> None:
    """Four streams at 200 tokens/s are 800 tokens/s, within what a busy machine allows."""
    with running("--rate", 200, "--chunk-tokens", 3) as fake:
        done = pass_over(fake.port, [generate(f"p{n}", 300) for n in range(4)], concurrency=4)
    assert done.throughput == pytest.approx(800, rel=0.1)


def test_one_slow_request_is_no_stall() -> None:
    """A request that times out while another stream receives output fails; the rest goes on."""
    with running("--rate", 100, "--stall-one", 1) as fake:
        requests = [generate(f"p{n}", 20) for n in range(6)]
        done = pass_over(fake.port, requests, concurrency=2, timeout_s=0.7)
    assert (done.stalled, done.complete) == (False, True)
    assert sorted(str(sent.error) for sent in done.sents) == ["None"] * 5 + ["timeout"]


def test_stall_ends_the_pass() -> None:
    """When no stream receives anything for a whole request, the rest is not tried.

    The first of the two to hang may have begun before the last output: it is followed by one.
    """
    with running("--rate", 400, "--stall-after", 4) as fake:
        requests = [generate(f"p{n}") for n in range(20)]
        done = pass_over(fake.port, requests, concurrency=2, timeout_s=0.5)
    assert (done.stalled, done.complete) == (True, False)
    assert [sent.error for sent in done.sents[:4]] == [None] * 4
    assert len(done.sents) in (6, 7)
    assert {sent.error for sent in done.sents[4:]} <= {"timeout", "stalled"}


@pytest.mark.parametrize(
    ("pieces", "reply"),
    [
        ([WHOLE_HEAD + b"Content-Length: 2\r\n\r\n{}"], http.Reply(200, b"{}", None)),
        ([b"HTTP/1.1 404 No\r\nContent-Length: 1\r\n\r\nx"], http.Reply(404, b"x", None)),
        ([WHOLE_HEAD + b"Content-Length: 9\r\n\r\n{}"], http.Reply(200, b"", "connection closed")),
        ([b"hello\r\n"], http.Reply(None, b"", "bad http")),
    ],
)
def test_call(pieces: list[bytes], reply: http.Reply) -> None:
    """A call gives status and body, or a class of error."""
    with saying(*pieces) as port:
        assert http.call(port, wire.HttpCall("/x", "POST", {"a": 1}), 2.0) == reply


def test_call_to_nobody() -> None:
    """A refused connection is a reply without status."""
    refused = http.Reply(None, b"", "connection refused")
    assert http.call(free_port(), wire.HttpCall("/health"), 1.0) == refused


@pytest.mark.parametrize("pieces", [[], [b"HTTP/1.1 200 OK\r\n\r\n", *[b"x"] * 500]])
def test_call_is_bounded(pieces: list[bytes]) -> None:
    """Neither silence nor a body that trickles makes a call last longer than asked."""
    with saying(*pieces, hold=True) as port:
        begin_s = time.monotonic()
        reply = http.call(port, wire.HttpCall("/health"), 0.3)
        took_s = time.monotonic() - begin_s
    assert reply.error == "timeout"
    assert took_s < 0.8
