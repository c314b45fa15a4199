"""A node behind a real SSH server: logins, host keys, jump hosts, exact words, lost links."""

from __future__ import annotations

import ast
import contextlib
import getpass
import os
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from fakes.background import Background
from fakes.clock import FakeClock
from faults.sshd import Sshd, make_key, wait_until
from hypothesis import given, settings
from hypothesis import strategies as st

from sweep.driver.clock import SystemClock
from sweep.model.errors import NodeError, NodeUnreachableError
from sweep.nodes.ssh import SshNode
from sweep.nodes.ssh_config import SshFiles
from sweep.nodes.ssh_link import Deadlines

SOON = Deadlines(ping_every_s=0.3, ping_s=0.3, answer_s=10.0)
BOOT_ID = "/proc/sys/kernel/random/boot_id"
_SHOW = "print([word.encode('utf-8', 'surrogateescape').hex() for word in sys.argv[1:]])"
ECHO = [sys.executable, "-c", f"import sys; {_SHOW}"]


@contextlib.contextmanager
def connected(
    files: SshFiles, host: str = "node", patience_s: float = 30.0, deadlines: Deadlines = SOON
) -> Iterator[SshNode]:
    """A node that is closed at the end."""
    node = SshNode(host, SystemClock(), files=files, patience_s=patience_s, deadlines=deadlines)
    with contextlib.closing(node):
        yield node


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Sshd]:
    """A server that allows what a node needs at least."""
    with contextlib.closing(Sshd(tmp_path / "sshd", ["MaxSessions 2"])) as server:
        yield server


@pytest.fixture
def node(server: Sshd) -> Iterator[SshNode]:
    """A node on it."""
    with connected(server.files()) as node:
        yield node


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshNode]:
    """A node for many short questions."""
    with (
        contextlib.closing(Sshd(tmp_path_factory.mktemp("shared"))) as server,
        connected(server.files()) as node,
    ):
        yield node


# -- words and files ---------------------------------------------------------------------------


@settings(max_examples=25)
@given(
    words=st.lists(
        st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=30)
        | st.sampled_from(["{a,b}", "$(id)", "`id`", "'", '"', "\\", "\n", "!x", "~", "-n", "*"]),
        max_size=6,
    )
)
def test_any_words_arrive_byte_by_byte(shared: SshNode, words: list[str]) -> None:
    """Whatever text, through exactly one shell."""
    ended = shared.run([*ECHO, *words], timeout_s=30)
    assert ended.returncode == 0, ended.stderr
    assert ast.literal_eval(ended.stdout.decode()) == [word.encode().hex() for word in words]


def test_words_that_are_not_utf_8_arrive(shared: SshNode) -> None:
    """File names may hold any bytes."""
    ended = shared.run([*ECHO, os.fsdecode(b"\xff\xfe")], timeout_s=30)
    assert ast.literal_eval(ended.stdout.decode()) == ["fffe"]


def test_files_are_private(shared: SshNode, tmp_path: Path) -> None:
    """Files have mode 0600, directories that were made 0700; those that were there keep theirs."""
    tmp_path.chmod(0o755)
    shared.put(str(tmp_path / "a" / "b" / "f"), b"secret")
    modes = {
        name: stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("", "a", "a/b", "a/b/f")
    }
    assert modes == {"": 0o755, "a": 0o700, "a/b": 0o700, "a/b/f": 0o600}
    assert [path.name for path in (tmp_path / "a" / "b").iterdir()] == ["f"]


def test_errors_of_files_are_errors_at_once(shared: SshNode, tmp_path: Path) -> None:
    """They name node and path, and the connection is not blamed."""
    (tmp_path / "file").write_text("")
    with pytest.raises(NodeError, match=r"node: cannot write .*file/x"):
        shared.put(str(tmp_path / "file" / "x"), b"")
    with pytest.raises(NodeError, match="node: cannot read"):
        shared.read(str(tmp_path))
    with pytest.raises(NodeError, match="node: cannot delete /proc/1"):
        shared.remove_tree("/proc/1/stat")
    assert shared.read(BOOT_ID)


def test_a_growing_file_is_fetched_as_long_as_it_was(shared: SshNode, tmp_path: Path) -> None:
    """A live log must neither end the copy early nor make it endless."""
    source = tmp_path / "log"
    source.write_bytes(b"x" * 20_000_000)
    stop = threading.Event()

    def grow() -> None:
        with source.open("ab") as stream:
            while not stop.is_set():
                stream.write(b"y" * 10_000)

    growing = Background(grow)
    try:
        shared.fetch(str(source), str(tmp_path / "copy"))
    finally:
        stop.set()
        growing.join(10)
    copy = (tmp_path / "copy").read_bytes()
    assert copy.rstrip(b"y") == b"x" * 20_000_000
    assert source.read_bytes().startswith(copy)


def test_the_home_is_the_state_directory_on_the_node(tmp_path: Path) -> None:
    """By the node's XDG_STATE_HOME, not by this machine's."""
    home = {"XDG_STATE_HOME": "/node/state"}
    with (
        contextlib.closing(Sshd(tmp_path / "sshd", environment=home)) as server,
        connected(server.files()) as node,
    ):
        assert node.home() == "/node/state/sweep"
        server.close()
        assert node.home() == "/node/state/sweep"


# -- commands ----------------------------------------------------------------------------------


def test_both_streams_are_taken_together(shared: SshNode) -> None:
    """Ten megabytes on each, one after the other, in either order."""
    for first, second in (("stdout", "stderr"), ("stderr", "stdout")):
        code = f"import sys; sys.{first}.write('a' * 10**7); sys.{second}.write('b' * 10**7)"
        ended = shared.run([sys.executable, "-c", code], timeout_s=60)
        assert (len(ended.stdout), len(ended.stderr)) == (10**7, 10**7)


def test_endless_output_is_an_error(shared: SshNode) -> None:
    """It is not gathered without bound, and the next command works."""
    with pytest.raises(NodeError, match="yes wrote more than 16 MiB"):
        shared.run(["yes"], timeout_s=60)
    assert shared.run(["true"], timeout_s=30).returncode == 0


def test_a_child_that_keeps_the_streams_is_not_waited_for(shared: SshNode) -> None:
    """The command has ended when its own process has."""
    began_s = time.monotonic()
    ended = shared.run(["sh", "-c", "sleep 30 & echo $!"], timeout_s=20)
    took_s = time.monotonic() - began_s
    os.kill(int(ended.stdout), 9)
    assert ended.returncode == 0
    assert took_s < 10


def test_standard_input_is_empty_and_there_is_no_terminal(shared: SshNode) -> None:
    """Nothing waits for a person."""
    assert shared.run(["cat"], timeout_s=30).stdout == b""
    assert shared.run(["tty"], timeout_s=30).returncode == 1


def test_a_command_ended_by_a_signal_is_told_from_a_lost_link(shared: SshNode) -> None:
    """The link answers, so the command was killed."""
    with pytest.raises(NodeError, match="sh was ended by a signal"):
        shared.run(["sh", "-c", "kill -9 $$"], timeout_s=30)


def test_what_start_up_files_print_is_not_output(tmp_path: Path) -> None:
    """Commands work; file transfer cannot, which is said."""
    forced = 'ForceCommand echo Welcome; sh -c "$SSH_ORIGINAL_COMMAND"'
    with (
        contextlib.closing(Sshd(tmp_path / "sshd", [forced])) as server,
        connected(server.files()) as node,
    ):
        assert node.run(["echo", "a b"], timeout_s=30).stdout == b"a b\n"
        with pytest.raises(NodeError, match="offers no file transfer") as caught:
            node.read(BOOT_ID)
        assert "start-up files of the shell must print nothing" in str(caught.value.hint)


# -- sessions ----------------------------------------------------------------------------------


def test_two_sessions_suffice_for_three_threads(node: SshNode, tmp_path: Path) -> None:
    """A lane, a fetch and a cancel at once, with pings between."""
    (tmp_path / "big").write_bytes(os.urandom(30_000_000))
    acts: list[Callable[[], object]] = [
        lambda: [node.read(BOOT_ID) for _ in range(200)],
        lambda: node.fetch(str(tmp_path / "big"), str(tmp_path / "copy")),
        lambda: [node.run(["true"], timeout_s=30).returncode for _ in range(8)],
        lambda: [node.run(["echo", "x"], timeout_s=30).stdout for _ in range(8)],
    ]
    running = [Background(act) for act in acts]
    for each in running:
        each.join(60)
    assert [each.error for each in running] == [None] * 4
    assert running[2].result == [0] * 8
    assert running[3].result == [b"x\n"] * 8
    assert (tmp_path / "copy").read_bytes() == (tmp_path / "big").read_bytes()


def test_one_session_is_too_few_which_is_said(tmp_path: Path) -> None:
    """With the setting that limits them."""
    with (
        contextlib.closing(Sshd(tmp_path / "sshd", ["MaxSessions 1"])) as server,
        connected(server.files()) as node,
    ):
        assert node.read(BOOT_ID)
        with pytest.raises(NodeError, match="opens no further session") as caught:
            node.run(["true"], timeout_s=30)
        assert "MaxSessions 2" in str(caught.value.hint)


# -- host keys and logins ----------------------------------------------------------------------


def test_the_remedy_for_an_unknown_key_is_exact(server: Sshd) -> None:
    """Refused with the fingerprint; after the command that the hint gives, it works."""
    server.known_hosts.write_text("")
    with connected(server.files()) as node:
        with pytest.raises(NodeError, match="is not known") as caught:
            node.read(BOOT_ID)
        assert f"ssh-ed25519 {server.fingerprint(server.host_key)}" in caught.value.message
        command = str(caught.value.hint).partition("then: ")[2]
        subprocess.run(["sh", "-c", command], check=True)
        assert node.read(BOOT_ID)


@pytest.mark.parametrize("strict", ["yes", "no", "accept-new"])
def test_a_changed_key_is_always_refused(server: Sshd, tmp_path: Path, strict: str) -> None:
    """Whatever StrictHostKeyChecking says; both fingerprints and the old one's place are told."""
    new = make_key(tmp_path / "new")
    old, server.host_key = server.host_key, new
    server.close()
    server.start()
    config = server.section("node", f"StrictHostKeyChecking {strict}")
    with (
        connected(server.files(config)) as node,
        pytest.raises(NodeError, match="has changed") as caught,
    ):
        node.read(BOOT_ID)
    assert server.fingerprint(old) in caught.value.message
    assert server.fingerprint(new) in caught.value.message
    assert f"{server.known_hosts}:1" in caught.value.message
    told = f"StrictHostKeyChecking {strict} of the SSH config is seen and not followed"
    assert (told in caught.value.message) is (strict != "yes")


def test_a_key_of_a_known_kind_is_asked_for(tmp_path: Path) -> None:
    """A server with several keys is known by any of them; hashed names and aliases count."""
    rsa = make_key(tmp_path / "rsa", "rsa")
    with contextlib.closing(Sshd(tmp_path / "sshd", [f"HostKey {rsa}"])) as server:
        server.known_hosts.write_text(f"alias {server.public(rsa)}\n")
        hash_names = ["ssh-keygen", "-H", "-f", str(server.known_hosts)]
        subprocess.run(hash_names, check=True, capture_output=True)
        with connected(server.files(server.section("node", "HostKeyAlias alias"))) as node:
            assert node.read(BOOT_ID)


def test_a_server_that_is_too_old_is_named(tmp_path: Path) -> None:
    """Not tried again and again: no attempt can succeed."""
    rsa = make_key(tmp_path / "rsa", "rsa")
    old = [f"HostKey {rsa}", "HostKeyAlgorithms ssh-rsa"]
    with (
        contextlib.closing(Sshd(tmp_path / "sshd", old)) as server,
        connected(server.files()) as node,
        pytest.raises(NodeError, match="share no algorithm") as caught,
    ):
        node.read(BOOT_ID)
    assert "too old" in str(caught.value.hint)


def test_a_server_full_of_logins_is_tried_again(tmp_path: Path) -> None:
    """MaxStartups drops whoever comes next, until a login ends."""
    with (
        contextlib.closing(Sshd(tmp_path / "sshd", ["MaxStartups 1"])) as server,
        connected(server.files()) as node,
    ):
        with socket.create_connection((server.address, server.port)) as other:
            assert other.recv(100).startswith(b"SSH-2.0")
            reading = Background(lambda: node.read(BOOT_ID))
            wait_until(lambda: "MaxStartups" in server.log.read_text(), "dropped")
        reading.join(20)
        assert reading.error is None
        assert reading.result


def test_a_refused_login_names_user_place_and_keys(server: Sshd, tmp_path: Path) -> None:
    """And says that there are only keys."""
    other = make_key(tmp_path / "other")
    config = server.section("node").replace(str(server.user_key), str(other))
    with (
        connected(server.files(config)) as node,
        pytest.raises(NodeError, match="refuses the login") as caught,
    ):
        node.read(BOOT_ID)
    assert f"@127.0.0.1:{server.port}" in caught.value.message
    assert str(other) in caught.value.message
    assert "only keys are offered" in str(caught.value.hint)


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[str]:
    """The socket of an ssh-agent."""
    path = str(tmp_path / "agent")
    with subprocess.Popen(["ssh-agent", "-D", "-a", path], stdout=subprocess.DEVNULL) as process:
        wait_until(lambda: Path(path).exists(), "the agent listens")
        try:
            yield path
        finally:
            process.terminate()


def add_to_agent(agent: str, key: Path, passphrase: str = "") -> None:
    """Unlock a key in an agent."""
    ask = key.with_name("ask")
    ask.write_text(f"#!/bin/sh\necho '{passphrase}'\n")
    ask.chmod(0o700)
    environment = os.environ | {
        "SSH_AUTH_SOCK": agent,
        "SSH_ASKPASS": str(ask),
        "SSH_ASKPASS_REQUIRE": "force",
    }
    argv = ["ssh-add", "-q", str(key)]
    subprocess.run(argv, check=True, env=environment, stdin=subprocess.DEVNULL)


def test_a_protected_key_needs_the_agent(server: Sshd, tmp_path: Path, agent: str) -> None:
    """Without it the message says so; with it the same settings work."""
    key = make_key(tmp_path / "protected", passphrase="open sesame")
    server.authorized.write_text(Path(f"{key}.pub").read_text())
    config = server.section("node").replace(str(server.user_key), str(key))
    with connected(server.files(config)) as node:
        with pytest.raises(NodeError, match=f"{key} is protected by a passphrase") as caught:
            node.read(BOOT_ID)
        assert "ssh-add" in str(caught.value.hint)
    add_to_agent(agent, key, "open sesame")
    for extra in ("IdentitiesOnly yes", "IdentitiesOnly no"):
        with connected(server.files(f"{config}    {extra}\n", agent_socket=agent)) as node:
            assert node.read(BOOT_ID)
    with connected(server.files(f"{config}    IdentityAgent {agent}\n")) as node:
        assert node.read(BOOT_ID)


def test_an_agent_full_of_keys_does_not_use_up_the_attempts(tmp_path: Path, agent: str) -> None:
    """The configured key comes first; without one the message names the remedy."""
    for number in range(4):
        add_to_agent(agent, make_key(tmp_path / f"key{number}"))
    with contextlib.closing(Sshd(tmp_path / "sshd", ["MaxAuthTries 2"])) as server:
        with connected(server.files(agent_socket=agent)) as node:
            assert node.read(BOOT_ID)
        bare = server.section("node").replace(f"IdentityFile {server.user_key}", "")
        with (
            connected(server.files(bare, agent_socket=agent)) as node,
            pytest.raises(NodeError, match="ended the login") as caught,
        ):
            node.read(BOOT_ID)
        assert "IdentitiesOnly yes" in str(caught.value.hint)


def test_a_node_behind_a_jump_host(server: Sshd, tmp_path: Path) -> None:
    """By an alias of an included file; both machines' keys are checked, each by its own file."""
    with contextlib.closing(Sshd(tmp_path / "bastion")) as bastion:
        part = tmp_path / "part"
        part.write_text(
            bastion.section("bastion", f"UserKnownHostsFile {bastion.known_hosts}")
            + server.section("gpu-a", "ProxyJump bastion")
        )
        files = server.files(f"Include {part}\n")
        with connected(files, "gpu-a") as node:
            assert node.run(["echo", "through"], timeout_s=30).stdout == b"through\n"
            assert node.read(BOOT_ID)
            assert len(bastion.connections()) > 0
            bastion.kill_connections()
            assert node.read(BOOT_ID)
        bastion.known_hosts.write_text("")
        with (
            connected(files, "gpu-a") as node,
            pytest.raises(NodeError, match=r"bastion: the host key of .* is not known"),
        ):
            node.read(BOOT_ID)


# -- lost links --------------------------------------------------------------------------------


def _is_longer(data: bytearray, least: int) -> bool:
    return len(data) > least


def test_reading_goes_on_over_killed_connections(server: Sshd, node: SshNode) -> None:
    """No byte is lost or read twice."""
    path = server.directory / "data"
    path.write_bytes(os.urandom(40_000_000))
    taken = bytearray()

    def read_all() -> None:
        while piece := node.read(str(path), len(taken), 1_000_000):
            taken.extend(piece)

    reading = Background(read_all)
    for least in (5_000_000, 15_000_000, 25_000_000):
        wait_until(partial(_is_longer, taken, least), "reading goes on")
        server.kill_connections()
    reading.join(30)
    assert reading.error is None
    assert bytes(taken) == path.read_bytes()


def test_kills_at_any_moment_are_survived(server: Sshd, node: SshNode) -> None:
    """While connecting, opening channels, reading, running: nothing hangs, nothing is wrong."""
    path = server.directory / "data"
    path.write_bytes(os.urandom(2_000_000))
    stop = threading.Event()

    def read_again() -> None:
        while not stop.is_set():
            assert node.read(str(path)) == path.read_bytes()

    def run_again() -> None:
        while not stop.is_set():
            ended = node.run(["echo", "x"], timeout_s=20)
            assert ended.returncode is None or (ended.returncode, ended.stdout) == (0, b"x\n")

    running = [Background(read_again), Background(run_again)]
    for number in range(24):
        time.sleep(0.02 * number % 0.31)
        server.kill_connections()
    stop.set()
    for each in running:
        each.join(20)
        assert each.error is None


def test_a_fetch_goes_on_over_a_killed_connection(
    server: Sshd, node: SshNode, tmp_path: Path
) -> None:
    """From where it was; the target appears only when it is whole."""
    path, target = server.directory / "data", tmp_path / "copy"
    path.write_bytes(os.urandom(60_000_000))
    partial = tmp_path / "copy.part"
    fetching = Background(lambda: node.fetch(str(path), str(target)))
    wait_until(lambda: partial.exists() and partial.stat().st_size > 10**6, "the fetch began")
    server.kill_connections()
    assert not target.exists()
    fetching.join(30)
    assert fetching.error is None
    assert target.read_bytes() == path.read_bytes()
    assert not partial.exists()


def test_a_command_whose_link_breaks_has_no_returncode(server: Sshd, node: SshNode) -> None:
    """What it wrote is kept; the node works again, and the command itself went on."""
    proof = server.directory / "proof"
    begun = server.directory / "begun"
    code = f"echo begun; touch {begun}; sleep 1; touch {proof}"
    running = Background(lambda: node.run(["sh", "-c", code], timeout_s=30))
    wait_until(begun.exists, "the command runs")
    server.kill_connections()
    running.join(10)
    ended = running.result
    assert ended is not None
    assert getattr(ended, "returncode", 0) is None
    assert getattr(ended, "stdout", b"") == b"begun\n"
    wait_until(proof.exists, "the command goes on")
    assert node.read(str(proof)) == b""


def test_a_server_that_comes_back_is_used_again(server: Sshd, node: SshNode) -> None:
    """Within the patience, without anyone's help."""
    node.put(str(server.directory / "f"), b"x")
    server.close()
    reading = Background(lambda: node.read(str(server.directory / "f")))
    server.start()
    reading.join(30)
    assert reading.error is None
    assert reading.result == b"x"


def test_a_frozen_server_is_noticed_and_used_again(server: Sshd, node: SshNode) -> None:
    """TCP stays healthy, only the ping tells; everything that waits is repeated."""
    assert node.read(BOOT_ID)
    server.freeze()
    began_s = time.monotonic()
    running = Background(lambda: node.run(["true"], timeout_s=30))
    reading = Background(lambda: node.read(BOOT_ID))
    wait_until(lambda: node._link is not None and not node._link.alive, "noticed", 5.0)
    assert time.monotonic() - began_s < 5
    server.thaw()
    for each in (running, reading):
        each.join(20)
        assert each.error is None
    assert reading.result == node.read(BOOT_ID)


def test_a_silent_connection_counts_as_lost_within_ten_seconds() -> None:
    """The bound that is promised for nodes in use."""
    deadlines = Deadlines()
    assert deadlines.ping_every_s + deadlines.ping_s == 10.0


def test_a_frozen_server_cannot_hold_up_the_first_connection(server: Sshd) -> None:
    """ConnectTimeout bounds the handshake too."""
    server.freeze()
    config = server.section("node", "ConnectTimeout 1")
    with connected(server.files(config), patience_s=0) as node:
        began_s = time.monotonic()
        with pytest.raises(NodeUnreachableError, match=f"no SSH connection to .*:{server.port}"):
            node.read(BOOT_ID)
        assert time.monotonic() - began_s < 5
    server.thaw()


def test_a_node_that_stays_away_is_given_up_after_the_patience(server: Sshd) -> None:
    """The pauses grow, are jittered and bounded; the message says what goes on."""
    server.close()
    clock = FakeClock()
    node = SshNode("node", clock, files=server.files(), patience_s=600.0)
    with pytest.raises(NodeUnreachableError) as caught:
        node.read(BOOT_ID)
    waited_s = clock.now_s - 1000.0
    assert 580 < waited_s <= 600
    assert "node is not reached for 6" in caught.value.message or waited_s < 599.5
    assert f"no connection to node, 127.0.0.1:{server.port}: " in caught.value.message
    assert "refused" in caught.value.message
    assert "see whether `ssh node true` reaches it" in str(caught.value.hint)
    node.close()


def test_what_goes_on_is_told_of_a_node_that_was_reached(server: Sshd) -> None:
    """What was launched there needs nobody."""
    node = SshNode("node", FakeClock(), files=server.files(), patience_s=600.0, deadlines=SOON)
    assert node.read(BOOT_ID)
    server.close()
    with pytest.raises(
        NodeUnreachableError, match=f"node: cannot read {BOOT_ID}: no conn"
    ) as caught:
        node.read(BOOT_ID)
    assert "goes on by itself" in str(caught.value.hint)
    node.close()


def test_a_name_that_never_resolved_is_told_at_once(server: Sshd) -> None:
    """Waiting mends no typo."""
    clock = FakeClock()
    config = "Host node\n HostName no-such-machine.invalid\n"
    node = SshNode("node", clock, files=server.files(config), patience_s=600.0)
    with pytest.raises(NodeUnreachableError, match=r"no-such-machine.invalid does not resolve"):
        node.read(BOOT_ID)
    assert clock.now_s == 1000.0
    node.close()


def test_how_it_was_reached_is_told(server: Sshd) -> None:
    """Nothing before the first connection; then user, place, time and the key that is known."""
    config = server.section("node", "User " + getpass.getuser(), "Ciphers aes128-ctr")
    with connected(server.files(config)) as node:
        assert node.reached is None
        node.read(BOOT_ID)
        reached = node.reached
    assert reached is not None
    assert (reached.user, reached.address) == (getpass.getuser(), f"127.0.0.1:{server.port}")
    assert reached.host_key == f"ssh-ed25519 {server.fingerprint(server.host_key)}"
    assert 0 < reached.seconds < 10
    assert (reached.through, reached.not_honoured) == ((), ("node: ciphers aes128-ctr",))


def test_a_name_that_does_not_exist_is_an_error(server: Sshd) -> None:
    """With the name."""
    with (
        connected(server.files("Host node\n HostName no.such.invalid\n"), patience_s=0) as node,
        pytest.raises(NodeUnreachableError, match=r"no\.such\.invalid does not resolve"),
    ):
        node.read(BOOT_ID)


def test_a_login_refused_after_it_worked_is_tried_again(server: Sshd, node: SshNode) -> None:
    """A machine that starts up refuses keys for a while."""
    assert node.read(BOOT_ID)
    allowed = server.authorized.read_text()
    server.authorized.write_text("")
    server.kill_connections()
    reading = Background(lambda: node.read(BOOT_ID))
    wait_until(
        lambda: (
            "Failed publickey" in server.log.read_text()
            or "Connection closed by authenticating" in server.log.read_text()
        ),
        "refused",
    )
    server.authorized.write_text(allowed)
    reading.join(30)
    assert reading.error is None


@pytest.mark.parametrize("state", ["command", "frozen", "away"])
def test_close_ends_whatever_waits_at_once_and_for_good(
    server: Sshd, node: SshNode, state: str
) -> None:
    """A command, a silent server, a pause between attempts."""
    assert node.read(BOOT_ID)
    if state == "command":
        begun = server.directory / "begun"
        code = f"touch {begun}; sleep 60"
        waiting = Background(lambda: node.run(["sh", "-c", code], timeout_s=60))
        wait_until(begun.exists, "the command runs")
    else:
        server.freeze() if state == "frozen" else server.close()
        waiting = Background(lambda: node.read(BOOT_ID))
        time.sleep(0.2)
    began_s = time.monotonic()
    node.close()
    waiting.join(2)
    assert time.monotonic() - began_s < 2
    if state != "command":
        assert isinstance(waiting.error, NodeError)
    server.thaw() if state == "frozen" else server.close()
    server.start() if state != "frozen" else None
    with pytest.raises(NodeError, match="the connection was closed"):
        node.read(BOOT_ID)
