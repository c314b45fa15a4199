"""What the installer takes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

INSTALL = Path(__file__).parents[3] / "scripts" / "install"


@pytest.mark.parametrize("words", [[], ["--help"], ["everything"], ["dev", "quickstart"]])
def test_anything_else_shows_the_usage(words: list[str]) -> None:
    """A word that names no extra installs nothing."""
    ended = subprocess.run(
        [str(INSTALL), *words], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 2
    assert ended.stderr == "usage: scripts/install quickstart|dev\n"
    assert ended.stdout == ""
