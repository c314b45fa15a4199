"""What is read from recorded answers of the server, and what its counts prove."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import pytest

from sweep.agent import sse
from sweep.agent.answer import Reading
from sweep.agent.http import lookup
from sweep.agent.wire import RequestRecord
from sweep.engines.sglang import SGLang
from sweep.model.experiment import EngineSpec, Experiment, Prompt, Workload
from sweep.model.plan import Configuration, PlannedTrial
from sweep.ports import Counters

Api = Literal["native", "chat"]
PAYLOADS = Path(__file__).parent / "payloads"
ENGINE = SGLang()
TEXT_BEGINS = '\n    """\n    A handler for the next widgets.'


def workload(api: Api = "native") -> Workload:
    """A workload of one prompt over an API."""
    return Workload("w", (Prompt("fibonacci", text="def fibonacci(n):"),), max_tokens=48, api=api)


def read(api: Api, name: str) -> Reading:
    """The recorded answer, read as the agent reads it."""
    reading = Reading(ENGINE.answer(workload(api)))
    decoder = sse.Decoder()
    events = [*decoder.feed((PAYLOADS / f"{api}-{name}.sse").read_bytes()), *decoder.close()]
    for number, event in enumerate(events):
        if event != b"[DONE]":
            reading.take(json.loads(event), float(number))
    return reading


def record(reading: Reading | None = None, **fields: Any) -> RequestRecord:
    """The record of an answer; `fields` replace those of a good one."""
    values: dict[str, Any] = {
        "n": 1, "trial": "t", "window": 0, "role": "measure", "prompt": "fibonacci", "stream": 0,
        "sent_s": 0.0, "first_s": 0.0, "last_s": 1.0, "end_s": 1.0, "status": 200, "error": None,
        "chunks": 9, "first_chunk_tokens": 1, "output_tokens": 48, "input_tokens": 10,
        "cached_tokens": 0, "text_sha256": None, "meta": {},
    }  # fmt: skip
    if reading is not None:
        values |= {"output_tokens": reading.output_tokens, "meta": reading.meta}
    return RequestRecord(**(values | fields))


@pytest.mark.parametrize("name", ["eagle3", "baseline"])
@pytest.mark.parametrize("api", ["native", "chat"])
def test_counts_stand_where_the_answer_says(api: Api, name: str) -> None:
    """Of both calls, tokens and text are found in the recorded answer."""
    reading = read(api, name)
    assert (reading.output_tokens, reading.input_tokens) == (48, 10)
    assert reading.text.startswith(TEXT_BEGINS)
    if api == "native":
        # A cycle that accepts brings several tokens at once: chunks are never counted as tokens.
        assert len(reading.chunk_s) == {"eagle3": 1 + 24, "baseline": 48}[name]


def test_every_answer_says_the_same_text() -> None:
    """Greedy decoding: chain, tree and both calls give what the baseline gives."""
    texts = {read("native", name).text for name in ("baseline", "eagle3", "tree")}
    texts |= {read("chat", name).text for name in ("baseline", "eagle3")}
    assert len(texts) == 1


@pytest.mark.parametrize("api", ["native", "chat"])
def test_counts_of_speculation(api: Api) -> None:
    """24 cycles of three draft tokens, 23 of them accepted; the histogram adds up to both."""
    counters = ENGINE.count(record(read(api, "eagle3")))
    assert counters == Counters(
        output_tokens=48, cycles=24, drafted_tokens=72, accepted_tokens=23,
        cycles_by_accepted=(11, 7, 2, 4),
    )  # fmt: skip
    assert sum(counters.cycles_by_accepted or ()) == 24
    assert ENGINE.count(record(read("native", "tree"))).drafted_tokens == 22 * 7


@pytest.mark.parametrize("api", ["native", "chat"])
def test_a_baseline_counts_nothing(api: Api) -> None:
    """Null, never 0."""
    assert ENGINE.count(record(read(api, "baseline"))) == Counters(output_tokens=48)


SPELLINGS: dict[str, tuple[dict[str, Any], tuple[Any, ...]]] = {
    "0.4.6": ({"spec_verify_ct": 100}, (100, None, None, None)),
    "0.5.5": (
        {"spec_verify_ct": 100, "spec_accept_token_num": 150, "spec_draft_token_num": 300},
        (100, None, 150, None),
    ),
    "0.5.9": (
        {"spec_verify_ct": 100, "spec_accept_token_num": 150, "spec_draft_token_num": 300,
         "spec_accept_histogram": [20, 30, 30, 20]},
        (100, 300, 150, (20, 30, 30, 20)),
    ),
    "0.5.11": (
        {"spec_verify_ct": 100, "spec_accepted_drafts": 150, "spec_proposed_drafts": 300,
         "spec_accept_histogram": [20, 30, 30, 20]},
        (100, 300, 150, (20, 30, 30, 20)),
    ),
    "0.5.13": (
        {"spec_verify_ct": 100, "spec_num_correct_drafts": 150, "spec_num_proposed_drafts": 300,
         "spec_correct_drafts_histogram": [20, 30, 30, 20]},
        (100, 300, 150, (20, 30, 30, 20)),
    ),
}  # fmt: skip
"""Version → its meta_info of 100 cycles that accepted 150 draft tokens, and the counts."""


@pytest.mark.parametrize("version", SPELLINGS)
def test_every_version_spells_the_same_counts(version: str) -> None:
    """2.5 tokens a cycle, the bonus included; what a version does not count stays unknown. The
    draft tokens of 0.5.5 to 0.5.8 are cycles times steps, which is wrong for a tree."""
    meta, (cycles, drafted, accepted, histogram) = SPELLINGS[version]
    found = ENGINE.count(record(meta=meta))
    assert (found.cycles, found.drafted_tokens, found.accepted_tokens) == (
        cycles,
        drafted,
        accepted,
    )
    assert found.cycles_by_accepted == histogram
    assert set(meta) <= set(ENGINE.answer(workload()).meta_at)


def trial(algorithm: str | None = "EAGLE3", tokens: int | None = 4) -> PlannedTrial:
    """A trial of a configuration that verifies so many tokens."""
    steps = None if tokens is None else tokens - 1
    return PlannedTrial("t", "c", Configuration(algorithm, steps, 1, tokens), workload(), 1)


def failure(of: PlannedTrial, *records: RequestRecord) -> tuple[str, str] | None:
    """Class and message of what is wrong with the records of a trial."""
    found = ENGINE.classify_trial(of, records)
    return None if found is None else (found.failure_class, found.message)


def test_speculation_that_did_as_asked_is_right() -> None:
    """Draft tokens are cycles times those asked, the root apart; a tree counts its nodes."""
    assert failure(trial(), record(read("native", "eagle3"))) is None
    assert failure(trial(tokens=8), record(read("native", "tree"))) is None
    assert failure(trial(None, None), record(read("native", "baseline"))) is None


def test_speculation_that_did_not_is_found() -> None:
    """Never verified, verified other lengths, or a baseline that drafts."""
    silent = failure(trial(), record(read("native", "baseline")))
    assert silent is not None
    assert silent[0] == "speculation_inactive"
    other = failure(trial(tokens=6), record(read("native", "eagle3")))
    assert other is not None
    assert "verified 4 tokens a cycle, 6 were asked" in other[1]
    drafting = failure(trial(None, None), record(read("native", "eagle3")))
    assert drafting is not None
    assert "the baseline speculated" in drafting[1]


def test_unknown_draft_tokens_prove_nothing() -> None:
    """Older versions report cycles alone, which is no reason to fail a trial."""
    assert failure(trial(tokens=6), record(meta=SPELLINGS["0.4.6"][0])) is None


def test_one_token_needs_no_cycle() -> None:
    """It comes from reading the prompt."""
    assert failure(trial(), record(output_tokens=1)) is None


@pytest.mark.parametrize("name", ["eagle3", "baseline"])
def test_what_the_server_says_it_runs_with(name: str) -> None:
    """Every setting that is asked stands where it is looked for, as it was asked."""
    speculating = name == "eagle3"
    args: dict[str, Any] = {
        "max-running-requests": 4, "attention-backend": "torch_native", "dtype": "bfloat16",
        "context-length": 512, "skip-server-warmup": True,
    }  # fmt: skip
    engine = EngineSpec("sglang", "/m/tiny-target", draft_model="/m/d", args=args)
    configuration = Configuration("EAGLE3", 3, 1, 4) if speculating else Configuration(None)
    server = ENGINE.server(configuration, Experiment("e", engine, (workload(),)))
    said = json.loads((PAYLOADS / f"server_info-{name}.json").read_text())
    assert set(server.settings) == {
        "algorithm", *args, *(("num_steps", "topk", "num_draft_tokens") if speculating else ()),
    }  # fmt: skip
    for setting, expected in server.settings.items():
        assert expected.path[0] in said, setting
        assert expected.holds(lookup(said, list(expected.path))), setting


def test_settings_that_are_left_to_the_server_are_not_compared() -> None:
    """`auto` is answered with whatever it became; NEXTN runs as EAGLE."""
    engine = EngineSpec("sglang", "m", args={"kv-cache-dtype": "auto"})
    experiment = Experiment("e", engine, (workload(),))
    settings = ENGINE.server(Configuration("NEXTN", 2, 1, 3), experiment).settings
    assert "kv-cache-dtype" not in settings
    assert settings["algorithm"].value == "EAGLE"
    assert settings["max-running-requests"].value == 48
