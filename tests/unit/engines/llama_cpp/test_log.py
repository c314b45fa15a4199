"""Signs and milestones against recorded logs of the server."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sweep.agent.wire import Outcome, ServerIdent
from sweep.engines.llama_cpp import LlamaCpp, log

PAYLOADS = Path(__file__).parent / "payloads"


def seen(name: str) -> list[str]:
    """Names of the signs that the agent would report for a recorded log."""
    lines = (PAYLOADS / f"{name}.log").read_text().splitlines()
    patterns = [sign.pattern for sign in log.SIGNS]
    found = [p.name for line in lines for p in patterns if re.search(p.regex, line)]
    return list(dict.fromkeys(found))


@pytest.mark.parametrize(
    ("name", "failure_class", "words"),
    [
        ("unknown-flag", "bad_args", "does not take an argument"),
        ("removed-flag", "bad_args", "removed"),
        ("bad-value", "bad_args", "does not take an argument"),
        ("bad-type", "bad_args", "does not take an argument"),
        ("missing-model", "missing_file", "cannot be opened"),
        ("missing-draft", "missing_file", "cannot be opened"),
        ("truncated-model", "missing_file", "incomplete"),
        ("garbage-model", "missing_file", "no GGUF"),
        ("wrong-kind-draft", "speculation_inactive", "does not fit"),
        ("wrong-vocabulary-draft", "speculation_inactive", "does not fit"),
        ("no-mtp-layers", "bad_args", "MTP"),
        ("port-in-use", "port_in_use", "port"),
        ("out-of-memory", "oom", "memory"),
    ],
)
def test_recorded_failures(name: str, failure_class: str, words: str) -> None:
    """Every failure that was provoked on the real server gets its class and a message."""
    outcome = Outcome(
        end="server_exit",
        phase="load",
        detail=None,
        server=ServerIdent(1, 2, 3, 1),
        patterns=seen(f"failure-{name}"),
        log_tail=[],
        clean=True,
        left=[],
        phases_s={},
        files={},
    )
    failure = LlamaCpp().classify_launch(outcome)
    assert failure is not None
    assert failure.failure_class == failure_class
    assert words in failure.message


@pytest.mark.parametrize("name", ["draft", "baseline"])
def test_a_good_log_shows_no_sign(name: str) -> None:
    """Servers that worked log nothing that looks like a failure."""
    assert seen(name) == []


def test_milestones_come_in_order() -> None:
    """The log of a load passes every milestone, in the order in which they are listed."""
    lines = (PAYLOADS / "draft.log").read_text().splitlines()
    reached = [m.name for line in lines for m in log.MILESTONES if re.search(m.regex, line)]
    assert reached == [milestone.name for milestone in log.MILESTONES]
