"""The server process: how it is started, how its end is noticed."""

from __future__ import annotations

import ctypes
import os
import subprocess
import threading
from typing import Callable, Dict, List, Mapping, Optional, Sequence

from sweep.agent import cycles, procs, wire
from sweep.agent.gpus import Gpu
from sweep.agent.journal import write_whole
from sweep.probe import layout

_PR_SET_CHILD_SUBREAPER = 36


class StartFailed(RuntimeError):
    """The argv could not be executed; the message says why."""


def become_subreaper() -> None:
    """Make this process the parent of what its descendants leave behind. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, "prctl(PR_SET_CHILD_SUBREAPER): " + os.strerror(number))


def _bytes(text: str) -> bytes:
    # Not os.fsencode: a node's locale must not change what the server gets.
    return text.encode("utf-8", "surrogateescape")


def visible_gpus(gpus: Sequence[Gpu]) -> Dict[str, str]:
    """Return the variables that show a CUDA program these GPUs and no others.

    Indices in bus order, as nvidia-smi counts: some engines cannot parse UUIDs.
    """
    indices = ",".join(str(gpu.index) for gpu in gpus)
    return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": indices} if gpus else {}


def environment(
    login: Mapping[bytes, bytes],
    doc: wire.LaunchDoc,
    visible: Mapping[str, str],
    directory: str,
) -> Dict[bytes, bytes]:
    """Return the server's whole environment.

    The login's without what is to be unset and what a Ray worker adds, then the GPUs unless the
    launch names them itself, the launch's own values, its directories in front of PATH, and the
    marks that make the server ours. SPT_NOENV keeps setproctitle from overwriting the environment
    that shows the nonce. Times of cycles, if the server takes any, go to the launch's `directory`.
    """
    dropped = {_bytes(name) for name in doc.unset}
    result = {
        name: value
        for name, value in login.items()
        if name not in dropped and not name.startswith(b"RAY_")
    }
    marks = {
        wire.NONCE_VARIABLE: doc.nonce,
        "SPT_NOENV": "1",
        cycles.DIRECTORY_VARIABLE: directory,
    }
    for values in (visible, doc.env, marks):
        result.update((_bytes(name), _bytes(value)) for name, value in values.items())
    if doc.path_first:
        places = [*map(_bytes, doc.path_first), result.get(b"PATH") or _bytes(os.defpath)]
        result[b"PATH"] = b":".join(places)
    return result


def with_probe(
    environment: Dict[bytes, bytes], probe: wire.Probe, directory: str
) -> Dict[bytes, bytes]:
    """Lay the probe out in a launch directory; return the environment that leads to it.

    Raises OSError.
    """
    place = os.path.join(directory, wire.PROBE_DIR)
    layout.lay_out(place)
    more = layout.variables(
        environment, place, every_cycles=probe.every_cycles, allow_list=probe.allow_list
    )
    return {**environment, **more}


def command(doc: wire.LaunchDoc, port: int, directory: str) -> List[bytes]:
    """Return the argv with the port and the paths of the server's files in their places."""
    argv = [_bytes(argument) for argument in doc.argv]
    argv[doc.port_at] = b"%d" % port
    for file in doc.files:
        argv[file.at] = os.fsencode(os.path.join(directory, file.name))
    return argv


def write_files(doc: wire.LaunchDoc, directory: str) -> None:
    """Write the server's files. Raises OSError."""
    for file in doc.files:
        write_whole(os.path.join(directory, file.name), file.text.encode())


class Server:
    """A started server. `on_exit(returncode)` is called by a thread the moment it ends."""

    def __init__(
        self, process: subprocess.Popen[bytes], port: int, on_exit: Callable[[int], None]
    ) -> None:
        self.port = port
        self.exited = threading.Event()
        self.returncode: Optional[int] = None
        self._process = process
        self._on_exit = on_exit
        found = procs.read(process.pid)  # nobody has waited for it: it is there, if only dead
        self.start_ticks = found.start_ticks if found else 0
        threading.Thread(target=self._wait, name="server-exit", daemon=True).start()

    def _wait(self) -> None:
        self.returncode = self._process.wait()
        self.exited.set()
        self._on_exit(self.returncode)

    @property
    def pid(self) -> int:
        """Its pid, group and session."""
        return self._process.pid

    @property
    def ident(self) -> wire.ServerIdent:
        """For the outcome."""
        return wire.ServerIdent(self.pid, self.start_ticks, self.port, self.returncode)


def start(
    argv: List[bytes],
    env: Dict[bytes, bytes],
    log_path: str,
    *,
    port: int,
    on_exit: Callable[[int], None],
) -> Server:
    """Start the server in a session of its own, with both outputs appended to the log.

    The log is a plain file: a pipe could block the server, and would break with the agent.
    Raises StartFailed.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    log = os.open(log_path, flags, 0o600)
    try:
        process = subprocess.Popen(
            argv,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except (OSError, ValueError) as problem:
        raise StartFailed("cannot execute %s: %s" % (os.fsdecode(argv[0]), problem)) from problem
    finally:
        os.close(log)
    return Server(process, port, on_exit)
