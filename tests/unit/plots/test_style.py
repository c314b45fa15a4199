"""The look that all figures share."""

from __future__ import annotations

import pytest
from matplotlib.font_manager import FontProperties

from sweep.plots.style import TITLE_LINES, abridged, mark_simulated, new_figure, wrapped

LONG = (
    "Output throughput: a clear lead in 0 of 2 panels; at best 1.06 times the baseline, "
    "by WWWWW WWWWWWWWWW, tuned-decode-attention, attention-backend=flashinfer"
)


@pytest.mark.parametrize("width_in", [6.0, 8.0, 11.2])
def test_a_title_leaves_room_for_the_mark(width_in: float) -> None:
    """However wide its letters are."""
    figure = new_figure(width_in, 4.0, LONG)
    mark_simulated(figure)
    figure.draw_without_rendering()
    title, mark = figure._suptitle, figure.texts[-1]  # type: ignore[attr-defined]
    assert title.get_window_extent().x1 < mark.get_window_extent().x0
    assert figure.get_suptitle().replace("\n", " ") == LONG or width_in < 8


def test_a_title_that_is_too_long_says_that_more_follows() -> None:
    """It takes three lines at most."""
    lines = new_figure(4.0, 4.0, LONG).get_suptitle().splitlines()
    assert len(lines) == TITLE_LINES
    assert lines[-1].endswith(" …")


def test_words_stay_whole_and_in_order() -> None:
    """A word wider than a line is cut."""
    font = FontProperties(size=10)
    assert wrapped("", 1.0, font) == []
    assert wrapped("a b", 5.0, font) == ["a b"]
    assert wrapped("aaa bbb", 0.3, font) == ["aaa", "bbb"]
    lines = wrapped(f"a {'m' * 90} b", 2.0, font)
    assert "".join(lines).replace(" ", "") == f"a{'m' * 90}b"
    assert max(map(len, lines)) < 20


def test_abridged_names_keep_both_ends() -> None:
    """Names that begin alike stay apart."""
    assert abridged("3 steps", 7) == "3 steps"
    assert abridged("low-latency, decode-attention, topk 4", 15) == "low-laten…opk 4"
    assert abridged("$x$", 9) == r"\$x\$"
