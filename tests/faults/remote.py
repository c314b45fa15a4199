"""A machine's sweeps on a node behind SSH: this very machine, or a host of a network."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from fakes.machine import Machine
from faults.networks import Host
from faults.sshd import LOOPBACK, Sshd

ALIAS = "gpu-a"
_OF_THE_NODE = ("SWEEP_CLAIM_DIR", "FAKE_STARTS", "FAKE_OPTIONS", "SWEEP_TEST_MARK")


def remote_node(machine: Machine) -> dict[str, Any]:
    """The `node` section of an experiment file."""
    return {"host": ALIAS, "workdir": str(machine.root / "node")}


@contextlib.contextmanager
def node_behind_ssh(
    machine: Machine,
    *config: str,
    host: Host | None = None,
    environment: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[Sshd]:
    """An sshd that the user of `machine` knows as gpu-a; two sessions a connection are allowed.

    `config` are further lines of its section in the user's SSH config, `environment` what its
    login has beside what every node of the machine needs; with `host`, it is there.
    """
    ssh = machine.root / "home" / ".ssh"
    ssh.mkdir(parents=True, mode=0o700, exist_ok=True)
    server = Sshd(
        machine.root / "sshd",
        ["MaxSessions 2"],
        LOOPBACK if host is None else host.address,
        0 if host is None else 22,
        () if host is None else host.prefix,
        {name: machine.environment[name] for name in _OF_THE_NODE} | dict(environment),
    )
    with contextlib.closing(server):
        (ssh / "config").write_text(server.section(ALIAS, "IdentitiesOnly yes", *config))
        (ssh / "known_hosts").write_text(server.known_hosts.read_text())
        machine.environment["HOME"] = str(ssh.parent)
        yield server
