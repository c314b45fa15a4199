"""What a server says it runs with."""

from __future__ import annotations

from typing import Any

import pytest

from sweep.analysis.settings import Settings, read_settings
from sweep.model.plan import ServerCommand, Setting

ASKED = {
    "num_steps": Setting(("speculative_num_steps",), 3),
    "algorithm": Setting(("speculative_algorithm",), "EAGLE3"),
    "page-size": Setting(("page_size",), 16),
    "mem-fraction-static": Setting(("mem_fraction_static",), "0.9"),
}
SERVER = ServerCommand(("server",), 0, settings=ASKED)


def read(values: Any, *, is_baseline: bool = False) -> Settings:
    """What follows from a server's answer."""
    events = [{"event": "first_token"}, {"event": "settings", "values": values}]
    return read_settings(SERVER, events, is_baseline=is_baseline)


def test_what_is_in_effect_as_asked_needs_no_word() -> None:
    """Text and number of one value are the same; what the server leaves out is not compared."""
    found = read({"num_steps": 3, "algorithm": "EAGLE3", "mem-fraction-static": 0.9})
    assert found.flags == ()
    assert found.row == {"settings_note": None, "effective_num_steps": 3}


def test_what_was_changed_is_flagged_with_both_values() -> None:
    """The row says what the server runs with."""
    found = read({"num_steps": 2, "algorithm": None, "page-size": 64})
    assert found.flags == ("settings_changed",)
    assert found.row["effective_num_steps"] == 2
    assert found.row["settings_note"] == (
        "num_steps: 3 asked, 2 in effect; algorithm: EAGLE3 asked, nothing in effect; "
        "page-size: 16 asked, 64 in effect"
    )


def test_a_baseline_that_speculates_is_flagged() -> None:
    """It is asked for no algorithm; how many steps it makes is no column of it."""
    server = ServerCommand(("server",), 0, settings={"algorithm": Setting(("a",), None)})
    events = [{"event": "settings", "values": {"algorithm": "EAGLE", "num_steps": 3}}]
    found = read_settings(server, events, is_baseline=True)
    assert found.flags == ("settings_changed",)
    assert found.row == {"settings_note": "algorithm: nothing asked, EAGLE in effect"}


@pytest.mark.parametrize("more", [[], [{"event": "settings", "values": None}]])
def test_silence_is_told(more: list[Any]) -> None:
    """The server did not answer, or it ended before it could."""
    events = [{"event": "first_token"}, *more]
    assert read_settings(SERVER, events, is_baseline=False) == Settings({}, ("settings_unknown",))


@pytest.mark.parametrize("events", [[], [{"event": "claim_wait"}], [{"event": "server_started"}]])
def test_a_server_that_never_generated_was_not_asked(events: list[Any]) -> None:
    """Its failure says all there is to say."""
    assert read_settings(SERVER, events, is_baseline=False) == Settings({})


def test_an_engine_that_does_not_tell_is_not_asked() -> None:
    """Nothing is said of it."""
    assert read_settings(ServerCommand(("s",), 0), [], is_baseline=False) == Settings({})


@pytest.mark.parametrize(
    ("asked", "reported", "holds"),
    [(True, True, True), (True, False, False), (8, "8", True), (None, None, True), (None, 1, False),
     (0, None, False), ("auto", "auto", True)],
)  # fmt: skip
def test_equal_values(asked: Any, reported: Any, holds: bool) -> None:
    """Null is not zero."""
    assert Setting(("x",), asked).holds(reported) is holds
