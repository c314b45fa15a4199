"""A fake inference server in one file, standard library only: `python server.py --port N [...]`.

It speaks OpenAI's /v1/chat/completions and /v1/completions, llama.cpp's /completion and SGLang's
/generate, each streaming or not, and /health, /flush_cache, /metrics, /server_info. Every stream
gets its tokens at `--rate` on an absolute schedule: the chunk that completes token c is sent at
start + first delay + c / rate, however late the one before was. Text follows from the prompt
alone. Options add faults; options that it does not know are kept as the server's arguments and
shown by /server_info, as an engine would. Starts in well under 100 ms: no http.server, no asyncio.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import itertools
import json
import os
import signal
import socket
import sys
import threading
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Json = dict[str, Any]

WORDS = (
    "the", "cache", "holds", "a", "value", "for", "each", "key", "and", "reads", "it",
    "back", "when", "asked", "so", "that", "work", "is", "done", "once", "only", "über",
)  # fmt: skip
REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 500: "Error", 503: "Unavailable"}
GENERATION = ("/v1/chat/completions", "/v1/completions", "/completion", "/generate")


def options(argv: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """Parse the command line; what is not known comes back as the engine's own arguments."""
    parser = argparse.ArgumentParser(allow_abbrev=False, description=__doc__)
    add = parser.add_argument
    add("--port", type=int, required=True)
    add("--rate", type=float, default=500.0, help="tokens per second of each stream")
    add("--chunk-tokens", type=int, default=1, help="tokens in each streamed chunk")
    add("--draft-tokens", type=int, default=0, help="tokens drafted per chunk; 0: no speculation")
    add("--vary", action="store_true", help="answers and chunks differ in length by prompt")
    add("--first-delay", type=float, default=0.0, help="seconds before the first token")
    add("--first-request-delay", type=float, default=0.0, help="extra, first request only")
    add("--short", type=int, help="stop after this many tokens, whatever was asked")
    add("--stamp", action="store_true", help="text of a chunk is its monotonic send time")
    # Start-up and end
    add("--port-late", type=float, default=0.0, help="seconds before the port opens")
    add("--unready", type=float, default=0.0, help="seconds of 503 after the port opened")
    add("--exit-at", type=float, help="seconds after which the process exits")
    add("--exit-code", type=int, default=1)
    add("--exit-message", default="", help="line on standard error before an exit")
    add("--die-in-request", type=int, help="exit in the middle of the nth generation request")
    add("--log", action="append", default=[], metavar="SECONDS:TEXT", help="a line for the log")
    add("--flood", type=int, default=0, help="bytes written to each of stdout and stderr")
    add("--grandchild", choices=("same-group", "own-session"), help="ignores SIGTERM, holds port")
    add("--ignore-term", action="store_true")
    add("--term-after", type=float, help="seconds from SIGTERM to the end")
    add("--dump", metavar="FILE", help="write argv, environment and pid as JSON")
    # Requests
    add("--hang-generate", action="store_true", help="generation never answers, health does")
    add("--stall-after", type=int, help="generation hangs after this many requests")
    add("--stall-one", type=int, metavar="N", help="only the nth generation request hangs")
    add("--stall-mid", action="store_true", help="requests that hang do so after one chunk")
    add("--trickle", action="store_true", help="streams of comments that never end")
    add("--error-every", type=int, default=0, help="each kth generation request gets a 500")
    add("--stream-error-every", type=int, default=0, help="each kth stream ends in an error object")
    add("--bad-json-every", type=int, default=0, help="each kth stream holds a broken chunk")
    add("--drop-every", type=int, default=0, help="each kth connection is reset mid-answer")
    add("--no-usage", action="store_true", help="answers without token counts")
    add("--flush-busy", type=int, default=0, help="400 for the first n flushes; -1: always")
    add("--lifetime", type=int, default=0, help="cycles that the counters start with")
    add("--override", action="append", default=[], metavar="KEY=VALUE", help="in /server_info")
    add("--profiler", choices=("closes", "stays-open", "silent", "dies"), help="/start_profile")
    add("--request-log", metavar="FILE", help="append a JSON line per request")
    return parser.parse_known_args(argv)


def words(prompt: str, count: int) -> Iterator[str]:
    """Yield the deterministic tokens of a prompt's answer."""
    state = zlib.crc32(prompt.encode())
    for _ in range(count):
        state = (state * 1103515245 + 12345) & 0x7FFFFFFF
        yield " " + WORDS[(state >> 8) % len(WORDS)]


class Connection:
    """One client connection: reads requests, writes answers."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._buffer = b""
        self.close = False

    def read(self) -> tuple[str, str, bytes] | None:
        """Return (method, path, body) of the next request; None at the end."""
        while b"\r\n\r\n" not in self._buffer:
            data = self.sock.recv(65536)
            if not data:
                return None
            self._buffer += data
        head, _, rest = self._buffer.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        method, path, _ = first.split(" ", 2)
        headers = {k.strip().lower(): v.strip() for k, _, v in (x.partition(":") for x in lines)}
        length = int(headers.get("content-length", "0"))
        self.close = headers.get("connection", "").lower() == "close"
        while len(rest) < length:
            rest += self.sock.recv(65536)
        self._buffer = rest[length:]
        return method, path.partition("?")[0], rest[:length]

    def answer(self, status: int, body: bytes, kind: str = "application/json") -> None:
        """Send a whole answer."""
        head = f"HTTP/1.1 {status} {REASONS[status]}\r\nContent-Type: {kind}\r\n"
        self.sock.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)

    def json(self, status: int, value: Any) -> None:
        """Send a JSON answer."""
        self.answer(status, json.dumps(value).encode())

    def start_stream(self) -> None:
        """Send the head of a stream of server-sent events."""
        self.sock.sendall(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )

    def send(self, data: bytes) -> None:
        """Send bytes of a stream, as one transfer chunk; empty ends the stream."""
        self.sock.sendall(b"%x\r\n%b\r\n" % (len(data), data))

    def reset(self) -> None:
        """End the connection with a reset instead of an orderly close."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.sock.close()
        self.close = True


class Ask:
    """One generation request, whatever its API."""

    def __init__(self, path: str, body: Json, fault: argparse.Namespace) -> None:
        self.path = path
        sampling = body.get("sampling_params") or {}
        asked = (
            body.get("max_tokens")
            or body.get("max_completion_tokens")
            or body.get("n_predict")
            or sampling.get("max_new_tokens")
            or 16
        )
        self.count = int(asked) if fault.short is None else min(int(asked), fault.short)
        self.stream = bool(body.get("stream"))
        usage_asked = path.startswith("/v1/") and self.stream
        wanted = (body.get("stream_options") or {}).get("include_usage", not usage_asked)
        self.usage = bool(wanted) and not fault.no_usage
        prompt = body.get("prompt", body.get("text", body.get("messages", body.get("input_ids"))))
        self.prompt = prompt if isinstance(prompt, str) else json.dumps(prompt)
        self.prompt_tokens = max(1, len(self.prompt.split()))
        self.k: int = fault.chunk_tokens
        self.draft: int = fault.draft_tokens
        if fault.vary:
            number = zlib.crc32(self.prompt.encode())
            self.k = 1 + number % (self.draft + 1)
            self.count -= number // 7 % (1 + self.count // 8)

    @property
    def cycles(self) -> int:
        """Verification cycles of the whole answer."""
        return -(-self.count // self.k)

    def counts(self, tokens: int) -> tuple[int, int, int]:
        """Return cycles, drafted and accepted tokens once `tokens` are out."""
        cycles = -(-tokens // self.k)
        return cycles, cycles * self.draft, tokens - cycles

    def chunk(self, text: str, whole: str, tokens: int, last: bool) -> Json:
        """Return one streamed object after `tokens` tokens; `whole` is the text up to here."""
        if self.path == "/completion":
            value: Json = {"content": text, "tokens_predicted": tokens, "stop": last}
            if last:
                value["timings"] = self.timings(tokens)
                value["tokens_evaluated"] = self.prompt_tokens
            if not self.usage:
                value.pop("tokens_predicted")
                value.pop("timings", None)
            return value
        if self.path == "/generate":
            return {"text": whole, "meta_info": self.meta_info(tokens, last)}
        key = "delta" if self.stream else "message"
        part: Json = {key: {"content": text}} if "chat" in self.path else {"text": text}
        return {"id": "x", "choices": [{"index": 0, **part, "finish_reason": None}]}

    def timings(self, tokens: int) -> Json:
        """Return llama.cpp's `timings`; drafts only where there is speculation."""
        value: Json = {"prompt_n": self.prompt_tokens, "predicted_n": tokens, "cache_n": 0}
        if self.draft:
            _, drafted, accepted = self.counts(tokens)
            value.update(draft_n=drafted, draft_n_accepted=accepted)
        return value

    def meta_info(self, tokens: int, last: bool) -> Json:
        """Return SGLang's `meta_info`."""
        value: Json = {"id": "x", "finish_reason": {"type": "length"} if last else None}
        if self.usage:
            value.update(prompt_tokens=self.prompt_tokens, completion_tokens=tokens)
            value["cached_tokens"] = 0
        if last and self.draft:
            cycles, drafted, accepted = self.counts(tokens)
            histogram = [0] * (self.draft + 1)
            full, rest = divmod(tokens, self.k)
            histogram[self.k - 1] += full
            if rest:
                histogram[rest - 1] += 1
            value.update(
                spec_verify_ct=cycles,
                spec_num_correct_drafts=accepted,
                spec_num_proposed_drafts=drafted,
                spec_correct_drafts_histogram=histogram,
            )
        return value

    def usage_object(self) -> Json:
        """Return OpenAI's `usage`."""
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.count,
            "total_tokens": self.prompt_tokens + self.count,
        }


class Server:
    """The whole fake: options, counters, and what to answer."""

    def __init__(self, fault: argparse.Namespace, engine_args: list[str]) -> None:
        self.fault = fault
        self.engine_args = engine_args
        self.lock = threading.Lock()
        self.opened_s = time.monotonic()
        self.requests = 0
        self.running = 0
        self.flushes = 0
        self.cycles = fault.lifetime
        self.drafted = fault.lifetime * fault.draft_tokens
        self.accepted = 0

    def serve(self, listener: socket.socket) -> None:
        """Accept for ever."""
        self.opened_s = time.monotonic()
        while True:
            sock, _ = listener.accept()
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self.talk, args=(sock,), daemon=True).start()

    def talk(self, sock: socket.socket) -> None:
        """Answer one connection's requests until it ends."""
        connection = Connection(sock)
        with contextlib.suppress(OSError, ValueError), sock:
            while not connection.close and (request := connection.read()):
                method, path, body = request
                self.note(connection, method, path, body)
                if path in GENERATION:
                    self.generate(connection, path, json.loads(body))
                elif path.endswith("_profile") and self.fault.profiler:
                    self.profile(connection, path, json.loads(body or b"{}"))
                else:
                    self.plain(connection, path)

    def note(self, connection: Connection, method: str, path: str, body: bytes) -> None:
        """Append the request to the request log."""
        if self.fault.request_log:
            line = {
                "t_s": time.monotonic(),
                "method": method,
                "path": path,
                "peer": connection.sock.getpeername()[1],
                "running": self.running,
                "body": json.loads(body) if body else None,
            }
            with self.lock, Path(self.fault.request_log).open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(line) + "\n")

    @property
    def ready(self) -> bool:
        """Whether the model counts as loaded."""
        return time.monotonic() - self.opened_s >= float(self.fault.unready)

    def plain(self, connection: Connection, path: str) -> None:
        """Answer everything that does not generate."""
        if not self.ready:
            connection.json(503, {"error": {"message": "Loading model", "code": 503}})
        elif path == "/health":
            connection.json(200, {"status": "ok"})
        elif path == "/flush_cache":
            self.flushes += 1
            busy = self.fault.flush_busy
            refused = busy < 0 or self.flushes <= busy or self.running > 0
            connection.json(400 if refused else 200, {"flushed": not refused})
        elif path == "/metrics":
            connection.answer(200, self.metrics().encode(), "text/plain; version=0.0.4")
        elif path in ("/server_info", "/get_server_info"):
            connection.json(200, self.effective_arguments())
        else:
            connection.json(404, {"error": {"message": f"no {path}", "code": 404}})

    def profile(self, connection: Connection, path: str, body: Json) -> None:
        """Open a profiler's window, which writes at once ("closes") or when it is stopped; or end
        it, which it refuses when it has ended."""
        how = self.fault.profiler
        if how == "dies":
            self.die()
        if path == "/start_profile":
            self.traces = Path(body["output_dir"])
            if how == "closes":
                data = gzip.compress(b'{"traceEvents": []}')
                (self.traces / "a-TP-0.trace.json.gz").write_bytes(data)
                (self.traces / "b-TP-1.trace.json.gz").write_bytes(data)
        elif how == "closes":
            connection.json(500, {"error": {"message": "Profiling is not in progress"}})
            return
        elif how == "stays-open":
            (self.traces / "whole.trace.json").write_text('{"traceEvents": []}')
            (self.traces / "notes.txt").write_text("not asked for")
        connection.answer(200, b"ok", "text/plain")

    def metrics(self) -> str:
        """Return counters over the life of the server, in Prometheus text."""
        with self.lock:
            length = (self.accepted + self.cycles) / self.cycles if self.cycles else 0.0
            return (
                f"fake:requests_total {self.requests}\n"
                f"llamacpp:spec_decode_num_drafts_total {self.cycles}\n"
                f"llamacpp:spec_decode_num_draft_tokens_total {self.drafted}\n"
                f"llamacpp:spec_decode_num_accepted_tokens_total {self.accepted}\n"
                f"sglang:spec_verify_calls_total {self.cycles}\n"
                f"sglang:spec_accept_length {length}\n"
            )

    def effective_arguments(self) -> Json:
        """Return the engine's arguments, with those changed that are to change silently."""
        values: Json = {}
        name = None
        for item in self.engine_args:
            if item.startswith("--"):
                name, _, value = item[2:].replace("-", "_").partition("=")
                values[name] = value or True
            elif name:
                values[name] = item
        values.update(item.split("=", 1) for item in self.fault.override)
        return values

    def generate(self, connection: Connection, path: str, body: Json) -> None:
        """Answer one generation request, with the faults that were asked for."""
        start_s = time.monotonic() + self.fault.first_delay
        with self.lock:
            self.requests += 1
            number = self.requests
            self.running += 1
        try:
            if number == 1:
                start_s += self.fault.first_request_delay
            if not self.ready:
                connection.json(503, {"error": {"message": "Loading model", "code": 503}})
            elif every(self.fault.error_every, number):
                connection.json(500, {"error": {"message": "injected failure", "code": 500}})
            elif self.hangs(number) and not self.fault.stall_mid:
                wait_for_close(connection)
            else:
                ask = Ask(path, body, self.fault)
                (self.stream if ask.stream else self.whole)(connection, ask, start_s, number)
        finally:
            with self.lock:
                self.running -= 1

    def hangs(self, number: int) -> bool:
        """Whether this request never finishes."""
        after = self.fault.stall_after
        stalled = number == self.fault.stall_one or (after is not None and number > after)
        return stalled or bool(self.fault.hang_generate)

    def count(self, ask: Ask) -> None:
        """Add a finished answer to the lifetime counters."""
        cycles, drafted, accepted = ask.counts(ask.count)
        with self.lock:
            self.cycles += cycles
            self.drafted += drafted
            self.accepted += accepted

    def whole(self, connection: Connection, ask: Ask, start_s: float, number: int) -> None:
        """Answer without streaming, when the last token is due."""
        if number == self.fault.die_in_request:
            self.die()
        sleep_until(start_s + ask.count / self.fault.rate)
        if every(self.fault.drop_every, number):
            connection.reset()
            return
        text = "".join(words(ask.prompt, ask.count))
        value = ask.chunk(text, text, ask.count, last=True)
        if ask.path.startswith("/v1/") and ask.usage:
            value["usage"] = ask.usage_object()
        connection.json(200, value)
        self.count(ask)

    def stream(self, connection: Connection, ask: Ask, start_s: float, number: int) -> None:
        """Answer as server-sent events, each on its schedule."""
        connection.start_stream()
        while self.fault.trickle:
            connection.send(b": still here\n\n")
            time.sleep(0.05)
        tokens = words(ask.prompt, ask.count)
        whole = ""
        for begin in range(0, ask.count, ask.k):
            done = min(begin + ask.k, ask.count)
            sleep_until(start_s + done / self.fault.rate)
            text = "".join(itertools.islice(tokens, done - begin))
            if self.fault.stamp:
                text = f" {time.monotonic():.6f}"
            whole = whole + text if ask.path == "/generate" else ""
            event(connection, ask.chunk(text, whole, done, last=done == ask.count))
            if self.broken(connection, number):
                return
        if ask.path.startswith("/v1/"):
            finish(connection, ask)
        if ask.path != "/completion":
            connection.send(b"data: [DONE]\n\n")
        connection.send(b"")
        self.count(ask)

    def broken(self, connection: Connection, number: int) -> bool:
        """Break this stream after a chunk if it is its turn; True when it is over."""
        if number == self.fault.die_in_request:
            self.die()
        if self.hangs(number):
            wait_for_close(connection)
            return True
        if every(self.fault.drop_every, number):
            connection.reset()
            return True
        if every(self.fault.stream_error_every, number):
            event(connection, {"error": {"message": "injected failure", "code": 500}})
            connection.send(b"")
            return True
        if every(self.fault.bad_json_every, number):
            connection.send(b'data: {"choices": [\n\n')
            connection.send(b"")
            return True
        return False

    def die(self) -> None:
        """End the process at once, as a crash does."""
        exit_now(self.fault)


def event(connection: Connection, value: Json) -> None:
    """Send one server-sent event."""
    connection.send(b"data: %b\n\n" % json.dumps(value, ensure_ascii=False).encode())


def finish(connection: Connection, ask: Ask) -> None:
    """Send OpenAI's last objects: the finish reason, then the usage."""
    part: Json = {"delta": {}} if "chat" in ask.path else {"text": ""}
    event(connection, {"id": "x", "choices": [{"index": 0, **part, "finish_reason": "length"}]})
    if ask.usage:
        event(connection, {"id": "x", "choices": [], "usage": ask.usage_object()})


def every(k: int, number: int) -> bool:
    """Whether `number`, counted from 1, is one of each kth; k = 0: never."""
    return bool(k) and number % k == 0


def wait_for_close(connection: Connection) -> None:
    """Say nothing until the client goes away."""
    connection.sock.recv(1)
    connection.close = True


def sleep_until(due_s: float) -> None:
    """Sleep until a time of the monotonic clock."""
    left_s = due_s - time.monotonic()
    if left_s > 0:
        time.sleep(left_s)


def exit_now(fault: argparse.Namespace) -> None:
    """Print the exit message and end the whole process."""
    if fault.exit_message:
        print(fault.exit_message, file=sys.stderr, flush=True)
    os._exit(fault.exit_code)


def later(delay_s: float, action: Any, *values: Any) -> None:
    """Run an action after a delay, in a thread that keeps nothing alive."""
    timer = threading.Timer(delay_s, action, values)
    timer.daemon = True
    timer.start()


def flood(size: int) -> None:
    """Write `size` bytes of numbered lines to standard output and standard error each."""
    line = b"x" * 99 + b"\n"
    for _ in range(size // len(line)):
        os.write(1, line)
        os.write(2, line)


def leave_grandchild(how: str) -> None:
    """Fork a process that ignores SIGTERM and keeps every descriptor, the listener included."""
    pid = os.fork()
    if pid:
        print(f"grandchild {pid}", flush=True)
        return
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if how == "own-session":
        os.setsid()
    while True:
        signal.pause()


def dump(path: str) -> None:
    """Write what this process was started with; appears whole."""
    value = {"argv": sys.argv, "env": dict(os.environ), "pid": os.getpid()}
    partial = Path(path + ".part")
    partial.write_text(json.dumps(value), encoding="utf-8")
    partial.replace(path)


def main() -> None:
    """Start as the options say, then serve for ever."""
    fault, engine_args = options(sys.argv[1:])
    if fault.ignore_term:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if fault.term_after is not None:
        signal.signal(signal.SIGTERM, lambda *_: later(fault.term_after, os._exit, 0))
    if fault.dump:
        dump(fault.dump)
    if fault.exit_at is not None:
        later(fault.exit_at, exit_now, fault)
    for item in fault.log:
        seconds, _, text = item.partition(":")
        later(float(seconds), lambda line: print(line, flush=True), text)
    time.sleep(fault.port_late)
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", fault.port))
    listener.listen(1024)
    if fault.grandchild:
        leave_grandchild(fault.grandchild)
    if fault.flood:
        threading.Thread(target=flood, args=(fault.flood,), daemon=True).start()
    Server(fault, engine_args).serve(listener)


if __name__ == "__main__":
    main()
