"""The environment that the user's own shell lines make: run once, captured as data."""

from __future__ import annotations

import os
import secrets
import shlex
import subprocess
import tempfile
import time
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from sweep.agent import cleanup, procs, wire
from sweep.agent.footprint import Footprint
from sweep.agent.ours import Ours

_LIMIT_S = 120.0
"""Activating an environment from a cold network disk takes a while."""
_OUTPUT_LIMIT_BYTES = 2**20
_POLL_S = 0.01
_KILL_S = 5.0
_TAIL_CHARACTERS = 1500
_COMMAND_CHARACTERS = 100
_SHELL = ("bash", "--norc", "-c")
"""Below sshd, bash would read ~/.bashrc a second time without --norc."""
_OF_THE_SHELL = ("_", "SHLVL", "PWD", "OLDPWD")
_FUNCTION = "BASH_FUNC_"
"""Shell functions that are exported: of no use to a server."""
_END = b"end"


def capture(
    lines: Sequence[str], login: Mapping[str, str], limit_s: float = _LIMIT_S
) -> Dict[str, Any]:
    """Run lines in one bash, in the home directory, each only if those before it succeeded.

    Returns what they change of the `login` environment: `env` (set), `unset`, and `path_first`,
    the directories that they put in front of PATH; or `error`, with the `number` and text of the
    `line`, its `returncode` (null: it was `killed`, for the reason given), and the end of its
    `output`. What the lines leave running is ended, and its commands are `ended`.
    """
    login = {**login, wire.NONCE_VARIABLE: secrets.token_hex(8)}
    with tempfile.TemporaryFile() as told, tempfile.TemporaryFile() as output:
        try:
            process = subprocess.Popen(
                [*_SHELL, _script(lines, told.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=login,
                cwd=os.path.expanduser("~"),
                pass_fds=[told.fileno()],
                start_new_session=True,
            )
        except OSError as problem:
            return _failed(0, lines, None, "bash cannot be started: %s" % problem)
        ours = _started(process, login[wire.NONCE_VARIABLE])
        try:
            killed = _wait(process, output.fileno(), limit_s)
            left = [] if killed else [_command(each) for each in ours.scan(by_nonce=True)]
        finally:
            cleanup.kill_all(ours, time.monotonic() + _KILL_S)
            returncode = process.wait()
        told.seek(0)
        number, after = _told(told.read())
        if killed is not None or after is None:
            code = returncode if killed is None else None
            return _failed(number, lines, code, _tail(output), killed)
    try:
        return {**_difference(login, after), "ended": left}
    except UnicodeDecodeError:
        return _failed(len(lines), lines, returncode, "a variable that it sets is not UTF-8")


def _script(lines: Sequence[str], descriptor: int) -> str:
    """Return bash that says which line it is at, and ends with the environment."""
    steps = [
        "printf '%d\\0' >&%d\neval %s || exit $?" % (number, descriptor, shlex.quote(line))
        for number, line in enumerate(lines, 1)
    ]
    end = "printf '%s\\0' >&%d\ncommand -p env -0 >&%d" % (_END.decode(), descriptor, descriptor)
    return "\n".join([*steps, end])


def _started(process: subprocess.Popen[bytes], nonce: str) -> Ours:
    """Return the shell and whatever it starts, as ours."""
    ours = Ours(Footprint(nonce, procs.boot_id()), None)
    shell = procs.read(process.pid)
    assert shell is not None  # nobody has waited for it
    ours.footprint.processes = [list(shell.identity)]
    return ours


def _command(process: procs.Process) -> str:
    """Name a process; a part of the shell itself has all lines in its command."""
    command = procs.command_line(process.pid)
    if not command or command.startswith(" ".join(_SHELL)):
        return process.name
    return command[:_COMMAND_CHARACTERS]


def _wait(process: subprocess.Popen[bytes], output: int, limit_s: float) -> Optional[str]:
    """Wait for the shell to end; returns why it must be killed instead, None: it ended."""
    until_s = time.monotonic() + limit_s
    while process.poll() is None:
        if os.fstat(output).st_size > _OUTPUT_LIMIT_BYTES:
            return "wrote more than %d MiB of output" % (_OUTPUT_LIMIT_BYTES // 2**20)
        if time.monotonic() >= until_s:
            return "did not end within %g s" % limit_s
        time.sleep(_POLL_S)
    return None


def _told(data: bytes) -> Tuple[int, Optional[List[bytes]]]:
    """Return the number of the last line that began, and the environment's entries when all
    ended well."""
    entries = data.split(b"\0")[:-1]
    if _END in entries:
        at = entries.index(_END)
        return at, entries[at + 1 :]
    return len(entries), None


def _failed(
    number: int,
    lines: Sequence[str],
    returncode: Optional[int],
    output: str,
    killed: Optional[str] = None,
) -> Dict[str, Any]:
    error = {
        "number": number,
        "line": lines[number - 1] if number else None,
        "returncode": returncode,
        "killed": killed,
        "output": output,
    }
    return {"env": {}, "unset": [], "path_first": [], "error": error, "ended": []}


def _tail(output: Any) -> str:
    size = os.fstat(output.fileno()).st_size
    output.seek(max(0, size - 4 * _TAIL_CHARACTERS))  # a character has 4 bytes at most
    text: str = output.read().decode("utf-8", "replace").strip()
    return text[-_TAIL_CHARACTERS:]


def _difference(login: Mapping[str, str], entries: Sequence[bytes]) -> Dict[str, Any]:
    after: Dict[str, str] = {}
    for entry in entries:
        name, _, value = entry.decode("utf-8").partition("=")
        if name not in _OF_THE_SHELL and not name.startswith(_FUNCTION):
            after[name] = value
    env = {name: value for name, value in sorted(after.items()) if login.get(name) != value}
    unset = [name for name in sorted(login) if name not in after and name not in _OF_THE_SHELL]
    path_first: List[str] = []
    behind = os.pathsep + login.get("PATH", "")
    if env.get("PATH", "").endswith(behind):
        # The rest is the login's own, which differs from terminal to terminal.
        path_first = env.pop("PATH")[: -len(behind)].split(os.pathsep)
    unset = [name for name in unset if not name.startswith(_FUNCTION)]
    return {"env": env, "unset": unset, "path_first": path_first, "error": None}


def laid_over(
    login: Mapping[str, str],
    layer: Optional[Mapping[str, Any]],
    env: Mapping[str, Optional[str]],
    path_first: Sequence[str],
) -> Dict[str, str]:
    """Return the environment of a server: the login's, a captured layer, the file's `env` (None:
    unset), and directories in front of PATH unless the file sets it."""
    layer = layer or {"env": {}, "unset": [], "path_first": []}
    merged: Dict[str, Optional[str]] = {**login, **dict.fromkeys(layer["unset"]), **layer["env"]}
    if "PATH" not in env:
        places = [*path_first, *layer["path_first"], merged.get("PATH") or os.defpath]
        merged["PATH"] = os.pathsep.join(places)
    merged.update(env)
    return {name: value for name, value in merged.items() if value is not None}
