"""Progress for people: plain lines for what changed, and durations."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from sweep.model.states import Failure, LaunchState
from sweep.report.live import changes, duration, listed, overview, reasons
from sweep.report.progress import LaunchLine, Now, Progress


def line(launch_id: str, state: LaunchState = LaunchState.PLANNED, **changes: Any) -> LaunchLine:
    """A launch in the overview."""
    fields: dict[str, Any] = {
        "label": f"launch {launch_id}",
        "node": "gpu-a",
        "role": "main",
        "failure": None,
        "attempts": 0,
        "trials": {"planned": 2},
        "trial_failures": {},
        "duration_s": None,
    } | changes
    return LaunchLine(launch_id=launch_id, state=state, **fields)


def now(**changes: Any) -> Now:
    """What runs: the first trial of the first launch."""
    fields: dict[str, Any] = {
        "launch_id": "a",
        "label": "launch a",
        "node": "gpu-a",
        "attempt": 1,
        "phase": "load",
        "phase_for_s": 3.0,
        "milestone": None,
        "trial": None,
        "windows": 0,
        "max_windows": 0,
        "note": None,
        "running_for_s": 3.0,
    } | changes
    return Now(**fields)


def progress(*lines: LaunchLine, **changes: Any) -> Progress:
    """A sweep whose driver lives."""
    fields: dict[str, Any] = {
        "driver": "running",
        "driver_alive": True,
        "stage": "running",
        "note": None,
        "now": (),
        "finished": 0,
        "eta_s": None,
    } | changes
    return Progress(sweep_id="s-1", name="s", launches=lines, **fields)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "–"),
        (0.0, "0.0 s"),
        (0.84, "0.8 s"),
        (9.94, "9.9 s"),
        (9.96, "10 s"),
        (59.4, "59 s"),
        (59.6, "1 min 00 s"),
        (185.0, "3 min 05 s"),
        (3599.4, "59 min 59 s"),
        (3599.6, "1 h 00 min"),
        (7620.0, "2 h 07 min"),
        (100 * 3600.0, "100 h 00 min"),
    ],
)
def test_durations(seconds: float | None, text: str) -> None:
    """Two units at most, none of them ever 60."""
    assert duration(seconds) == text


def test_the_first_look_tells_size_and_stage() -> None:
    """Planned launches are not listed; what is under way or over is."""
    before = progress(line("a", LaunchState.DONE, duration_s=12.0), line("b"))
    assert changes(None, before) == [
        "sweep s-1: 2 launches",
        "driver: running",
        "launch 1/2 launch a: done after 12 s",
    ]


def test_nothing_changed_tells_nothing() -> None:
    """No line without news; time that passes is none."""
    before = progress(line("a", LaunchState.RUNNING), now=(now(),))
    after = replace(before, now=(now(phase_for_s=60.0, running_for_s=60.0),))
    assert changes(before, after) == []


def test_a_failure_is_told_with_class_and_reason() -> None:
    """The line of a launch that failed says why."""
    failed = line("a", LaunchState.FAILED, failure=Failure("oom", "no memory"), duration_s=61.0)
    told = changes(progress(line("a", LaunchState.RUNNING)), progress(failed))
    assert told == ["launch 1/1 launch a: failed after 1 min 01 s (oom: no memory)"]


def test_why_trials_failed_is_told_beside_why_their_launch_did() -> None:
    """A launch that ended well may hold trials that did not."""
    short = {"short_output": "2 of 3 answers are short"}
    here = progress()
    assert reasons(here, line("a", LaunchState.DONE, trial_failures=short)) == [
        "launch a: short_output: 2 of 3 answers are short"
    ]
    failed = line("b", failure=Failure("oom", "no memory"), trial_failures=short)
    assert [text.split(": ")[1] for text in reasons(here, failed)] == ["oom", "short_output"]
    assert reasons(here, line("c")) == []


def test_launches_of_several_nodes_are_told_apart() -> None:
    """The node stands before the label, wherever a launch is named."""
    failure = Failure("oom", "no memory")
    lines = (line("a"), line("b", LaunchState.FAILED, node="gpu-b", failure=failure))
    both = progress(*lines, now=(now(),))
    told = changes(progress(line("a"), line("b", node="gpu-b")), both)
    assert told == [
        "launch 2/2 gpu-b: launch b: failed (oom: no memory)",
        "  gpu-a: launch a: load, for 3.0 s; time left unknown",
    ]
    assert reasons(both, lines[1]) == ["gpu-b: launch b: oom: no memory"]
    output = io.StringIO()
    Console(file=output, width=200).print(overview(both))
    assert "gpu-b: launch b" in output.getvalue()


def test_phases_milestones_windows_and_waits_are_told() -> None:
    """Each is one line; the short phases of a window are none."""
    running = line("a", LaunchState.RUNNING)

    def told(before: Now, after: Now, **fields: Any) -> list[str]:
        return changes(progress(running, now=(before,)), progress(running, now=(after,), **fields))

    assert told(now(phase="claim"), now()) == [
        "  launch a: load, for 3.0 s; time left unknown",
    ]
    assert told(now(), now(milestone="weights_loaded"), eta_s=120.0) == [
        "  launch a: load, weights loaded, for 3.0 s; 2 min 00 s left",
    ]
    in_trial = now(phase="measure", trial="code, concurrency 1", max_windows=12)
    assert told(in_trial, replace(in_trial, phase="flush")) == []
    after = told(in_trial, replace(in_trial, windows=1))
    assert [text.partition(";")[0] for text in after] == [
        "  launch a: code, concurrency 1, 1 of at most 12 windows done, measure, for 3.0 s",
    ]
    assert "waiting: bob's sweep" in told(now(phase="claim"), now(note="bob's sweep"))[0]


def test_a_dead_driver_promises_no_time() -> None:
    """Without a driver nothing gets done, whatever the database says is running."""
    running = line("a", LaunchState.RUNNING)
    dead = progress(running, now=(now(),), driver_alive=False, stage=None, eta_s=100.0)
    assert not any("left" in text for text in changes(None, dead))


def test_labels_are_text_and_no_markup() -> None:
    """Brackets in names of the experiment reach the terminal as they are."""
    output = io.StringIO()
    label = "[red]x[/red] a=[1]"
    shown = progress(line("a", LaunchState.RUNNING, label=label), now=(now(label=label),))
    Console(file=output, width=200).print(overview(shown))
    assert output.getvalue().count(label) == 2


def test_a_listed_sweep_is_one_line_with_its_whole_id() -> None:
    """In columns; one that cannot be read says why, whatever its database holds."""
    row = {"created_utc": "2026-11-29T22:54:31.123Z", "problem": None, "running": False}
    ended = row | {"sweep_id": "a" * 60, "exit_code": 0, "trials": {"ok": 3, "not_run": 1}}
    never: dict[str, Any] = row | {"sweep_id": "b", "exit_code": None, "trials": {}}
    broken = row | {"sweep_id": "c", "created_utc": "", "problem": "malformed \x1b[2Jfile"}
    assert listed([ended, never | {"running": True}, never, broken]) == [
        f"{'sweep':<60}  created               state           trials",
        f"{'a' * 60}  2026-11-29T22:54:31Z  exit 0          3 ok, 1 not run",
        f"{'b':<60}  2026-11-29T22:54:31Z  running         ",
        f"{'b':<60}  2026-11-29T22:54:31Z  not ended       ",
        f"{'c':<60}  {'':<20}  cannot be read  malformed file",
    ]
    assert listed([]) == ["no sweeps"]
