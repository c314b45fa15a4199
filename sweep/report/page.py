"""The report as one HTML text: nothing to load, everything foreign escaped."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from sweep.analysis.bottleneck import findings, timed_rows
from sweep.analysis.glossary import FLAGS, Column, entry
from sweep.analysis.prediction import find_lines
from sweep.analysis.verdict import Verdict
from sweep.analysis.wording import bounds, known, number, several_nodes
from sweep.model.plan import ROLE_SUFFIXES
from sweep.model.record import SweepRecord
from sweep.plots.style import ALERT, COLOURS, INK, MUTED, RULE, SURFACE
from sweep.report.details import experiment_text, launch_details, prompts, provenance
from sweep.report.predictions import HEADINGS, prediction_tables
from sweep.report.text import visible

MAIN_COLUMNS = (
    "configuration", "workload", "concurrency", "state", "failure_class", "flags",
    "output_tok_s", "speedup", "speedup_vs_default", "vs_best", "accept_length",
    "break_even_accept_length", "acceptance_rate", "decode_tok_s", "ttft_s_p50", "tpot_s_p50",
    "same_as_baseline_share", "windows", "load_s",
)  # fmt: skip
"""Shown at once, in this order; the others on request."""
PHASE_COLUMNS = ("draft_ms", "verify_ms", "extend_ms", "other_ms", "cycle_ms")
"""Shown too where any cycle was measured, before the accept length."""

TIMER_COLUMNS = ("timer_draft_ms", "timer_verify_ms", "timer_extend_ms")
"""Beside them, where the engine has a timer of its own."""

_THEME = {
    SURFACE: "surface", INK: "ink", MUTED: "muted", RULE: "rule", ALERT: "bad",
    COLOURS[0]: "blue", COLOURS[1]: "red", COLOURS[2]: "green",
}  # fmt: skip
"""Colours of the figures that the page's style sets, to suit light and dark."""

_NUMBERS = ("Int64", "Float64")
_INTERVAL_ENDS = ("_lo", "_hi")


@dataclass(frozen=True)
class Plot:
    """A figure of the page: its SVG, what it says to those who cannot see it, and its shape."""

    title: str
    svg: str
    shape: str = ""


@dataclass(frozen=True)
class _Heading:
    name: str
    css: str
    tooltip: str


@dataclass(frozen=True)
class _Cell:
    text: str
    value: str
    css: str
    interval: str = ""


@dataclass(frozen=True)
class _Row:
    cells: tuple[_Cell, ...]
    is_leading: bool


def page(record: SweepRecord, frame: pd.DataFrame, verdict: Verdict, plots: Sequence[Plot]) -> str:
    """Return report.html."""
    environment = Environment(
        loader=PackageLoader("sweep.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finalize,
    )
    main = _main_columns(frame)
    order = _column_order(frame, main)
    leading = {place.leading.trial_id for place in verdict.places if place.leading}
    return environment.get_template("report.html.j2").render(
        name=record.experiment.name,
        sweep_id=record.sweep_id,
        created_utc=record.created_utc,
        driver_note=record.driver_note,
        verdict=verdict,
        several_nodes=several_nodes(frame),
        findings=findings(frame),
        states=list(frame["state"].value_counts(sort=False).items()),
        plots=[Plot(plot.title, Markup(_themed(plot.svg)), plot.shape) for plot in plots],  # noqa: S704  our own drawing
        predictions=prediction_tables(find_lines(frame), several_nodes=several_nodes(frame)),
        prediction_headings=HEADINGS,
        columns=[_heading(entry(name), main) for name in order],
        rows=[_row(row, order, main, leading) for row in frame.to_dict("records")],
        launches=launch_details(record),
        provenance=provenance(record),
        experiment=experiment_text(record),
        prompts=prompts(record),
        glossary=[entry(str(name)) for name in frame.columns],
        flags=list(FLAGS.items()),
        css=Markup(_asset("report.css")),  # noqa: S704  our own file
        js=Markup(_asset("report.js")),  # noqa: S704  our own file
    )


def _finalize(value: Any) -> Any:
    """Clean every text that a template prints; markup is our own."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _asset(name: str) -> str:
    return files("sweep.report").joinpath(name).read_text(encoding="utf-8")


def _themed(svg: str) -> str:
    """Return an SVG element whose paper, text and rules follow the page's light or dark look."""
    body = svg[svg.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    for colour, name in _THEME.items():
        body = body.replace(colour, f"var(--{name})")
    return body


def _main_columns(frame: pd.DataFrame) -> tuple[str, ...]:
    node = ("node",) if several_nodes(frame) else ()
    phases: tuple[str, ...] = () if timed_rows(frame).empty else PHASE_COLUMNS
    phases += tuple(name for name in TIMER_COLUMNS if frame[name].notna().any())
    at = MAIN_COLUMNS.index("accept_length")
    return (*node, *MAIN_COLUMNS[:at], *phases, *MAIN_COLUMNS[at:])


def _column_order(frame: pd.DataFrame, main: Sequence[str]) -> list[str]:
    """Main columns first; ends of intervals stand in the cell of their estimate."""
    names = [str(name) for name in frame.columns if not str(name).endswith(_INTERVAL_ENDS)]
    return [*main, *(name for name in names if name not in main)]


def _css(column: Column, main: Sequence[str]) -> str:
    classes = ["number"] if column.dtype in _NUMBERS else []
    return " ".join(classes if column.name in main else [*classes, "more"])


def _heading(column: Column, main: Sequence[str]) -> _Heading:
    unit = f" [{column.unit}]" if column.unit else ""
    tooltip = f"{column.name}{unit}: {column.definition}"
    return _Heading(column.name, _css(column, main), tooltip)


def _row(
    row: Mapping[Any, Any], order: Sequence[str], main: Sequence[str], leading: set[str]
) -> _Row:
    cells = []
    for name in order:
        column, value = entry(name), row[name]
        css = _css(column, main)
        if not known(value):
            cells.append(_Cell("", "", css))
            continue
        if name == "state":
            css += f" {value}"
        text = number(value) if column.dtype == "Float64" else str(value)
        if name == "configuration":
            text += ROLE_SUFFIXES.get(row["role"], "")
        interval = bounds(row.get(f"{name}_lo"), row.get(f"{name}_hi")).strip()
        cells.append(_Cell(text, str(value), css.strip(), interval))
    return _Row(tuple(cells), known(row["trial_id"]) and row["trial_id"] in leading)
