"""Reading files of cycles: the golden file, torn and foreign lines, other versions, the bound."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sweep.agent import cycles
from sweep.agent.cycles import Armed, HookError, decode

GOLDEN = (Path(__file__).with_name("golden") / cycles.file_name(0)).read_text()
HEADER = GOLDEN.split("\n", 1)[0] + "\n"


def test_the_golden_file_reads_as_what_it_says() -> None:
    """Handshake, cycles by column, a hook that failed, and what was dropped."""
    found = decode(GOLDEN)
    assert found.armed == Armed(
        rank=0, ranks=8, engine="sglang", engine_version="0.5.23",
        module="/opt/sglang/eagle_worker_v2.py", worker="EAGLEWorkerV2", clock="cuda",
        hooks=("cycle", "draft", "verify", "accepted"), missing=("extend",),
    )  # fmt: skip
    assert found.columns == {
        "n": [1, 2], "start_s": [1000.25, 1000.28], "requests": [2, 2],
        "context_tokens": [310, 315], "steps": [5, 5], "draft_tokens": [6, 6],
        "draft_s": [0.00087, 0.00088], "verify_s": [0.0287, 0.0288], "extend_s": [None, None],
        "other_s": [0.00033, None], "cycle_s": [0.0299, None], "host_draft_s": [0.0004, 0.0004],
        "host_verify_s": [0.0008, 0.0008], "host_extend_s": [None, None],
        "host_cycle_s": [0.0021, 0.0021], "accepted": [3, 1],
    }  # fmt: skip
    assert found.errors == (HookError("verify", "no attribute 'accept_index'"),)
    assert (found.dropped, found.damaged) == (40, 0)


@pytest.mark.parametrize("size", range(1, 90, 7))
def test_a_torn_last_line_is_left_out(size: int) -> None:
    """Wherever it was cut, what was whole before it is read, and nothing is damaged."""
    whole = HEADER + "[" + "1," * 15 + "1]\n"
    found = decode(
        whole + "[2,1000.28,2,315,5,6,0.00088,0.0288,null,null,null,0.0004,0.0008"[:size]
    )
    assert found.columns["n"] == [1]
    assert found.damaged == 0


def test_fields_come_in_any_order_and_unknown_ones_are_ignored() -> None:
    """The header names the order; a field that it lacks is not known of any cycle."""
    header = {**json.loads(HEADER), "fields": ["verify_s", "mood", "n"], "weather": "fine"}
    found = decode(f'{json.dumps(header)}\n[0.02,7,1]\n{{"event":"later","than":"this"}}\n')
    assert (found.columns["n"], found.columns["verify_s"]) == ([1], [0.02])
    assert found.columns["draft_s"] == [None]
    assert "mood" not in found.columns
    assert found.damaged == 0


def test_a_second_handshake_starts_another_order() -> None:
    """A process that armed itself again says anew how its lines are to be read."""
    first = json.dumps({**json.loads(HEADER), "fields": ["n", "verify_s"]})
    second = json.dumps({**json.loads(HEADER), "rank": 1, "fields": ["verify_s", "n", "steps"]})
    found = decode(f"{first}\n[1,0.5]\n[2,0.6]\n{second}\n[0.7,1,5]\n")
    assert found.columns["n"] == [1, 2, 1]
    assert found.columns["verify_s"] == [0.5, 0.6, 0.7]
    assert found.columns["steps"] == [None, None, 5]
    assert found.armed is not None
    assert found.armed.rank == 1


@pytest.mark.parametrize(
    "line", ["[1]", "nonsense", '{"no":"event"}', "[" + "1," * 15 + '"1"]', "7", "{}", ""]
)
def test_whole_lines_that_cannot_be_read_are_counted(line: str) -> None:
    """One of them costs no other."""
    cycle = "[" + "1," * 15 + "1]\n"
    found = decode(HEADER + cycle + line + "\n" + cycle)
    assert found.damaged == 1
    assert len(found.columns["n"]) == 2


def test_a_file_without_a_handshake_has_no_cycles() -> None:
    """Nothing says in which order the values of its lines are."""
    found = decode("[1,2,3]\n")
    assert (found.armed, found.damaged, found.columns["n"]) == (None, 1, [])
    assert decode("").armed is None


def test_another_version_is_refused_by_name() -> None:
    """The message names the file and both versions."""
    text = GOLDEN.replace('"v":1', '"v":2', 1)
    with pytest.raises(cycles.CyclesMismatch, match=r"cycles\.3\.jsonl .* 2 .* version 1"):
        decode(text, "cycles.3.jsonl")


def test_a_file_beyond_the_bound_is_cut_after_a_whole_line(tmp_path: Path) -> None:
    """What was cut is counted in the file itself; shorter files and others stay as they are."""
    line = "[" + "1," * 15 + "1]\n"
    long = tmp_path / cycles.file_name(3)
    long.write_text(HEADER + 100 * line)
    other = tmp_path / "server.log"
    other.write_text(200 * line)
    short = tmp_path / cycles.file_name(0)
    short.write_text(HEADER + line)
    cycles.bound_files(str(tmp_path), len(HEADER) + 10 * len(line) + 5)
    found = decode(long.read_text())
    assert (len(found.columns["n"]), found.dropped, found.damaged) == (10, 90, 0)
    assert other.read_text() == 200 * line
    assert short.read_text() == HEADER + line


def test_files_are_found_by_rank() -> None:
    """In the order of ranks, not of letters; other files are none."""
    names = ["cycles.10.jsonl", "cycles.2.jsonl", "cycles.jsonl", "cycles.2.jsonl.part", "x"]
    assert cycles.file_names(names) == ["cycles.2.jsonl", "cycles.10.jsonl"]
