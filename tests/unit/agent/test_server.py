"""What the server is started with."""

from __future__ import annotations

import json
import os
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from fakes.launching import document
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sweep.agent import server, wire
from sweep.agent.gpus import Gpu

TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40)
NASTY = st.one_of(
    TEXT,
    st.sampled_from(
        ["", " ", "$(reboot)", "a;b", "{a,b}", "'\"", "\n\t", "~", "*", "\\", "日本語 é"]
    ),
)
NAMES = st.from_regex(r"[A-Z_][A-Z0-9_]{0,10}", fullmatch=True).map("X_{}".format)

ECHO = """
import json, os, sys
argv = open("/proc/self/cmdline", "rb").read().split(b"\\0")[4:-1]
environment = {key.hex(): value.hex() for key, value in os.environb.items()}
with open(sys.argv[1], "w") as stream:
    json.dump({"argv": [word.hex() for word in argv], "env": environment}, stream)
"""


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(words=st.lists(NASTY, max_size=4), env=st.dictionaries(NAMES, NASTY, max_size=4))
def test_every_text_arrives_byte_for_byte(
    tmp_path: Path, words: list[str], env: dict[str, str]
) -> None:
    """Through launch.json and exec, no shell and no locale touches argv or environment."""
    out = tmp_path / "out"
    argv = [sys.executable, "-c", ECHO, str(out), "PORT", *words]
    written = wire.encode(replace(document(nonce="n"), argv=argv, port_at=4, env=env))
    doc = wire.decode_launch(written)
    ended = threading.Event()
    server.start(
        server.command(doc, 12345, "/launch"),
        server.environment(os.environb, doc, {}, str(tmp_path)),
        str(tmp_path / "log"),
        port=12345,
        on_exit=lambda _: ended.set(),
    )
    assert ended.wait(20)
    seen = json.loads(out.read_text())
    assert [bytes.fromhex(word) for word in seen["argv"]] == [
        b"12345",
        *(word.encode() for word in words),
    ]
    for name, value in env.items():
        assert bytes.fromhex(seen["env"][name.encode().hex()]) == value.encode()


def test_the_environment_is_what_the_launch_says() -> None:
    """Unset is absent, empty is empty, Ray's are gone, our own marks win over everything."""
    login = {b"PATH": b"/bin", b"GONE": b"x", b"KEPT": b"\xff", b"RAY_X": b"1", b"NCCL": b"old"}
    env = {"NCCL": "", "SWEEP_NONCE": "forged", "EAGLE3_PROFILE_DIR": "/elsewhere"}
    doc = replace(document(nonce="n1"), env=env, unset=["GONE", "MISSING"])
    assert server.environment(login, doc, {"CUDA_VISIBLE_DEVICES": "0"}, "/w/l/1") == {
        b"PATH": b"/bin",
        b"KEPT": b"\xff",
        b"NCCL": b"",
        b"CUDA_VISIBLE_DEVICES": b"0",
        b"SWEEP_NONCE": b"n1",
        b"SPT_NOENV": b"1",
        b"EAGLE3_PROFILE_DIR": b"/w/l/1",
    }


def test_gpus_are_shown_by_index_in_bus_order() -> None:
    """The order asked for is kept; no GPUs, no variables."""
    gpus = [Gpu(number, f"GPU-{number}", "x", None, None, None, "1") for number in (3, 1)]
    assert server.visible_gpus(gpus)["CUDA_VISIBLE_DEVICES"] == "3,1"
    assert server.visible_gpus([]) == {}


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    """The message names it."""
    with pytest.raises(server.StartFailed, match="/nowhere/x"):
        server.start([b"/nowhere/x"], {}, str(tmp_path / "log"), port=1, on_exit=lambda _: None)


def test_directories_come_first_in_path(tmp_path: Path) -> None:
    """In front of the login's PATH, or of the one that the launch itself sets, or of none."""
    first = replace(document(nonce="n"), path_first=["/opt/engine/bin", "/opt/setup"])

    def path(login: dict[bytes, bytes], **env: str) -> bytes:
        doc = replace(first, env=env)
        return server.environment(login, doc, {}, str(tmp_path))[b"PATH"]

    assert path({b"PATH": b"/usr/bin"}) == b"/opt/engine/bin:/opt/setup:/usr/bin"
    assert path({b"PATH": b"/usr/bin"}, PATH="/own") == b"/opt/engine/bin:/opt/setup:/own"
    assert path({}) == b"/opt/engine/bin:/opt/setup:" + os.defpath.encode()


def test_files_of_the_server_lie_in_the_launch_directory(tmp_path: Path) -> None:
    """Their paths take their places in the argv, before the server is started."""
    files = [wire.ServerFile(3, "steps.json", '{"é": 1}')]
    argv = ["server", "--port", "0", "steps.json"]
    doc = replace(document(nonce="n"), argv=argv, port_at=2, files=files)
    server.write_files(doc, str(tmp_path))
    command = server.command(doc, 8000, str(tmp_path))
    assert command == [b"server", b"--port", b"8000", os.fsencode(tmp_path / "steps.json")]
    assert json.loads((tmp_path / "steps.json").read_text()) == {"é": 1}
