"""What earlier inspections left behind."""

from __future__ import annotations

import os
import time
from pathlib import Path

from sweep.agent.inspection_end import remove_abandoned

ARCHIVE = "agent-0123456789ab.pyz"


def directory(parent: Path, name: str, *files: str, age_s: float = 4000.0) -> Path:
    """A directory with these files that was last changed so long ago."""
    path = parent / name
    path.mkdir()
    for file in files:
        (path / file).touch()
    then_s = time.time() - age_s
    os.utime(path, (then_s, then_s))
    return path


def test_only_abandoned_inspections_are_removed(tmp_path: Path) -> None:
    """Older than an hour, named as inspections are, and with nothing else in them."""
    own = directory(tmp_path, "preflight-00000000", ARCHIVE, "asked.json")
    abandoned = [
        directory(tmp_path, "preflight-00000001", ARCHIVE, "asked.json", "stop"),
        directory(tmp_path, "preflight-00000002", f"{ARCHIVE}.89abcdef.part"),
        directory(tmp_path, "preflight-00000003"),
    ]
    kept = [
        directory(tmp_path, "preflight-00000004", ARCHIVE, "asked.json", age_s=3000.0),
        directory(tmp_path, "preflight-00000005", ARCHIVE, "results.txt"),
        directory(tmp_path, "preflight-notes", ARCHIVE),
        directory(tmp_path, "sweep-20260101"),
    ]
    link = tmp_path / "preflight-00000006"
    link.symlink_to(directory(tmp_path, "elsewhere"))
    remove_abandoned(str(own))
    assert [path for path in abandoned if path.exists()] == []
    assert all(path.exists() for path in [own, *kept, link])
