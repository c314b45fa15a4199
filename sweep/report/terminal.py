"""The table and the verdict on a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from sweep.analysis.bottleneck import findings, timed_rows
from sweep.analysis.phases import PHASES
from sweep.analysis.verdict import Verdict
from sweep.analysis.wording import bounds, known, number, ratio, several_nodes
from sweep.model.plan import ROLE_SUFFIXES
from sweep.model.states import TrialState
from sweep.report.plain import framed, open_console, plain_table
from sweep.report.text import visible

_STATE_STYLES = {
    TrialState.OK.value: "green",
    TrialState.PARTIAL.value: "yellow",
    TrialState.FAILED.value: "red",
    TrialState.INTERRUPTED.value: "yellow",
}


_FIGURES = ("tok/s", "95 %", "speed-up", "accept len")


def summary(frame: pd.DataFrame, verdict: Verdict) -> Group:
    """Return the table's main columns, one table for each place where rows are compared;
    a configuration that leads is marked with a star, with a hollow one where others are tied."""
    leading = {
        place.leading.trial_id: "★" if place.is_clear else "☆"
        for place in verdict.places
        if place.leading
    }
    places = [*(["node"] if several_nodes(frame) else []), "workload", "concurrency"]
    parts: list[RenderableType] = []
    for keys, rows in frame.groupby(places, sort=False, dropna=False):
        *names, concurrency = (visible(str(key)) for key in keys)
        parts.append(Text(", ".join([*names, f"concurrency {concurrency}"]), style="bold"))
        parts.append(_table(rows, leading))
        timed = timed_rows(rows)
        if len(timed):
            parts.append(_phases(timed))
    return Group(*parts)


def _table(rows: pd.DataFrame, leading: Mapping[str, str]) -> Table:
    names = ("  configuration", *_FIGURES, "state")
    table = plain_table(names, right=_FIGURES, header_style="dim")
    for row in rows.to_dict("records"):
        mark = leading.get(row["trial_id"], "")
        label = _text(row["configuration"], "bold" if mark else "")
        again = ROLE_SUFFIXES.get(row["role"], "")
        star = Text(f" {mark}" if mark else "", style="bold")
        figures = [Text(cell) for cell in _figures(row)]
        table.add_row(Text.assemble("  ", label, again, star), *figures, _state(row))
    return table


def _phases(rows: pd.DataFrame) -> Table:
    figures = (*PHASES, "cycle", "accept len", "break-even")
    table = plain_table(("  ms per cycle", *figures), right=figures, header_style="dim")
    for row in rows.to_dict("records"):
        table.add_row(
            Text.assemble("  ", _text(row["configuration"]), ROLE_SUFFIXES.get(row["role"], "")),
            *(Text(_cell(row, f"{name}_ms")) for name in (*PHASES, "cycle")),
            *(Text(_cell(row, name)) for name in ("accept_length", "break_even_accept_length")),
        )
    return table


def verdict_panel(verdict: Verdict, *, warnings: bool = True) -> RenderableType:
    """Return the verdict in a frame, with what to beware of below."""
    parts: list[RenderableType] = [_text(verdict.summary, "bold")]
    parts += [_text(f"· {place.sentence}") for place in verdict.places if not place.is_objective]
    box = framed(Panel(Group(*parts), title="Verdict", title_align="left", padding=(0, 1)))
    if not warnings or not verdict.warnings:
        return box
    return Group(box, *(_text(f"! {text}", "yellow") for text in verdict.warnings))


def show_result(frame: pd.DataFrame, verdict: Verdict, report: Path | None) -> None:
    """Print the table, the verdict and where the report is; None: it was not written."""
    console = open_console()
    console.print(summary(frame, verdict))
    console.print(verdict_panel(verdict))
    for sentence in findings(frame):
        console.print(_text(f"· {sentence}"))
    if report is not None:
        console.print(Text(f"report: {report}"), soft_wrap=True)


def _figures(row: Any) -> list[str]:
    speedup = "–"
    if known(row["speedup"]):
        interval = bounds(row["speedup_lo"], row["speedup_hi"])
        speedup = ratio(float(row["speedup"])) + interval
    return [
        _cell(row, "output_tok_s"),
        bounds(row["output_tok_s_lo"], row["output_tok_s_hi"]).strip() or "–",
        speedup,
        _cell(row, "accept_length"),
    ]


def _cell(row: Any, name: str) -> str:
    return number(float(row[name])) if known(row[name]) else "–"


def _state(row: Any) -> Text:
    text = _text(row["state"], _STATE_STYLES.get(str(row["state"]), "dim"))
    if known(row["failure_class"]):
        text.append(f" {visible(str(row['failure_class']))}")
    return text


def _text(value: Any, style: str = "") -> Text:
    return Text(visible(str(value)) if known(value) else "–", style=style)
