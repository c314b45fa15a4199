"""This machine as a node."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from sweep.model.errors import NodeError
from sweep.ports import Completed


class LocalNode:
    """Files and short commands of this machine.

    `environment` is what commands are started with: the user's own, not that of a Ray worker.
    """

    def __init__(self, environment: Mapping[str, str], name: str = "local") -> None:
        self._environment = dict(environment)
        self._name = name

    @property
    def name(self) -> str:
        """The name in tables and messages."""
        return self._name

    @property
    def reached(self) -> None:
        """No network is in between."""
        return

    def home(self) -> str:
        """`sweep` below the user's state directory ($XDG_STATE_HOME or ~/.local/state)."""
        home = self._environment.get("HOME") or Path.home()
        state = self._environment.get("XDG_STATE_HOME") or Path(home) / ".local" / "state"
        return str(Path(state) / "sweep")

    def put(self, path: str, data: bytes) -> None:
        """Write a whole file by partial name and rename."""
        target = Path(path)
        # Two sweeps that begin at once may both ship the agent: each has a partial file of its own.
        partial = target.with_name(f"{target.name}.{secrets.token_hex(4)}.part")
        try:
            make_private(target.parent)
            descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
            partial.rename(target)
        except OSError as error:
            with contextlib.suppress(OSError):
                partial.unlink(missing_ok=True)
            raise self._error(f"cannot write {path}", error) from error

    def read(self, path: str, offset: int = 0, limit: int | None = None) -> bytes | None:
        """Return bytes of a file; None when there is no such file."""
        try:
            with Path(path).open("rb") as stream:
                stream.seek(offset)
                return stream.read(-1 if limit is None else limit)
        except (FileNotFoundError, ProcessLookupError):
            return None
        except OSError as error:
            raise self._error(f"cannot read {path}", error) from error

    def run(self, argv: Sequence[str], *, timeout_s: float) -> Completed:
        """Run a short command."""
        try:
            ended = subprocess.run(
                list(argv),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=timeout_s,
                check=False,
                env=self._environment,
            )
        except subprocess.TimeoutExpired as error:
            raise NodeError(f"{self.name}: {argv[0]} did not end within {timeout_s:g} s") from error
        except (OSError, ValueError) as error:
            raise self._error(f"cannot run {argv[0]}", error) from error
        return Completed(ended.returncode, ended.stdout, ended.stderr)

    def fetch(self, path: str, target: str) -> None:
        """Copy a file to `target` by partial name and rename."""
        goal = Path(target)
        partial = goal.with_name(goal.name + ".part")
        try:
            make_private(goal.parent)
            shutil.copyfile(path, partial)
            with partial.open("rb") as stream:
                os.fsync(stream.fileno())
            partial.rename(goal)
        except OSError as error:
            raise self._error(f"cannot fetch {path} to {target}", error) from error

    def remove_tree(self, path: str) -> None:
        """Delete a directory; not being there is success."""
        try:
            shutil.rmtree(path)
        except FileNotFoundError:
            return
        except OSError as error:
            raise self._error(f"cannot delete {path}", error) from error

    def close(self) -> None:
        """Nothing is held."""

    def _error(self, what: str, error: OSError | ValueError) -> NodeError:
        said = f"{self.name}: {what}: {getattr(error, 'strerror', None) or error}"
        return NodeError(said, hint=hint_of(error))


def hint_of(error: OSError | ValueError) -> str | None:
    """Return what to do about an error of a node's files, None where its words say it."""
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return "free space on that disk, then go on with `sweep resume`"
    if isinstance(error, NotADirectoryError):
        return "set node.workdir to a directory, or to a path that can become one"
    return None


def no_directory(path: str) -> NotADirectoryError:
    """Return the error of a file that stands where a directory is wanted, which names it."""
    return NotADirectoryError(errno.ENOTDIR, f"{path} is a file and no directory")


def make_private(directory: Path) -> None:
    """Make a directory and its missing parents, each with mode 0700."""
    if directory.is_dir():
        return
    if directory.exists():
        raise no_directory(str(directory))
    make_private(directory.parent)
    directory.mkdir(mode=0o700, exist_ok=True)
