"""cycles.<rank>.jsonl: what each decode cycle of the engine took and yielded, by rank.

Written inside the engine's decoding processes by the probe, or by the simulated server, into the
directory that DIRECTORY_VARIABLE names, and only with ENABLE_VARIABLE=1. The agent keeps it like
any file of its launch directory, the controller reads it once it was fetched.

The first line is an object, the handshake: {"v": 1, "event": "armed", …} with the fields of Armed
and `fields`, the order of what follows: one array of numbers per cycle, null where a value is not
known. Other objects are {"event": "dropped", "cycles": N}, N cycles that were not written because
the file had reached its bound, and {"event": "error", "where": PHASE, "message": …}, a hook that
failed and was taken out. Standard library only, Python >= 3.9.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Tuple

VERSION = 1

ENABLE_VARIABLE = "EAGLE3_PROFILE"
DIRECTORY_VARIABLE = "EAGLE3_PROFILE_DIR"

SIZE_LIMIT = 80 * 2**20
"""Of one rank's file [bytes]: some 500,000 cycles, at 30 ms each four hours. More than a probe
writes by itself."""
_LONGEST_LINE = 1 << 16

FIELDS = {
    "n": "number of the cycle in its process, from 1",
    "start_s": "host's monotonic clock at its entry, the same clock as that of events.jsonl [s]",
    "requests": "requests in the batch",
    "context_tokens": "lengths of their sequences at its entry, summed",
    "steps": "draft steps in effect",
    "draft_tokens": "tokens verified for each request, the root included",
    "draft_s": "time of the draft steps on the device",
    "verify_s": "time of the verification on the device",
    "extend_s": "time of the draft's extension by what was accepted, on the device",
    "other_s": "cycle_s without the three",
    "cycle_s": "from its start to the next one's on the device; null when a prefill, an idle batch "
    "or a pause lies between",
    "host_draft_s": "time that the host spent in the call of each phase",
    "host_verify_s": "",
    "host_extend_s": "",
    "host_cycle_s": "",
    "accepted": "draft tokens accepted over all requests, the bonus excluded",
}
"""Values of a cycle, durations in seconds; a file may hold more, which are ignored."""

_NUMBERS = {int, float, type(None)}
_NAME = re.compile(r"cycles\.(\d+)\.jsonl")


def file_name(rank: int) -> str:
    """Return the name of a rank's file."""
    return "cycles.%d.jsonl" % rank


def file_names(names: List[str]) -> List[str]:
    """Return those of `names` that are files of cycles, by rank."""
    found = [(int(match[1]), name) for name in names if (match := _NAME.fullmatch(name))]
    return [name for _, name in sorted(found)]


@dataclass(frozen=True)
class Armed:
    """The handshake of one decoding process."""

    rank: int
    ranks: int
    """How many processes decode together."""
    engine: Optional[str]
    engine_version: Optional[str]
    module: Optional[str]
    """File of the engine's worker that was found."""
    worker: Optional[str]
    """Its class."""
    clock: Optional[str]
    """cuda: device events; wall: the host's clock, on devices that work synchronously; simulated:
    a cost model."""
    hooks: Tuple[str, ...]
    missing: Tuple[str, ...]
    """What should be hooked and was not found: cycle, draft, verify, extend, accepted; pin, where
    the server holds several step counts. Neither hooks nor missing without a worker: then nothing
    is drafted."""
    patched: Tuple[str, ...] = ()
    """Files of the engine that someone has instrumented by hand, for the same variable."""


@dataclass(frozen=True)
class HookError:
    """A hook that failed and was taken out; `where` is its name."""

    where: str
    message: str


@dataclass(frozen=True)
class CycleFile:
    """One file of cycles; every column has a value, or None, for each cycle."""

    armed: Optional[Armed]
    """None: the file ends before its handshake."""
    columns: Dict[str, List[Optional[float]]]
    """By name of FIELDS."""
    dropped: int
    """Cycles that were not written because the file had reached its bound."""
    errors: Tuple[HookError, ...]
    damaged: int
    """Whole lines that could not be read."""


class CyclesMismatch(ValueError):
    """A file speaks another version of this format; the message names both."""


def decode(text: str, name: str = file_name(0)) -> CycleFile:
    """Read a file of cycles; a last line without its end is left out.

    Raises CyclesMismatch. Lines that cannot be read are counted.
    """
    reader = _Reader(name)
    for line in text.split("\n")[:-1]:
        reader.take(line)
    return reader.result()


class _Reader:
    """Takes the lines of one file in order."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._armed: Optional[Armed] = None
        self._fields: List[str] = []
        self._columns: Dict[str, List[Optional[float]]] = {field: [] for field in FIELDS}
        self._cycles: List[List[Optional[float]]] = []
        self._dropped = 0
        self._errors: List[HookError] = []
        self._damaged = 0

    def result(self) -> CycleFile:
        """Return what was read."""
        self._fill_columns()
        return CycleFile(
            self._armed, self._columns, self._dropped, tuple(self._errors), self._damaged
        )

    def take(self, line: str) -> None:
        """Read one whole line."""
        try:
            value = json.loads(line)
            if isinstance(value, list):
                self._cycle(value)
            else:
                self._event(value)
        except CyclesMismatch:
            raise
        except (ValueError, TypeError, KeyError, AttributeError):
            self._damaged += 1

    def _cycle(self, values: List[Any]) -> None:
        if len(values) != len(self._fields) or not _NUMBERS.issuperset(map(type, values)):
            raise ValueError("not a cycle")
        self._cycles.append(values)

    def _fill_columns(self) -> None:
        """Take the cycles since the last handshake apart, by the order that it named."""
        by_field = dict(zip(self._fields, zip(*self._cycles)))
        for field, column in self._columns.items():
            column.extend(by_field.get(field, [None] * len(self._cycles)))
        self._cycles = []

    def _event(self, value: Dict[str, Any]) -> None:
        event = value["event"]
        if event == "armed":
            if value.get("v") != VERSION:
                raise CyclesMismatch(
                    "%s speaks version %s of the cycles, this program reads version %s"
                    % (self._name, value.get("v"), VERSION)
                )
            self._fill_columns()
            self._armed = _armed(value)
            self._fields = [str(field) for field in value["fields"]]
        elif event == "dropped":
            self._dropped += int(value["cycles"])
        elif event == "error":
            self._errors.append(HookError(str(value["where"]), str(value["message"])))


def _armed(value: Dict[str, Any]) -> Armed:
    return Armed(
        rank=int(value["rank"]),
        ranks=int(value["ranks"]),
        engine=value.get("engine"),
        engine_version=value.get("engine_version"),
        module=value.get("module"),
        worker=value.get("worker"),
        clock=value.get("clock"),
        hooks=tuple(value.get("hooks") or ()),
        missing=tuple(value.get("missing") or ()),
        patched=tuple(value.get("patched") or ()),
    )


def bound_files(directory: str, limit: int = SIZE_LIMIT) -> None:
    """Cut the directory's files of cycles that are longer than `limit` bytes, after a whole line,
    and note in each how many cycles that cost. For when nobody writes any more."""
    for name in file_names(os.listdir(directory)):
        path = os.path.join(directory, name)
        if os.path.getsize(path) > limit:
            _cut(path, limit)


def _cut(path: str, limit: int) -> None:
    with open(path, "rb+") as stream:
        start = stream.seek(max(0, limit - _LONGEST_LINE))
        end = stream.seek(start + stream.read(limit - start).rfind(b"\n") + 1)
        dropped = sum(piece.count(b"\n") for piece in iter(lambda: stream.read(1 << 20), b""))
        stream.truncate(end)
        stream.seek(end)
        stream.write(b'{"event":"dropped","cycles":%d}\n' % dropped)
