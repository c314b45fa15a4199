"""The real llama.cpp server: what the engine asks of it, and what it answers."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

from sweep.agent import sse
from sweep.agent.answer import Reading
from sweep.agent.wire import Outcome, Pattern, Request, RequestRecord, ServerIdent
from sweep.engines.llama_cpp import LlamaCpp
from sweep.model.experiment import Axes, EngineSpec, Experiment, Prompt, Workload
from sweep.model.plan import Configuration, PlannedTrial

pytestmark = pytest.mark.llama

ROOT = Path(__file__).parents[2]
LAUNCHER = (sys.executable, str(ROOT / "scripts" / "llama_server.py"))
MODELS = ROOT / "experiments" / "models"
TARGET = MODELS / "tiny-target-q8_0.gguf"
DRAFT = MODELS / "tiny-draft-q8_0.gguf"
PROMPT = Prompt("add", text="def add(a, b):\n    return")
LLAMA = LlamaCpp()
START_S = 30.0
Api = Literal["native", "completions", "chat"]


def experiment(*, target: Path = TARGET, draft: Path = DRAFT, api: Api = "native") -> Experiment:
    """An experiment of the tiny models on one thread."""
    return Experiment(
        name="e2e",
        engine=EngineSpec(
            kind="llama.cpp",
            model=str(target),
            draft_model=str(draft),
            algorithm="draft-simple",
            command=LAUNCHER,
            args={"threads": 1, "ctx-size": 1024},
        ),
        workloads=(Workload("w", (PROMPT,), max_tokens=40, ignore_eos=True, api=api),),
        axes=Axes(num_steps=(4,)),
    )


BASELINE = Configuration(None)
FOUR_STEPS = Configuration("draft-simple", num_steps=4)


def free_port() -> int:
    """A port that nobody listened on a moment ago."""
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Server:
    """A server process and its log."""

    process: subprocess.Popen[bytes]
    port: int
    log: Path

    def get(self, path: str) -> bytes:
        """The body of a GET."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as reply:
            body: bytes = reply.read()
            return body

    def is_healthy(self) -> bool:
        """Whether the health call answers as the engine expects."""
        try:
            self.get(LLAMA.document(experiment()).health.path)
        except (urllib.error.URLError, ConnectionError):
            return False
        return True

    def wait(self) -> bool:
        """Wait until it is healthy (True) or has exited (False)."""
        deadline_s = time.monotonic() + START_S
        while time.monotonic() < deadline_s:
            if self.is_healthy():
                return True
            if self.process.poll() is not None:
                return False
            time.sleep(0.02)
        pytest.fail(f"neither healthy nor gone after {START_S} s:\n{self.log.read_text()}")

    def send(self, request: Request, api: Api) -> RequestRecord:
        """Send a generation request and read the answer as the agent does."""
        url = f"http://127.0.0.1:{self.port}{request.path}"
        post = urllib.request.Request(url, json.dumps(request.body).encode())
        reading = Reading(LLAMA.answer(experiment(api=api).workloads[0]))
        with urllib.request.urlopen(post, timeout=30) as reply:
            decoder = sse.Decoder()
            events = [*decoder.feed(reply.read()), *decoder.close()]
        for event in events:
            if event != b"[DONE]":
                reading.take(json.loads(event), 0.0)
        return record(reading)


def record(reading: Reading) -> RequestRecord:
    """The record of an answer, without times."""
    return RequestRecord(
        n=1,
        trial="t",
        window=0,
        role="measure",
        prompt="add",
        stream=0,
        sent_s=0.0,
        first_s=None,
        last_s=None,
        end_s=None,
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


Start = Callable[..., Server]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start servers of a configuration; all of them are gone after the test."""
    servers: list[Server] = []

    def run(
        configuration: Configuration,
        subject: Experiment | None = None,
        *flags: str,
        port: int | None = None,
    ) -> Server:
        subject = subject or experiment()
        judged = LLAMA.judge(configuration, subject, None)
        assert judged.reason is None
        command = LLAMA.server(judged.configuration, subject)
        argv = [*command.argv, *flags]
        port = port or free_port()
        argv[command.port_at] = str(port)
        log = tmp_path / f"server-{len(servers)}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(argv, stdout=output, stderr=subprocess.STDOUT)
        servers.append(Server(process, port, log))
        return servers[-1]

    yield run
    for server in servers:
        server.process.kill()
        server.process.wait()


def outcome_of(server: Server) -> Outcome:
    """What the agent would record of a server that exited while loading."""
    patterns: list[Pattern] = LLAMA.document(experiment()).fatal
    lines = server.log.read_text().splitlines()
    seen = [p.name for line in lines for p in patterns if re.search(p.regex, line)]
    code = server.process.poll()
    return Outcome(
        end="done" if code is None else "server_exit",
        phase="load",
        detail=None,
        server=ServerIdent(1, 2, server.port, code),
        patterns=list(dict.fromkeys(seen)),
        log_tail=lines[-40:],
        clean=True,
        left=[],
        phases_s={},
        files={},
    )


def trial(configuration: Configuration) -> PlannedTrial:
    """A trial of a configuration."""
    return PlannedTrial("t", "c", configuration, experiment().workloads[0], 1)


def metric(server: Server, name: str) -> int:
    """The value of one of the server's counters."""
    text = server.get("/metrics").decode()
    found = re.search(rf"^llamacpp:{name} (\d+)$", text, re.MULTILINE)
    assert found is not None, text
    return int(found[1])


def test_speculation_is_used_and_counted(start: Start) -> None:
    """A server with the draft model drafts over every API, and its counters agree with ours."""
    server = start(FOUR_STEPS)
    assert server.wait()
    records = []
    apis: tuple[Api, ...] = ("native", "completions", "chat")
    for api in apis:
        workload = experiment(api=api).workloads[0]
        records.append(server.send(LLAMA.request(workload, PROMPT), api))
    assert [r.output_tokens for r in records] == [40, 40, 40]
    assert [r.cached_tokens for r in records] == [0, 0, 0]
    assert LLAMA.classify_trial(trial(FOUR_STEPS), records) is None
    assert LLAMA.classify_launch(outcome_of(server)) is None
    counts = [LLAMA.count(r) for r in records]
    drafted = sum(c.drafted_tokens or 0 for c in counts)
    accepted = sum(c.accepted_tokens or 0 for c in counts)
    assert drafted == metric(server, "spec_decode_num_draft_tokens_total") > 0
    assert accepted == metric(server, "spec_decode_num_accepted_tokens_total") > 0
    cycles = sum(c.cycles or 0 for c in counts)
    assert 0 <= cycles - metric(server, "spec_decode_num_drafts_total") <= len(records)


def test_counts_repeat_exactly(start: Start) -> None:
    """The same greedy request twice, cold both times, has the same counts and no cached token."""
    server = start(FOUR_STEPS)
    assert server.wait()
    request = LLAMA.request(experiment().workloads[0], PROMPT)
    first, second = (server.send(request, "native") for _ in range(2))
    assert LLAMA.count(first) == LLAMA.count(second)
    assert second.cached_tokens == 0


def test_baseline_does_not_speculate(start: Start) -> None:
    """The baseline's server has no draft: nothing is drafted, and nothing is reported as 0."""
    server = start(BASELINE)
    assert server.wait()
    answered = server.send(LLAMA.request(experiment().workloads[0], PROMPT), "native")
    assert answered.output_tokens == 40
    assert LLAMA.count(answered).cycles is None
    assert LLAMA.classify_trial(trial(BASELINE), [answered]) is None
    assert "draft" not in server.log.read_text()


def test_calls_of_the_document(start: Start) -> None:
    """Readiness generates its tokens, every scrape answers, every milestone is logged."""
    server = start(FOUR_STEPS)
    assert server.wait()
    document = LLAMA.document(experiment())
    assert server.send(document.ready, "native").output_tokens == 2
    assert all(server.get(call.path) for call in document.scrapes)
    log = server.log.read_text()
    assert [m.name for m in document.milestones if not re.search(m.regex, log)] == []


def test_sigterm_ends_it_with_0(start: Start) -> None:
    """The launcher ends at SIGTERM, quickly and with exit code 0."""
    server = start(BASELINE)
    assert server.wait()
    server.process.terminate()
    assert server.process.wait(timeout=5) == 0


def truncated(tmp_path: Path) -> Path:
    """The target, cut off in the middle."""
    path = tmp_path / "truncated.gguf"
    path.write_bytes(TARGET.read_bytes()[:1_000_000])
    return path


@pytest.mark.parametrize(
    ("flags", "failure_class"),
    [(("--no-such-flag",), "bad_args"), (("--draft-max", "4"), "bad_args")],
)
def test_wrong_flags(start: Start, flags: tuple[str, ...], failure_class: str) -> None:
    """Unknown and removed flags end the server with 1, and are named."""
    server = start(BASELINE, None, *flags)
    assert not server.wait()
    assert server.process.returncode == 1
    assert flags[0] in server.log.read_text()
    failure = LLAMA.classify_launch(outcome_of(server))
    assert failure is not None
    assert failure.failure_class == failure_class


@pytest.mark.parametrize("what", ["missing target", "truncated target", "missing draft"])
def test_wrong_model_files(start: Start, tmp_path: Path, what: str) -> None:
    """A model file that is missing or cut off ends the server, as missing_file."""
    missing = tmp_path / "missing.gguf"
    subject = {
        "missing target": experiment(target=missing),
        "truncated target": experiment(target=truncated(tmp_path)),
        "missing draft": experiment(draft=missing),
    }[what]
    server = start(FOUR_STEPS, subject)
    assert not server.wait()
    failure = LLAMA.classify_launch(outcome_of(server))
    assert failure is not None
    assert failure.failure_class == "missing_file"


def test_port_in_use(start: Start) -> None:
    """A port that someone listens on is named as the reason."""
    with closing(socket.create_server(("127.0.0.1", 0))) as holder:
        server = start(BASELINE, port=int(holder.getsockname()[1]))
        # The holder accepts connections and never answers, so only the exit can be waited for.
        assert server.process.wait(timeout=START_S) == 1
    failure = LLAMA.classify_launch(outcome_of(server))
    assert failure is not None
    assert failure.failure_class == "port_in_use"


def other_vocabulary(tmp_path: Path) -> Path:
    """The draft with two of its tokens exchanged, which the server must refuse."""
    data = DRAFT.read_bytes()
    path = tmp_path / "other.gguf"
    assert data.count(b"return") > 0
    path.write_bytes(data.replace(b"return", b"nruter"))
    return path


def test_a_draft_that_does_not_fit_is_no_slow_row(start: Start, tmp_path: Path) -> None:
    """The server is healthy without speculation; log and records both say so."""
    server = start(FOUR_STEPS, experiment(draft=other_vocabulary(tmp_path)))
    assert server.wait()
    answered = server.send(LLAMA.request(experiment().workloads[0], PROMPT), "native")
    by_records = LLAMA.classify_trial(trial(FOUR_STEPS), [answered])
    by_log = LLAMA.classify_launch(outcome_of(server))
    assert by_records is not None
    assert by_log is not None
    assert (by_records.failure_class, by_log.failure_class) == ("speculation_inactive",) * 2


def test_versions() -> None:
    """The first line of --version names the wheel's version."""
    done = subprocess.run([*LAUNCHER, "--version"], capture_output=True, check=True)
    assert re.match(rb"xllamacpp \d{4}\.\d+\.\d+\n", done.stdout)


def test_ngram_lengths_are_kept(start: Start) -> None:
    """The n-gram flags hold the draft length: no position beyond it is ever accepted."""
    subject = experiment()
    fields: dict[str, Any] = {"algorithm": "ngram-simple", "num_steps": 3}
    server = start(Configuration(**fields), subject, "--spec-ngram-simple-size-n", "3")
    assert server.wait()
    text = "for key, value in sorted(items):\n    print(key, value)\n" * 6
    workload = Workload("w", (Prompt("loop", text=text),), max_tokens=150, ignore_eos=True)
    answered = server.send(LLAMA.request(workload, workload.prompts[0]), "native")
    drafts = metric(server, "spec_decode_num_drafts_total")
    drafted = LLAMA.count(answered).drafted_tokens
    assert drafted is not None
    assert 0 < drafted <= 3 * drafts
