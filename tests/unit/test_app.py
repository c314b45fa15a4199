"""Preparing, finding and stopping sweeps, without a driver."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from fakes.facts import facts, model
from fakes.sweeps import Crashed, SmallSweep, small_experiment, small_plan

from sweep import app, views
from sweep.app import Loaded, Planned, planned_for, prepare, read_prompts
from sweep.following import _tell
from sweep.model.errors import StoreError, SweepError, SweepLockedError, UnusableError, UsageError
from sweep.model.states import LaunchState, TrialState
from sweep.store.directory import SweepLock, find_sweeps
from sweep.store.sweep_db import DB_FILE, NodeRow, SweepDb

EXPERIMENT = small_experiment()
MODELS = {"m.gguf": model(), "d.gguf": model()}
FACTS = facts(spec=EXPERIMENT.nodes[0], reached=None, models=MODELS)
LOADED = Loaded("name: small\n", ("a=1",), EXPERIMENT)
TOKENS = {"code": [[1], [2, 3]]}
PLANNED = Planned(EXPERIMENT, small_plan(EXPERIMENT), (FACTS,))


def test_the_engines_version_is_kept_with_the_plan(tmp_path: Path) -> None:
    """What the node's program said of itself is in every row."""
    facts = replace(
        FACTS, answer={**FACTS.answer, "version": {"line": "engine 7.1", "returncode": 0}}
    )
    prepared = prepare(LOADED, replace(PLANNED, facts=(facts,)), tmp_path, new=True)
    prepared.lock.release()
    database = SweepDb.open(prepared.directory)
    assert database.nodes() == {"local": NodeRow("engine 7.1", "/w")}
    database.close()


def test_warnings_refuse_nothing_and_are_handed_on(tmp_path: Path) -> None:
    """A clock that is an hour off keeps no sweep from starting, and the user hears of it."""
    late = replace(FACTS, clock_ahead_s=-3600.0)
    prepared = prepare(LOADED, replace(PLANNED, facts=(late,)), tmp_path, new=True)
    prepared.lock.release()
    (text,) = prepared.warnings
    assert text.startswith("local: clock: 60 min behind this machine's")


def test_errors_refuse_before_anything_is_made(tmp_path: Path) -> None:
    """With every line that check shows as one."""
    broken = replace(FACTS, answer={**FACTS.answer, "gpu_error": "driver mismatch"})
    with pytest.raises(UnusableError, match="local: GPUs: nvidia-smi fails: driver mismatch"):
        prepare(LOADED, replace(PLANNED, facts=(broken,)), tmp_path, new=True)
    assert list(tmp_path.iterdir()) == []


def complete(directory: Path) -> None:
    """End every trial of a sweep well."""
    database = SweepDb.open(directory)
    for launch in database.plan().launches:
        database.begin_attempt(
            launch.launch_id, 1, run=1, node="n", directory="/d", nonce="n", trial_ids=[], utc="u"
        )
        database.end_attempt(
            launch.launch_id,
            1,
            state=LaunchState.DONE,
            failure=None,
            outcome=None,
            trials={trial.trial_id: (TrialState.OK, None) for trial in launch.trials},
        )
    database.close()


def test_a_new_sweep_is_prepared(tmp_path: Path) -> None:
    """A private directory with the file as submitted, the plan, and the lock held."""
    prepared = prepare(LOADED, PLANNED, tmp_path, new=False)
    assert (prepared.earlier, prepared.to_run, prepared.change.new) == (False, 4, 8)
    assert prepared.directory.stat().st_mode & 0o777 == 0o700
    text = (prepared.directory / "experiment.yaml").read_text()
    assert text == "name: small\n# submitted with --set a=1\n"
    with pytest.raises(SweepLockedError):
        SweepLock.take(prepared.directory)
    prepared.lock.release()


def test_the_same_name_continues_unless_new(tmp_path: Path) -> None:
    """The latest sweep of the name goes on; --new makes another."""
    first = prepare(LOADED, PLANNED, tmp_path, new=False)
    first.lock.release()
    again = prepare(LOADED, PLANNED, tmp_path, new=False)
    assert (again.directory, again.earlier, again.change.kept) == (first.directory, True, 8)
    again.lock.release()
    new = prepare(LOADED, PLANNED, tmp_path, new=True)
    assert new.directory != first.directory
    new.lock.release()


def test_resume_goes_on_with_the_latest_that_is_unfinished(tmp_path: Path) -> None:
    """A complete sweep that is younger is passed over; with none unfinished there is nothing."""
    for name in ("older", "younger"):
        experiment = small_experiment(name=name)
        loaded = Loaded(f"name: {name}\n", (), experiment)
        prepare(loaded, PLANNED, tmp_path, new=True).lock.release()
    sweeps = find_sweeps(tmp_path)
    complete(sweeps[1].directory)
    assert app._latest_unfinished(sweeps, tmp_path).name == "older"
    complete(sweeps[0].directory)
    with pytest.raises(UsageError, match="no unfinished sweep"):
        app._latest_unfinished(sweeps, tmp_path)


def test_a_locked_sweep_is_not_touched(tmp_path: Path) -> None:
    """A second submit changes neither plan nor file."""
    first = prepare(LOADED, PLANNED, tmp_path, new=False)
    before = (first.directory / "experiment.yaml").read_bytes()
    other = small_experiment((1,))
    with pytest.raises(SweepLockedError):
        prepare(
            Loaded("other", (), other),
            Planned(other, small_plan(other), (FACTS,)),
            tmp_path,
            new=False,
        )
    assert (first.directory / "experiment.yaml").read_bytes() == before
    assert len(views.record(first.directory).launches) == 4
    first.lock.release()


def test_a_sweep_that_cannot_be_read_is_not_continued(tmp_path: Path) -> None:
    """Its results are not passed over in silence: --new is the user's decision."""
    first = prepare(LOADED, PLANNED, tmp_path, new=False)
    first.lock.release()
    (first.directory / DB_FILE).write_bytes(b"garbage" * 1000)
    with pytest.raises(UnusableError, match="cannot be read") as raised:
        prepare(LOADED, PLANNED, tmp_path, new=False)
    assert "--new" in str(raised.value.hint)
    assert [row["problem"] is None for row in views.list_sweeps(tmp_path)] == [False]
    with pytest.raises(UsageError, match="no sweep below"):
        views.find(tmp_path, None)
    with pytest.raises(StoreError, match="not a database"):
        views.progress(views.find(tmp_path, "small").directory)


def test_a_sweep_that_cannot_be_kept_leaves_no_directory(tmp_path: Path) -> None:
    """A database that cannot grow while the plan is written (here by a limit on the size of
    files): exit code 3, and nothing half-made."""
    command = 'ulimit -f 160 && exec "$1" "$2" "$3"'  # of 512 bytes
    argv = ["sh", "-c", command, "sh", sys.executable, __file__, str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    ended = subprocess.run(
        argv, capture_output=True, text=True, timeout=60, check=False, env=environment
    )
    assert ended.stdout.splitlines()[:2] == ["3", "[]"], ended.stderr
    assert "cannot write" in ended.stdout


def test_a_plan_for_another_model_is_not_resumed() -> None:
    """Launch ids hold the engine's version and the models' files: when they differ, nothing may
    be measured into the same table."""
    plan = small_plan(EXPERIMENT)
    app.require_same(plan, plan)
    other = replace(plan, launches=(replace(plan.launches[0], launch_id="other"),))
    with pytest.raises(UnusableError, match="a node changed since this sweep was planned"):
        app.require_same(plan, other)
    first = plan.launches[0]
    server = replace(first.server, env={"A": "1"}, path_first=("/venv/bin",))
    setup = replace(plan, launches=(replace(first, launch_id="other", server=server),))
    with pytest.raises(UnusableError, match=r"what engine.setup gives \(A, PATH\) changed"):
        app.require_same(plan, setup)


def test_signalling_a_driver_that_has_just_ended_is_no_error() -> None:
    """Between the look and the signal it may end."""
    with subprocess.Popen(["true"]) as child:
        child.wait()
    app.signal_driver(child.pid)


def test_the_driver_is_started_with_the_lock_in_a_session_of_its_own(tmp_path: Path) -> None:
    """The child holds the lock that the parent lets go, and says in driver.log what went wrong."""
    prepared = prepare(LOADED, PLANNED, tmp_path, new=False)
    (prepared.directory / DB_FILE).write_bytes(b"garbage" * 1000)
    pid = app.start_driver(prepared, dict(os.environ), keep_going=False)
    assert os.getsid(pid) == pid
    os.waitpid(pid, 0)
    SweepLock.take(prepared.directory).release()
    with pytest.raises(SweepError, match="not a database") as raised:
        _tell(prepared.directory, pid, None)
    assert f"the driver (pid {pid}) died" in raised.value.message
    assert "sweep resume" in str(raised.value.hint)


def test_following_ends_when_the_driver_has(tmp_path: Path) -> None:
    """Shown once more after its end, so that nothing it wrote last is missed."""
    sweep = SmallSweep(tmp_path)
    with pytest.raises(Crashed):
        sweep.run(crash_after=3)
    seen: list[float] = []
    with subprocess.Popen(["sleep", "0.3"]) as child:
        run = app.follow(tmp_path, child.pid, lambda _: seen.append(time.monotonic()))
    assert run is None
    assert len(seen) >= 2


if __name__ == "__main__":
    results = Path(sys.argv[1])
    try:
        prepare(LOADED, PLANNED, results, new=False)
    except SweepError as error:
        print(error.exit_code)
        print(list(results.iterdir()))
        print(error.message)


def test_prompts_are_read_from_a_regular_file(tmp_path: Path) -> None:
    """Lines end alike whatever wrote them; exactly 64 MiB are the most."""
    (tmp_path / "p.txt").write_bytes("é\r\nb\n".encode())
    assert read_prompts(tmp_path / "p.txt") == "é\nb\n"
    with (tmp_path / "large.txt").open("wb") as large:
        large.truncate(64 * 2**20)
    assert len(read_prompts(tmp_path / "large.txt")) == 64 * 2**20
    with (tmp_path / "large.txt").open("ab") as large:
        large.write(b"x")
    with pytest.raises(ValueError, match="larger than 64 MiB"):
        read_prompts(tmp_path / "large.txt")


def test_a_prompts_file_that_never_ends_is_refused(tmp_path: Path) -> None:
    """A pipe, a device and a directory are problems at once; nothing waits for them."""
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(ValueError, match="not a regular file"):
            read_prompts(path)
    with pytest.raises(IsADirectoryError):
        read_prompts(tmp_path)
    with pytest.raises(FileNotFoundError):
        read_prompts(tmp_path / "none")


def test_prompts_are_those_that_the_nodes_render() -> None:
    """By the first one's tokenizer; a check holds that the others agree."""
    version = {"line": "v1", "details": {"token_ids": TOKENS}}
    one = replace(FACTS, answer={**FACTS.answer, "version": version})
    found = planned_for(EXPERIMENT, (one, one)).experiment
    assert [prompt.token_ids for prompt in found.workloads[0].prompts] == [(1,), (2, 3)]
    assert planned_for(EXPERIMENT, (FACTS,)).experiment == EXPERIMENT
