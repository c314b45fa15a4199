"""What a launch over SSH is given and what it gives back: words, variables, a flood of output."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import secrets
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from fakes.launching import document
from fakes.machine import Machine, workload
from faults.remote import node_behind_ssh, remote_node
from faults.sshd import Sshd
from hypothesis import given, settings
from hypothesis import strategies as st

from sweep.agent import wire
from sweep.driver.clock import SystemClock
from sweep.driver.lane import Attached, Ended, Lane, LaunchTask
from sweep.nodes.archive import agent_archive
from sweep.nodes.ssh import SshNode

SHOW = """
import sys
for name in ("cmdline", "environ"):
    with open("/proc/self/" + name, "rb") as given, open(sys.argv[2] + name, "wb") as shown:
        shown.write(given.read())
"""
FLOOD = """
head -c 50000000 /dev/zero | tr '\\0' x
head -c 50000000 /dev/zero | tr '\\0' y >&2
exec "$@"
"""
WORDS = st.text(
    st.characters(exclude_characters="\0", exclude_categories=["Cs"])
) | st.binary().map(lambda data: data.replace(b"\0", b"").decode("utf-8", "surrogateescape"))
NAMES = WORDS.map(lambda text: "T" + text.replace("=", ""))


@dataclass
class Remote:
    """A lane to a node behind SSH, whose login has a variable of its own."""

    root: Path
    lane: Lane

    def __post_init__(self) -> None:
        self._number = itertools.count()

    def task(self, doc: wire.LaunchDoc) -> LaunchTask:
        """Bring a launch into a directory of its own."""
        name, archive = agent_archive()
        directory = str(self.root / "work" / f"L{next(self._number)}" / "1")
        return LaunchTask("L", 1, directory, wire.encode(doc), name, archive, sys.executable)

    def shown(
        self, words: Sequence[str], env: Mapping[str, str], unset: Sequence[str]
    ) -> tuple[list[bytes], dict[bytes, bytes]]:
        """Launch a process with these, and return its argv after its program and its environment,
        as the kernel has them."""
        out = self.root / secrets.token_hex(4)
        argv = [sys.executable, "-ISc", SHOW, "PORT", str(out), *words]
        doc = document(
            nonce=out.name, argv=argv, port_at=3, env=dict(env), unset=list(unset), trials=[]
        )
        *_, last = self.lane.run(self.task(doc))
        assert isinstance(last, Ended)
        cmdline, environ = (
            out.with_name(out.name + name).read_bytes().split(b"\0")[:-1]
            for name in ("cmdline", "environ")
        )
        return cmdline[5:], {name: value for name, _, value in (x.partition(b"=") for x in environ)}


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Remote]:
    """A node for many launches."""
    root = tmp_path_factory.mktemp("remote")
    claims = root / "claims"
    claims.mkdir()
    login = {"SWEEP_CLAIM_DIR": str(claims), "OF_THE_LOGIN": "kept", "ALSO_OF_IT": "not this"}
    with contextlib.ExitStack() as stack:
        server = Sshd(root / "sshd", ["MaxSessions 2"], environment=login)
        stack.callback(server.close)
        clock = SystemClock()
        node = SshNode("node", clock, files=server.files())
        stack.callback(node.close)
        yield Remote(root, Lane(lambda: node, clock))


def encoded(text: str) -> bytes:
    """The bytes that a text stands for."""
    return text.encode("utf-8", "surrogateescape")


@settings(max_examples=8)
@given(
    words=st.lists(WORDS, max_size=30),
    env=st.dictionaries(NAMES, WORDS, max_size=20),
)
def test_any_words_and_variables_arrive_byte_by_byte(
    remote: Remote, words: list[str], env: dict[str, str]
) -> None:
    """Through file, link, agent and exec: any text, and bytes that are no text."""
    argv, environment = remote.shown(words, env, unset=["ALSO_OF_IT"])
    assert argv == [encoded(word) for word in words]
    given = {encoded(name): encoded(value) for name, value in env.items()}
    assert {name: environment.get(name) for name in given} == given
    assert environment[b"OF_THE_LOGIN"] == b"kept"
    assert b"ALSO_OF_IT" not in environment


def test_what_shells_and_formats_treat_specially_arrives(remote: Remote) -> None:
    """The words that have broken other tools, all at once."""
    words = [
        "", " ", "'", '"', "\\", "\n", "\r\n", "\t", "$HOME", "$(id)", "`id`", "{a,b}", "*", "~",
        "-n", "!!", "--", ";", "&", "|", ">x", "#", "%s", '{"method":"mtp","n":2}', "\ufeff",
        "\x1b[0m", "\u2028", "é", "e\u0301", "😀", os.fsdecode(b"\xff\xfe"),
        os.fsdecode(b"\xed\xa0\x80"),
    ]  # fmt: skip
    env = {f"T{number}": word for number, word in enumerate(words)}
    argv, environment = remote.shown(words, env, unset=[])
    assert argv == [encoded(word) for word in words]
    assert [environment[f"T{number}".encode()] for number in range(len(words))] == argv


def test_a_flood_of_output_holds_up_nobody(remote: Remote) -> None:
    """50 MB on each output: the launch is under way at once, and its log comes back whole."""
    doc = document(nonce=secrets.token_hex(8))
    doc = replace(doc, argv=["sh", "-c", FLOOD, "sh", *doc.argv], port_at=doc.port_at + 4)
    task = remote.task(doc)
    began_s = time.monotonic()
    events = remote.lane.run(task)
    assert next(events) == Attached("started")
    assert time.monotonic() - began_s < 5
    *_, last = events
    assert isinstance(last, Ended)
    assert last.outcome is not None
    outcome = wire.decode_outcome(last.outcome)
    assert outcome.end == "done"
    copy = remote.root / "copy"
    remote.lane.fetch(task.directory, str(copy), keep=False)
    log = (copy / wire.LOG_FILE).read_bytes()
    assert hashlib.sha256(log).hexdigest() == outcome.files[wire.LOG_FILE].sha256
    assert (log.count(b"x"), log.count(b"y")) == (50_000_000, 50_000_000)


def test_variables_of_one_launch_do_not_reach_the_next(machine: Machine) -> None:
    """With the sshd's AcceptEnv as it is by default, and a profile that exports two of them: each
    server has exactly what the file gives its variant."""
    home = machine.root / "home of the node"
    home.mkdir()
    (home / ".bashrc").write_text("export NCCL_PROTO=Simple NCCL_P2P_LEVEL=PHB\n")
    tuned = {"NCCL_PROTO": "LL", "NCCL_P2P_LEVEL": "SYS", "NCCL_ALGO": ""}
    file = machine.experiment(
        [1],
        node=remote_node(machine),
        sweep={"num_steps": [1], "nccl": {"tuned": tuned, "default": {}}},
        workloads=[workload("code")],
    )
    machine.serve_with("--rate 2000")
    with node_behind_ssh(machine, environment={"HOME": str(home)}):
        assert machine.inline_to_end("submit", file) == 0, machine.inline_log()
    found = [start["nccl"] for start in machine.starts()]
    assert sorted(found, key=len) == [{}, tuned]
    machine.require_quiet()
