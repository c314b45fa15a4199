"""Variants against the variant `default`, configuration by configuration, in per cent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from sweep.analysis.glossary import ARGUMENT_PREFIX
from sweep.analysis.references import DEFAULT_VARIANT as DEFAULT
from sweep.analysis.verdict import Verdict
from sweep.analysis.wording import counted, known, listed
from sweep.model.states import TrialState
from sweep.plots.facets import Facet, facets
from sweep.plots.pairs import Band, draw_pairs
from sweep.plots.style import (
    ALERT,
    INK,
    LONGEST_NAME,
    MUTED,
    RULE,
    SMALL_SIZE,
    SURFACE,
    TEXT_SIZE,
    Look,
    abridged,
    looks,
    plain,
)

ROW_IN = 0.2
"""Height of a configuration, beside that of its marks."""
MARK_IN = 0.11
PANEL_IN = 0.75
MOST_ROWS = 40
"""Configurations of a panel: the fastest in any variant, and the baseline."""
MOST_PANELS = 4
_SPREAD = 0.72
"""Share of a configuration's height over which its marks are spread."""
_COMPARED = ("verify_ms", "output_tok_s")

NOTE = (
    "Each mark: a configuration with the variant's environment and arguments against the same one "
    f"with those of `{DEFAULT}`. Bars: 95 % intervals, prompts paired; verify ms have none. "
    "Crosses: what did not end ok, and why."
)

_Key: TypeAlias = tuple[Any, ...]
_Rows: TypeAlias = Mapping[_Key, Mapping[str, Any]]
"""Configuration without its variant → variant → its row."""
_Panel: TypeAlias = tuple[Facet, _Rows]


@dataclass(frozen=True)
class _Difference:
    """A variant against the default at one configuration [%]; `why`: there is no value."""

    value: float
    lo: float
    hi: float
    why: str = ""


def variants(frame: pd.DataFrame, verdict: Verdict) -> Figure | None:
    """Draw differences to the default variant [%]; None where no configuration has two variants."""
    panels = [(facet, _paired(facet)) for facet in facets(frame, verdict)]
    panels = [(facet, rows) for facet, rows in panels if _has_value(rows)]
    if not panels:
        return None
    shown = [(facet, _fastest(rows)) for facet, rows in panels[:MOST_PANELS]]
    note = NOTE + _left_out(panels, shown)
    names = list(dict.fromkeys(name for _, rows in shown for own in rows.values() for name in own))
    names.remove(DEFAULT)
    styles = dict(zip(names, looks(len(names)), strict=True))
    bands = [
        Band(facet.title, PANEL_IN + (ROW_IN + MARK_IN * len(names)) * len(rows))
        for facet, rows in shown
    ]
    legend = {
        name: Line2D([], [], color=look.colour, marker=look.marker, markersize=5, linestyle="none")
        for name, look in styles.items()
    }
    sheet = draw_pairs(bands, _title(shown[0][1], names), note, legend, sharey=True)
    for (_, rows), (left, right) in zip(shown, sheet.pairs, strict=True):
        _draw(left, right, rows, styles)
    return sheet.figure


def _left_out(panels: Sequence[_Panel], shown: Sequence[_Panel]) -> str:
    """Say what the figure has no room for; empty: nothing."""
    slower = sum(len(rows) for _, rows in panels[: len(shown)]) - sum(
        len(rows) for _, rows in shown
    )
    more = {
        "slower configuration": slower,
        "more panel": len(panels) - len(shown),
    }
    told = [counted(count, noun) for noun, count in more.items() if count]
    return f" {listed(told)}: see the table." if told else ""


def _paired(facet: Facet) -> _Rows:
    """The configurations that were planned in the default variant and in another one."""
    found: dict[_Key, dict[str, Any]] = {}
    rows = facet.rows.sort_values(["num_steps", "topk"], kind="stable", na_position="first")
    for row in rows.to_dict("records"):
        own = found.setdefault(_key(row), {})
        # The first and the last baseline hold the same comparison.
        if not _is_ok(own.get(row["variant"])):
            own[str(row["variant"])] = row
    return {key: own for key, own in found.items() if len(own) > 1 and DEFAULT in own}


def _fastest(rows: _Rows) -> _Rows:
    def order(key: _Key) -> tuple[bool, bool, float]:
        own, is_baseline = rows[key], bool(key[0])
        rates = [float(row["output_tok_s"]) for row in own.values() if known(row["output_tok_s"])]
        return is_baseline, _has_value({key: own}), max(rates, default=0.0)

    kept = set(sorted(rows, key=order, reverse=True)[:MOST_ROWS])
    return {key: own for key, own in rows.items() if key in kept}


def _key(row: Any) -> _Key:
    columns = ["is_baseline", "algorithm", "num_steps", "topk", "effective_num_draft_tokens"]
    columns += [name for name in row if str(name).startswith(ARGUMENT_PREFIX)]
    return tuple(row[name] if known(row[name]) else None for name in columns)


def _is_ok(row: Any) -> bool:
    return row is not None and row["state"] == TrialState.OK.value


def _has_value(rows: _Rows) -> bool:
    return any(
        not np.isnan(_difference(own, name, "output_tok_s").value)
        for own in rows.values() for name in own if name != DEFAULT
    )  # fmt: skip


def _difference(own: Mapping[str, Any], name: str, column: str) -> _Difference:
    row, default = own[name], own[DEFAULT]
    for variant, one in ((name, row), (DEFAULT, default)):
        if not _is_ok(one):
            why = one["failure_class"] if known(one["failure_class"]) else one["state"]
            return _none(why if variant == name else f"{DEFAULT}: {why}")
    if column == "output_tok_s":
        cells = [row[f"vs_default_variant{end}"] for end in ("", "_lo", "_hi")]
        ratios = [float(cell) if known(cell) else np.nan for cell in cells]
    elif known(row[column]) and known(default[column]):
        ratios = [float(row[column]) / float(default[column]), np.nan, np.nan]
    else:
        ratios = [np.nan] * 3
    if np.isnan(ratios[0]):
        return _none("")
    value, lo, hi = (100.0 * (ratio - 1.0) for ratio in ratios)
    return _Difference(value, lo, hi)


def _none(why: str) -> _Difference:
    return _Difference(np.nan, np.nan, np.nan, why)


def _values(rows: _Rows, name: str, column: str) -> list[float]:
    """What is known of a variant's differences, the baselines' not among them unless alone."""
    found = {key: _difference(own, name, column).value for key, own in rows.items() if name in own}
    speculating = [value for (is_baseline, *_), value in found.items() if not is_baseline]
    kept = [value for value in speculating if not np.isnan(value)]
    return kept or [value for value in found.values() if not np.isnan(value)]


def _title(rows: _Rows, names: Sequence[str]) -> str:
    medians = {
        name: float(np.median(own))
        for name in names
        if (own := _values(rows, name, "output_tok_s"))
    }
    best = max(medians, key=lambda name: medians[name])
    count = len(_values(rows, best, "output_tok_s"))
    title = f"Against {DEFAULT}, {best} has {_signed(medians[best])} tokens/s"
    verify = _values(rows, best, "verify_ms")
    if verify:
        title += f" and {_signed(float(np.median(verify)))} verify time"
    return f"{title} ({'median of ' if count > 1 else ''}{counted(count, 'configuration')})"


def _signed(percent: float) -> str:
    return f"{percent:+.1f} %"


def _draw(left: Axes, right: Axes, rows: _Rows, styles: Mapping[str, Look]) -> None:
    for axes, column in zip((left, right), _COMPARED, strict=True):
        axes.grid(visible=False, axis="y")
        axes.grid(axis="x", color=RULE, linewidth=0.7)
        axes.tick_params(axis="y", length=0)
        drawn = [
            _mark(axes, at + _shift(position, len(styles)), _difference(own, name, column), look)
            for at, own in enumerate(rows.values())
            for position, (name, look) in enumerate(styles.items())
            if name in own
        ]
        if any(drawn):
            axes.axvline(0.0, color=INK, linewidth=1.2)
            axes.margins(x=0.12)
        else:
            _say_untimed(axes)
        for at in range(1, len(rows)):
            axes.axhline(at - 0.5, color=RULE, linewidth=0.7)
    names = [abridged(str(own[DEFAULT]["configuration"]), LONGEST_NAME) for own in rows.values()]
    left.set_yticks(range(len(rows)), names)
    right.tick_params(axis="y", labelleft=False)
    left.set_ylim(len(rows) - 0.5, -0.5)
    left.set_xlabel("verify time against default [%] (left is faster)")
    right.set_xlabel("output throughput against default [%] (right is faster)")


def _say_untimed(axes: Axes) -> None:
    # The other axes need their common rows: only this one's scale goes.
    axes.set_xticks([])
    axes.text(
        0.5, 0.5, "no verification was timed in both variants", transform=axes.transAxes,
        ha="center", va="center", fontsize=TEXT_SIZE, color=MUTED,
        bbox={"facecolor": SURFACE, "edgecolor": "none"},
    )  # fmt: skip


def _shift(position: int, count: int) -> float:
    return _SPREAD * ((position + 0.5) / count - 0.5)


def _mark(axes: Axes, at: float, found: _Difference, look: Look) -> bool:
    """Draw a difference, or why there is none; return whether there is one."""
    if np.isnan(found.value):
        if found.why:
            axes.annotate(
                plain(found.why), (0.0, at), xytext=(6, 0), textcoords="offset points",
                va="center", fontsize=SMALL_SIZE - 1.0, color=ALERT,
            )  # fmt: skip
            axes.plot(0.0, at, marker="x", color=look.colour, markersize=5, linestyle="none")
        return False
    reach = [[found.value - found.lo], [found.hi - found.value]]
    axes.errorbar(
        found.value, at, xerr=None if np.isnan(found.lo) else reach, color=look.colour,
        marker=look.marker, markersize=5, elinewidth=1.2, capsize=2, linestyle="none",
    )  # fmt: skip
    return True
