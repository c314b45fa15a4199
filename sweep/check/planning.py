"""What the engine's rules make of an experiment."""

from __future__ import annotations

from collections.abc import Iterator

from sweep.check.line import CheckLine, ok, warning
from sweep.check.wording import counted, minutes, some
from sweep.spec.describe import PlanSummary


def lines(summary: PlanSummary) -> Iterator[CheckLine]:
    """Yield what is to be said of the plan: counts, what is not launched and why, adjustments."""
    yield ok("plan", f"{summary.headline}, {_expected(summary)}")
    by_reason: dict[str, list[str]] = {}
    for row in summary.skipped:
        by_reason.setdefault(row.reason, []).append(row.label)
    for reason, labels in by_reason.items():
        yield warning(
            "plan",
            f"{counted(len(labels), 'configuration')} not launched ({some(labels)}): {reason}",
        )
    for text in summary.warnings:
        yield warning("plan", text)
    for note in summary.notes:
        yield ok("plan", note)


def _expected(summary: PlanSummary) -> str:
    expected = summary.estimate
    least = "at least" if expected.is_lower_bound else "about"
    return f"{least} {minutes(expected.seconds)}: {expected.basis}"
