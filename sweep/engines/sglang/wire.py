"""Requests, answers and calls of SGLang's HTTP API, as data for the agent."""

from __future__ import annotations

from typing import Any

from sweep.agent.wire import Answer, EngineDoc, HttpCall, KeyPath, Request
from sweep.engines.sglang import counts, log, profiling
from sweep.model.experiment import Experiment, Prompt, Workload

READY_TOKENS = 2
THROWAWAY_TOKENS = 8
THROWAWAY_TEXT = "Sunday 7 Monday 11 Tuesday 13 Wednesday 17 Thursday"


def request(workload: Workload, prompt: Prompt) -> Request:
    """Return the streaming request for one prompt of a workload."""
    return _request(workload, prompt, workload.max_tokens)


def throwaway(workload: Workload) -> Request:
    """Return a short request of the workload's own kind that shares no prefix with its prompts."""
    return _request(workload, Prompt("throwaway", text=THROWAWAY_TEXT), THROWAWAY_TOKENS)


def _request(workload: Workload, prompt: Prompt, max_tokens: int) -> Request:
    if workload.api == "chat":
        return Request(
            "/v1/chat/completions", _chat(workload, prompt, max_tokens), prompt.prompt_id
        )
    sampling = _sampling(max_tokens, workload.temperature, workload.ignore_eos)
    body = {**_content(prompt), "sampling_params": sampling, "stream": True}
    return Request("/generate", body, prompt.prompt_id)


def _content(prompt: Prompt) -> dict[str, Any]:
    """Return the prompt as tokens, or as text where it was not rendered."""
    if prompt.token_ids is not None:
        return {"input_ids": list(prompt.token_ids)}
    if prompt.text is None:
        raise ValueError(f"prompt {prompt.prompt_id!r} has messages, and was not rendered")
    return {"text": prompt.text}


def prompts_to_render(experiment: Experiment) -> dict[str, list[list[tuple[str, str]]]]:
    """Return by workload the messages of the prompts that go to the native API as tokens: a text
    is what a user says. Workloads that were rendered before are left out."""
    return {
        workload.name: [_messages(prompt) for prompt in workload.prompts]
        for workload in experiment.workloads
        if workload.api == "native" and not all(prompt.token_ids for prompt in workload.prompts)
    }


def _messages(prompt: Prompt) -> list[tuple[str, str]]:
    return list(prompt.messages or (("user", prompt.text or ""),))


def _chat(workload: Workload, prompt: Prompt, max_tokens: int) -> dict[str, Any]:
    messages = _messages(prompt)
    return {
        "messages": [{"role": role, "content": content} for role, content in messages],
        "max_tokens": max_tokens,
        "temperature": workload.temperature,
        "ignore_eos": workload.ignore_eos,
        "stream": True,
        "stream_options": {"include_usage": True},
        # 0.5.20 and newer; older ones have no counts for chat that streams.
        "return_spec_tokens_details": True,
    }


def _sampling(max_tokens: int, temperature: float, ignore_eos: bool) -> dict[str, Any]:
    return {
        "max_new_tokens": max_tokens,
        "temperature": temperature,
        "ignore_eos": ignore_eos,
    }


def answer(api: str) -> Answer:
    """Return where things stand in the answers; SGLang's own call counts in every chunk."""
    if api == "chat":
        details: KeyPath = ["sglext", "spec_tokens_details"]
        return Answer(
            text_at=[
                ["choices", 0, "delta", "content"],
                ["choices", 0, "delta", "reasoning_content"],
                ["choices", 0, "message", "content"],
            ],
            output_tokens_at=[["usage", "completion_tokens"]],
            input_tokens_at=[["usage", "prompt_tokens"]],
            cached_tokens_at=[["usage", "prompt_tokens_details", "cached_tokens"]],
            meta_at={name: [*details, name] for name in counts.META},
        )
    meta: KeyPath = ["meta_info"]
    return Answer(
        text_at=[["text"]],
        output_tokens_at=[[*meta, "completion_tokens"]],
        input_tokens_at=[[*meta, "prompt_tokens"]],
        cached_tokens_at=[[*meta, "cached_tokens"]],
        tokens_so_far_at=[[*meta, "completion_tokens"]],
        meta_at={name: [*meta, name] for name in counts.META},
        text_cumulative=True,
    )


def document(name: str, experiment: Experiment) -> EngineDoc:
    """Return what the agent needs to know of the server."""
    sampling = _sampling(READY_TOKENS, 0.0, ignore_eos=True)
    ready = {"text": THROWAWAY_TEXT, "sampling_params": sampling, "stream": True}
    return EngineDoc(
        name=name,
        health=HttpCall(path="/health", name="health"),
        ready=Request("/generate", ready, "ready"),
        ready_answer=answer("native"),
        flush=HttpCall(path="/flush_cache", method="POST", name="flush"),
        scrapes=[HttpCall(path=f"/{path}", name=path) for path in ("metrics", "server_info")],
        milestones=list(log.MILESTONES),
        fatal=[sign.pattern for sign in log.SIGNS],
        probe=profiling.probe(experiment),
        settings=[HttpCall(path=path) for path in ("/server_info", "/get_server_info")],
        trace=profiling.trace(experiment),
    )
