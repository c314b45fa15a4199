"""Links to a node that vanish or freeze under a sweep: noticed, told, and no launch is lost."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from fakes.machine import Machine, Result, eventually
from faults.networks import network
from faults.remote import ALIAS, node_behind_ssh, remote_node

Fault = Callable[[], None]


@contextlib.contextmanager
def cut(machine: Machine) -> Iterator[tuple[Fault, Fault]]:
    """A node on a host of its own: packets vanish, and nobody is told."""
    with network() as net, node_behind_ssh(machine, "ConnectTimeout 1", host=net.hosts[0]):
        yield partial(net.cut, net.hosts[0]), partial(net.repair, net.hosts[0])


@contextlib.contextmanager
def frozen(machine: Machine) -> Iterator[tuple[Fault, Fault]]:
    """A node whose sshd stops, its connections and the listener: TCP stays healthy."""
    with node_behind_ssh(machine, "ConnectTimeout 1") as server:
        yield server.freeze, server.thaw


def undisturbed(machine: Machine) -> list[Result]:
    """What the same launch measures on this machine, and nobody disturbs it."""
    machine.serve_with("--rate 2000")
    assert machine.inline_to_end("submit", machine.experiment([2], name="here")) == 0
    results = list(machine.outcome().values())
    assert all(result.state == "ok" and result.answers for result in results)
    return results


def silent(machine: Machine) -> bool:
    """Whether the stage that `status` shows says that the node does not answer."""
    return f"{ALIAS} does not answer since" in machine.last_run().stage


@pytest.mark.parametrize("fault", [cut, frozen])
def test_a_link_lost_in_a_load_and_in_a_window_costs_nothing(
    machine: Machine,
    fault: Callable[[Machine], contextlib.AbstractContextManager[tuple[Fault, Fault]]],
) -> None:
    """Told while it lasts; then the same server, one launch, a load that spans the gap, and the
    counts of an undisturbed run. The second gap ends after the launch does."""
    expected = undisturbed(machine)
    machine.serve_with("--rate 60 --unready 5")  # four seconds of windows
    with fault(machine) as (lose, restore):
        file = machine.experiment([2], name="there", node=remote_node(machine))
        driving = machine.inline("submit", file, hurried=True)
        machine.wait_for_sweep(2)
        machine.wait_for_phase(2, "load")
        server = machine.server(2)
        lose()
        eventually(partial(silent, machine), 10)
        restore()
        eventually(lambda: machine.events(2, "healthy"), 30)
        machine.wait_for_phase(2, "measure")
        lose()
        eventually(partial(silent, machine), 10)
        recorded = len(machine.events(2))
        launches = machine.root / "node" / machine.directory.name
        eventually(lambda: list(launches.glob("*/1/outcome.json")), 30)
        assert len(machine.events(2)) == recorded
        restore()
        driving.join(30)
        assert driving.exitcode == 0, machine.inline_log()
    assert machine.inline_log().count(f"{ALIAS} does not answer, trying again") == 2
    assert machine.server(2) == server
    assert len(machine.starts()) == len(["here", "there"])
    [started], [healthy] = machine.events(2, "server_started"), machine.events(2, "healthy")
    assert 5 <= healthy["t_s"] - started["t_s"] < 8
    assert list(machine.outcome().values()) == expected
    machine.require_quiet()
