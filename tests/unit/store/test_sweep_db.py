"""The database of a sweep: transactions, offsets, plans, and what a killed writer leaves."""

from __future__ import annotations

import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from fakes.sweeps import small_experiment, small_plan

from sweep.agent import wire
from sweep.model.errors import StoreError
from sweep.model.states import Failure, LaunchState, TrialState
from sweep.store.read import read_sweep
from sweep.store.sweep_db import DB_FILE, SweepDb

UTC = "2026-01-02T03:04:05.000Z"
EXPERIMENT = small_experiment()
PLAN = small_plan(EXPERIMENT)
LAUNCH = PLAN.launches[0]
TRIALS = [trial.trial_id for trial in LAUNCH.trials]
OK = (TrialState.OK, None)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[SweepDb]:
    """A sweep with a plan, a run and an open attempt of its first launch."""
    made = SweepDb.create(tmp_path, "small-1", "small", UTC)
    made.set_plan(EXPERIMENT, PLAN, {})
    made.begin_run(1, 2, "boot", "host", UTC)
    begin(made)
    yield made
    made.close()


def begin(database: SweepDb, launch: str = LAUNCH.launch_id, attempt: int = 1) -> None:
    """Record the intent of an attempt of all trials of the first launch."""
    database.begin_attempt(
        launch,
        attempt,
        run=1,
        node="local",
        directory=f"/w/{launch}/{attempt}",
        nonce="n",
        trial_ids=TRIALS,
        utc=UTC,
    )


def append(
    database: SweepDb, offset: int, lines: Sequence[str], *ended: str, name: str = wire.EVENTS_FILE
) -> int:
    """Record lines at an offset, with trials that ended ok; return the next offset."""
    after = offset + sum(len(line) + 1 for line in lines)
    database.append(
        LAUNCH.launch_id,
        1,
        name,
        offset=offset,
        lines=lines,
        next_offset=after,
        seen_utc=UTC,
        trials=dict.fromkeys(ended, OK),
    )
    return after


def test_lines_offset_and_states_change_together(database: SweepDb) -> None:
    """What one append records is there as a whole."""
    after = append(database, 0, ['{"a":1}', '{"a":2}'], TRIALS[0])
    assert database.lines(LAUNCH.launch_id, 1, wire.EVENTS_FILE) == ['{"a":1}', '{"a":2}']
    assert database.offsets(LAUNCH.launch_id, 1) == {wire.EVENTS_FILE: after}
    assert database.trial_states()[TRIALS[0]] == (TrialState.OK, None, 1)


@pytest.mark.parametrize("offset", [0, 5, 8, 17])
def test_an_append_elsewhere_is_refused(database: SweepDb, offset: int) -> None:
    """Lines at another offset than the recorded one would be lost or repeated."""
    after = append(database, 0, ['{"a":1}', '{"a":2}'])
    assert after == 16
    with pytest.raises(StoreError, match=f"recorded up to 16, offered {offset}"):
        append(database, offset, ['{"a":3}'], TRIALS[0])
    assert len(database.lines(LAUNCH.launch_id, 1, wire.EVENTS_FILE)) == 2
    assert database.trial_states()[TRIALS[0]][0] is TrialState.PLANNED


def test_files_have_offsets_of_their_own(database: SweepDb) -> None:
    """Requests begin at 0 whatever was read of the events."""
    append(database, 0, ["event"])
    append(database, 0, ["record"], name=wire.REQUESTS_FILE)
    assert database.offsets(LAUNCH.launch_id, 1) == {wire.EVENTS_FILE: 6, wire.REQUESTS_FILE: 7}


def test_a_statement_that_fails_takes_the_transaction_with_it(database: SweepDb) -> None:
    """An append that fails at its last statement leaves neither lines nor offset."""
    other = sqlite3.connect(database.path)
    other.execute(
        "CREATE TRIGGER refuse BEFORE UPDATE ON trial BEGIN SELECT RAISE(ABORT, 'no'); END"
    )
    other.commit()
    other.close()
    with pytest.raises(StoreError, match="cannot write"):
        append(database, 0, ["line"], TRIALS[0])
    assert database.lines(LAUNCH.launch_id, 1, wire.EVENTS_FILE) == []
    assert database.offsets(LAUNCH.launch_id, 1) == {}


def test_an_exception_inside_takes_the_transaction_with_it(database: SweepDb) -> None:
    """A value that cannot be stored half-way through undoes what came before it."""
    broken: list[str] = ["line", "\ud800"]
    with pytest.raises(UnicodeEncodeError):
        append(database, 0, broken, TRIALS[0])
    assert database.lines(LAUNCH.launch_id, 1, wire.EVENTS_FILE) == []
    append(database, 0, ["line"])


def test_an_attempt_is_begun_once(database: SweepDb) -> None:
    """The same attempt cannot be intended twice."""
    with pytest.raises(StoreError):
        begin(database)


def test_the_end_of_an_attempt_sets_launch_and_trials(database: SweepDb) -> None:
    """States and failures of attempt, launch and trials are recorded together."""
    failure = Failure("oom", "no memory")
    database.end_attempt(
        LAUNCH.launch_id,
        1,
        state=LaunchState.FAILED,
        failure=failure,
        outcome="{}",
        trials={TRIALS[0]: OK, TRIALS[1]: (TrialState.FAILED, failure)},
    )
    assert database.launch_states()[LAUNCH.launch_id] == (LaunchState.FAILED, failure)
    (row,) = database.attempts()
    assert (row.state, row.failure, row.outcome) == (LaunchState.FAILED, failure, "{}")
    assert database.trial_states()[TRIALS[1]] == (TrialState.FAILED, failure, 1)


def test_the_plan_comes_back_as_it_was_given(database: SweepDb) -> None:
    """Experiment and launches survive the way through the database unchanged."""
    assert database.experiment() == EXPERIMENT
    assert database.plan().launches == PLAN.launches
    assert database.launch(LAUNCH.launch_id) == LAUNCH


def test_a_new_plan_keeps_adds_and_drops(database: SweepDb) -> None:
    """Dropped rows stay in the database, outside the frame, and come back with their state."""
    append(database, 0, ['{"a":1}'], TRIALS[0])
    dropped = PLAN.launches[1]
    database.end_attempt(
        LAUNCH.launch_id,
        1,
        state=LaunchState.DONE,
        failure=None,
        outcome=None,
        trials={TRIALS[0]: OK, TRIALS[1]: OK},
    )
    other = small_experiment((2, 3))
    change = database.set_plan(other, small_plan(other), {})
    assert (change.kept, change.new, change.dropped) == (6, 2, 2)
    assert dropped.launch_id not in database.launch_states()
    assert database.launch(dropped.launch_id) == dropped
    record = read_sweep(database)
    assert {trial.trial.trial_id for trial in record.trials}.isdisjoint(
        trial.trial_id for trial in dropped.trials
    )
    assert database.trial_states()[TRIALS[0]][0] is TrialState.OK
    change = database.set_plan(EXPERIMENT, PLAN, {})
    assert (change.kept, change.new, change.dropped) == (8, 0, 2)
    assert list(database.launch_states()) == [launch.launch_id for launch in PLAN.launches]


def test_what_was_not_run_can_be_planned_again(database: SweepDb) -> None:
    """Only launches and trials that were never tried change, there and back."""
    ids = [launch.launch_id for launch in PLAN.launches]
    database.set_not_run(ids, Failure("budget", "used up"))
    states = [state for state, _ in database.launch_states().values()]
    assert states == [LaunchState.RUNNING, *[LaunchState.NOT_RUN] * 3]
    assert {state for state, _, _ in database.trial_states().values()} == {TrialState.NOT_RUN}
    database.plan_again(ids)
    states = [state for state, _ in database.launch_states().values()]
    assert states == [LaunchState.RUNNING, *[LaunchState.PLANNED] * 3]
    assert all(failure is None for _, failure in database.launch_states().values())


def test_a_snapshot_sees_one_state_while_another_connection_writes(
    database: SweepDb, tmp_path: Path
) -> None:
    """Reads inside a snapshot agree with each other, whatever the writer does meanwhile."""
    reader = SweepDb.open(tmp_path)
    with reader.snapshot():
        append(database, 0, ["line"], TRIALS[0])
        assert reader.lines(LAUNCH.launch_id, 1, wire.EVENTS_FILE) == []
        assert reader.trial_states()[TRIALS[0]][0] is TrialState.PLANNED
    assert reader.trial_states()[TRIALS[0]][0] is TrialState.OK
    reader.close()


def test_attempts_come_in_the_order_of_their_intents(database: SweepDb) -> None:
    """The order does not depend on the time of day, which can be set back."""
    database.begin_attempt(
        LAUNCH.launch_id,
        2,
        run=1,
        node="local",
        directory="/w",
        nonce="n",
        trial_ids=TRIALS,
        utc="2020-01-01T00:00:00.000Z",
    )
    assert [row.attempt for row in database.attempts()] == [1, 2]


def test_time_driven_counts_ended_and_killed_runs(database: SweepDb) -> None:
    """A run lasts until it ended, a killed one until its last record."""
    database.append(
        LAUNCH.launch_id,
        1,
        wire.EVENTS_FILE,
        offset=0,
        lines=["line"],
        next_offset=5,
        seen_utc="2026-01-02T03:05:05.000Z",
    )
    second = database.begin_run(3, 4, "boot", "host", "2026-01-02T04:00:00.000Z")
    database.end_run(second, "2026-01-02T05:00:00.000Z", 1, None)
    third = database.begin_run(3, 4, "boot", "host", "2026-01-02T06:00:00.000Z")
    assert database.driven_s(1) == 0.0
    assert database.driven_s(third) == pytest.approx(60 + 3600, abs=0.01)


def test_another_schema_is_refused(database: SweepDb, tmp_path: Path) -> None:
    """A database of another version names both versions and what to do."""
    other = sqlite3.connect(tmp_path / DB_FILE)
    other.execute("UPDATE meta SET value = '99' WHERE key = 'schema'")
    other.commit()
    other.close()
    with pytest.raises(
        StoreError, match=f"has schema 99, this sweep reads 2.{wire.WIRE_VERSION}"
    ) as raised:
        SweepDb.open(tmp_path)
    assert raised.value.hint == "use the version of sweep that wrote it"


def test_garbage_and_nothing_are_refused(tmp_path: Path) -> None:
    """A damaged file, an empty one and none at all are three different messages."""
    with pytest.raises(StoreError, match=r"holds no sweep\.db"):
        SweepDb.open(tmp_path)
    (tmp_path / DB_FILE).write_bytes(b"")
    with pytest.raises(StoreError, match="is empty: its sweep never began"):
        SweepDb.open(tmp_path)
    (tmp_path / DB_FILE).write_bytes(b"this is not a database" * 1000)
    with pytest.raises(StoreError, match="not a database") as raised:
        SweepDb.open(tmp_path)
    assert raised.value.hint is not None
    assert "damaged" in raised.value.hint


def test_only_the_owner_can_read_it(database: SweepDb, tmp_path: Path) -> None:
    """The database and the files beside it have mode 0600."""
    append(database, 0, ["line"])
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert set(modes.values()) == {0o600}
    assert DB_FILE in modes
    assert f"{DB_FILE}-wal" in modes


def test_an_existing_database_is_not_made_again(database: SweepDb, tmp_path: Path) -> None:
    """Creating over a sweep is refused."""
    with pytest.raises(StoreError, match="File exists"):
        SweepDb.create(tmp_path, "other", "other", UTC)


WRITER = """
import sys
from pathlib import Path
from sweep.model.states import TrialState
from sweep.store.sweep_db import SweepDb
directory, launch, trial = sys.argv[1:]
database = SweepDb.open(Path(directory))
offset = 0
for number in range(100000):
    lines = [f'{{"n":{number * 3 + k}}}' for k in range(3)]
    after = offset + sum(len(line) + 1 for line in lines)
    database.append(launch, 1, "events.jsonl", offset=offset, lines=lines, next_offset=after,
                    seen_utc="now", trials={trial: (TrialState.OK, None)})
    offset = after
    print(number, flush=True)
"""


def test_a_killed_writer_leaves_whole_transactions(database: SweepDb, tmp_path: Path) -> None:
    """After SIGKILL in the midst of appends, everything acknowledged is there, and nothing half."""
    argv = [sys.executable, "-c", WRITER, str(tmp_path), LAUNCH.launch_id, TRIALS[0]]
    for transactions in (1, 7):
        with subprocess.Popen(argv, stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            seen = [int(writer.stdout.readline()) for _ in range(transactions)]
            writer.kill()
            seen += [int(line) for line in writer.stdout.read().split(b"\n")[:-1]]
        lines = database.lines(LAUNCH.launch_id, 1, wire.EVENTS_FILE)
        assert lines == [f'{{"n":{number}}}' for number in range(len(lines))]
        assert len(lines) % 3 == 0
        assert len(lines) >= 3 * (seen[-1] + 1)
        offset = database.offsets(LAUNCH.launch_id, 1)[wire.EVENTS_FILE]
        assert offset == sum(len(line) + 1 for line in lines)
        with sqlite3.connect(tmp_path / DB_FILE) as check:
            assert check.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            check.execute("DELETE FROM line")
            check.execute("DELETE FROM stream")
        check.close()


FILLER = """
import sys
from pathlib import Path
from fakes.sweeps import small_experiment, small_plan
from sweep.model.errors import StoreError
from sweep.store.sweep_db import SweepDb
directory = Path(sys.argv[1])
database = SweepDb.create(directory, "small-1", "small", "2026-01-02T03:04:05.000Z")
database.set_plan(small_experiment(), small_plan(small_experiment()), {})
launch = database.plan().launches[0].launch_id
offset = count = 0
try:
    while count < 1000:
        database.append(launch, 1, "events.jsonl", offset=offset, lines=["x" * 9999],
                        next_offset=offset + 10000, seen_utc="now")
        offset += 10000
        count += 1
except StoreError as error:
    print(error.message)
    print(error.hint)
database.close()
again = SweepDb.open(directory)
print(len(again.lines(launch, 1, "events.jsonl")) == count)
print(again.offsets(launch, 1).get("events.jsonl", 0) == offset)
"""


def test_a_full_disk_is_told_and_loses_nothing(tmp_path: Path) -> None:
    """On a disk that fills up, the append that does not fit is refused; all others are there."""
    if subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode:
        pytest.skip("mounts need root")
    command = 'mount -t tmpfs -o size=600k tmpfs "$1" && exec "$2" -c "$3" "$1"'
    argv = ["unshare", "-m", "sh", "-c", command, "sh", str(tmp_path), sys.executable, FILLER]
    ended = subprocess.run(
        argv,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={"PYTHONPATH": str(Path(__file__).parents[2]), "PATH": "/usr/bin:/bin:/usr/sbin:/sbin"},
    )
    message, hint, lines, offset = ended.stdout.splitlines()
    assert "full" in message
    assert "free space" in hint
    assert (lines, offset) == ("True", "True"), ended.stderr
