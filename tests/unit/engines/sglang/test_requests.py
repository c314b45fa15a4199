"""What SGLang is sent, and where its answers are read."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sweep.engines.sglang import SGLang
from sweep.model.experiment import EngineSpec, Experiment, Prompt, Workload

ENGINE = SGLang()
TEXT = Prompt("1", text="a guide")
TALK = Prompt("2", messages=(("system", "be short"), ("user", "hi")))
WORKLOAD = Workload("guide", (TEXT, TALK), max_tokens=8, temperature=0.5, ignore_eos=True)


def experiment(*workloads: Workload, **args: str | int | bool) -> Experiment:
    """An experiment with these arguments of the server."""
    engine = EngineSpec("sglang", "org/target", args=args, python="/opt/python")
    return Experiment("e", engine, workloads or (WORKLOAD,))


def test_rendered_prompts_go_as_tokens() -> None:
    """Every version returns its counts by its own API; what is not rendered goes as text."""
    rendered = ENGINE.request(WORKLOAD, replace(TALK, token_ids=(5, 6, 7)))
    assert rendered.path == "/generate"
    assert rendered.body == {
        "input_ids": [5, 6, 7],
        "sampling_params": {"max_new_tokens": 8, "temperature": 0.5, "ignore_eos": True},
        "stream": True,
    }
    assert ENGINE.request(WORKLOAD, TEXT).body["text"] == "a guide"
    with pytest.raises(ValueError, match="was not rendered"):
        ENGINE.request(WORKLOAD, TALK)


def test_the_throwaway_shares_no_prefix_with_a_prompt() -> None:
    """It is short, and by the workload's own API."""
    asked = ENGINE.throwaway(WORKLOAD)
    assert (asked.path, asked.body["sampling_params"]["max_new_tokens"]) == ("/generate", 8)
    assert "guide" not in asked.body["text"]
    assert ENGINE.throwaway(replace(WORKLOAD, api="chat")).path == "/v1/chat/completions"


def test_chat_asks_for_usage_and_counts() -> None:
    """Messages as they are, a text as what the user says."""
    chat = replace(WORKLOAD, api="chat")
    body = ENGINE.request(chat, TALK).body
    assert [message["role"] for message in body["messages"]] == ["system", "user"]
    assert body["stream_options"] == {"include_usage": True}
    assert body["return_spec_tokens_details"] is True
    said = ENGINE.request(chat, TEXT).body["messages"]
    assert said == [{"role": "user", "content": "a guide"}]


def test_prompts_of_the_native_api_are_rendered_on_the_node() -> None:
    """By the tokenizer that the server loads; what is rendered already is not asked again."""
    chat = replace(WORKLOAD, name="chat", api="chat")
    done = replace(WORKLOAD, name="done", prompts=(replace(TEXT, token_ids=(1,)),))
    asked = ENGINE.version_input(experiment(WORKLOAD, chat, done))
    assert asked["prompts"] == {
        "guide": [[("user", "a guide")], [("system", "be short"), ("user", "hi")]]
    }
    assert asked["tokenizer"] == {
        "path": "org/target", "mode": "auto", "trust_remote_code": False, "revision": None,
    }  # fmt: skip
    args: dict[str, str | bool] = {"trust_remote_code": True, "tokenizer-path": "/t"}
    own = ENGINE.version_input(experiment(**args))["tokenizer"]
    assert (own["path"], own["trust_remote_code"]) == ("/t", True)
    assert ENGINE.version_argv(experiment())[0] == "/opt/python"
