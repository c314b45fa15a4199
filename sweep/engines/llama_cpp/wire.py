"""Requests, answers and calls of llama-server's HTTP API, as data for the agent.

Key paths were read from answers of the server itself; copies stand beside the tests.
"""

from __future__ import annotations

from typing import Any, Literal

from sweep.agent.wire import Answer, EngineDoc, HttpCall, KeyPath, Request
from sweep.engines.llama_cpp import log
from sweep.model.experiment import Prompt, Workload

Api = Literal["native", "completions", "chat"]

SEED = 1
READY_TOKENS = 2
THROWAWAY_TOKENS = 8
THROWAWAY_TEXT = "Sunday 7 Monday 11 Tuesday 13 Wednesday 17 Thursday"

_PATHS: dict[Api, str] = {
    "native": "/completion",
    "completions": "/v1/completions",
    "chat": "/v1/chat/completions",
}
_TEXT_AT: dict[Api, list[KeyPath]] = {
    "native": [["content"]],
    "completions": [["choices", 0, "text"]],
    "chat": [
        ["choices", 0, "delta", "content"],
        ["choices", 0, "delta", "reasoning_content"],
        ["choices", 0, "message", "content"],
    ],
}
_META = (
    "cache_n",
    "prompt_n",
    "prompt_ms",
    "predicted_n",
    "predicted_ms",
    "draft_n",
    "draft_n_accepted",
)


def request(workload: Workload, prompt: Prompt) -> Request:
    """Return the streaming request for one prompt of a workload."""
    api, name = workload.api, prompt.prompt_id
    asked = _content(api, prompt)
    return _request(api, asked, workload.max_tokens, workload, name)


def throwaway(workload: Workload) -> Request:
    """Return a short request of the workload's own kind that shares no prefix with its prompts."""
    prompt = Prompt("throwaway", text=THROWAWAY_TEXT)
    return _request(
        workload.api, _content(workload.api, prompt), THROWAWAY_TOKENS, workload, "throwaway"
    )


def _content(api: Api, prompt: Prompt) -> dict[str, Any]:
    """Return the prompt as the API takes it; plain text is one user message for chat."""
    if api != "chat":
        if prompt.text is None:
            raise ValueError(f"prompt {prompt.prompt_id!r} has messages, which only chat takes")
        return {"prompt": prompt.text}
    messages = prompt.messages or (("user", prompt.text or ""),)
    return {"messages": [{"role": role, "content": content} for role, content in messages]}


def _request(
    api: Api, asked: dict[str, Any], max_tokens: int, workload: Workload, name: str
) -> Request:
    length = "n_predict" if api == "native" else "max_tokens"
    body: dict[str, Any] = {
        **asked,
        length: max_tokens,
        "temperature": workload.temperature,
        "seed": SEED,
        "ignore_eos": workload.ignore_eos,
        "cache_prompt": False,
        "stream": True,
    }
    if workload.temperature == 0:
        body["top_k"] = 1
    if api != "native":
        body["stream_options"] = {"include_usage": True}
    return Request(path=_PATHS[api], body=body, prompt=name)


def answer(api: Api) -> Answer:
    """Return where things stand in the answers; the counts come with the last chunk."""
    native = api == "native"
    usage: KeyPath = ["usage", "completion_tokens"]
    return Answer(
        text_at=_TEXT_AT[api],
        output_tokens_at=[["timings", "predicted_n"]] if native else [usage],
        input_tokens_at=[["tokens_evaluated"]] if native else [["usage", "prompt_tokens"]],
        cached_tokens_at=[["timings", "cache_n"]],
        tokens_so_far_at=[["tokens_predicted"]] if native else [],
        meta_at={name: ["timings", name] for name in _META},
    )


def document() -> EngineDoc:
    """Return what the agent needs to know of llama-server."""
    ready = {
        "prompt": THROWAWAY_TEXT,
        "n_predict": READY_TOKENS,
        "temperature": 0,
        "ignore_eos": True,
        "cache_prompt": False,
        "stream": True,
    }
    return EngineDoc(
        name="llama.cpp",
        health=HttpCall(path="/health", name="health"),
        ready=Request(path=_PATHS["native"], body=ready, prompt="ready"),
        ready_answer=answer("native"),
        flush=None,
        scrapes=[HttpCall(path=f"/{name}", name=name) for name in ("metrics", "props", "slots")],
        milestones=list(log.MILESTONES),
        fatal=[sign.pattern for sign in log.SIGNS],
    )
