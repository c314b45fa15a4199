"""Runs the fake server, or a socket that says scripted bytes, for the length of a with block."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweep.agent import http, wire

SERVER = Path(__file__).with_name("server.py")
GENERATE = wire.Answer(
    text_at=[["text"]],
    output_tokens_at=[["meta_info", "completion_tokens"]],
    input_tokens_at=[["meta_info", "prompt_tokens"]],
    cached_tokens_at=[["meta_info", "cached_tokens"]],
    tokens_so_far_at=[["meta_info", "completion_tokens"]],
    meta_at={"meta_info": ["meta_info"]},
    text_cumulative=True,
)
COMPLETION = wire.Answer(
    text_at=[["content"]],
    output_tokens_at=[["timings", "predicted_n"]],
    input_tokens_at=[["timings", "prompt_n"]],
    tokens_so_far_at=[["tokens_predicted"]],
    meta_at={"timings": ["timings"]},
)
CHAT = wire.Answer(
    text_at=[["choices", 0, "delta", "content"], ["choices", 0, "message", "content"]],
    output_tokens_at=[["usage", "completion_tokens"]],
    input_tokens_at=[["usage", "prompt_tokens"]],
)


@dataclass(frozen=True)
class Fake:
    """A fake server that listens."""

    port: int
    process: subprocess.Popen[bytes]


def free_port() -> int:
    """Return a port that was free a moment ago."""
    with socket.socket() as sock:
        sock.bind((http.HOST, 0))
        return int(sock.getsockname()[1])


def python_3_9() -> str | None:
    """Return the path of a Python 3.9 of this machine, None: it has none."""
    found = sorted(Path.home().glob(".pyenv/versions/3.9.*/bin/python"))
    return str(found[-1]) if found else shutil.which("python3.9")


def answers(port: int) -> bool:
    """Whether anything answers the health call."""
    return http.call(port, wire.HttpCall("/health"), 1.0).status is not None


@contextlib.contextmanager
def running(*options: object) -> Iterator[Fake]:
    """Run the fake server with these options; gives it once it answers."""
    port = free_port()
    argv = [sys.executable, "-I", str(SERVER), "--port", str(port), *map(str, options)]
    with subprocess.Popen(argv) as process:
        try:
            until_s = time.monotonic() + 10
            while not answers(port):
                assert process.poll() is None, "the fake server exited"
                assert time.monotonic() < until_s, "the fake server does not answer"
                time.sleep(0.005)
            yield Fake(port, process)
        finally:
            process.kill()


@contextlib.contextmanager
def saying(*pieces: bytes, hold: bool = False) -> Iterator[int]:
    """Listen, answer each connection's first request with these pieces, and close it; with
    `hold` it stays open. Gives the port."""
    with socket.create_server((http.HOST, 0)) as listener, contextlib.ExitStack() as stack:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    sock, _ = listener.accept()
                    stack.callback(sock.close)
                    sock.recv(65536)
                    for piece in pieces:
                        sock.sendall(piece)
                        time.sleep(0.002)
                    if not hold:
                        sock.shutdown(socket.SHUT_RDWR)
                        sock.close()

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield int(listener.getsockname()[1])
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def generate(prompt: str, tokens: int = 20, **body: Any) -> wire.Request:
    """A streamed request to SGLang's API."""
    sampling = {"max_new_tokens": tokens, "temperature": 0}
    value = {"text": prompt, "sampling_params": sampling, "stream": True, **body}
    return wire.Request("/generate", value, prompt)


def completion(prompt: str, tokens: int = 20, *, stream: bool = True) -> wire.Request:
    """A request to llama.cpp's API."""
    body = {"prompt": prompt, "n_predict": tokens, "stream": stream}
    return wire.Request("/completion", body, prompt, stream=stream)


def chat(prompt: str, tokens: int = 20, *, stream: bool = True) -> wire.Request:
    """A request to OpenAI's chat API, with usage."""
    body: dict[str, Any] = {
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": tokens,
        "stream": stream,
    }
    if stream:
        body["stream_options"] = {"include_usage": True}
    return wire.Request("/v1/chat/completions", body, prompt, stream=stream)


def trial(
    *,
    requests: Sequence[wire.Request],
    concurrency: int = 1,
    windows: int = 1,
    trial_id: str = "t1",
    **fields: Any,
) -> wire.TrialDoc:
    """A trial on SGLang's API with a fixed number of windows and no warm-up."""
    values: dict[str, Any] = {
        "trial_id": trial_id,
        "label": trial_id,
        "concurrency": concurrency,
        "requests": list(requests),
        "warmup": [],
        "throwaway": generate("unrelated", 2),
        "repeats": wire.Repeats(windows, windows, 0.01, [None, None, 12.7062, 4.3027]),
        "answer": GENERATE,
        **fields,
    }
    return wire.TrialDoc(**values)


def launch(
    *trials: wire.TrialDoc, request_s: float = 10.0, trace: wire.Trace | None = None
) -> wire.LaunchDoc:
    """A launch with these trials: the part of it that the load needs."""
    engine = wire.EngineDoc(
        name="fake",
        health=wire.HttpCall("/health"),
        ready=generate("ready", 1),
        ready_answer=GENERATE,
        flush=wire.HttpCall("/flush_cache", "POST"),
        scrapes=[wire.HttpCall("/metrics", name="metrics")],
        milestones=[],
        fatal=[],
        trace=trace,
    )
    return wire.LaunchDoc(
        sweep_id="s",
        launch_id="L1",
        attempt=1,
        nonce="n",
        label="fake",
        argv=["true"],
        port_at=0,
        env={},
        unset=[],
        gpus=None,
        owner=wire.Owner("tester", "here", "s"),
        engine=engine,
        trials=list(trials),
        deadlines=wire.Deadlines(
            claim_s=5, load_s=20, stall_s=20, request_s=request_s, launch_s=120
        ),
    )
