"""SGLang's HTTP calls over the simulated scheduler."""

from __future__ import annotations

import abc
import contextlib
import http.server
import itertools
import json
import socketserver
import time
from typing import Any, Dict, Iterator, Optional, Tuple

from sweep.simulator import faults as faulty
from sweep.simulator.counters import Counters
from sweep.simulator.profiler import Profiler
from sweep.simulator.scheduler import Ask, Progress, Scheduler

Json = Dict[str, Any]

_CRASH = (
    "Scheduler hit an exception: Traceback (most recent call last):",
    "torch.AcceleratorError: CUDA error: an illegal memory access was encountered",
    "SIGQUIT received.",
)


class Service:
    """What every connection shares."""

    def __init__(
        self,
        scheduler: Scheduler,
        counters: Counters,
        faults: faulty.Faults,
        info: Json,
        profiler: Profiler,
    ) -> None:
        self.scheduler = scheduler
        self.profiler = profiler
        self.counters = counters
        self.faults = faults
        self.info = info
        self.model = str(info["model_path"])
        self.ready_s = time.monotonic() + faults.unready_s
        self._requests = itertools.count(1)
        self._flushes = itertools.count(1)

    def number(self) -> int:
        """Return the number of the next generation request, from 1."""
        return next(self._requests)

    def flush(self) -> Tuple[int, str]:
        """Return status and text of a flush."""
        busy = self.faults.flush_busy
        if busy < 0 or next(self._flushes) <= busy or not self.scheduler.flush():
            return 400, "Flush cache failed: there are running or waiting requests.\n"
        return 200, "Cache flushed.\n"

    def server_info(self) -> Json:
        """Return the server's arguments as they are in effect, and its state."""
        state: Json = {**self.info, "last_gen_throughput": self.counters.throughput}
        in_force = self.scheduler.speculation
        if in_force is not None:
            state["speculative_num_steps"] = in_force.steps
            state["speculative_num_draft_tokens"] = in_force.tokens
        if "speculative_algorithm" in self.info:
            state["avg_spec_accept_length"] = self.counters.accept_length
        return {**self.info, "internal_states": [state], "simulated": True}


class Server(socketserver.ThreadingTCPServer):
    """Listens on the loopback interface; a thread for each connection."""

    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False
    request_queue_size = 256

    def __init__(self, port: int, service: Service) -> None:
        self.service = service
        super().__init__(("127.0.0.1", port), Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no news."""


class Handler(http.server.BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Server

    @property
    def _service(self) -> Service:
        return self.server.service

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - http.server's name
        """Access lines would only fill the log."""

    def do_GET(self) -> None:
        """Answer what is asked about the server."""
        service = self._service
        path = self.path.partition("?")[0]
        if path in ("/health", "/ready", "/health_generate"):
            self._health(path)
        elif path in ("/get_server_info", "/server_info"):
            self._json(200, service.server_info())
        elif path in ("/get_model_info", "/model_info"):
            self._json(200, {"model_path": service.model, "is_generation": True})
        elif path == "/metrics":
            self._send(200, service.counters.metrics(service.model), "text/plain")
        elif path == "/flush_cache":
            self._flush()
        else:
            self._json(404, {"error": {"message": "no such path: %s" % path, "code": 404}})

    def do_POST(self) -> None:
        """Generate, flush, or profile."""
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.path == "/flush_cache":
            self._flush()
            return
        if self.path in ("/start_profile", "/stop_profile"):
            self._profile(body)
            return
        if self.path not in ("/generate", "/v1/chat/completions"):
            self._json(404, {"error": {"message": "no such path: %s" % self.path, "code": 404}})
            return
        try:
            values = json.loads(body)
            ask = read_ask(self.path, values)
        except (ValueError, KeyError, TypeError, AttributeError) as problem:
            self._json(400, {"error": {"message": "bad request: %r" % problem, "code": 400}})
            return
        self._generate(ask, values)

    def _health(self, path: str) -> None:
        if time.monotonic() < self._service.ready_s:
            self._send(503, "", "text/plain")
            return
        if path == "/health_generate":
            if self._service.faults.hang_generate:
                self._hang()
                return
            for _ in self._service.scheduler.run(Ask("health", 1, 0.0)):
                pass
        self._send(200, "", "text/plain")

    def _profile(self, body: bytes) -> None:
        profiler = self._service.profiler
        try:
            asked = json.loads(body or b"{}")
            status, text = profiler.stop() if "stop" in self.path else profiler.start(asked)
        except (OSError, ValueError, TypeError, AttributeError) as problem:
            status, text = 500, "%s: %s" % (type(problem).__name__, problem)
        self._send(status, text, "text/plain")

    def _flush(self) -> None:
        status, text = self._service.flush()
        self._send(status, text, "text/plain")

    def _generate(self, ask: Ask, values: Json) -> None:
        faults, number = self._service.faults, self._service.number()
        stalled = faults.stall_after is not None and number > faults.stall_after
        if faults.hang_generate or stalled:
            self._hang()
            return
        if faults.error_every and number % faults.error_every == 0:
            self._json(500, {"error": {"message": "injected failure", "code": 500}})
            return
        if number == 1:
            time.sleep(faults.first_request_delay_s)
        shape = Chat(values) if self.path.startswith("/v1/") else Generate()
        parts = self._service.scheduler.run(ask)
        with contextlib.closing(parts):  # type: ignore[type-var] # a generator, which has close()
            if values.get("stream"):
                self._stream(shape, parts, number)
            else:
                last = list(parts)[-1]
                self._json(200, shape.whole(last, self._usage))

    @property
    def _usage(self) -> bool:
        return not self._service.faults.no_usage

    def _stream(self, shape: Shape, parts: Iterator[Progress], number: int) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for part in parts:
            for value in shape.events(part, self._usage):
                self._chunk(b"data: " + json.dumps(value).encode() + b"\n\n")
            if number == self._service.faults.die_in_request:
                faulty.die(-9, *_CRASH)
        self._chunk(b"data: [DONE]\n\n")
        self._chunk(b"")

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))

    def _json(self, status: int, value: Json) -> None:
        self._send(status, json.dumps(value), "application/json")

    def _send(self, status: int, text: str, kind: str) -> None:
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _hang(self) -> None:
        """Say nothing until the client goes away."""
        self.connection.recv(1)
        self.close_connection = True


def read_ask(path: str, values: Json) -> Ask:
    """Return what a request asks for. Raises KeyError, TypeError or ValueError when it is bad."""
    if path == "/generate":
        sampling = values.get("sampling_params") or {}
        limit = sampling.get("max_new_tokens", 128)
        tokens = values.get("input_ids")
        text = str(values["text"]) if tokens is None else " ".join(map(str, tokens))
        temperature = float(sampling.get("temperature", 1.0))
        ask = Ask(text, int(limit), temperature, _steps(sampling))
    else:
        prompt = "\n".join("%(role)s: %(content)s" % message for message in values["messages"])
        temperature = float(values.get("temperature", 1))
        ask = Ask(prompt, int(values.get("max_tokens", 128)), temperature, _steps(values))
    if ask.max_tokens < 1:
        raise ValueError("fewer than 1 token is asked for")
    return ask


def _steps(parameters: Json) -> Optional[int]:
    """Return the draft steps that a request asks for, as the probe in SGLang finds them."""
    asked = (parameters.get("custom_params") or {}).get("sweep_num_steps")
    return asked if isinstance(asked, int) else None


class Shape(abc.ABC):
    """How an answer is written for one of the calls."""

    @abc.abstractmethod
    def events(self, part: Progress, usage: bool) -> Iterator[Json]:
        """Yield the objects of a streamed answer that a part of it brings."""

    @abc.abstractmethod
    def whole(self, part: Progress, usage: bool) -> Json:
        """Return the one object of an answer that does not stream."""


class Generate(Shape):
    """/generate: every chunk holds the whole text so far."""

    def events(self, part: Progress, usage: bool) -> Iterator[Json]:
        """Yield one object."""
        yield self.whole(part, usage)

    def whole(self, part: Progress, usage: bool) -> Json:
        """Return text and meta_info."""
        return {"text": part.text, "meta_info": part.meta if usage else {}}


class Chat(Shape):
    """/v1/chat/completions, OpenAI's call."""

    def __init__(self, values: Json) -> None:
        self._usage = bool((values.get("stream_options") or {}).get("include_usage"))
        self._details = bool(values.get("return_spec_tokens_details"))
        self._model = str(values.get("model", ""))

    def events(self, part: Progress, usage: bool) -> Iterator[Json]:
        """Yield the new text; at the end the finish reason, then the counts of speculation and the
        usage, each if it was asked for."""
        yield self._object("chat.completion.chunk", {"delta": {"content": part.piece}}, None)
        if part.done:
            yield self._object("chat.completion.chunk", {"delta": {}}, "length")
            if self._details and usage and part.speculative:
                yield {**self._object("chat.completion.chunk", None, None), **_details(part)}
            if self._usage and usage:
                yield {**self._object("chat.completion.chunk", None, None), **_usage(part)}

    def whole(self, part: Progress, usage: bool) -> Json:
        """Return the message and the usage."""
        choice: Json = {"message": {"role": "assistant", "content": part.text}}
        return {
            **self._object("chat.completion", choice, "length"),
            **(_details(part) if self._details and usage and part.speculative else {}),
            **(_usage(part) if usage else {}),
        }

    def _object(self, kind: str, choice: Optional[Json], finish: Optional[str]) -> Json:
        choices = [] if choice is None else [{"index": 0, **choice, "finish_reason": finish}]
        return {"id": "simulated", "object": kind, "model": self._model, "choices": choices}


def _details(part: Progress) -> Json:
    return {"sglext": {"spec_tokens_details": part.speculative}}


def _usage(part: Progress) -> Json:
    prompt, output = part.meta["prompt_tokens"], part.meta["completion_tokens"]
    return {
        "usage": {
            "prompt_tokens": prompt,
            "completion_tokens": output,
            "total_tokens": prompt + output,
            "prompt_tokens_details": {"cached_tokens": part.meta["cached_tokens"]},
        }
    }
