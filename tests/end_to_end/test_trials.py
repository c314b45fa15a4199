"""Trials against real servers: what is measured, what is kept, and how trials end."""

from __future__ import annotations

import itertools
import json
import os
import statistics
import subprocess
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fakes.running import GENERATE, Fake, generate, launch, python_3_9, running, trial

from sweep.agent import wire
from sweep.agent.journal import Journal
from sweep.agent.trials import StopSignal, run_trials

OLD_PYTHON = python_3_9()
OLD_PYTHON_RUN = """
import sys
from sweep.agent import wire
from sweep.agent.journal import Journal
from sweep.agent.trials import StopSignal, run_trials
launch, port, directory = sys.argv[1:]
with open(launch) as stream:
    run_trials(wire.decode_launch(stream.read()), int(port), Journal(directory), StopSignal())
"""


class Kept:
    """What a run left in its launch directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.all_events = lines(directory / wire.EVENTS_FILE)
        text = (directory / wire.REQUESTS_FILE).read_text()
        self.requests = [wire.decode_request(line) for line in text.splitlines()]

    def events(self, kind: str) -> list[dict[str, Any]]:
        """Events of one kind, in order."""
        return [event for event in self.all_events if event["event"] == kind]

    def ends(self) -> list[str]:
        """How the trials ended."""
        return [event["end"] for event in self.events("trial_end")]

    def role(self, role: str) -> list[wire.RequestRecord]:
        """Requests of one role."""
        return [record for record in self.requests if record.role == role]


def lines(path: Path) -> list[dict[str, Any]]:
    """Read a file of JSON lines."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def run(
    directory: Path,
    fake: Fake,
    *trials: wire.TrialDoc,
    request_s: float = 10.0,
    stop: StopSignal | None = None,
    flush_limit_s: float = 10.0,
) -> Kept:
    """Run trials and return what they left."""
    doc = launch(*trials, request_s=request_s)
    run_trials(doc, fake.port, Journal(str(directory)), stop or StopSignal(), flush_limit_s)
    return Kept(directory)


def prompts(count: int, tokens: int = 10) -> list[wire.Request]:
    """Different requests of equal length."""
    return [generate(f"prompt {number}", tokens) for number in range(count)]


def test_a_whole_trial(tmp_path: Path) -> None:
    """Warm-up once, and per window flush, throwaway, scrape, measure, scrape; all on record."""
    log = tmp_path / "requests.log"
    asked = trial(requests=prompts(4), warmup=prompts(2), concurrency=2, windows=2)
    with running("--request-log", log, "--draft-tokens", 2, "--chunk-tokens", 2) as fake:
        kept = run(tmp_path, fake, asked)
    phases = [(event["phase"], event["window"]) for event in kept.events("phase")]
    window = ["flush", "throwaway", "scrape", "measure", "scrape"]
    assert phases == [("warmup", None), *itertools.product(window, [0]),
                      *itertools.product(window, [1])]  # fmt: skip
    paths = [line["path"] for line in lines(log) if line["path"] != "/health"]
    measured = ["/flush_cache", "/generate", "/metrics", *["/generate"] * 4, "/metrics"]
    assert paths == [*["/generate"] * 2, *measured, *measured]
    assert [len(kept.role(role)) for role in ("warmup", "throwaway", "measure")] == [2, 2, 8]
    assert {record.window for record in kept.role("warmup")} == {None}
    assert [record.n for record in kept.requests] == list(range(12))
    assert (
        kept.events("trial_end")[0] | {"end": "complete", "windows": 2, "detail": None}
        == (kept.events("trial_end")[0])
    )
    windows = kept.events("window")
    assert [w["output_tokens"] for w in windows] == [40, 40]
    assert [(w["complete"], w["requests_ok"], w["requests_error"]) for w in windows] == [
        (True, 4, 0)
    ] * 2
    scrapes = {path.name for path in (tmp_path / wire.SCRAPES_DIR).iterdir()}
    assert scrapes == {f"t1.{w}.{when}.metrics" for w in range(2) for when in ("before", "after")}


def test_window_counters_are_differences(tmp_path: Path) -> None:
    """Scrapes around a window give its own 4 × 5 cycles, whatever the server counted before."""
    options = ("--draft-tokens", 2, "--chunk-tokens", 2, "--lifetime", 1000)
    with running(*options) as fake:
        run(tmp_path, fake, trial(requests=prompts(4), warmup=prompts(2)))

    def cycles(when: str) -> int:
        text = (tmp_path / wire.SCRAPES_DIR / f"t1.0.{when}.metrics").read_text()
        values = dict(line.split() for line in text.splitlines())
        return int(values["sglang:spec_verify_calls_total"])

    assert cycles("before") > 1000
    assert cycles("after") - cycles("before") == 20


def test_window_event_agrees_with_the_records(tmp_path: Path) -> None:
    """Start and end of a window are those of its first request and its last output."""
    with running() as fake:
        kept = run(tmp_path, fake, trial(requests=prompts(6), concurrency=3))
    window = kept.events("window")[0]
    records = kept.role("measure")
    assert window["start_s"] == min(record.sent_s for record in records)
    ends_s = [record.sent_s + record.last_s for record in records if record.last_s is not None]
    assert window["end_s"] == pytest.approx(max(ends_s), abs=2e-6)
    chunks = {line["n"]: line for line in lines(tmp_path / wire.CHUNKS_FILE)}
    for record in records:
        assert chunks[record.n]["chunk_s"][0] == record.first_s
        assert chunks[record.n]["chunk_s"][-1] == record.last_s
        assert len(chunks[record.n]["chunk_s"]) == record.chunks == 10


def test_stall_after_three_of_twenty(tmp_path: Path) -> None:
    """The trial ends at the request deadline as stalled, three requests kept, no throughput."""
    with running("--stall-after", 4) as fake:  # the throwaway is the first
        kept = run(tmp_path, fake, trial(requests=prompts(20)), request_s=0.5)
    assert kept.ends() == ["stalled"]
    assert [record.error for record in kept.role("measure")] == [None] * 3 + ["timeout"]
    window = kept.events("window")[0]
    assert (window["complete"], window["requests_ok"], window["requests_error"]) == (False, 3, 1)
    assert kept.events("trial_end")[0]["windows"] == 0
    assert kept.events("deadline")[0]["which"] == "request"


def test_three_of_twenty_answer_500(tmp_path: Path) -> None:
    """Seventeen answered, three failed without latencies, and the trial does not end well."""
    with running("--error-every", 6) as fake:  # of 21 with the throwaway: 6, 12, 18
        kept = run(tmp_path, fake, trial(requests=prompts(20)))
    window = kept.events("window")[0]
    assert (window["requests_ok"], window["requests_error"]) == (17, 3)
    assert window["output_tokens"] == 170
    assert kept.ends() == ["errors"]
    assert kept.events("trial_end")[0]["detail"] == (
        "window 0: 3 of 20 requests failed (http 500: 3); the server said: injected failure"
    )
    failed = [record for record in kept.role("measure") if record.error]
    assert {(r.status, r.first_s, r.last_s, r.output_tokens) for r in failed} == {
        (500, None, None, None)
    }


def test_few_errors_are_tolerated(tmp_path: Path) -> None:
    """One of twenty is not more than 5 %: the trial completes, the error stays on record."""
    with running("--error-every", 21) as fake:
        kept = run(tmp_path, fake, trial(requests=prompts(20)))
    assert kept.ends() == ["complete"]
    assert kept.events("window")[0]["requests_error"] == 1


def test_short_outputs_count_their_own_tokens(tmp_path: Path) -> None:
    """One token where 256 were asked: 20 tokens in the window, not 5120, and no errors."""
    with running("--short", 1) as fake:
        kept = run(tmp_path, fake, trial(requests=prompts(20, tokens=256)))
    assert kept.events("window")[0]["output_tokens"] == 20
    assert {record.output_tokens for record in kept.role("measure")} == {1}
    assert kept.ends() == ["complete"]


def test_empty_outputs_are_errors(tmp_path: Path) -> None:
    """Answers of status 200 without a token are no measurements."""
    with running("--short", 0) as fake:
        kept = run(tmp_path, fake, trial(requests=prompts(4)))
    assert kept.ends() == ["errors"]
    assert {record.error for record in kept.role("measure")} == {"no output"}
    assert kept.events("window")[0]["output_tokens"] is None


def test_slow_first_request_is_in_the_warm_up(tmp_path: Path) -> None:
    """A first request that compiles is on record, outside the window; warm-up runs at the
    trial's own concurrency."""
    asked = trial(requests=prompts(8), warmup=prompts(4), concurrency=4)
    with running("--first-request-delay", 0.9, "--rate", 100) as fake:
        kept = run(tmp_path, fake, asked)
    warm = kept.role("warmup")
    slowest_s = max(record.last_s or 0.0 for record in warm)
    usual_s = statistics.median(record.last_s or 0.0 for record in kept.role("measure"))
    assert slowest_s > 0.9 > 5 * usual_s
    assert {record.stream for record in warm} == {0, 1, 2, 3}
    first_end_s = min(record.sent_s + (record.end_s or 0.0) for record in warm)
    assert all(record.sent_s < first_end_s for record in warm)


def test_flush_that_is_busy_twice(tmp_path: Path) -> None:
    """400 twice, then 200: three tries, confirmed."""
    with running("--flush-busy", 2) as fake:
        kept = run(tmp_path, fake, trial(requests=prompts(2)))
    (flushed,) = kept.events("flush")
    assert (flushed["confirmed"], flushed["tries"], flushed["status"]) == (True, 3, 200)
    assert (flushed["trial"], flushed["window"]) == ("t1", 0)


def test_flush_that_is_always_busy_is_not_silent(tmp_path: Path) -> None:
    """The window is measured, and the record says that its cache was not proven cold."""
    with running("--flush-busy", -1) as fake:
        kept = run(tmp_path, fake, trial(requests=prompts(2)), flush_limit_s=0.5)
    (flushed,) = kept.events("flush")
    assert (flushed["confirmed"], flushed["status"]) == (False, 400)
    assert flushed["tries"] >= 3
    assert kept.ends() == ["complete"]


def test_no_flush_where_there_is_nothing_to_flush(tmp_path: Path) -> None:
    """An engine without a flush call has no flush phase and no flush event."""
    doc = launch(trial(requests=prompts(2)))
    with running() as fake:
        journal = Journal(str(tmp_path))
        run_trials(
            replace(doc, engine=replace(doc.engine, flush=None)), fake.port, journal, StopSignal()
        )
    kept = Kept(tmp_path)
    assert kept.events("flush") == []
    assert kept.ends() == ["complete"]


def test_usage_missing(tmp_path: Path) -> None:
    """Without counts a window has no tokens, and min windows are enough."""
    repeats = wire.Repeats(2, 6, 0.0, [None, None, 12.7, 4.3, 3.2, 2.8, 2.6])
    with running("--no-usage") as fake:
        kept = run(tmp_path, fake, trial(requests=prompts(2), repeats=repeats))
    assert [window["output_tokens"] for window in kept.events("window")] == [None, None]
    assert kept.ends() == ["complete"]


def test_windows_go_on_until_max_when_they_differ(tmp_path: Path) -> None:
    """A rule that no window can satisfy ends at max."""
    repeats = wire.Repeats(2, 4, 0.0, [None, None, 12.7, 4.3, 3.2])
    with running() as fake:
        kept = run(tmp_path, fake, trial(requests=prompts(2), repeats=repeats))
    assert [window["window"] for window in kept.events("window")] == [0, 1, 2, 3]


def test_pin_is_called_before_anything_and_must_succeed(tmp_path: Path) -> None:
    """A configuration that could not be pinned is not measured; the next trial is."""
    pin = [wire.HttpCall("/no_such_call", "POST", {"steps": 3})]
    first = trial(requests=prompts(2), pin=pin)
    second = trial(requests=prompts(2), trial_id="t2", pin=[wire.HttpCall("/server_info")])
    with running() as fake:
        kept = run(tmp_path, fake, first, second)
    assert kept.ends() == ["errors", "complete"]
    detail = kept.events("trial_end")[0]["detail"]
    assert detail.startswith("pin /no_such_call: answered 404")
    assert {record.trial for record in kept.requests} == {"t2"}


def test_a_bad_trial_does_not_stop_the_next(tmp_path: Path) -> None:
    """Errors in one trial leave the server up: the next one runs."""
    bad = [replace(request, path="/nowhere") for request in prompts(2)]
    with running() as fake:
        kept = run(tmp_path, fake, trial(requests=bad), trial(requests=prompts(2), trial_id="t2"))
    assert kept.ends() == ["errors", "complete"]


def test_server_that_hangs_from_the_start(tmp_path: Path) -> None:
    """A warm-up in which nothing comes ends the trial before any window."""
    asked = trial(requests=prompts(4), warmup=prompts(2), concurrency=2)
    with running("--hang-generate") as fake:
        kept = run(tmp_path, fake, asked, request_s=0.4)
    assert kept.ends() == ["stalled"]
    assert kept.events("window") == []


@pytest.mark.parametrize("reason", ["server_exit", "stopped", "deadline"])
def test_stop_ends_the_trial_with_its_reason(tmp_path: Path, reason: str) -> None:
    """A stop in a window ends it at once, keeps what came, and begins no other trial."""
    stop = StopSignal()
    asked = [trial(requests=prompts(4, 1000), trial_id=name, concurrency=2) for name in "ab"]
    with running("--rate", 50) as fake:
        threading.Timer(0.6, stop.set, [reason]).start()
        begin_s = time.monotonic()
        kept = run(tmp_path, fake, *asked, stop=stop)
        took_s = time.monotonic() - begin_s
    assert took_s < 1.5
    assert kept.ends() == [reason]
    assert kept.events("window")[0]["complete"] is False
    records = kept.role("measure")
    assert [record.error for record in records] == ["stopped"] * 2
    assert all(record.chunks > 5 and record.output_tokens for record in records)
    scrapes = [path.name for path in (tmp_path / wire.SCRAPES_DIR).iterdir()]
    assert scrapes == ["a.0.before.metrics"]


def test_server_that_dies_in_a_window(tmp_path: Path) -> None:
    """Its exit, told a moment later by whoever watches the process, is the trial's end; the
    requests that were left are not burnt against a closed port."""
    stop = StopSignal()

    def watch(fake: Fake) -> None:
        fake.process.wait()
        time.sleep(0.1)
        stop.set("server_exit")

    with running("--die-in-request", 6) as fake:
        watcher = threading.Thread(target=watch, args=(fake,))
        watcher.start()
        kept = run(tmp_path, fake, trial(requests=prompts(40)), stop=stop)
        watcher.join()
    assert kept.ends() == ["server_exit"]
    errors = [record.error for record in kept.role("measure")]
    assert errors[:4] == [None] * 4
    assert len(errors) == 5
    assert errors[4] in ("connection closed", "connection reset")


@pytest.mark.skipif(OLD_PYTHON is None, reason="no Python 3.9 on this machine")
def test_on_python_3_9(tmp_path: Path) -> None:
    """The oldest Python that nodes may have measures the same counts."""
    asked = trial(requests=prompts(6), warmup=prompts(2), concurrency=3, windows=2)
    (tmp_path / wire.LAUNCH_FILE).write_text(wire.encode(launch(asked)))
    root = Path(__file__).parents[2]
    with running("--flush-busy", 1, "--chunk-tokens", 3, "--draft-tokens", 2) as fake:
        argv = [str(OLD_PYTHON), "-W", "error", "-c", OLD_PYTHON_RUN]
        environment = {**os.environ, "PYTHONPATH": str(root)}
        values = [str(tmp_path / wire.LAUNCH_FILE), str(fake.port), str(tmp_path)]
        subprocess.run([*argv, *values], check=True, env=environment, timeout=60)
    kept = Kept(tmp_path)
    assert kept.ends() == ["complete"]
    assert [window["output_tokens"] for window in kept.events("window")] == [60, 60]
    assert {record.error for record in kept.requests} == {None}
    assert {record.chunks for record in kept.role("measure")} == {4}
    assert GENERATE.meta_at.keys() == kept.requests[-1].meta.keys()


SETTINGS = [wire.HttpCall("/nowhere"), wire.HttpCall("/server_info")]


@pytest.mark.parametrize(
    ("asked", "end", "windows"), [("8", "complete", 1), ("3", "not_pinned", 0)]
)
def test_what_must_be_in_force_is_asked_for(
    tmp_path: Path, asked: str, end: str, windows: int
) -> None:
    """After the warm-up and after the last window; nothing is measured with other settings."""
    expects = [wire.Expected(["steps"], asked)]
    pinned = trial(requests=prompts(2), warmup=prompts(1), expects=expects)
    with running("--override", "steps=8") as fake:
        doc = launch(pinned)
        doc = replace(doc, engine=replace(doc.engine, settings=SETTINGS))
        run_trials(doc, fake.port, Journal(str(tmp_path)), StopSignal())
    kept = Kept(tmp_path)
    (ended,) = kept.events("trial_end")
    assert (ended["end"], ended["windows"]) == (end, windows)
    assert ended["detail"] == (None if windows else "steps is 8, not 3")
    values = [event["values"] for event in kept.events("in_force")]
    assert values == [["8"]] * (1 + windows)
    assert len(kept.role("measure")) == 2 * windows


def test_a_server_that_says_nothing_of_it_is_not_believed(tmp_path: Path) -> None:
    """No answer, and none where the value should stand."""
    pinned = trial(requests=prompts(1), expects=[wire.Expected(["a", 0], 3)])
    with running() as fake:
        kept = run(tmp_path, fake, pinned)
    assert kept.ends() == ["not_pinned"]
    assert kept.events("trial_end")[0]["detail"] == "a.0 is None, not 3"
