"""The report's tables of what is predicted over draft steps, beside what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sweep.analysis.optimum import optimum_sentence
from sweep.analysis.prediction import Line, Step
from sweep.analysis.wording import number

HEADINGS = (
    ("steps", "Draft steps of the chain."),
    ("τ predicted", "1 + p_1 + … + p_s of the longest chain [tokens/cycle]."),
    ("τ measured", "accept_length of the chain itself."),
    ("error", "τ predicted ÷ τ measured - 1."),
    ("verify fitted", "The cost model's verification [ms/cycle]."),
    ("verify measured", "verify_ms [ms/cycle]."),
    ("residual", "Measured - fitted [ms/cycle]."),
    ("cycle predicted", "Fitted verification and drafting, and the rest [ms/cycle]."),
    ("cycle measured", "cycle_ms [ms/cycle]."),
    ("tok/s predicted", "τ predicted ÷ cycle predicted, of one stream's decoding."),
    ("tok/s measured", "decode_tok_s."),
    ("error without it", "Predicted ÷ measured - 1, the row's own times left out of the fit."),
)
"""Columns with what each means."""


@dataclass(frozen=True)
class PredictionTable:
    """A line: its name with its place, what is to be said of it, and its rows of cells."""

    title: str
    notes: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def prediction_tables(lines: Sequence[Line], *, several_nodes: bool) -> tuple[PredictionTable, ...]:
    """Return a table for each line of which anything is predicted."""
    return tuple(
        PredictionTable(_title(line, several_nodes), _notes(line), tuple(map(_row, line.steps)))
        for line in lines
        if line.longest is not None or line.costs is not None
    )


def _title(line: Line, several_nodes: bool) -> str:
    node = f"{line.node}: " if several_nodes else ""
    return f"{node}{line.name}, {line.workload}, concurrency {line.concurrency}"


def _notes(line: Line) -> tuple[str, ...]:
    notes = []
    if line.longest is None:
        notes.append("Acceptance by position is not known, so no accept length is predicted.")
    if line.costs is None:
        return (*notes, f"No cost model: {line.refused}.")
    if line.optimum is not None:
        notes.append(optimum_sentence(line))
    costs = line.costs
    fits = (
        f"Verification: {costs.verify.formula('n')}, n = {costs.batch} × (steps + 1) tokens. "
        f"Drafting: {costs.draft.formula('steps')}. The rest: {number(costs.rest_ms)} ms."
    )
    return (*notes, fits)


def _row(step: Step) -> tuple[str, ...]:
    measured = step.measured
    return (
        str(step.steps),
        _cell(step.accept_length),
        _cell(measured.accept_length),
        _share(step.accept_length_error),
        _cell(step.verify_ms),
        _cell(measured.verify_ms),
        "" if step.verify_residual_ms is None else f"{step.verify_residual_ms:+z.2f}",
        _cell(step.cycle_ms),
        _cell(measured.cycle_ms),
        _cell(step.decode_tok_s),
        _cell(measured.decode_tok_s),
        _share(measured.decode_error),
    )


def _cell(value: float | None) -> str:
    return "" if value is None else number(value)


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:+z.1%}"
