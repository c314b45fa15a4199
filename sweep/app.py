"""Composition: what each verb does, built from the parts. Prints nothing; `cli.py` does.

Ray is never imported here: only the driver process that `start_driver` begins does.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import stat
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sweep import views
from sweep.agent import procs
from sweep.agent.facts.storage import disk_facts
from sweep.check.facts import Facts
from sweep.check.line import Level, of_level
from sweep.check.storage import expected_load
from sweep.driver.clock import SystemClock
from sweep.engines import engine_of
from sweep.model.errors import StoreError, UnusableError, UsageError
from sweep.model.experiment import Experiment
from sweep.model.plan import Plan, PlannedLaunch
from sweep.model.states import LaunchState
from sweep.nodes.access import node_factory
from sweep.preflight import (
    Silent,
    ask_all,
    check_all,
    require_answers,
    require_usable,
    sentences,
)
from sweep.report.progress import Progress
from sweep.spec.describe import PlanSummary, describe_plan
from sweep.spec.estimate import ExpectedLoad, estimate
from sweep.spec.load import decode_text, load_experiment
from sweep.spec.plan import make_plan
from sweep.spec.rehearsal import rehearsal
from sweep.spec.rendering import rendered
from sweep.spec.scans import with_confirmations
from sweep.store.directory import (
    DRIVER_LOG,
    EXPERIMENT_FILE,
    FoundSweep,
    SweepLock,
    check_results_directory,
    choose_sweep,
    find_sweeps,
    new_sweep_id,
)
from sweep.store.sweep_db import NodeRow, PlanChange, RunRow, SweepDb

_FOLLOW_S = 0.2
_SHOW_S = 1.0
"""A follower on the node itself must not take its cores: it reads the database this seldom."""
_TAIL_LINES = 15
_MAX_PROMPTS_BYTES = 64 * 2**20


@dataclass(frozen=True)
class Loaded:
    """An experiment file after loading: text for the sweep's own copy, values for the rest."""

    text: str
    overrides: tuple[str, ...]
    experiment: Experiment


@dataclass(frozen=True)
class Planned:
    """A plan with the facts of the nodes that went into its identities, in the file's order."""

    experiment: Experiment
    """With its prompts as the engine renders them."""
    plan: Plan
    facts: tuple[Facts, ...]


@dataclass(frozen=True)
class Prepared:
    """A sweep directory whose plan is set and whose lock is held, ready for a driver."""

    directory: Path
    lock: SweepLock
    change: PlanChange
    earlier: bool
    """Whether it continues an earlier sweep of the same name."""
    to_run: int
    """Launches with trials that are not complete."""
    warnings: tuple[str, ...] = ()
    """What may cost results or time, found on the nodes."""


def load(file: Path, overrides: Sequence[str]) -> Loaded:
    """Load and validate an experiment file; raises UsageError and SpecError."""
    try:
        data = file.read_bytes()
    except FileNotFoundError:
        raise UsageError(f"no file {file}", hint="give the path of an experiment.yaml") from None
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}") from error
    text = decode_text(data, str(file))
    experiment = load_experiment(
        text,
        str(file),
        base=file.parent.absolute(),
        read_text=read_prompts,
        overrides=overrides,
        engine_problems=lambda found: engine_of(found.engine).problems(found),
    )
    return Loaded(text, tuple(overrides), experiment)


def rehearse(loaded: Loaded) -> Loaded:
    """Return what is swept to rehearse a file: the same, against the simulated server."""
    text = f"{loaded.text}\n# rehearsed against the simulated server: engine, answers and repeats\n"
    return Loaded(text, loaded.overrides, rehearsal(loaded.experiment))


def read_prompts(path: Path) -> str:
    """Return the text of a prompts file. Raises OSError, UnicodeDecodeError, and ValueError for
    what is no regular file or larger than 64 MiB: a pipe or a device would never end."""

    def at_once(name: str, flags: int) -> int:
        # Without O_NONBLOCK, opening a pipe waits until somebody writes to it.
        return os.open(name, flags | os.O_NONBLOCK)

    with open(path, encoding="utf-8", opener=at_once) as stream:
        facts = os.fstat(stream.fileno())
        if not stat.S_ISREG(facts.st_mode):
            raise ValueError("it is not a regular file")
        if facts.st_size > _MAX_PROMPTS_BYTES:
            raise ValueError(f"it is larger than {_MAX_PROMPTS_BYTES // 2**20} MiB")
        return stream.read()


def plan(experiment: Experiment, environment: Mapping[str, str]) -> Planned:
    """Ask the nodes for what identities need, and plan."""
    facts = require_answers(ask(experiment, environment))
    return planned_for(experiment, facts)


def planned_for(experiment: Experiment, facts: tuple[Facts, ...]) -> Planned:
    """Return the plan of an experiment on the nodes that these facts are of, with its prompts as
    the first one's tokenizer renders them."""
    tokens = facts[0].engine.details.get("token_ids") if facts else None
    asked = rendered(experiment, tokens or {})
    return Planned(asked, plan_for(asked, facts), facts)


def require_launches(planned: Plan) -> None:
    """Refuse a plan without a launch before anything is made for it."""
    if planned.launches:
        return
    if planned.skipped:
        why = f", the first because {planned.skipped[0].reason}"
    elif planned.excluded:
        why = ""
    else:
        raise UsageError(
            "nothing to launch: the file asks for no configuration",
            hint="give sweep.num_steps, or `baseline: true`",
        )
    raise UsageError(
        f"nothing to launch: of {planned.asked} configurations, {planned.excluded} are excluded "
        f"and {len(planned.skipped)} are invalid{why}",
        hint="`sweep plan` shows each with its reason",
    )


def plan_for(experiment: Experiment, facts: Sequence[Facts]) -> Plan:
    """Return the plan of an experiment on the nodes that these facts are of."""
    known = {each.node: each.known for each in facts}
    return make_plan(experiment, engine_of(experiment.engine), known)


def ask(experiment: Experiment, environment: Mapping[str, str]) -> tuple[Facts | Silent, ...]:
    """Ask every node of an experiment for facts."""
    clock = SystemClock()
    factories = {spec.name: node_factory(spec, environment, clock) for spec in experiment.nodes}
    return ask_all(experiment, engine_of(experiment.engine), factories, clock)


def plan_summary(experiment: Experiment, planned: Planned) -> PlanSummary:
    """Return the plan for people and programs."""
    installation = engine_of(experiment.engine).installation(experiment)
    loads = {node.name: ExpectedLoad() for node in experiment.nodes}
    for each in planned.facts:
        loads[each.node] = expected_load(each, installation)
    expected = estimate(planned.plan.launches, loads)
    return describe_plan(planned.plan, expected, experiment.budget)


def prepare(loaded: Loaded, planned: Planned, results: Path, *, new: bool) -> Prepared:
    """Check the nodes and the results directory, then make a sweep directory, or continue the
    latest one of the same name, and take its lock. Raises UnusableError."""
    check_results_directory(results, disk_facts(str(results)))
    name = loaded.experiment.name
    earlier = None if new else latest_of_name(results, name)
    warnings = _require_usable(
        loaded.experiment, planned.facts, earlier.sweep_id if earlier else None
    )
    now = SystemClock().utc()
    directory = earlier.directory if earlier else results / new_sweep_id(name, now)
    try:
        if earlier is None:
            directory.mkdir(mode=0o700)
        lock = SweepLock.take(directory)
        if earlier is None:
            database = SweepDb.create(directory, directory.name, name, now)
        else:
            database = SweepDb.open(directory)
        try:
            change = database.set_plan(
                planned.experiment,
                planned.plan,
                {
                    each.node: NodeRow(each.engine_version, workdir=each.workdir)
                    for each in planned.facts
                },
            )
            notes = "".join(f"# submitted with --set {item}\n" for item in loaded.overrides)
            _write_whole(directory / EXPERIMENT_FILE, loaded.text + notes)
            to_run = launches_to_run(database)
        finally:
            database.close()
    except (OSError, StoreError) as error:
        if earlier is None:
            shutil.rmtree(directory, ignore_errors=True)
        raise UnusableError(
            f"the sweep cannot be kept in {directory}: {error}",
            hint=getattr(error, "hint", None) or "free space there, or give --results DIR",
        ) from error
    return Prepared(directory, lock, change, earlier is not None, to_run, warnings)


def _require_usable(
    experiment: Experiment, facts: Sequence[Facts], sweep_id: str | None
) -> tuple[str, ...]:
    """Raise UnusableError with every error that a check of the nodes finds; return the warnings."""
    groups = check_all(facts, experiment, engine_of(experiment.engine), sweep_id)
    require_usable(groups)
    return tuple(sentences(of_level(groups, Level.WARNING)))


def latest_of_name(results: Path, name: str) -> FoundSweep | None:
    """Return the sweep that a file of this name continues; one that cannot be read is refused."""
    named = [sweep for sweep in find_sweeps(results) if sweep.name == name]
    if named and named[-1].problem is not None:
        raise UnusableError(
            f"the latest sweep of this name cannot be read: {named[-1].problem}",
            hint="start afresh with --new",
        )
    return named[-1] if named else None


def launches_to_run(database: SweepDb) -> int:
    """Return how many launches are not complete, or still to come of a scan, or still run."""
    states = database.trial_states()
    open_attempts = [row for row in database.attempts() if row.state is LaunchState.RUNNING]
    launches = database.plan().launches
    missing = [
        launch
        for launch in with_confirmations(launches)
        if any(
            trial.trial_id not in states or not states[trial.trial_id][0].is_complete
            for trial in launch.trials
        )
    ]
    return len({launch.launch_id for launch in missing} | {row.launch_id for row in open_attempts})


def _write_whole(path: Path, text: str) -> None:
    partial = path.with_name(path.name + ".part")
    with partial.open("w", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    partial.rename(path)


def prepare_resume(results: Path, text: str | None, environment: Mapping[str, str]) -> Prepared:
    """Take the lock of a sweep that is to go on: the one named, or the latest unfinished."""
    sweeps = find_sweeps(results)
    found = choose_sweep(sweeps, text) if text else _latest_unfinished(sweeps, results)
    lock = SweepLock.take(found.directory)
    experiment, planned, to_run = _rest(found.directory)
    warnings: tuple[str, ...] = ()
    if to_run:
        check_results_directory(results, disk_facts(str(results)))
        facts = require_answers(ask(experiment, environment))
        warnings = _require_usable(experiment, facts, found.sweep_id)
        require_same(planned, plan_for(experiment, facts))
    return Prepared(
        found.directory, lock, PlanChange(0, 0, 0), earlier=True, to_run=to_run, warnings=warnings
    )


def require_same(planned: Plan, now: Plan) -> None:
    """Raise UnusableError when a node's GPUs, engine, models or setup are no longer those of the
    plan: what was measured and what would be measured must not stand in one table."""
    planned = replace(planned, launches=_not_confirming(planned))
    if {launch.launch_id for launch in planned.launches} != {
        launch.launch_id for launch in now.launches
    }:
        variables = _changed_variables(planned, now)
        what = (
            f"what engine.setup gives ({', '.join(variables)})"
            if variables
            else ("the engine, a model or the GPUs of a node")
        )
        raise UnusableError(
            f"{what} changed since this sweep was planned",
            hint="submit the experiment file again: what no longer fits is set aside, not mixed",
        )


def _not_confirming(plan: Plan) -> tuple[PlannedLaunch, ...]:
    """Return the launches that come of the file alone, and not of what was measured."""
    return tuple(launch for launch in plan.launches if launch.confirms is None)


def _changed_variables(planned: Plan, now: Plan) -> list[str]:
    """Return the variables whose values differ, launch by launch, in the servers' environments."""
    found: set[str] = set()
    for before, after in zip(planned.launches, now.launches, strict=False):
        found |= {name for name, _ in before.server.env.items() ^ after.server.env.items()}
        found |= {*before.server.unset} ^ {*after.server.unset}
        if before.server.path_first != after.server.path_first:
            found.add("PATH")
    return sorted(found)


def _rest(directory: Path) -> tuple[Experiment, Plan, int]:
    """Return a sweep's experiment, its plan and how many launches it still has to run."""
    database = SweepDb.open(directory)
    try:
        return database.experiment(), database.plan(), launches_to_run(database)
    finally:
        database.close()


def _latest_unfinished(sweeps: Sequence[FoundSweep], results: Path) -> FoundSweep:
    for sweep in reversed(sweeps):
        if sweep.problem is None and _rest(sweep.directory)[2]:
            return sweep
    raise UsageError(
        f"no unfinished sweep below {results}", hint="`sweep list` shows the sweeps there are"
    )


# -- the driver process --------------------------------------------------------------------------


def start_driver(prepared: Prepared, environment: Mapping[str, str], *, keep_going: bool) -> int:
    """Start the driver in a session of its own, handing it the lock; return its pid."""
    # -P: a file of the user's in the working directory must not pass for a module of ours.
    # -u: what it wrote before a crash is what explains it.
    argv = [sys.executable, "-u", "-P", "-m", "sweep.driver", str(prepared.directory.absolute())]
    argv.append(str(prepared.lock.descriptor))
    if keep_going:
        argv.append("--keep-going")
    log = str(prepared.directory / DRIVER_LOG)
    os.set_inheritable(prepared.lock.descriptor, True)
    pid = os.posix_spawn(
        sys.executable,
        argv,
        environment,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
        # Held back until the driver can take them: one that comes early must not kill it.
        setsigmask=[signal.SIGINT, signal.SIGTERM],
    )
    prepared.lock.release()
    return pid


def follow(
    directory: Path,
    driver_pid: int,
    show: Callable[[Progress], None],
    interrupted: Callable[[], bool] = lambda: False,
) -> RunRow | None:
    """Show progress until the driver with this pid has ended, or the caller was `interrupted`;
    return its run, None when it never recorded one."""
    shown_s = float("-inf")
    while True:
        alive = _exists(driver_pid)  # looked at first: what it wrote before its end is shown
        ended = not alive or interrupted()
        if ended or time.monotonic() - shown_s >= _SHOW_S:
            show(views.progress(directory))
            shown_s = time.monotonic()
        if ended:
            return _run_of(directory, driver_pid)
        time.sleep(_FOLLOW_S)


def _run_of(directory: Path, driver_pid: int) -> RunRow | None:
    database = SweepDb.open(directory)
    try:
        runs = [run for run in database.runs() if run.pid == driver_pid]
    finally:
        database.close()
    return runs[-1] if runs else None


def driver_log_tail(directory: Path) -> str:
    """Return the last lines that the driver wrote, empty when it wrote none."""
    path = directory / DRIVER_LOG
    text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    return "\n".join(text.splitlines()[-_TAIL_LINES:])


def _exists(pid: int) -> bool:
    process = procs.read(pid)
    return process is not None and not process.dead


def signal_driver(pid: int, number: signal.Signals = signal.SIGTERM) -> None:
    """Ask a driver by SIGINT or SIGTERM to stop its sweep gracefully, as it was asked of us; one
    that has just ended needs no asking."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
