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


def exited(patterns: list[str], tail: list[str]) -> Outcome:
    """What the agent records of a server that exited with code 1 while loading."""
    return Outcome(
        end="server_exit",
        phase="load",
        detail=None,
        server=ServerIdent(1, 2, 3, 1),
        patterns=patterns,
        log_tail=tail,
        clean=True,
        left=[],
        phases_s={},
        files={},
    )


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
        ("empty-model", "missing_file", "empty"),
        ("directory-model", "missing_file", "no GGUF"),
        ("wrong-kind-draft", "speculation_inactive", "does not fit"),
        ("wrong-vocabulary-draft", "speculation_inactive", "does not fit"),
        ("no-mtp-layers", "bad_args", "MTP"),
        ("port-in-use", "port_in_use", "port"),
        ("out-of-memory", "oom", "memory"),
    ],
)
def test_recorded_failures(name: str, failure_class: str, words: str) -> None:
    """Every failure that was provoked on the real server gets its class and a message."""
    failure = LlamaCpp().classify_launch(exited(seen(f"failure-{name}"), []))
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


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("unknown-flag", "error: invalid argument: --no-such-flag"),
        (
            "removed-flag",
            "error: the argument --draft-max has been removed. use --spec-draft-n-max",
        ),
        ("bad-value", "error: argument -ub/--ubatch-size: invalid int value: 'many'"),
        ("missing-draft", "failed to open GGUF file 'missing.gguf' (No such file or directory)"),
        ("garbage-model", "invalid magic characters: 'this', expected 'GGUF'"),
        ("empty-model", "failed to read magic"),
    ],
)
def test_the_line_that_says_it_is_quoted(name: str, line: str) -> None:
    """Which argument and which file stand in the message: they are only in the log."""
    lines = (PAYLOADS / f"failure-{name}.log").read_text().splitlines()
    failure = LlamaCpp().classify_launch(exited(seen(f"failure-{name}"), lines[-40:]))
    assert failure is not None
    assert failure.message.endswith(line)


def test_an_unknown_end_quotes_the_last_line() -> None:
    """The last line with anything in it, without colours, bells and the password of a URL."""
    last = "\x1b[31mcannot\x07 reach\thttps://eve:secret@host/x\x1b[0m\r"
    failure = LlamaCpp().classify_launch(exited([], ["loading", last, "  "]))
    assert failure is not None
    assert failure.failure_class == "unknown"
    assert "secret" not in failure.message
    assert failure.message.isprintable()
    assert "; its log: cannot  reach https://eve:" in failure.message


def test_without_the_line_the_message_stands_alone() -> None:
    """A sign that has left the tail, or a failure of another class, quotes nothing."""
    for patterns in (["argument_invalid"], ["out_of_memory"]):
        failure = LlamaCpp().classify_launch(exited(patterns, ["something else"]))
        assert failure is not None
        assert "its log" not in failure.message
