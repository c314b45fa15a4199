"""Throughput and speed-up against concurrency: where speculation stops paying."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import NullLocator

from sweep.analysis.verdict import Verdict, ranking_rows
from sweep.analysis.wording import known, listed, several_nodes
from sweep.model.states import TrialState
from sweep.plots.pairs import Band, draw_pairs
from sweep.plots.style import (
    ALERT,
    BAND,
    INK,
    SMALL_SIZE,
    Look,
    looks,
    plain,
    say,
    values,
)

PANEL_IN = 3.4
MOST_LINES = 5
"""Configurations in a panel: the best at each concurrency, then those that do best throughout."""
_DODGE = 0.035
"""Distance between marks at one concurrency, in doublings."""

NOTE = (
    "The configurations that are best at some concurrency, then the best throughout. Bars: 95 % "
    "intervals, prompts paired at the right. It pays where the interval of the best is above 1; "
    "shaded: between where it last pays and where it first does not. Crosses: what did not end ok "
    "(of all configurations), and why."
)


@dataclass(frozen=True)
class _Panel:
    """The rows of one workload on one node that were measured at several concurrencies."""

    title: str
    rows: pd.DataFrame

    @property
    def rated(self) -> pd.DataFrame:
        return self.rows[
            (self.rows["state"] == TrialState.OK.value) & self.rows["output_tok_s"].notna()
        ]

    @property
    def speculating(self) -> pd.DataFrame:
        return self.rated[~self.rated["is_baseline"].astype(bool)]

    @property
    def concurrencies(self) -> list[int]:
        return sorted({int(number) for number in self.rows["concurrency"]})


def concurrency(frame: pd.DataFrame, verdict: Verdict) -> Figure | None:
    """Draw throughput [tokens/s] and speed-up over concurrency; None without two of them."""
    first = [(place.node, place.workload) for place in verdict.places]
    panels = sorted(_panels(frame), key=lambda item: first.index(item[0]))
    if not panels:
        return None
    shown = [panel for _, panel in panels]
    lines = [_lines(panel) for panel in shown]
    names = list(dict.fromkeys(name for own in lines for name in own))
    styles = dict(zip(names, looks(len(names)), strict=True))
    bands = [Band(panel.title, PANEL_IN) for panel in shown]
    sheet = draw_pairs(bands, _title(shown), NOTE, _legend(styles, shown))
    for panel, own, (left, right) in zip(shown, lines, sheet.pairs, strict=True):
        _draw(panel, {name: styles[name] for name in own}, left, right)
    return sheet.figure


def _panels(frame: pd.DataFrame) -> Iterator[tuple[tuple[str, str], _Panel]]:
    rows = ranking_rows(frame)
    for (node, workload), own in rows[rows["node"].notna()].groupby(
        ["node", "workload"], sort=False
    ):
        panel = _Panel(f"{node}: {workload}" if several_nodes(frame) else str(workload), own)
        if len(set(panel.rated["concurrency"])) > 1:
            yield (str(node), str(workload)), panel


def _lines(panel: _Panel) -> list[str]:
    """Names of the configurations to be drawn."""
    rows = panel.speculating
    best = rows.groupby("concurrency")["output_tok_s"].transform("max")
    share = (rows["output_tok_s"] / best).groupby(rows["configuration"]).mean()
    leaders = rows[rows["output_tok_s"] == best].sort_values("concurrency")
    names = list(dict.fromkeys([*leaders["configuration"], *share.sort_values()[::-1].index]))
    return [str(name) for name in names[:MOST_LINES]]


def _verdicts(panel: _Panel) -> tuple[list[int], list[int], list[int]]:
    """Concurrencies at which the best pays, does not pay, and at which that is open."""
    rows = panel.speculating.sort_values("output_tok_s", ascending=False, kind="stable")
    best = rows.drop_duplicates("concurrency").sort_values("concurrency")
    pays: list[int] = []
    costs: list[int] = []
    unsure: list[int] = []
    for row in best.to_dict("records"):
        lo, hi = row["speedup_lo"], row["speedup_hi"]
        group = pays if known(lo) and lo > 1 else costs if known(hi) and hi < 1 else unsure
        group.append(int(row["concurrency"]))
    return pays, costs, unsure


def _finding(panel: _Panel) -> str:
    pays, costs, unsure = _verdicts(panel)
    if not (pays or costs):
        return "whether speculation pays is open at every concurrency"
    if pays and costs and max(pays) < min(costs):
        return f"speculation stops paying between concurrency {max(pays)} and {min(costs)}"
    if pays and costs:
        return f"speculation pays at concurrency {_numbers(pays)}, not at {_numbers(costs)}"
    rest = f"; whether at {_numbers(unsure)} is open" if unsure else ""
    if pays:
        every = "" if unsure else ", all that were measured"
        return f"speculation pays at concurrency {_numbers(pays)}{every}{rest}"
    return f"speculation does not pay at concurrency {_numbers(costs)}{rest}"


def _title(panels: Sequence[_Panel]) -> str:
    found: dict[str, list[str]] = {}
    for panel in panels:
        found.setdefault(_finding(panel), []).append(panel.title)
    if len(found) == 1:
        (finding,) = found
        return finding[0].upper() + finding[1:]
    return "; ".join(f"{listed(titles)}: {finding}" for finding, titles in found.items())


def _numbers(found: Sequence[int]) -> str:
    return listed([str(number) for number in found])


def _legend(styles: dict[str, Look], panels: Sequence[_Panel]) -> dict[str, Any]:
    entries: dict[str, Any] = {
        name: Line2D([], [], color=look.colour, marker=look.marker, markersize=5)
        for name, look in styles.items()
    }
    if any(panel.rated["is_baseline"].any() for panel in panels):
        entries["baseline"] = Line2D([], [], color=BAND, marker=".", linestyle="--")
    if any(_crossing(panel) for panel in panels):
        entries["stops paying"] = Patch(facecolor=BAND, alpha=0.25, linewidth=0)
    return entries


def _crossing(panel: _Panel) -> tuple[int, int] | None:
    pays, costs, _ = _verdicts(panel)
    return (max(pays), min(costs)) if pays and costs and max(pays) < min(costs) else None


def _draw(panel: _Panel, styles: dict[str, Look], left: Axes, right: Axes) -> None:
    for axes in (left, right):
        axes.set_xscale("log", base=2)
        axes.set_xticks(panel.concurrencies, [str(number) for number in panel.concurrencies])
        axes.xaxis.set_minor_locator(NullLocator())
        low, high = panel.concurrencies[0], panel.concurrencies[-1]
        axes.set_xlim(low / 1.25, high * 1.25)
        axes.set_xlabel("concurrency [requests in flight]")
    left.set_ylabel("output throughput [tokens/s]")
    right.set_ylabel("speed-up over the arm's baseline")
    _draw_baselines(panel, left)
    for position, (name, look) in enumerate(styles.items()):
        rows = panel.rows[panel.rows["configuration"] == name].sort_values("concurrency")
        shift = 2.0 ** (_DODGE * (position - (len(styles) - 1) / 2))
        _errors(left, rows, "output_tok_s", look, shift)
        _errors(right, rows, "speedup", look, shift)
    left.set_ylim(bottom=0)
    if panel.speculating["speedup"].notna().any():
        right.axhline(1.0, color=INK, linewidth=1.2, linestyle="--")
        right.margins(y=0.12)
    else:
        say(right, "no speed-up: no baseline ended ok")
    crossing = _crossing(panel)
    if crossing:
        right.axvspan(*crossing, color=BAND, alpha=0.25, linewidth=0)
    _draw_lost(panel, left)


def _draw_baselines(panel: _Panel, axes: Axes) -> None:
    rated = panel.rated[panel.rated["is_baseline"].astype(bool)]
    for _, own in rated.groupby("arm", sort=False):
        rates = own.groupby("concurrency")["output_tok_s"].mean()
        axes.plot(
            rates.index.to_numpy(dtype=float), values(rates), color=BAND, marker=".",
            linestyle="--", linewidth=1.4,
        )  # fmt: skip


def _errors(axes: Axes, rows: pd.DataFrame, column: str, look: Look, shift: float) -> None:
    # A row that did not end ok has no value: the line has a gap.
    y = rows[column].where(rows["state"] == TrialState.OK.value)
    below = (y - rows[f"{column}_lo"]).fillna(0.0).astype(float)
    above = (rows[f"{column}_hi"] - y).fillna(0.0).astype(float)
    axes.errorbar(
        rows["concurrency"].astype(float) * shift, values(y), yerr=[below, above],
        color=look.colour, marker=look.marker, markersize=5, linewidth=1.6, elinewidth=1,
        capsize=2.5,
    )  # fmt: skip


def _draw_lost(panel: _Panel, axes: Axes) -> None:
    """Name at each concurrency, along the lower edge, what was to be measured there and why not."""
    lost = panel.rows[panel.rows["state"] != TrialState.OK.value]
    lost = lost.assign(why=lost["failure_class"].fillna(lost["state"]))
    for number in panel.concurrencies:
        own = lost[lost["concurrency"] == number]
        for position, (why, count) in enumerate(own["why"].value_counts(sort=False).items()):
            text = f"✕ {why}" if count == 1 else f"✕ {count} {why}"
            axes.annotate(
                plain(text), (number, 0.0), xycoords=("data", "axes fraction"),
                xytext=(0, 4 + 11 * position), textcoords="offset points", ha="center",
                fontsize=SMALL_SIZE - 0.5, color=ALERT,
            )  # fmt: skip
