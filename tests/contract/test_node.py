"""What every node does alike: files that appear whole, exact command lines, errors by name."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import stat
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from fakes.clock import FakeClock
from fakes.node import FakeNode
from faults.sshd import Sshd

from sweep.agent.procs import parse_stat
from sweep.driver.clock import SystemClock
from sweep.model.errors import NodeError
from sweep.nodes.local import LocalNode
from sweep.nodes.ssh import SshNode
from sweep.ports import Completed, Node

NASTY = [
    "",
    " ",
    "two words",
    "'single' \"double\"",
    "$HOME `id` $(id) ${IFS}",
    "a;b|c&d>e<f",
    "new\nline\ttab",
    "*?[x]~#!",
    "--option=-x",
    "back\\slash",
    "grüße 日本",
]


@dataclass
class Case:
    """A node with a place for files, and commands that echo and that sleep."""

    node: Node
    root: str
    echo: Sequence[str]
    sleep: Sequence[str]
    pid: int


def local(tmp_path: Path) -> Case:
    """This machine."""
    show = "import json, sys; print(json.dumps(sys.argv[1:])); sys.stderr.write('err'); sys.exit(3)"
    return Case(
        node=LocalNode(dict(os.environ)),
        root=str(tmp_path / "node"),
        echo=[sys.executable, "-c", show],
        sleep=["sleep", "60"],
        pid=os.getpid(),
    )


def fake(_tmp_path: Path) -> Case:
    """The node in memory, with an agent that runs."""
    node = FakeNode(FakeClock())

    def echo(argv: Sequence[str], _timeout_s: float) -> Completed:
        return Completed(3, json.dumps(list(argv[1:])).encode() + b"\n", b"err")

    def sleep(argv: Sequence[str], timeout_s: float) -> Completed:
        raise NodeError(f"fake: {argv[0]} did not end within {timeout_s:g} s")

    node.programs = {"echo": echo, "sleep": sleep}
    node.others = {17}
    return Case(node, "/node", ["echo"], ["sleep", "60"], 17)


@pytest.fixture(params=["local", "fake", "ssh"])
def case(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Case]:
    """Each kind of node."""
    if request.param != "ssh":
        yield {"local": local, "fake": fake}[request.param](tmp_path)
        return
    with contextlib.closing(Sshd(tmp_path / "sshd", ["MaxSessions 2"])) as server:
        node = SshNode("node", SystemClock(), files=server.files())
        with contextlib.closing(node):
            yield dataclasses.replace(local(tmp_path), node=node)


def test_a_file_is_read_as_it_was_put(case: Case) -> None:
    """Any bytes, in directories that were not there, and again over the old ones."""
    path = f"{case.root}/a/b c/grüße.bin"
    case.node.put(path, bytes(range(256)))
    assert case.node.read(path) == bytes(range(256))
    case.node.put(path, b"shorter")
    assert case.node.read(path) == b"shorter"
    case.node.put(path, b"")
    assert case.node.read(path) == b""


def test_a_plain_file_where_a_directory_is_wanted_is_named(case: Case) -> None:
    """However far above; with what to do about it."""
    case.node.put(f"{case.root}/plain", b"")
    wanted = re.escape(f"{case.root}/plain is a file and no directory")
    for below in ("x", "a/b/c"):
        with pytest.raises(NodeError, match=wanted) as raised:
            case.node.put(f"{case.root}/plain/{below}", b"")
        assert "node.workdir" in str(raised.value.hint)


def test_a_file_is_read_from_an_offset_up_to_a_limit(case: Case) -> None:
    """Beyond the end there is nothing, which is not the same as no file."""
    path = f"{case.root}/f"
    case.node.put(path, b"0123456789")
    assert case.node.read(path, 4) == b"456789"
    assert case.node.read(path, 4, 3) == b"456"
    assert case.node.read(path, 0, 0) == b""
    assert case.node.read(path, 8, 100) == b"89"
    assert case.node.read(path, 10) == b""
    assert case.node.read(path, 99) == b""


def test_a_missing_file_is_none(case: Case) -> None:
    """Neither empty nor an error, in a directory that exists or not."""
    case.node.put(f"{case.root}/there", b"x")
    assert case.node.read(f"{case.root}/missing") is None
    assert case.node.read(f"{case.root}/no/such/directory", 5, 5) is None
    assert case.node.read("/proc/999999999/stat") is None


def test_processes_can_be_read(case: Case) -> None:
    """The files of /proc by which an agent is known to live."""
    data = case.node.read(f"/proc/{case.pid}/stat")
    assert data is not None
    assert parse_stat(data).pid == case.pid
    boot_id = case.node.read("/proc/sys/kernel/random/boot_id")
    assert boot_id is not None
    assert len(boot_id.strip()) == 36


def test_a_command_gets_exactly_its_words(case: Case) -> None:
    """No shell sees them: quotes, blanks, substitutions and newlines arrive as they are."""
    ended = case.node.run([*case.echo, *NASTY], timeout_s=30)
    assert json.loads(ended.stdout) == NASTY
    assert (ended.returncode, ended.stderr) == (3, b"err")


def test_a_command_that_takes_too_long_is_an_error(case: Case) -> None:
    """The message names command and limit."""
    with pytest.raises(NodeError, match=r"sleep did not end within 0\.2 s"):
        case.node.run(case.sleep, timeout_s=0.2)


def test_a_file_is_fetched_whole(case: Case, tmp_path: Path) -> None:
    """Through a partial name that does not stay, into directories that were not there."""
    data = os.urandom(100_000)
    case.node.put(f"{case.root}/f", data)
    target = tmp_path / "local" / "deep" / "f"
    case.node.fetch(f"{case.root}/f", str(target))
    assert target.read_bytes() == data
    assert [path.name for path in target.parent.iterdir()] == ["f"]


def test_fetching_a_missing_file_is_an_error(case: Case, tmp_path: Path) -> None:
    """An earlier copy stays as it is."""
    target = tmp_path / "f"
    target.write_bytes(b"old")
    with pytest.raises(NodeError, match="cannot fetch"):
        case.node.fetch(f"{case.root}/missing", str(target))
    assert target.read_bytes() == b"old"


def test_a_tree_is_removed_once_and_for_all(case: Case) -> None:
    """Not being there is success; neighbours with the same beginning stay."""
    for name in ("tree/a/b", "tree/c", "tree2/d"):
        case.node.put(f"{case.root}/{name}", b"x")
    case.node.remove_tree(f"{case.root}/tree")
    case.node.remove_tree(f"{case.root}/tree")
    assert case.node.read(f"{case.root}/tree/a/b") is None
    assert case.node.read(f"{case.root}/tree/c") is None
    assert case.node.read(f"{case.root}/tree2/d") == b"x"


def test_local_files_are_private(tmp_path: Path) -> None:
    """Files have mode 0600, directories that were made 0700; those that were there keep theirs."""
    tmp_path.chmod(0o755)
    node = LocalNode({})
    node.put(str(tmp_path / "a" / "b" / "f"), b"secret")
    modes = {
        name: stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("", "a", "a/b", "a/b/f")
    }
    assert modes == {"": 0o755, "a": 0o700, "a/b": 0o700, "a/b/f": 0o600}
    assert [path.name for path in (tmp_path / "a" / "b").iterdir()] == ["f"]


def test_local_errors_name_node_and_path(tmp_path: Path) -> None:
    """What the system says becomes a NodeError, whatever was asked."""
    (tmp_path / "file").write_text("")
    below = str(tmp_path / "file" / "x")
    node = LocalNode({}, "here")
    with pytest.raises(NodeError, match=r"here: cannot write .*x: .*file is a file and no"):
        node.put(below, b"")
    with pytest.raises(NodeError, match="here: cannot read"):
        node.read(str(tmp_path))
    with pytest.raises(NodeError, match="here: cannot run /no/such/program: No such file"):
        node.run(["/no/such/program"], timeout_s=5)
    with pytest.raises(NodeError, match="here: cannot run true: embedded null byte"):
        node.run(["true", "a\0b"], timeout_s=5)
    with pytest.raises(NodeError, match="here: cannot delete"):
        node.remove_tree(str(tmp_path / "file"))


def test_local_commands_have_the_given_environment_and_no_input(tmp_path: Path) -> None:
    """Not that of this process, which may be a worker of Ray; standard input is empty."""
    node = LocalNode({"PATH": os.environ["PATH"], "ONLY": "this"})
    ended = node.run(["env"], timeout_s=30)
    names = {line.partition(b"=")[0] for line in ended.stdout.splitlines()}
    assert b"ONLY" in names
    assert b"HOME" not in names
    assert node.run(["cat"], timeout_s=30).stdout == b""


def test_the_local_home_is_the_users_state_directory() -> None:
    """By XDG_STATE_HOME, else below the HOME of the given environment."""
    assert LocalNode({"XDG_STATE_HOME": "/state", "HOME": "/h"}).home() == "/state/sweep"
    assert LocalNode({"HOME": "/h"}).home() == "/h/.local/state/sweep"
