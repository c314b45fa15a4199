"""SIGKILL for every process of a sweep at every moment: nothing recorded is lost or changed, no
load is repeated while its agent lives, and in the end the sweep is what an undisturbed one is."""

from __future__ import annotations

import random
import secrets
import time
from collections import Counter
from functools import partial

import pytest
from fakes.inline_sweep import boundaries
from fakes.launching import wait_for
from fakes.machine import (
    Lines,
    Machine,
    Result,
    descendants,
    eventually,
    finished,
    gone,
    kill,
    workload,
)

from sweep.agent import procs
from sweep.store.sweep_db import AttemptRow

KILLED = -9


def require_prefix(before: Lines, machine: Machine) -> None:
    """What was recorded is there as it was, byte for byte."""
    after = machine.lines()
    assert {place: after.get(place) for place in before} == before


def require_one_start_each(machine: Machine, first: int = 0) -> None:
    """Each launch needed one attempt and one server; `first`: starts that came before."""
    starts = Counter(start["steps"] for start in machine.starts()[first:])
    assert set(starts.values()) == {1}
    assert {row.attempt for row in machine.attempts()} == {1}


def undisturbed(machine: Machine, *arguments: object) -> dict[str, Result]:
    """Run the same experiment in a sweep of its own, and return its results."""
    machine.serve_with("--rate 2000")
    assert machine.inline_to_end(*arguments, "--new") == 0
    outcome = machine.outcome()
    assert {result.state for result in outcome.values()} == {"ok"}
    assert all(result.answers for result in outcome.values())
    return outcome


def test_driver_killed_at_every_recorded_boundary(machine: Machine) -> None:
    """Killed as soon as it recorded a phase, the driver comes back to the same servers."""
    launches = range(1, 13)
    file = machine.experiment(launches)
    expected = undisturbed(machine, "submit", file)
    moments = boundaries(len(machine.events(1)))
    first, ids = len(machine.starts()), machine.launches()
    machine.serve_with("--rate 400 --unready 0.2")
    arguments: tuple[object, ...] = ("submit", file, "--new")
    before: Lines = {}
    for steps in launches:
        for moment in moments[steps - 1 :: len(launches)]:
            code = machine.inline_to_end(*arguments, kill_at=(ids[steps], moment))
            assert code == KILLED, f"boundary {moment} of launch {steps} was not reached"
            require_prefix(before, machine)
            before = machine.lines()
            arguments = ("resume",)
    assert machine.inline_to_end("resume") == 0
    require_prefix(before, machine)
    require_one_start_each(machine, first)
    assert machine.outcome() == expected
    machine.require_quiet()


def test_driver_killed_at_random_instants(machine: Machine) -> None:
    """The same holds wherever the driver is when it is killed."""
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    chosen = random.Random(seed)
    file = machine.experiment(range(1, 7))
    expected = undisturbed(machine, "submit", file)
    first = len(machine.starts())
    machine.serve_with("--rate 200 --unready 0.5")
    process = machine.inline("submit", file, "--new")
    machine.wait_for_sweep(2)
    before: Lines = {}
    for _ in range(10):
        process.join(chosen.uniform(0.0, 2.0))
        if process.exitcode is not None:
            break
        process.kill()
        process.join()
        require_prefix(before, machine)
        before = machine.lines()
        process = machine.inline("resume")
    process.join(90)
    assert process.exitcode == 0, machine.inline_log()
    require_prefix(before, machine)
    require_one_start_each(machine, first)
    assert machine.outcome() == expected
    machine.require_quiet()


@pytest.mark.ray
def test_driver_with_ray_killed_in_load_in_a_window_and_before_the_stop(machine: Machine) -> None:
    """The launch goes on without its driver; resume adopts the same server, and ends its sweep."""
    file = machine.experiment([1, 2, 3])
    expected = undisturbed(machine, "submit", file)
    first = len(machine.starts())
    slow = "--rate 40"  # a window takes 4 s
    machine.serve_with(
        "--rate 2000",
        s1="--unready 12",
        s2=slow,
        s3="--term-after 8",  # so long the stop takes
    )
    before: Lines = {}
    arguments: tuple[object, ...] = ("submit", file, "--new")
    for steps, phase in ((1, "load"), (2, "measure"), (3, "stop")):
        asked_s = time.monotonic()
        following = machine.start(*arguments)
        machine.wait_for_sweep(2)
        if steps == 3:  # resumed in a window, in which a line comes each second
            eventually(partial(grown, machine, len(before)))
            print(f"resume to attached: {time.monotonic() - asked_s:.2f} s")
        machine.wait_for_phase(steps, phase)
        agent, server = machine.agent(steps), machine.server(steps)
        require_prefix(before, machine)
        driver = machine.driver()
        kill(driver)
        ended = finished(following)
        assert ended.code == 1
        assert "died" in ended.text
        assert f"sweep resume {machine.directory.name}" in ended.text
        before = machine.lines()
        assert procs.alive(agent)
        assert procs.alive(server)
        arguments = ("resume",)
    following = machine.start("resume")
    ended = finished(following)
    assert ended.code == 0, ended.text
    require_prefix(before, machine)
    require_one_start_each(machine, first)
    assert machine.outcome() == expected
    machine.require_quiet()


def below_driver(machine: Machine, name: str) -> procs.Identity | None:
    """A process of the driver's whose name begins so."""
    for process in descendants(machine.driver()[0]):
        if procs.name_of(process.pid).startswith(name):
            return process.identity
    return None


@pytest.mark.ray
def test_lane_and_ray_killed_in_a_window(machine: Machine) -> None:
    """A dead lane, and a dead Ray, are replaced; the launch never notices."""
    file = machine.experiment([1, 2])
    expected = undisturbed(machine, "submit", file)
    first = len(machine.starts())
    # A window takes 4 s; the first launch is long enough for Ray to be up and its actor to read.
    machine.serve_with("--rate 40", s1="--rate 15")
    following = machine.start("submit", file, "--new")
    machine.wait_for_sweep(2)
    for steps, name in ((1, "ray::LaneActor"), (2, "raylet")):
        machine.wait_for_phase(steps, "measure")
        kill(eventually(partial(below_driver, machine, name)))
    ended = finished(following, 120)
    assert ended.code == 0, ended.text
    log = (machine.directory / "driver.log").read_text()
    assert log.count("attaching again") == 2, log
    require_one_start_each(machine, first)
    assert machine.outcome() == expected
    machine.require_quiet()


@pytest.mark.ray
def test_a_driver_in_the_background_outlives_its_ray(machine: Machine) -> None:
    """Its parent is gone, which Ray must not take for the end of the raylet that started it; and
    what it brings to a lane must not be in the store of a raylet that is dead."""
    machine.serve_with("--rate 15")
    assert machine.run("submit", machine.experiment([1]), "--detach").code == 0
    machine.wait_for_sweep()
    driver = machine.driver()
    # As soon as there is a lane, because its task is being brought then; and in a window.
    eventually(partial(below_driver, machine, "ray::LaneActor"))
    first = eventually(partial(below_driver, machine, "raylet"))
    kill(first)
    eventually(lambda: (new := below_driver(machine, "raylet")) and new != first, 60)
    eventually(partial(below_driver, machine, "ray::LaneActor"))
    machine.wait_for_phase(1, "measure")
    kill(eventually(partial(below_driver, machine, "raylet")))
    gone(driver, 90)
    run = machine.last_run()
    assert run.exit_code == 0, (machine.directory / "driver.log").read_text()
    assert "attaching again" in (machine.directory / "driver.log").read_text()
    require_one_start_each(machine)
    machine.require_quiet()


@pytest.mark.ray
def test_servers_and_agents_killed(machine: Machine) -> None:
    """A dead server is a failed launch within a second and the next one runs; a dead agent is an
    interrupted launch, tried again at once, and trials that had ended stay."""
    file = machine.experiment(
        [1, 2, 3, 4, 5], workloads=[workload("first"), workload("second", windows=3)]
    )
    slow = "--rate 100"  # a window takes 1.6 s
    machine.serve_with("--rate 2000", s1="--unready 30", s2=slow, s3="--unready 4", s4=slow)
    following = machine.start("submit", file)
    for steps, phase, failure in ((1, "load", "unknown"), (2, "measure", "server_died")):
        machine.wait_for_sweep()
        machine.wait_for_phase(steps, phase)
        server = machine.server(steps)
        kill(server)
        killed_s = time.monotonic()
        row = wait_for(partial(ended_attempt, machine, steps))
        took_s = time.monotonic() - killed_s
        print(f"server death in {phase} to recorded classification: {took_s:.3f} s")
        assert row.state == "failed"
        assert row.failure.failure_class == failure
        assert "killed by signal 9" in row.failure.message
        assert took_s < 1
    for steps in (3, 4):
        machine.wait_for_phase(steps, "load")
        if steps == 4:
            eventually(lambda: machine.events(4, "trial_end") and machine.phase(4) == "measure")
        agent, server = machine.agent(steps), machine.server(steps)
        kill(agent)
        eventually(partial(tried_again, machine, steps))
        gone(server)
        assert machine.attempts(steps)[0].state == "interrupted"
    ended = finished(following)
    assert ended.code == 1, ended.text
    with machine.database() as database:
        trials = database.trial_states()
        launches = database.plan().launches
    found = {
        launch.trials[0].configuration.num_steps: [
            (trials[trial.trial_id][0].value, trials[trial.trial_id][2]) for trial in launch.trials
        ]
        for launch in launches
    }
    assert found[1] == [("failed", 1), ("failed", 1)]
    assert found[2][0] == ("partial", 1) or found[2][0] == ("failed", 1)
    assert found[3] == [("ok", 2), ("ok", 2)]
    assert found[4] == [("ok", 1), ("ok", 2)]
    assert found[5] == [("ok", 1), ("ok", 1)]
    starts = Counter(start["steps"] for start in machine.starts())
    assert starts == {1: 1, 2: 1, 3: 2, 4: 2, 5: 1}
    machine.require_quiet()
    machine.serve_with("--rate 2000")
    assert machine.inline_to_end("resume") == 0
    assert machine.states() == {"ok": 10}
    machine.require_quiet()


def grown(machine: Machine, lines: int) -> bool:
    """Whether more lines are recorded than there were."""
    return len(machine.lines()) > lines


def tried_again(machine: Machine, steps: int) -> bool:
    """Whether the launch's second attempt is recorded."""
    return len(machine.attempts(steps)) == 2


def ended_attempt(machine: Machine, steps: int) -> AttemptRow | None:
    """The launch's attempt once it is not running any more, None before."""
    row = machine.attempts(steps)[-1]
    return None if row.state == "running" else row
