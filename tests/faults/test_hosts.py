"""Which machine answers, the way to it, and which Ray is used: the right ones or an error."""

from __future__ import annotations

import contextlib
from functools import partial
from pathlib import Path

import pytest
from fakes.machine import Machine, descendants, eventually, finished
from faults.remote import node_behind_ssh, remote_node
from faults.sshd import Sshd, make_key

from sweep.agent import procs


@pytest.mark.parametrize("known", ["nothing", "another key"])
def test_no_setting_makes_an_unproven_host_acceptable(machine: Machine, known: str) -> None:
    """Neither an unknown nor a changed key, whatever the user's SSH config says: exit code 3, the
    fingerprint, and the remedy; nothing is added, nothing is sent."""
    file = machine.experiment([1], node=remote_node(machine))
    with node_behind_ssh(machine, "StrictHostKeyChecking accept-new") as server:
        hosts = Path(machine.environment["HOME"]) / ".ssh" / "known_hosts"
        other = make_key(machine.root / "other")
        line = "" if known == "nothing" else f"{server.key_name} {server.public(other)}\n"
        hosts.write_text(line)
        refused = machine.run("submit", file)
        assert server.connections() == []
        fingerprint = server.fingerprint(server.host_key)
    assert refused.code == 3
    assert fingerprint in refused.text
    if known == "nothing":
        assert "is not known" in refused.text
        assert f">> {hosts}" in refused.text
    else:
        assert "has changed" in refused.text
        assert server.fingerprint(other) in refused.text
        assert f"ssh-keygen -R '{server.key_name}' -f {hosts}" in refused.text
    assert hosts.read_text() == line
    assert not (machine.root / "node").exists()
    assert machine.sweeps() == []


def test_a_sweep_through_a_jump_host_with_two_sessions(machine: Machine) -> None:
    """An alias with ProxyJump, MaxSessions 2 on either machine: everything arrives, logs too."""
    machine.serve_with("--rate 2000 --unready 1")
    file = machine.experiment([1, 2], node=remote_node(machine))
    with contextlib.ExitStack() as stack:
        bastion = Sshd(machine.root / "bastion", ["MaxSessions 2"])
        stack.callback(bastion.close)
        server = stack.enter_context(node_behind_ssh(machine, "ProxyJump bastion"))
        with (Path(machine.environment["HOME"]) / ".ssh" / "config").open("a") as config:
            config.write(bastion.section("bastion", f"UserKnownHostsFile {bastion.known_hosts}"))
        driving = machine.inline("submit", file)
        machine.wait_for_sweep()
        machine.wait_for_phase(1, "load")
        assert bastion.connections()
        assert server.connections()
        logs = machine.run("logs", "--launch", machine.launches()[1])
        assert "fake llama-server starts" in logs.text
        driving.join(60)
        assert driving.exitcode == 0, machine.inline_log()
    assert machine.states() == {"ok": 2}
    fetched = [Path(str(row.fetched)) for row in machine.attempts()]
    assert all("fake llama-server starts" in (each / "server.log").read_text() for each in fetched)
    machine.require_quiet()


def _actor(machine: Machine) -> procs.Identity | None:
    for process in descendants(machine.driver()[0]):
        if procs.name_of(process.pid).startswith("ray::LaneActor"):
            return process.identity
    return None


@pytest.mark.ray
def test_the_environments_ray_and_proxy_are_not_used(machine: Machine) -> None:
    """With RAY_ADDRESS at an address where nobody is, and a proxy that answers nobody, the sweep
    has a Ray of its own."""
    dead = "http://127.0.0.1:9"
    machine.environment |= {"RAY_ADDRESS": "127.0.0.1:9"}
    machine.environment |= dict.fromkeys(["http_proxy", "https_proxy", "HTTP_PROXY"], dead)
    machine.serve_with("--rate 2000", s1="--unready 6")
    following = machine.start("submit", machine.experiment([1, 2]))
    machine.wait_for_sweep()
    eventually(partial(_actor, machine))
    ended = finished(following)
    assert ended.code == 0, ended.text
    assert machine.states() == {"ok": 2}
    machine.require_quiet()
