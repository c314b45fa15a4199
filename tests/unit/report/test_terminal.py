"""Tests of what a terminal shows."""

from __future__ import annotations

from fakes.cycles import cycles_of
from fakes.records import BASELINE, RecordBuilder, TrialPlan, count, experiment, steps, workload
from fakes.timed import timed_sweep
from rich.console import Console, RenderableType

from sweep.analysis.frame import make_frame
from sweep.analysis.verdict import verdict
from sweep.model.plan import Role
from sweep.model.states import Failure
from sweep.report.terminal import summary, verdict_panel


def shown(*items: RenderableType, width: int = 160) -> str:
    """What a terminal of so many columns shows, without colours."""
    console = Console(width=width, no_color=True, force_terminal=False)
    with console.capture() as capture:
        console.print(*items)
    return capture.get()


def builder() -> RecordBuilder:
    """A baseline, a lead, and a failure with an attack for a name."""
    code = workload()
    found = RecordBuilder(experiment(code))
    found.launch(BASELINE, TrialPlan(code), role=Role.BASELINE_FIRST)
    found.launch(
        steps(2), TrialPlan(code, time_s=lambda w, _: 0.5 + 0.001 * w, cycles=40, accepted=60)
    )
    name = "\x1b[2J[bold]x[/nope]"
    found.failed_launch(steps(3, variant=name), code, failure=Failure("oom", "out of memory"))
    return found


def test_table_marks_the_lead_and_keeps_failures() -> None:
    """Figures with intervals, a star for the lead, dashes for what is missing."""
    frame = make_frame(builder().record(), count)
    lines = shown(summary(frame, verdict(frame, experiment()))).splitlines()
    lead = next(line for line in lines if "2 steps" in line)
    assert "168" in lead
    assert "1.83× [1.82, 1.84]" in lead
    assert "2.50" in lead
    assert "2 steps ★" in lead
    assert lead.split()[-1] == "ok"
    failed = next(line for line in lines if "3 steps" in line)
    assert failed.split()[-2:] == ["failed", "oom"]
    assert "–" in failed
    assert "0.00" not in failed


def test_a_narrow_terminal_folds_and_cuts_nothing() -> None:
    """Every figure of a wide terminal is there in 40 columns."""
    frame = make_frame(builder().record(), count)
    judged = verdict(frame, experiment())
    wide, narrow = (shown(summary(frame, judged), width=width) for width in (160, 40))
    assert "…" not in wide + narrow
    assert max(map(len, narrow.splitlines())) <= 40
    assert sorted("".join(narrow.split())) == sorted("".join(wide.split()))


def test_foreign_text_is_neither_markup_nor_escapes() -> None:
    """Square brackets are text, and terminal escapes are gone."""
    frame = make_frame(builder().record(), count)
    judged = verdict(frame, experiment())
    text = shown(summary(frame, judged), verdict_panel(judged))
    assert "[bold]x[/nope]" in text
    assert "\x1b" not in text


def test_verdict_comes_with_warnings_or_without() -> None:
    """The summary in a frame, and below it what to beware of."""
    frame = make_frame(builder().record(), count)
    judged = verdict(frame, experiment())
    with_warnings = shown(verdict_panel(judged))
    assert "2 steps leads with 168 tok/s" in " ".join(with_warnings.split())
    assert "! 1 trial failed with oom" in with_warnings
    assert "!" not in shown(verdict_panel(judged, warnings=False))


def test_phases_are_shown_where_there_are_any() -> None:
    """Milliseconds of each phase below the place's table, and no such table without cycles."""
    phases_s = {"draft_s": 0.001, "verify_s": 0.019, "extend_s": 0.0005, "other_s": 0.0}
    record, cycles = timed_sweep({2: phases_s})
    frame = make_frame(record, count, None, cycles)
    lines = shown(summary(frame, verdict(frame, record.experiment))).splitlines()
    at = next(n for n, line in enumerate(lines) if "ms per cycle" in line)
    assert lines[at].split()[3:] == [
        "draft", "verify", "extend", "other", "cycle", "accept", "len", "break-even"
    ]  # fmt: skip
    assert lines[at + 1].split() == [
        "2", "steps", "1.00", "19.0", "0.500", "0", "20.5", "2.50", "2.05"
    ]  # fmt: skip
    assert "ms per cycle" not in shown(
        summary(make_frame(record, count), verdict(frame, record.experiment))
    )


def test_launches_of_one_configuration_are_told_apart_in_both_tables() -> None:
    """What was measured in a scan, and what confirmed it."""
    code = workload()
    found = RecordBuilder(experiment(code))
    for role in (Role.SCAN, Role.CONFIRM):
        found.launch(steps(3), TrialPlan(code, cycles=40, accepted=60, drafted=120), role=role)
    record = found.record()
    frame = make_frame(record, count, None, cycles_of(record))
    text = shown(summary(frame, verdict(frame, experiment())))
    assert text.count("3 steps (alone)") == 2
    assert text.count("  3 steps  ") + text.count("  3 steps ★") == 2
