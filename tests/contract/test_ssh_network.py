"""Nodes on hosts of their own, whose links are cut: packets vanish and nobody is told."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from fakes.background import Background
from faults.networks import Network, network
from faults.sshd import Sshd, wait_until

from sweep.driver.clock import SystemClock
from sweep.nodes.ssh import SshNode

BOOT_ID = "/proc/sys/kernel/random/boot_id"


@pytest.fixture(scope="module")
def net() -> Iterator[Network]:
    """Two hosts."""
    with network() as net:
        yield net


@pytest.fixture
def nodes(net: Network, tmp_path: Path) -> Iterator[tuple[SshNode, SshNode]]:
    """A node on each host, with the deadlines that users get."""
    with contextlib.ExitStack() as stack:
        made = []
        for host in net.hosts:
            server = Sshd(tmp_path / host.namespace, (), host.address, 22, host.prefix)
            stack.callback(server.close)
            node = SshNode("node", SystemClock(), files=server.files(), patience_s=60.0)
            stack.callback(node.close)
            made.append(node)
        yield made[0], made[1]


def test_a_black_hole_is_noticed_in_ten_seconds_and_survived(
    net: Network, nodes: tuple[SshNode, SshNode], tmp_path: Path
) -> None:
    """A read that waits goes on once the link is repaired; the other host never notices."""
    first, second = nodes
    (tmp_path / "f").write_bytes(b"whole")
    assert first.read(BOOT_ID) == second.read(BOOT_ID)
    net.cut(net.hosts[0])
    began_s = time.monotonic()
    waiting = Background(lambda: first.read(str(tmp_path / "f")))
    link = first._link
    assert link is not None
    while link.alive:
        assert second.read(str(tmp_path / "f")) == b"whole"
        assert time.monotonic() - began_s < 20
        time.sleep(0.05)
    noticed_s = time.monotonic() - began_s
    assert noticed_s < 13
    net.repair(net.hosts[0])
    waiting.join(40)
    assert waiting.error is None
    assert waiting.result == b"whole"


def test_a_short_cut_loses_nothing(
    net: Network, nodes: tuple[SshNode, SshNode], tmp_path: Path
) -> None:
    """Two seconds without a link, in the middle of a fetch: the same connection goes on."""
    first, _ = nodes
    data = bytes(range(256)) * 400_000
    (tmp_path / "data").write_bytes(data)
    assert first.read(BOOT_ID)
    link = first._link
    partial = tmp_path / "copy.part"
    fetching = Background(lambda: first.fetch(str(tmp_path / "data"), str(tmp_path / "copy")))
    wait_until(lambda: partial.exists() and partial.stat().st_size > 10**6, "the fetch began")
    net.cut(net.hosts[0])
    time.sleep(2)
    net.repair(net.hosts[0])
    fetching.join(60)
    assert fetching.error is None
    assert (tmp_path / "copy").read_bytes() == data
    assert first._link is link


def _connects_to(address: str) -> bool:
    """Whether a connection to an address waits for its first answer (SYN_SENT is state 02)."""
    remote = socket.inet_aton(address)[::-1].hex().upper()
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return any(fields[2].startswith(remote) and fields[3] == "02" for fields in lines)


def test_close_ends_a_connection_attempt_into_a_black_hole(
    net: Network, nodes: tuple[SshNode, SshNode]
) -> None:
    """Although the operating system would go on trying."""
    first, _ = nodes
    net.cut(net.hosts[0])
    try:
        waiting = Background(lambda: first.read(BOOT_ID))
        wait_until(partial(_connects_to, net.hosts[0].address), "it connects")
        began_s = time.monotonic()
        first.close()
        waiting.join(3)
        assert time.monotonic() - began_s < 3
        assert "the connection was closed" in str(waiting.error)
    finally:
        net.repair(net.hosts[0])
