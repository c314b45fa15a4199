"""One look for all figures: colours that the colour-blind and a grey printer tell apart."""

from __future__ import annotations

import io
import textwrap
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.textpath import text_to_path
from numpy.typing import NDArray

INK = "#1f2329"
MUTED = "#5f6772"
RULE = "#d5dae0"
SURFACE = "#fdfdfe"
"""Colours of text, secondary text, grid and paper; a page may map each to its own."""

BAND = "#8b939e"
ALERT = "#c2410c"

DPI = 150
TITLE_SIZE = 12.5
TEXT_SIZE = 9.5
SMALL_SIZE = 8.5
_LEFT = 0.012
"""Margin of title and note, as a share of the width."""
LONGEST_TITLE = 66
"""Characters in a line above a panel."""
LONGEST_NAME = 32
"""Characters of a line's name in a legend."""
TITLE_LINES = 3
_MARK_IN = 1.1
"""Width at the top right that a title leaves to the mark of simulated results."""
_POINTS_PER_INCH = 72.0
_HINTING = 1.04
"""Letters drawn at a screen's resolution are this much wider than their outlines, at most."""

# The Okabe-Ito colours without black and yellow, ordered so that neighbours differ in grey too.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")


@dataclass(frozen=True)
class Look:
    """How one line is drawn: colour and marker together are unique for 42 lines."""

    colour: str
    marker: str


def looks(count: int) -> list[Look]:
    """Return `count` looks; colours and markers step at different periods."""
    pairs: Iterator[tuple[str, str]] = zip(cycle(COLOURS), cycle(_MARKERS), strict=False)
    return [Look(colour, marker) for colour, marker in islice(pairs, count)]


def new_figure(width_in: float, height_in: float, title: str, note: str = "") -> Figure:
    """Return an empty figure; `title` is its finding, `note` says how to read it."""
    layout = ConstrainedLayoutEngine(w_pad=0.09, h_pad=0.07, hspace=0.03, wspace=0.04)
    figure = Figure(figsize=(width_in, height_in), layout=layout, facecolor=SURFACE)
    font = FontProperties(size=TITLE_SIZE, weight="bold")
    lines = wrapped(plain(title), (1 - 2 * _LEFT) * width_in - _MARK_IN, font)
    if len(lines) > TITLE_LINES:
        lines[TITLE_LINES - 1 :] = [f"{lines[TITLE_LINES - 1]} …"]
    figure.suptitle(
        "\n".join(lines),
        x=_LEFT,
        ha="left",
        fontsize=TITLE_SIZE,
        fontweight="bold",
        color=INK,
    )
    if note:
        lines = wrapped(note, (1 - 2 * _LEFT) * width_in, FontProperties(size=SMALL_SIZE))
        figure.supxlabel("\n".join(lines), x=_LEFT, ha="left", fontsize=SMALL_SIZE, color=MUTED)
    return figure


def wrapped(text: str, width_in: float, font: FontProperties) -> list[str]:
    """Return text in lines that are at most `width_in` inches wide as drawn; words stay whole
    unless one is wider than a line."""
    lines: list[str] = []
    words = deque(text.split())
    while words:
        word = words.popleft()
        if len(word) > 1 and (wide_in := _width_in(word, font)) > width_in:
            fitting_characters = max(1, int(len(word) * width_in / wide_in) - 1)
            words.appendleft(word[fitting_characters:])
            word = word[:fitting_characters]
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and _width_in(longer, font) <= width_in:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


def _width_in(text: str, font: FontProperties) -> float:
    width, _, _ = text_to_path.get_text_width_height_descent(text, font, ismath=False)
    return float(width) / _POINTS_PER_INCH * _HINTING


_BOX_INSET_IN = 0.12
"""From the corner of a figure to the text in the box: the frame is inside, whatever the size."""


def mark_simulated(figure: Figure) -> None:
    """Write across the top right corner that no real server was measured."""
    width_in, height_in = figure.get_size_inches()
    figure.text(
        1 - _BOX_INSET_IN / width_in,
        1 - _BOX_INSET_IN / height_in,
        "SIMULATED",
        ha="right",
        va="top",
        fontsize=SMALL_SIZE,
        fontweight="bold",
        color=ALERT,
        bbox={"facecolor": SURFACE, "edgecolor": ALERT},
    )


def dress(axes: Axes, title: str = "") -> None:
    """Give axes the common look; `title` stands at the left above them."""
    axes.set_facecolor(SURFACE)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(MUTED)
    axes.grid(axis="y", color=RULE, linewidth=0.7)
    axes.set_axisbelow(True)
    axes.tick_params(colors=MUTED, labelcolor=INK, labelsize=SMALL_SIZE)
    axes.xaxis.label.set(color=INK, fontsize=TEXT_SIZE)
    axes.yaxis.label.set(color=INK, fontsize=TEXT_SIZE)
    if title:
        lines = textwrap.wrap(plain(title), LONGEST_TITLE, max_lines=2, placeholder=" …")
        axes.set_title("\n".join(lines), loc="left", fontsize=SMALL_SIZE + 0.5, color=INK)


def say(axes: Axes, text: str) -> None:
    """Write into empty axes why they are empty."""
    axes.text(
        0.5, 0.5, plain(text), transform=axes.transAxes, ha="center", va="center",
        fontsize=TEXT_SIZE, color=MUTED,
    )  # fmt: skip
    axes.set_yticks([])
    axes.set_ylabel("")
    axes.spines["left"].set_visible(False)


def values(column: pd.Series[Any]) -> NDArray[np.float64]:
    """A column as numbers to draw; what is missing is NaN, which leaves a gap."""
    return column.to_numpy(dtype=float, na_value=np.nan)


def abridged(text: str, limit: int) -> str:
    """Return at most `limit` characters of a name, to be drawn as it is; what is cut is before its
    last third, as names that begin alike end differently."""
    if len(text) > limit:
        end = limit // 3
        text = f"{text[: limit - end - 1]}…{text[-end:]}"
    return plain(text)


def plain(text: str) -> str:
    """Return text that matplotlib draws as it is: no formulas, no control characters."""
    return "".join(character if character.isprintable() else " " for character in text).replace(
        "$", r"\$"
    )


def add_legend(axes: Axes, entries: Mapping[str, Any], columns: int) -> None:
    """Fill axes that are kept for it with a legend; labels → what to draw beside them."""
    axes.set_axis_off()
    if entries:
        axes.legend(
            list(entries.values()), [abridged(label, LONGEST_NAME) for label in entries],
            loc="upper left", ncols=columns, frameon=False, fontsize=SMALL_SIZE,
            labelcolor=INK, borderaxespad=0.0, borderpad=0.0,
        )  # fmt: skip


@dataclass(frozen=True)
class Rendered:
    """A figure as files."""

    svg: str
    png: bytes


def render(figure: Figure, name: str) -> Rendered:
    """Render a figure, the same bytes for the same data; `name` keeps its SVG's ids apart."""
    svg, png = io.StringIO(), io.BytesIO()
    with mpl.rc_context({"svg.hashsalt": name, "svg.id": name}):
        figure.savefig(svg, format="svg", facecolor=SURFACE, metadata={"Date": None})
    # The layout is done: the costly half of drawing need not run again.
    figure.set_layout_engine("none")
    figure.savefig(png, format="png", dpi=DPI, facecolor=SURFACE)
    return Rendered(svg.getvalue(), png.getvalue())
