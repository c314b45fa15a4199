"""The environment that the user's own shell lines make: run once, captured as data."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import tempfile
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

_LIMIT_S = 120.0
"""Activating an environment from a cold network disk takes a while."""
_TAIL_CHARACTERS = 1500
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
    `line`, its `returncode` (null: it did not end in time), and the end of its `output`.
    """
    with tempfile.TemporaryFile() as told, tempfile.TemporaryFile() as output:
        try:
            process = subprocess.Popen(
                # Below sshd, bash would read ~/.bashrc a second time.
                ["bash", "--norc", "-c", _script(lines, told.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=dict(login),
                cwd=os.path.expanduser("~"),
                pass_fds=[told.fileno()],
                start_new_session=True,
            )
        except OSError as problem:
            return _failed(0, lines, None, "bash cannot be started: %s" % problem)
        returncode = _end_of(process, limit_s)
        told.seek(0)
        number, after = _told(told.read())
        if after is None:
            return _failed(number, lines, returncode, _tail(output))
    try:
        return _difference(login, after)
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


def _end_of(process: subprocess.Popen[bytes], limit_s: float) -> Optional[int]:
    """Wait for the shell; None: it was killed, with what it had started, because it took long."""
    try:
        return process.wait(limit_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
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
    number: int, lines: Sequence[str], returncode: Optional[int], output: str
) -> Dict[str, Any]:
    line = lines[number - 1] if number else None
    error = {"number": number, "line": line, "returncode": returncode, "output": output}
    return {"env": {}, "unset": [], "path_first": [], "error": error}


def _tail(output: Any) -> str:
    output.seek(0)
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
