"""A real OpenSSH server for one test: own port, host key and login key; frozen or killed by pid."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from sweep.nodes.ssh_config import SshFiles

LOOPBACK = "127.0.0.1"


def make_key(path: Path, kind: str = "ed25519", passphrase: str = "") -> Path:
    """Make a key pair; returns the private half's path."""
    argv = ["ssh-keygen", "-q", "-t", kind, "-N", passphrase, "-C", "test", "-f", str(path)]
    subprocess.run(argv, check=True, stdin=subprocess.DEVNULL)
    return path


def wait_until(condition: Callable[[], bool], what: str, deadline_s: float = 10.0) -> None:
    """Return once the condition is true."""
    until_s = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < until_s, f"not within {deadline_s:g} s: {what}"
        time.sleep(0.01)


@dataclass
class Sshd:
    """One server below `directory`; `prefix` runs it elsewhere, as in a network namespace."""

    directory: Path
    settings: Sequence[str] = ()
    address: str = LOOPBACK
    port: int = 0
    prefix: Sequence[str] = ()
    environment: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None

    def __post_init__(self) -> None:
        """Make its keys, and start it."""
        if shutil.which("sshd", path=os.environ["PATH"] + ":/usr/sbin") is None:
            pytest.skip("there is no sshd: install openssh-server")
        self.directory.mkdir(parents=True, exist_ok=True)
        self.host_key = make_key(self.directory / "host_key")
        self.user_key = make_key(self.directory / "user_key")
        self.authorized = self.directory / "authorized_keys"
        self.authorized.write_text(Path(f"{self.user_key}.pub").read_text())
        self.known_hosts = self.directory / "known_hosts"
        if not self.port:
            with socket.socket() as sock:
                sock.bind((LOOPBACK, 0))
                self.port = int(sock.getsockname()[1])
        self.trust()
        self.start()

    @property
    def key_name(self) -> str:
        """Its name in known_hosts."""
        return self.address if self.port == 22 else f"[{self.address}]:{self.port}"

    def public(self, key: Path) -> str:
        """Kind and base64 of a key's public half."""
        return " ".join(Path(f"{key}.pub").read_text().split()[:2])

    def fingerprint(self, key: Path) -> str:
        """SHA-256 of a key, by ssh-keygen."""
        argv = ["ssh-keygen", "-lf", f"{key}.pub"]
        return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.split()[1]

    def trust(self) -> None:
        """Write known_hosts with the host key as it is."""
        self.known_hosts.write_text(f"{self.key_name} {self.public(self.host_key)}\n")

    def section(self, alias: str, *more: str) -> str:
        """A section of an SSH config for this server."""
        lines = [f"HostName {self.address}", f"Port {self.port}", f"IdentityFile {self.user_key}"]
        return "\n    ".join([f"Host {alias}", *lines, *more]) + "\n"

    def files(self, config: str | None = None, agent_socket: str | None = None) -> SshFiles:
        """SSH settings of a user who has this server as `node`, or this config."""
        path = self.directory / "config"
        path.write_text(self.section("node") if config is None else config)
        return SshFiles(
            configs=(str(path),),
            known_hosts=(str(self.known_hosts),),
            system_known_hosts=(),
            identities=(str(self.directory / "no_such_key"),),
            agent_socket=agent_socket,
        )

    def start(self) -> None:
        """Start it and wait until it listens."""
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)
        config = self.directory / "sshd_config"
        config.write_text(
            "\n".join([
                *self.settings,
                f"ListenAddress {self.address}",
                f"Port {self.port}",
                f"HostKey {self.host_key}",
                f"AuthorizedKeysFile {self.authorized}",
                f"PidFile {self.directory / 'pid'}",
                "StrictModes no",
                "UsePAM no",
                "PasswordAuthentication no",
                "KbdInteractiveAuthentication no",
                "Subsystem sftp internal-sftp",
                *self._set_env(),
            ])
            + "\n"
        )  # fmt: skip
        self.log = self.directory / "log"
        path = shutil.which("sshd", path=os.environ["PATH"] + ":/usr/sbin")
        assert path is not None
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*self.prefix, path, "-D", "-e", "-f", str(config)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        wait_until(self._listens, f"sshd listens: {self.log.read_text()[-500:]}")

    def _set_env(self) -> list[str]:
        """One line, because sshd takes the first such line and ignores the others."""
        pairs = [f'"{name}={value}"' for name, value in self.environment.items()]
        return [f"SetEnv {' '.join(pairs)}"] if pairs else []

    def _listens(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log.read_text()
        return (self.directory / "pid").exists()

    def close(self) -> None:
        """End it with every connection; `start` makes it listen there again."""
        if self.process is None:
            return
        connections = self.connections()
        for pid in (*connections, self.process.pid):
            _send(pid, signal.SIGKILL)
        self.process.wait(timeout=10)
        self.process = None
        (self.directory / "pid").unlink(missing_ok=True)

    def connections(self) -> list[int]:
        """Pids of the processes that serve connections, children before parents."""
        return [] if self.process is None else [*reversed(_sshd_below(self.process.pid))]

    def kill_connections(self) -> None:
        """Cut every connection; the server goes on listening."""
        for pid in self.connections():
            _send(pid, signal.SIGKILL)

    def freeze(self) -> None:
        """Stop the server and its connections in their tracks; TCP still acknowledges."""
        assert self.process is not None
        for pid in (self.process.pid, *self.connections()):
            _send(pid, signal.SIGSTOP)

    def freeze_for(self, seconds: float) -> None:
        """Freeze it now, and thaw it from a thread of its own."""
        self.freeze()
        timer = threading.Timer(seconds, self.thaw)
        timer.daemon = True
        timer.start()

    def thaw(self) -> None:
        """Let them go on."""
        assert self.process is not None
        for pid in (self.process.pid, *self.connections()):
            _send(pid, signal.SIGCONT)


def _send(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _sshd_below(pid: int) -> list[int]:
    """Pids of the sshd processes below one, parents first."""
    found: list[int] = []
    try:
        tasks = list(Path(f"/proc/{pid}/task").glob("*/children"))
    except OSError:  # it has ended meanwhile
        return []
    for task in tasks:
        try:
            children = [int(text) for text in task.read_text().split()]
        except OSError:
            continue
        for child in children:
            try:
                name = Path(f"/proc/{child}/comm").read_text().strip()
            except OSError:
                continue
            if name.startswith("sshd"):
                found += [child, *_sshd_below(child)]
    return found
