"""Tables and sentences on standard output, of which nothing is cut, however narrow it is."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rich.console import Console, RenderableType
from rich.constrain import Constrain
from rich.table import Table

_NO_LIMIT = 1 << 14
_FRAME_WIDTH = 100


def open_console() -> Console:
    """Return standard output. On a terminal, cells are folded to its width; what is none (a file,
    a pipe) has no width, so that each row is one line."""
    console = Console()
    return console if console.is_terminal else Console(width=_NO_LIMIT)


def plain_table(
    names: Sequence[str], *, right: Collection[str] = (), header_style: str = "bold"
) -> Table:
    """Return a table without lines that folds what does not fit; `right` names the columns that
    are aligned there."""
    table = Table(box=None, pad_edge=False, header_style=header_style)
    for name in names:
        table.add_column(name, justify="right" if name in right else "left", overflow="fold")
    return table


def framed(box: RenderableType) -> Constrain:
    """Return a frame that stays as wide as people read, also where there is no width."""
    return Constrain(box, _FRAME_WIDTH)
