"""What the reading verbs show."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes.node import fails
from fakes.sweeps import SmallSweep

from sweep.agent import wire
from sweep.model.errors import UsageError
from sweep.store.sweep_db import DB_FILE
from sweep.views import find, has_desktop, server_log


@pytest.mark.parametrize(
    ("platform", "environment", "there"),
    [
        ("linux", {}, False),
        ("linux", {"DISPLAY": ""}, False),
        ("linux", {"DISPLAY": ":0"}, True),
        ("linux", {"WAYLAND_DISPLAY": "wayland-0"}, True),
        ("darwin", {}, True),
    ],
)
def test_a_page_is_opened_only_where_people_see_it(
    platform: str, environment: dict[str, str], there: bool
) -> None:
    """On a machine reached by SSH, `view` prints the path and nothing else."""
    assert has_desktop(platform, environment) is there


def log(root: Path, launch: str | None = None) -> bytes:
    """What `logs` prints of a sweep on this machine."""
    return b"".join(server_log(root, launch, {}, follow=False))


def test_the_log_of_the_latest_attempt_is_what_was_fetched(tmp_path: Path) -> None:
    """Byte for byte."""
    sweep = SmallSweep(tmp_path)
    sweep.run()
    fetched = sweep.database.attempts()[-1].fetched
    assert fetched is not None
    Path(fetched, wire.LOG_FILE).write_bytes(b"ready\xff\n")
    assert log(tmp_path) == b"ready\xff\n"


def test_a_launch_is_named_by_number_label_or_id(tmp_path: Path) -> None:
    """As `status` shows them; a number is never the beginning of an id."""
    sweep = SmallSweep(tmp_path)
    sweep.run()
    for number, launch in enumerate(sweep.plan.launches):
        row = sweep.database.attempts()[number]
        assert row.fetched is not None
        Path(row.fetched, wire.LOG_FILE).write_text(launch.label)
    second = sweep.plan.launches[1]
    for name in ("2", second.label, second.launch_id, second.launch_id[:8]):
        assert log(tmp_path, name).decode() == second.label, name
    with pytest.raises(UsageError, match="no launch '99' was started"):
        log(tmp_path, "99")


def test_a_launch_that_started_no_server_has_no_log(tmp_path: Path) -> None:
    """It is said with the reason: an empty output would look like a silent server."""
    sweep = SmallSweep(tmp_path, fails("claim_timeout", "claim", detail="held by bob"))
    sweep.run()
    row = sweep.database.attempts()[-1]
    assert row.fetched is not None
    Path(row.fetched, wire.LOG_FILE).unlink(missing_ok=True)
    with pytest.raises(UsageError, match=r"has no server log: claim_timeout: .*bob"):
        log(tmp_path)


def test_a_sweep_that_started_nothing_says_why(tmp_path: Path) -> None:
    """With the note of its last run."""
    sweep = SmallSweep(tmp_path)
    with pytest.raises(UsageError, match=r"no server log: no launch was started$"):
        log(tmp_path)
    sweep.run(stop=lambda: "SIGINT")
    with pytest.raises(UsageError, match=r"was started: the sweep was stopped \(SIGINT\)"):
        log(tmp_path)
    with pytest.raises(UsageError, match="no launch 'abc' was started"):
        log(tmp_path, "abc")


def test_sweeps_that_cannot_be_read_are_not_taken_for_none(tmp_path: Path) -> None:
    """`list` names them with the reason."""
    with pytest.raises(UsageError, match="no sweep below"):
        find(tmp_path, None)
    other = tmp_path / "other-20260101T000000-0000"
    other.mkdir()
    (other / DB_FILE).write_text("not a database")
    with pytest.raises(UsageError, match="can be read") as raised:
        find(tmp_path, None)
    assert raised.value.hint == "`sweep list` says why"
