"""The directory on a server's PYTHONPATH, and the variables that lead to it."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

from sweep.probe.layout import lay_out, variables


def test_the_directory_names_the_plugin(tmp_path: Path) -> None:
    """As an installed package would."""
    lay_out(str(tmp_path))
    lay_out(str(tmp_path))  # an agent that died in between does it again
    (distribution,) = importlib.metadata.distributions(path=[str(tmp_path)])
    (entry,) = distribution.entry_points
    assert (entry.group, entry.name) == ("sglang.srt.plugins", "eagle3_probe")
    assert entry.value == "eagle3_probe.arming:arm"
    assert (tmp_path / "eagle3_probe" / "arming.py").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "eagle3_probe", "eagle3_probe-1.dist-info", "sitecustomize.py",
    ]  # fmt: skip


def test_what_is_on_the_path_stays_behind_it() -> None:
    """And every byte of it."""
    found = variables({b"PYTHONPATH": b"/a:/\xff"}, "/w/probe", every_cycles=50, allow_list=None)
    assert found == {b"PYTHONPATH": b"/w/probe:/a:/\xff", b"EAGLE3_PROFILE_EVERY": b"50"}
    for nothing in ({}, {b"PYTHONPATH": b""}):
        found = variables(nothing, "/w/probe", every_cycles=1, allow_list=None)
        assert found[b"PYTHONPATH"] == b"/w/probe"


def test_a_list_of_allowed_plugins_gets_one_more() -> None:
    """An empty list or none allows all, and stays as it is."""

    def listed(environment: dict[bytes, bytes]) -> bytes | None:
        found = variables(environment, "/p", every_cycles=1, allow_list="SGLANG_PLUGINS")
        return found.get(b"SGLANG_PLUGINS")

    assert listed({b"SGLANG_PLUGINS": b"a,b"}) == b"a,b,eagle3_probe"
    assert listed({b"SGLANG_PLUGINS": b""}) is None
    assert listed({}) is None
