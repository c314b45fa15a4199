"""The server's own profiler, asked by the agent when all is measured."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fakes.launching import Bench
from fakes.running import generate, launch, running, trial

from sweep.agent import wire
from sweep.agent.journal import Journal
from sweep.agent.tracing import run_traces
from sweep.agent.trials import StopSignal
from sweep.engines.sglang import SGLang

TRACE = wire.Trace(
    start=wire.HttpCall("/start_profile", "POST", {"num_steps": 3}),
    directory_at="output_dir",
    stop=wire.HttpCall("/stop_profile", "POST"),
    suffix=".trace.json",
    limit_s=3.0,
    most_bytes=1 << 20,
)
SLOW = ("--rate", 100)
"""Answers of 50 tokens take half a second: longer than a window takes to open."""


def traced(trial_id: str = "t1", streams: int = 2) -> wire.TrialDoc:
    """A trial that is to be traced."""
    warmup = [generate(f"warm {number}", 50) for number in range(streams)]
    return trial(
        requests=[generate("prompt")], warmup=warmup, concurrency=streams, trial_id=trial_id,
        traced=True,
    )  # fmt: skip


class Told:
    """What windows left: events, records of requests, files."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        lines = (directory / wire.EVENTS_FILE).read_text().splitlines()
        self.all_events = [json.loads(line) for line in lines]
        self.events = [event for event in self.all_events if event["event"] == "trace"]
        text = (directory / wire.REQUESTS_FILE).read_text()
        self.requests = [wire.decode_request(line) for line in text.splitlines()]

    def files(self, trial_id: str = "t1") -> dict[str, Any]:
        """Name → the trace."""
        folder = self.directory / wire.TRACES_DIR / trial_id
        return {path.name: json.loads(gzip.decompress(path.read_bytes())) for path in
                folder.iterdir()}  # fmt: skip


def tell(
    directory: Path, port: int, *trials: wire.TrialDoc, trace: wire.Trace | None = TRACE
) -> Told:
    """Trace trials against the server on a port."""
    doc = launch(*trials, trace=trace)
    complete = frozenset(trial.trial_id for trial in trials)
    run_traces(doc, port, Journal(str(directory)), StopSignal(), complete)
    return Told(directory)


def test_a_window_opens_while_all_streams_decode(tmp_path: Path) -> None:
    """It closes by itself, and is not stopped again; every rank's file is kept."""
    log = tmp_path / "requests.log"
    with running(*SLOW, "--profiler", "closes", "--request-log", log) as fake:
        told = tell(tmp_path, fake.port, traced())
    (event,) = told.events
    assert (event["trial"], event["problem"]) == ("t1", None)
    assert event["files"] == ["a-TP-0.trace.json.gz", "b-TP-1.trace.json.gz"]
    assert told.files() == {name: {"traceEvents": []} for name in event["files"]}
    asked = [json.loads(line) for line in log.read_text().splitlines()]
    (start,) = [line for line in asked if line["path"] == "/start_profile"]
    assert start["running"] == 2
    assert start["body"] == {
        "num_steps": 3, "output_dir": str(tmp_path / wire.TRACES_DIR / "t1"),
    }  # fmt: skip
    assert not [line for line in asked if line["path"] == "/stop_profile"]
    assert [(r.role, r.error, r.output_tokens, r.window) for r in told.requests] == [
        ("trace", None, 50, None)
    ] * 2


def test_a_window_that_stays_open_is_closed(tmp_path: Path) -> None:
    """When the requests are through; what is not packed is, and other files go."""
    with running(*SLOW, "--profiler", "stays-open") as fake:
        told = tell(tmp_path, fake.port, traced("a"), traced("b"))
    assert [(e["trial"], e["files"], e["problem"]) for e in told.events] == [
        (name, ["whole.trace.json.gz"], None) for name in ("a", "b")
    ]
    assert told.files("b") == {"whole.trace.json.gz": {"traceEvents": []}}


@pytest.mark.parametrize(
    ("options", "trace", "problem"),
    [
        ((), TRACE, '/start_profile answered 404: {"error"'),
        (("--profiler", "silent"), replace(TRACE, limit_s=0.5), "was not written within 0.5 s"),
        (("--profiler", "dies"), TRACE, "/start_profile connection closed"),
        (("--profiler", "closes", "--hang-generate"), TRACE, "a request ended before"),
    ],
)
def test_what_goes_wrong_is_told_once_and_not_tried_again(
    tmp_path: Path, options: tuple[str, ...], trace: wire.Trace, problem: str
) -> None:
    """An open window that is opened again can end a server."""
    with running(*SLOW, *options) as fake:
        trials = [replace(item, warmup=item.warmup) for item in (traced("a"), traced("b", 1))]
        doc = launch(*trials, trace=trace, request_s=2.0)
        complete = frozenset({"a", "b"})
        run_traces(doc, fake.port, Journal(str(tmp_path)), StopSignal(), complete)
    told = Told(tmp_path)
    first, second = told.events
    assert problem in first["problem"]
    assert (first["files"], second["files"]) == ([], [])
    assert "not tried" in second["problem"]
    assert problem in second["problem"]


def test_files_without_room_are_left_out(tmp_path: Path) -> None:
    """The first rank's is the one that matters."""
    size = len(gzip.compress(b'{"traceEvents": []}'))
    with running(*SLOW, "--profiler", "closes") as fake:
        told = tell(tmp_path, fake.port, traced(), trace=replace(TRACE, most_bytes=size))
    (event,) = told.events
    assert event["files"] == ["a-TP-0.trace.json.gz"]
    assert event["problem"] == f"1 of its files had no room in {size} bytes"
    assert list(told.files()) == event["files"]


def test_nothing_is_traced_unasked(tmp_path: Path) -> None:
    """Neither without the engine's means nor a trial that is not marked."""
    with running(*SLOW) as fake:
        assert tell(tmp_path, fake.port, traced(), trace=None).all_events == []
        unmarked = replace(traced(), traced=False)
        assert tell(tmp_path, fake.port, unmarked).all_events == []


def test_a_trial_that_ended_badly_is_not_traced(tmp_path: Path) -> None:
    """Its server may hang; the other trial of the launch is traced all the same."""
    with running(*SLOW, "--profiler", "closes") as fake:
        doc = launch(traced("bad"), traced("good"), trace=TRACE)
        run_traces(doc, fake.port, Journal(str(tmp_path)), StopSignal(), frozenset({"good"}))
    bad, good = Told(tmp_path).events
    assert (bad["files"], bad["problem"]) == ([], "not tried, because the trial did not end well")
    assert (len(good["files"]), good["problem"]) == (2, None)


def test_a_server_that_its_profiler_ends_has_done_its_work(tmp_path: Path) -> None:
    """All trials ended before; the launch is no failure, the node is clean, and the trace is said
    to be missing."""
    bench = Bench(tmp_path)
    try:
        doc = bench.prepare("--profiler", "dies", "--exit-message", "CUDA out of memory").doc
        engine = replace(doc.engine, trace=TRACE)
        marked = [replace(doc.trials[0], traced=True)]
        started = bench.launch(
            "--profiler", "dies", "--exit-message", "CUDA out of memory", "--rate", "20",
            engine=engine, trials=marked,
        )  # fmt: skip
        outcome = started.outcome()
    finally:
        bench.close()
    kinds = [event["event"] for event in started.events()]
    assert kinds.index("trial_end") < kinds.index("trace")
    assert started.event("trial_end")["end"] == "complete"
    assert "problem" in started.event("trace")
    assert (outcome.end, outcome.phase, outcome.clean) == ("server_exit", "trace", True)
    assert SGLang().classify_launch(outcome) is None
