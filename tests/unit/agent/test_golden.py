"""The bytes of the shared files: a change here is a change of the wire version."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fakes.launching import document

from sweep.agent import wire

GOLDEN = Path(__file__).with_name("golden")

RECORD = wire.RequestRecord(
    n=3, trial="t1", window=0, role="measure", prompt="p1", stream=1, sent_s=12.5, first_s=0.1,
    last_s=0.9, end_s=1.0, status=200, error=None, chunks=4, first_chunk_tokens=None,
    output_tokens=8, input_tokens=5, cached_tokens=None, text_sha256="00ff", meta={"draft_n": 6},
)  # fmt: skip
OUTCOME = wire.Outcome(
    end="server_exit", phase="load", detail=None, server=wire.ServerIdent(10, 20, 20008, -9),
    patterns=["oom"], log_tail=["CUDA out of memory", "é"], clean=False, left=["port 20008 ..."],
    phases_s={"load": 1.5}, files={"server.log": wire.FileProof(7, "ab")},
)  # fmt: skip
IDENT = wire.AgentIdent(10, 20, "boot")


def launch() -> wire.LaunchDoc:
    """A launch without anything of this machine in it."""
    doc = document("--rate", "5", nonce="n-1", argv=["server", "--port", "0"], port_at=2)
    engine = replace(
        doc.engine,
        probe=wire.Probe(50, "PLUGINS"),
        settings=[wire.HttpCall("/server_info")],
        trace=wire.Trace(
            wire.HttpCall("/start", "POST", {"num_steps": 5}), "output_dir",
            wire.HttpCall("/stop", "POST"), ".trace.json", 60.0, 1000,
        ),
    )  # fmt: skip
    settings_at: dict[str, wire.KeyPath] = {"num_steps": ["speculative_num_steps"]}
    doc = replace(doc, engine=engine, settings_at=settings_at, path_first=["/opt/engine/bin"])
    pinned = replace(doc.trials[0], expects=[wire.Expected(["state", 0, "steps"], 3)])
    files = [wire.ServerFile(1, "steps.json", '{"1":[3]}')]
    doc = replace(doc, trials=[pinned, *doc.trials[1:]], files=files)
    return wire.decode_launch(wire.encode(doc))


CASES: list[tuple[str, Any, Callable[[str], Any]]] = [
    ("launch.json", launch(), wire.decode_launch),
    ("agent.json", IDENT, wire.decode_ident),
    ("outcome.json", OUTCOME, wire.decode_outcome),
    ("request.json", RECORD, wire.decode_request),
]


@pytest.mark.parametrize(("name", "value", "decode"), CASES)
def test_files_keep_their_bytes(name: str, value: Any, decode: Callable[[str], Any]) -> None:
    """What is written is what the golden file holds, and reads back as the same value."""
    golden = (GOLDEN / name).read_text().rstrip("\n")
    assert wire.encode(value) == golden
    assert decode(golden) == value


@pytest.mark.parametrize("name", ["launch.json", "agent.json", "outcome.json"])
def test_another_version_is_refused(name: str) -> None:
    """The message names both versions."""
    text = (GOLDEN / name).read_text().replace(f'"wire":{wire.WIRE_VERSION}', '"wire":99')
    decode = {case[0]: case[2] for case in CASES}[name]
    with pytest.raises(
        wire.WireMismatch, match=f"version 99, this program speaks {wire.WIRE_VERSION}"
    ):
        decode(text)
