"""Nothing of a table is cut, however narrow the output."""

from __future__ import annotations

import contextlib
import io
import re

import pytest
from rich.console import Console

from sweep.report.plain import open_console, plain_table

ID = "kimi-k2.5-eagle3-nccl-low-latency-20261129T225431-1a2b"
CELLS = ("12345.67", "[12000.01, 12700.02]", ID, "failed nccl_hang")


def test_cells_are_folded_to_a_narrow_terminal() -> None:
    """Every character is there, in order, column by column."""
    table = plain_table(("a", "b", "c", "d"), right={"a", "b"})
    table.add_row(*CELLS)
    for width in (24, 40, 80, 100):
        output = io.StringIO()
        Console(file=output, width=width).print(table)
        lines = output.getvalue().splitlines()
        assert max(map(len, lines)) <= width
        assert "…" not in output.getvalue()
        shown = re.sub(r"\s", "", output.getvalue())
        wanted = re.sub(r"\s", "", "".join(("a", "b", "c", "d", *CELLS)))
        assert sorted(shown) == sorted(wanted)


@pytest.mark.parametrize("columns", ["80", "20"])
def test_a_row_is_one_line_where_there_is_no_terminal(
    columns: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file or a pipe has no width, whatever the environment says of a terminal's."""
    monkeypatch.setenv("COLUMNS", columns)
    table = plain_table(("a", "b", "c", "d"))
    table.add_row(*CELLS)
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        open_console().print(table)
    assert [line.split() for line in output.getvalue().splitlines()] == [
        ["a", "b", "c", "d"],
        " ".join(CELLS).split(),
    ]
