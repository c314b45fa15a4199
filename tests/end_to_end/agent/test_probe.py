"""The agent puts the probe into a server: laid out from the archive, on the server's path."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from fakes.launching import FAKE_SERVER, Bench, document
from fakes.running import python_3_9

from sweep.agent import wire


@pytest.mark.parametrize("python", [sys.executable, python_3_9()])
def test_a_server_with_the_probe_on_its_path(tmp_path: Path, python: str | None) -> None:
    """The laid-out directory comes first, what was listed stays, and nothing of it is a result."""
    if python is None:
        pytest.skip("no Python 3.9 on this machine")
    bench = Bench(tmp_path, python)
    engine = replace(document(nonce="").engine, probe=wire.Probe(50, "SGLANG_PLUGINS"))
    given = {"EAGLE3_PROFILE": "1", "SGLANG_PLUGINS": "theirs", "PYTHONPATH": "/theirs"}
    try:
        argv = [sys.executable, FAKE_SERVER, "--port", "?", "--rate", "200"]
        launch = bench.launch(argv=argv, port_at=3, env=given, engine=engine)
        pid = launch.event("server_started")["pid"]
        launch.event("first_token")
        entries = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        outcome = launch.outcome()
    finally:
        bench.close()
    environment = dict(entry.decode().split("=", 1) for entry in entries if entry)
    place = launch.directory / "probe"
    assert environment["PYTHONPATH"].split(os.pathsep) == [str(place), "/theirs"]
    assert environment["SGLANG_PLUGINS"] == "theirs,eagle3_probe"
    assert environment["EAGLE3_PROFILE"] == "1"
    assert environment["EAGLE3_PROFILE_EVERY"] == "50"
    assert environment["EAGLE3_PROFILE_DIR"] == str(launch.directory)
    assert (place / "eagle3_probe" / "arming.py").exists()
    assert outcome.end == "done"
    assert not [name for name in outcome.files if name.startswith("probe/")]
    assert launch.agent_log() == ""
