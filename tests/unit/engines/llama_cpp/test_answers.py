"""Requests, and what is read from recorded answers of the server."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest

from sweep.agent import sse
from sweep.agent.answer import Reading
from sweep.agent.wire import RequestRecord
from sweep.analysis.acceptance import accept_length
from sweep.engines.llama_cpp import LlamaCpp
from sweep.model.experiment import Prompt, Workload
from sweep.model.plan import Configuration, PlannedTrial
from sweep.ports import Counters

Api = Literal["native", "completions", "chat"]
APIS: tuple[Api, ...] = ("native", "completions", "chat")
PAYLOADS = Path(__file__).parent / "payloads"
ENGINE = LlamaCpp()


def workload(api: Api = "native", **fields: Any) -> Workload:
    """A workload of one prompt over an API."""
    prompts = (Prompt("add", text="def add(a, b):\n    return"),)
    return Workload("w", prompts, max_tokens=12, api=api, **fields)


def read(api: Api, name: str) -> Reading:
    """The recorded answer, read as the agent reads it."""
    reading = Reading(ENGINE.answer(workload(api)))
    decoder = sse.Decoder()
    events = [*decoder.feed((PAYLOADS / f"{api}-{name}.sse").read_bytes()), *decoder.close()]
    for number, event in enumerate(events):
        if event != b"[DONE]":
            reading.take(json.loads(event), float(number))
    return reading


def record(reading: Reading) -> RequestRecord:
    """The record of an answer."""
    return RequestRecord(
        n=1,
        trial="t",
        window=0,
        role="measure",
        prompt="add",
        stream=0,
        sent_s=0.0,
        first_s=0.0,
        last_s=1.0,
        end_s=1.0,
        status=200,
        error=None,
        chunks=len(reading.chunk_s),
        first_chunk_tokens=reading.first_chunk_tokens,
        output_tokens=reading.output_tokens,
        input_tokens=reading.input_tokens,
        cached_tokens=reading.cached_tokens,
        text_sha256=None,
        meta=reading.meta,
    )


@pytest.mark.parametrize("name", ["draft", "baseline"])
@pytest.mark.parametrize("api", APIS)
def test_counts_stand_where_the_answer_says(api: Api, name: str) -> None:
    """Of each API, tokens, cached tokens and text are found in the recorded answer."""
    reading = read(api, name)
    assert reading.output_tokens == 12
    assert reading.input_tokens == (38 if api == "chat" else 10)
    assert reading.cached_tokens == 0
    assert reading.text == ("\n\n\n\n#\n#\n#\n#\n" if api == "chat" else " _make_family(f' + 1)")
    assert len(reading.chunk_s) == 12
    assert reading.meta["predicted_n"] == 12


@pytest.mark.parametrize("api", APIS)
def test_counts_of_speculation(api: Api) -> None:
    """Draft and accepted tokens are read; cycles are tokens after the first, less the accepted."""
    drafted, accepted = (9, 8) if api == "chat" else (18, 4)
    assert ENGINE.count(record(read(api, "draft"))) == Counters(
        output_tokens=12,
        cycles=11 - accepted,
        drafted_tokens=drafted,
        accepted_tokens=accepted,
        cycles_estimated=True,
    )


def test_accept_length_is_defined_as_for_other_engines() -> None:
    """100 cycles that accepted 150 draft tokens, after the token that prefill makes: 2.5 a cycle,
    the bonus included; without drafting there is none."""
    meta = {"predicted_n": 251, "draft_n": 300, "draft_n_accepted": 150}
    subject = replace(record(read("native", "draft")), output_tokens=251, meta=meta)
    found = ENGINE.count(subject)
    assert (found.cycles, found.drafted_tokens, found.accepted_tokens) == (100, 300, 150)
    assert accept_length(found.accepted_tokens or 0, found.cycles or 0) == 2.5
    without = ENGINE.count(replace(subject, meta={"predicted_n": 251}))
    assert (without.cycles, without.accepted_tokens) == (None, None)


def test_cycles_against_the_servers_own_count() -> None:
    """The estimate exceeds the server's count of drafts by at most 1 per request."""
    text = (PAYLOADS / "metrics-draft.txt").read_text()
    found = re.search(r"^llamacpp:spec_decode_num_drafts_total (\d+)$", text, re.MULTILINE)
    assert found is not None
    drafts = int(found[1])
    cycles = sum(ENGINE.count(record(read(api, "draft"))).cycles or 0 for api in APIS)
    assert drafts <= cycles <= drafts + len(APIS)


@pytest.mark.parametrize("api", APIS)
def test_a_baseline_has_no_cycles(api: Api) -> None:
    """Without speculation, cycles, drafted and accepted tokens are missing, not 0."""
    assert ENGINE.count(record(read(api, "baseline"))) == Counters(output_tokens=12)


def trial(configuration: Configuration) -> PlannedTrial:
    """A trial of a configuration."""
    return PlannedTrial("t", "c", configuration, workload(), 1)


SPECULATING = trial(Configuration("draft-simple", num_steps=4))
BASELINE = trial(Configuration(None))


def test_recorded_answers_are_judged_right() -> None:
    """Drafting answers fit a speculating trial and fail a baseline; the others the reverse."""
    drafting = [record(read(api, "draft")) for api in APIS]
    plain = [record(read(api, "baseline")) for api in APIS]
    assert ENGINE.classify_trial(SPECULATING, drafting) is None
    assert ENGINE.classify_trial(BASELINE, plain) is None
    inactive = ENGINE.classify_trial(SPECULATING, plain)
    assert inactive is not None
    assert inactive.failure_class == "speculation_inactive"
    drafted = ENGINE.classify_trial(BASELINE, drafting)
    assert drafted is not None
    assert drafted.failure_class == "bad_args"


def test_no_answer_is_too_short_to_be_judged() -> None:
    """A trial that never drafted is no speculation, even when no answer could hold a draft."""
    reading = read("native", "baseline")
    reading.output_tokens = 2
    failure = ENGINE.classify_trial(SPECULATING, [record(reading)])
    assert failure is not None
    assert failure.failure_class == "speculation_inactive"


def test_unanswered_requests_do_not_speak_of_speculation() -> None:
    """Requests without a token failed for a reason of their own, which is judged elsewhere."""
    reading = Reading(ENGINE.answer(workload()))
    assert ENGINE.classify_trial(SPECULATING, [record(reading)]) is None
    assert ENGINE.classify_trial(SPECULATING, []) is None


def test_a_warm_cache_is_a_failure() -> None:
    """Cached prompt tokens make times incomparable, and every request asked for a cold cache."""
    reading = read("native", "draft")
    reading.cached_tokens = 9
    failure = ENGINE.classify_trial(SPECULATING, [record(reading)])
    assert failure is not None
    assert "prompt cache" in failure.message


def test_native_request() -> None:
    """The native request is greedy at temperature 0, cold, and streams."""
    request = ENGINE.request(workload(ignore_eos=True), workload().prompts[0])
    assert (request.path, request.prompt, request.stream) == ("/completion", "add", True)
    assert request.body == {
        "prompt": "def add(a, b):\n    return",
        "n_predict": 12,
        "temperature": 0.0,
        "seed": 1,
        "ignore_eos": True,
        "cache_prompt": False,
        "stream": True,
        "top_k": 1,
    }


def test_sampling_leaves_top_k_to_the_server() -> None:
    """Above temperature 0 the request is not made greedy."""
    body = ENGINE.request(workload(temperature=0.7), workload().prompts[0]).body
    assert body["temperature"] == 0.7
    assert "top_k" not in body


@pytest.mark.parametrize("api", ["completions", "chat"])
def test_openai_requests_ask_for_usage(api: Api) -> None:
    """Token counts come from usage, which a stream sends only when asked."""
    request = ENGINE.request(workload(api), workload().prompts[0])
    assert request.path == {"completions": "/v1/completions", "chat": "/v1/chat/completions"}[api]
    assert request.body["stream_options"] == {"include_usage": True}
    assert request.body["max_tokens"] == 12


def test_chat_takes_messages_or_text() -> None:
    """Messages go as they are; plain text is one message of the user."""
    messages = (("system", "Be brief."), ("user", "Hello"))
    chat = Prompt("m", messages=messages)
    assert ENGINE.request(workload("chat"), chat).body["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hello"},
    ]
    text = ENGINE.request(workload("chat"), Prompt("t", text="Hello"))
    assert text.body["messages"] == [{"role": "user", "content": "Hello"}]


@pytest.mark.parametrize("api", APIS)
def test_throwaway_shares_no_prefix(api: Api) -> None:
    """The throw-away request uses the workload's API and starts unlike any prompt of it."""
    request = ENGINE.throwaway(workload(api))
    assert request.path == ENGINE.request(workload(api), workload().prompts[0]).path
    assert "Sunday" in json.dumps(request.body)
    assert request.prompt == "throwaway"
