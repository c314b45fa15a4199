"""What is said of the user's own setup."""

from __future__ import annotations

from typing import Any

import pytest
from fakes.facts import facts

from sweep.check import setup
from sweep.check.line import Level
from sweep.model.errors import UnusableError
from sweep.model.plan import SetupLayer
from sweep.preflight import require_answers


def layer(**changes: Any) -> dict[str, Any]:
    """A setup that activates an environment."""
    values: dict[str, Any] = {
        "env": {"VIRTUAL_ENV": "/v"},
        "unset": ["PYTHONHOME"],
        "path_first": ["/v/bin"],
        "error": None,
        "ended": [],
    }
    return values | changes


def failed(**changes: Any) -> dict[str, Any]:
    """A setup whose second line is not known."""
    error: dict[str, Any] = {
        "number": 2,
        "line": "conda activate sglang",
        "returncode": 127,
        "killed": None,
        "output": "conda: command not found",
    }
    return layer(env={}, unset=[], path_first=[], error=error | changes)


def test_what_it_changes_is_named() -> None:
    """Names only: values may be secrets. A file without setup is not spoken of."""
    (line,) = setup.lines(facts(setup=layer()))
    assert line.level is Level.OK
    assert line.finding == "puts /v/bin first in PATH; sets VIRTUAL_ENV; unsets PYTHONHOME"
    (nothing,) = setup.lines(facts(setup=layer(env={}, unset=[], path_first=[])))
    assert nothing.finding == "changes nothing in the environment"
    assert list(setup.lines(facts())) == []
    assert facts().setup == SetupLayer()
    assert facts(setup=layer()).known.setup == SetupLayer(
        {"VIRTUAL_ENV": "/v"}, ("PYTHONHOME",), ("/v/bin",)
    )


def test_what_it_left_running_is_a_warning() -> None:
    """The commands, secrets blanked: it is gone, and a server that needs it would fail."""
    ended = ["sleep 778", "HF_TOKEN=hf_abc proxy"]
    fine, left = setup.lines(facts(setup=layer(ended=ended)))
    assert (fine.level, left.level) == (Level.OK, Level.WARNING)
    assert left.finding == (
        "it left processes running, which were ended: `sleep 778`, `HF_TOKEN=[redacted] proxy`"
    )


@pytest.mark.parametrize(
    ("changes", "finding"),
    [
        (
            {},
            "line 2, `conda activate sglang`, failed (exit 127): conda: command not found",
        ),
        (
            {"returncode": None, "killed": "did not end within 120 s", "output": ""},
            "line 2, `conda activate sglang`, did not end within 120 s",
        ),
        (
            {"number": 0, "line": None, "returncode": None, "output": "bash cannot be started: x"},
            "bash cannot be started: x",
        ),
        (
            {"line": "export HF_TOKEN=hf_abc", "output": "HF_TOKEN='hf_abc' A=1"},
            "line 2, `export HF_TOKEN=[redacted]`, failed (exit 127): HF_TOKEN=[redacted] A=1",
        ),
    ],
)
def test_a_line_that_failed_is_an_error(changes: dict[str, Any], finding: str) -> None:
    """With its number, text, exit code and output, secrets blanked; nothing is planned with it."""
    node = facts(setup=failed(**changes))
    (line,) = setup.lines(node)
    assert (line.level, line.finding) == (Level.ERROR, finding)
    with pytest.raises(UnusableError, match=r"nothing was started, for 1 error:\n  .*: setup: "):
        require_answers([facts(), node])
