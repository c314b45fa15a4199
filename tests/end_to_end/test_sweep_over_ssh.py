"""Whole sweeps through a real sshd: the command line, Ray, the lane, the agent behind SSH."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from fakes.machine import Machine, eventually
from faults.remote import node_behind_ssh

pytestmark = pytest.mark.ray


def test_a_sweep_over_ssh_measures_what_a_local_one_does(machine: Machine) -> None:
    """Connections and the driver killed in a window: one start of the server, and the counts of
    an undisturbed sweep on this machine; nothing stays on the node."""
    machine.serve_with("--rate=2000")
    workdir = machine.root / "node"
    assert machine.run("submit", machine.experiment([2], name="here")).code == 0
    undisturbed = list(machine.outcome().values())
    machine.serve_with("--rate=30")
    with node_behind_ssh(machine) as server:
        node = {"host": "gpu-a", "workdir": str(workdir)}
        machine.start("submit", machine.experiment([2], name="there", node=node))
        machine.wait_for_sweep(2)
        machine.wait_for_phase(2, "measure")
        server.kill_connections()
        eventually(lambda: machine.events(2, "window"))
        os.kill(machine.driver()[0], signal.SIGKILL)
        server.kill_connections()
        assert machine.run("resume", "there").code == 0
        assert list(machine.outcome().values()) == undisturbed
        assert len(machine.starts()) == len(["here", "there"])
        assert list(workdir.iterdir()) == []
    machine.require_quiet()


def test_a_host_that_is_not_known_is_refused(machine: Machine) -> None:
    """Exit code 3 before anything is started, with the fingerprint and the remedy."""
    with node_behind_ssh(machine) as server:
        (Path(machine.environment["HOME"]) / ".ssh" / "known_hosts").write_text("")
        file = machine.experiment([2], node={"host": "gpu-a", "workdir": str(machine.root / "n")})
        refused = machine.run("submit", file)
        assert refused.code == 3
        assert server.fingerprint(server.host_key) in refused.text
        assert "known_hosts" in refused.text
    assert machine.sweeps() == []
