"""One launch by a lane over SSH, whose connection is killed and whose server is frozen."""

from __future__ import annotations

import contextlib
import json
import secrets
import sys
from pathlib import Path
from typing import Any

from fakes.launching import document
from faults.sshd import Sshd

from sweep.agent import wire
from sweep.driver.clock import SystemClock
from sweep.driver.lane import Attached, Ended, Lane, LaneEvent, LaunchTask, Lines
from sweep.nodes.archive import agent_archive
from sweep.nodes.ssh import SshNode
from sweep.nodes.ssh_link import Deadlines


def launch(root: Path) -> LaunchTask:
    """A launch of the fake server that takes some seconds to load and to measure."""
    name, archive = agent_archive()
    return LaunchTask(
        launch_id="L1",
        attempt=1,
        directory=str(root / "work" / "L1" / "1"),
        document=wire.encode(
            document("--port-late", "2", "--rate", "5", nonce=secrets.token_hex(8))
        ),
        archive_name=name,
        archive=archive,
        python=sys.executable,
    )


def entered(event: LaneEvent) -> set[str]:
    """The phases that an event of the lane tells of."""
    if not isinstance(event, Lines) or event.name != wire.EVENTS_FILE:
        return set()
    told: list[dict[str, Any]] = [json.loads(line) for line in event.lines]
    return {each["phase"] for each in told if each["event"] == "phase"}


def test_a_lost_connection_costs_no_launch(tmp_path: Path) -> None:
    """Killed during the load, frozen during a window: one start, every line once, all measured."""
    claims = tmp_path / "claims"
    claims.mkdir()
    task = launch(tmp_path)
    with contextlib.ExitStack() as stack:
        environment = {"SWEEP_CLAIM_DIR": str(claims)}
        server = stack.enter_context(
            contextlib.closing(Sshd(tmp_path / "sshd", ["MaxSessions 2"], environment=environment))
        )
        deadlines = Deadlines(ping_every_s=0.3, ping_s=0.3)
        clock = SystemClock()
        node = SshNode("node", clock, files=server.files(), patience_s=60, deadlines=deadlines)
        stack.callback(node.close)
        events: list[LaneEvent] = []
        killed = frozen = False
        for event in Lane(lambda: node, clock).run(task):
            events.append(event)
            if "load" in entered(event):
                killed = bool(server.connections())
                server.kill_connections()
            if "measure" in entered(event) and not frozen:
                frozen = True
                server.freeze_for(1.5)
        Lane(lambda: node, clock).fetch(task.directory, str(tmp_path / "copy"), keep=False)
    assert events[0] == Attached("started")
    assert killed
    assert frozen
    ended = events[-1]
    assert isinstance(ended, Ended)
    assert ended.outcome is not None
    assert wire.decode_outcome(ended.outcome).end == "done"
    assert ended.clean
    for name in (wire.EVENTS_FILE, wire.REQUESTS_FILE):
        told = [
            line
            for each in events
            if isinstance(each, Lines) and each.name == name
            for line in each.lines
        ]
        assert told == (tmp_path / "copy" / name).read_text().splitlines()
    kinds = [
        json.loads(line)["event"]
        for line in (tmp_path / "copy" / wire.EVENTS_FILE).read_text().splitlines()
    ]
    assert kinds.count("server_started") == 1
    assert not Path(task.directory).exists()
