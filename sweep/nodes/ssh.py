"""A machine behind SSH as a node: what is safe to repeat goes on over lost connections."""

from __future__ import annotations

import os
import posixpath
import random
import secrets
import shlex
import threading
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import paramiko

from sweep.model.errors import NodeError, NodeUnreachableError
from sweep.nodes.local import hint_of, make_private
from sweep.nodes.ssh_config import SshFiles
from sweep.nodes.ssh_files import put_file, read_file
from sweep.nodes.ssh_link import Deadlines, Link
from sweep.nodes.ssh_login import LinkLostError, LoginRefusedError, UnknownNameError
from sweep.nodes.ssh_route import Hop, as_argument, route
from sweep.ports import Clock, Completed, Reached

_T = TypeVar("_T")

_RUNS = 3
_BATCH = 2 * 1024 * 1024
"""What a fetch reads before other threads have their turn."""
_FIRST_PAUSE_S = 0.25
_LONGEST_PAUSE_S = 15.0
_MOST_LOSSES = 10
"""More make no pause longer."""
_SLICE_S = 0.1
_MARK = b"\x1esweep\x1e"
_HOME = 'printf %s "${XDG_STATE_HOME:-$HOME/.local/state}"'


class SshNode:
    """Files and short commands of a machine behind SSH; connects when first used.

    After a loss it connects again and repeats, for at most `patience_s` without a connection,
    then raises NodeUnreachableError. Methods may be called from several threads; `close` ends
    them all at once and for good. Commands need a POSIX login shell.
    """

    def __init__(
        self,
        host: str,
        clock: Clock,
        *,
        files: SshFiles | None = None,
        patience_s: float = 10.0,
        deadlines: Deadlines | None = None,
    ) -> None:
        self._host = host
        self._clock = clock
        self._files = files or SshFiles.of_user(os.environ)
        self._patience_s = patience_s
        self._deadlines = deadlines or Deadlines()
        self._connecting = threading.Lock()
        self._closed = threading.Event()
        self._link: Link | None = None
        self._reached: Reached | None = None
        self._losses = 0
        """In a row, over all calls: the pauses between attempts grow with them."""
        self._home: str | None = None

    @property
    def name(self) -> str:
        """The name in tables and messages."""
        return self._host

    @cached_property
    def _hops(self) -> tuple[Hop, ...]:
        """The way to it. Raises NodeError where the SSH config leads nowhere."""
        return route(self._host, self._files)

    @property
    def reached(self) -> Reached | None:
        """How the latest connection was made; None: there was none yet."""
        return self._reached

    @property
    def not_honoured(self) -> tuple[str, ...]:
        """Settings of the SSH config, for the node and its jump hosts, that have no effect."""
        return tuple(dict.fromkeys(text for hop in self._hops for text in hop.not_honoured))

    def home(self) -> str:
        """`sweep` below the state directory of the user on the node."""
        if self._home is None:
            ended = self._run_to_end(["sh", "-c", _HOME])
            self._home = posixpath.join(ended.stdout.decode(errors="surrogateescape"), "sweep")
        return self._home

    def put(self, path: str, data: bytes) -> None:
        """Write a whole file by partial name and rename."""
        partial_path = f"{path}.{secrets.token_hex(4)}.part"
        self._files_do(f"write {path}", lambda sftp, _: put_file(sftp, path, partial_path, data))

    def read(self, path: str, offset: int = 0, limit: int | None = None) -> bytes | None:
        """Return bytes of a file; None when there is no such file."""
        return self._files_do(
            f"read {path}", lambda sftp, heard: read_file(sftp, path, offset, limit, heard)
        )

    def run(self, argv: Sequence[str], *, timeout_s: float) -> Completed:
        """Run a short command; returncode None: it was started, and the link broke."""
        if any("\0" in word for word in argv):
            raise NodeError(f"{self.name}: cannot run {argv[0]}: embedded null byte")
        # The mark tells the command's output from what start-up files of the shell print.
        words = shlex.join(argv).encode("utf-8", "surrogateescape")
        line = b"printf '\\036sweep\\036'; exec " + words
        ended = self._repeated(
            f"run {argv[0]}", lambda link: link.execute(line, argv[0], timeout_s)
        )
        noise, mark, output = ended.stdout.partition(_MARK)
        return Completed(ended.returncode, output if mark else noise, ended.stderr)

    def fetch(self, path: str, target: str) -> None:
        """Copy a file as long as it is now to `target`; goes on where a lost link ended."""
        goal = Path(target)
        partial_path = goal.with_name(goal.name + ".part")
        what = f"fetch {path} to {target}"
        size = self._files_do(what, lambda sftp, _: sftp.stat(path).st_size) or 0
        try:
            make_private(goal.parent)
            with partial_path.open("wb") as stream:
                while (done := stream.tell()) < size:
                    data = self.read(path, done, min(_BATCH, size - done))
                    if not data:
                        raise NodeError(f"{self.name}: {path} became shorter while it was fetched")
                    stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
            partial_path.rename(goal)
        except OSError as error:
            raise self._error(what, error) from error

    def remove_tree(self, path: str) -> None:
        """Delete a directory; not being there is success."""
        ended = self._run_to_end(["rm", "-rf", "--", path], timeout_s=300.0)
        if ended.returncode:
            complaint = ended.stderr.decode(errors="replace").strip()
            raise NodeError(f"{self.name}: cannot delete {path}: {complaint[-400:]}")

    def close(self) -> None:
        """Let go of the connection; whatever waits in another thread fails at once."""
        self._closed.set()
        link = self._link
        if link is not None:
            link.close()

    # -- connecting and repeating --------------------------------------------------------------

    def _repeated(self, what: str, act: Callable[[Link], _T]) -> _T:
        """Do `act`, again after each loss, until patience ends."""
        began_s: float | None = None
        while True:
            try:
                result = act(self._connected())
            except LinkLostError as error:
                now_s = self._clock.monotonic_s()
                began_s = now_s if began_s is None else began_s
                left_s = began_s + self._patience_s - now_s
                # A name that never led anywhere is a typo; one that did may come back.
                typo = isinstance(error, UnknownNameError) and self._reached is None
                if self._closed.is_set() or left_s <= 0 or typo:
                    raise self._unreachable(what, error, now_s - began_s) from error
                self._pause(min(self._next_pause_s(), left_s))
                self._losses = min(self._losses + 1, _MOST_LOSSES)
            else:
                self._losses = 0
                return result

    def _next_pause_s(self) -> float:
        longest_s = min(_FIRST_PAUSE_S * (1 << self._losses), _LONGEST_PAUSE_S)
        return longest_s * random.uniform(0.5, 1.0)

    def _connected(self) -> Link:
        """Return the link, or a new one; one thread connects, the others wait for it."""
        with self._connecting:
            if self._link is not None and self._link.alive:
                return self._link
            if self._closed.is_set():
                raise LinkLostError("closed")
            hops = self._hops
            link = self._link = Link(self.name, self._deadlines)
            if self._closed.is_set():
                raise LinkLostError("closed")
            began_s = self._clock.monotonic_s()
            try:
                link.open(hops, self._files.identities)
            except LoginRefusedError as error:
                # A machine that starts up refuses keys for a while that it took before.
                if self._reached is not None:
                    raise LinkLostError(error.message) from error
                raise
            self._reached = Reached(
                user=hops[-1].user,
                address=hops[-1].address,
                through=tuple(hop.alias for hop in hops[:-1]),
                seconds=self._clock.monotonic_s() - began_s,
                host_key=str(link.host_key),
                not_honoured=self.not_honoured,
            )
            return link

    def _pause(self, seconds: float) -> None:
        until_s = self._clock.monotonic_s() + seconds
        while not self._closed.is_set():
            left_s = until_s - self._clock.monotonic_s()
            if left_s <= 0:
                return
            self._clock.sleep(min(left_s, _SLICE_S))

    def _unreachable(self, what: str, cause: LinkLostError, waited_s: float) -> NodeError:
        if self._closed.is_set():
            return NodeError(f"{self.name}: cannot {what}: the connection was closed")
        waited = f" for {waited_s:.0f} s" if waited_s >= 1 else ""
        if self._reached is None:
            ignored = "; ".join(self.not_honoured)
            without = f", and note what has no effect here: {ignored}" if ignored else ""
            return NodeUnreachableError(
                f"{self.name} is not reached{waited}: {cause}",
                hint=f"see whether `ssh {as_argument(self.name)} true` reaches it{without}",
            )
        return NodeUnreachableError(
            f"{self.name}: cannot {what}: no connection{waited}: {cause}",
            hint="what was launched on the node goes on by itself; once the node can be reached, "
            "`sweep resume` attaches to it",
        )

    # -- files and commands --------------------------------------------------------------------

    def _files_do(
        self, what: str, act: Callable[[paramiko.SFTPClient, Callable[[], None]], _T]
    ) -> _T:
        try:
            return self._repeated(what, lambda link: link.files(lambda sftp: act(sftp, link.heard)))
        except OSError as error:
            raise self._error(what, error) from error

    def _run_to_end(self, argv: Sequence[str], *, timeout_s: float = 60.0) -> Completed:
        """Run a command that may be repeated until its exit status is known."""
        for _ in range(_RUNS):
            ended = self.run(argv, timeout_s=timeout_s)
            if ended.returncode is not None:
                return ended
        raise NodeUnreachableError(
            f"{self.name}: the connection broke {_RUNS} times while {argv[0]} ran"
        )

    def _error(self, what: str, error: OSError) -> NodeError:
        said = f"{self.name}: cannot {what}: {error.strerror or error}"
        return NodeError(said, hint=hint_of(error))
