"""One sweep on two hosts in networks of their own: both work at the same time."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

from fakes.machine import Machine, eventually
from faults.networks import network
from faults.sshd import Sshd

HOSTS = ("gpu-a", "gpu-b")


def test_two_hosts_work_at_the_same_time(machine: Machine) -> None:
    """An arm each, with its own baselines and those of the default arm; launches overlap in time,
    rows of one host are never ranked with those of the other, and nothing is left on either."""
    ssh = machine.root / "home" / ".ssh"
    ssh.mkdir(parents=True, mode=0o700)
    nodes = []
    with contextlib.ExitStack() as stack:
        net = stack.enter_context(network())
        config = known = ""
        for alias, host in zip(HOSTS, net.hosts, strict=True):
            claims = machine.root / f"claims-{alias}"
            claims.mkdir()
            environment = {
                "SWEEP_CLAIM_DIR": str(claims),
                "SWEEP_TEST_MARK": machine.environment["SWEEP_TEST_MARK"],
            }
            server = Sshd(
                machine.root / alias, ["MaxSessions 2"], host.address, 22, host.prefix, environment
            )
            stack.callback(server.close)
            config += server.section(alias, "IdentitiesOnly yes")
            known += server.known_hosts.read_text()
            nodes.append({"host": alias, "workdir": str(machine.root / f"node-{alias}")})
        (ssh / "config").write_text(config)
        (ssh / "known_hosts").write_text(known)
        machine.environment["HOME"] = str(ssh.parent)
        file = machine.experiment(
            [1, 2],
            engine={
                "kind": "simulator",
                "model": "target",
                "draft_model": "draft",
                "algorithm": "EAGLE3",
                "args": {"load-speedup": 2000},
            },
            baseline=True,
            nodes=nodes,
            sweep={"num_steps": [1, 2], "nccl": {"tuned": {"NCCL_PROTO": "LL"}}},
        )
        ended = machine.run("submit", file, timeout_s=120)
        assert ended.code == 0, ended.text
        for alias in HOSTS:
            assert f"{alias}, code, concurrency 1" in ended.text
        table = json.loads(machine.run("export", "--format", "json").text)
        arms = {(row["node"], row["arm"]) for row in table}
        assert arms == {("gpu-a", "default"), ("gpu-b", "default"), ("gpu-b", "tuned")}
        assert {row["state"] for row in table} == {"ok"}
        for row in table:
            assert row["speedup_vs_default"] is not None, row
        spans = {alias: span(machine, alias) for alias in HOSTS}
        assert spans["gpu-a"][0] < spans["gpu-b"][1]
        assert spans["gpu-b"][0] < spans["gpu-a"][1]
        for node in nodes:
            left = Path(node["workdir"])
            eventually(lambda: not left.exists() or not list(left.iterdir()))  # noqa: B023
    machine.require_quiet()


def span(machine: Machine, node: str) -> tuple[float, float]:
    """When the first launch of a node began and its last one ended, on this machine's clock."""
    times: list[float] = []
    with machine.database() as database:
        for row in database.attempts():
            if row.node == node:
                lines = database.lines(row.launch_id, row.attempt, "events.jsonl")
                times += [float(json.loads(line)["t_s"]) for line in lines]
    return min(times), max(times)
