"""Hosts in network namespaces behind a bridge, whose links are cut and repaired."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

_TAG = "swt"


@dataclass(frozen=True)
class Host:
    """A host with its own loopback and one link to the machine of the tests."""

    namespace: str
    link: str
    address: str

    @property
    def prefix(self) -> tuple[str, ...]:
        """What runs a command on it."""
        return ("ip", "netns", "exec", self.namespace)


@dataclass(frozen=True)
class Network:
    """Two hosts, and the bridge that joins them to this machine."""

    bridge: str
    hosts: tuple[Host, Host]

    def cut(self, host: Host) -> None:
        """Let every packet from and to a host vanish; neither side is told."""
        _ip("link", "set", host.link, "nomaster")

    def repair(self, host: Host) -> None:
        """Join it again."""
        _ip("link", "set", host.link, "master", self.bridge)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@contextlib.contextmanager
def network() -> Iterator[Network]:
    """Two hosts for the length of a with block; skips where that is not allowed."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and `ip`")
    # One network per process: numbers from its pid keep parallel test runs apart.
    number = os.getpid() % 250
    bridge = f"{_TAG}{number}b"
    subnet = f"10.213.{number}"
    hosts = tuple(
        Host(f"{_TAG}{number}n{each}", f"{_TAG}{number}v{each}", f"{subnet}.1{each}")
        for each in (1, 2)
    )
    try:
        try:
            _ip("link", "add", bridge, "type", "bridge")
            _ip("addr", "add", f"{subnet}.1/24", "dev", bridge)
            _ip("link", "set", bridge, "up")
            for host in hosts:
                _add(host, bridge)
        except subprocess.CalledProcessError as error:
            pytest.skip(f"no network namespaces here: {error.stderr.decode().strip()}")
        yield Network(bridge, (hosts[0], hosts[1]))
    finally:
        for host in hosts:
            subprocess.run(["ip", "netns", "del", host.namespace], check=False, capture_output=True)
        subprocess.run(["ip", "link", "del", bridge], check=False, capture_output=True)


def _add(host: Host, bridge: str) -> None:
    _ip("netns", "add", host.namespace)
    _ip("link", "add", host.link, "type", "veth", "peer", "name", "eth0", "netns", host.namespace)
    _ip("link", "set", host.link, "master", bridge, "up")
    for words in (
        ("addr", "add", f"{host.address}/24", "dev", "eth0"),
        ("link", "set", "eth0", "up"),
        ("link", "set", "lo", "up"),
    ):
        _ip("-n", host.namespace, *words)
