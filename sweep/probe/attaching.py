"""The probe in one decoding process: hooks, recorder and writer put together.

Whatever fails here is noted and takes the hooks out; the server goes on as if they had never been.
"""

from __future__ import annotations

import atexit
import contextlib
import datetime as dt
import glob
import os
import sys
import time
from typing import Any, Callable, Collection, Dict, List, Optional, Tuple

from . import hooks, pinning, reading, writing
from .clocks import CudaClock, DeviceClock, WallClock
from .complaint import complain
from .recording import FIELDS, Recorder
from .summary import Summary

PHASES = ("cycle", "draft", "verify", "extend", "accepted")
_DRAFTING = ("draft", "extend")
_EVENTS = 1024
"""Made at the start; a few hundred cycles are under way at most."""
_PATCH = b"EAGLE3_PROF"
"""In the text of sources that someone has instrumented by hand."""


class Attached:
    """What was attached to a scheduler, and can be taken off again."""

    def __init__(
        self, recorder: Recorder, writer: writing.Writer, now: Callable[[], float]
    ) -> None:
        self.recorder = recorder
        self._writer = writer
        self._now = now
        self._phase_hooks: List[hooks.Hook] = []
        self._result_hooks: List[hooks.Hook] = []
        atexit.register(self._end)

    def install(self, found: Dict[str, hooks.Hook]) -> None:
        """Wrap what was found."""
        wraps: Dict[str, hooks.Wrap] = {
            "cycle": self._cycle,
            "draft": self._draft,
            "verify": self._verify,
            "extend": self._extend,
            "accepted": self._result,
        }
        if "verify" in found and found["verify"].name in hooks.FORWARD:
            wraps["verify"] = self._verify_of_target
        for name, hook in found.items():
            hook.put(wraps[name])
            (self._result_hooks if name == "accepted" else self._phase_hooks).append(hook)

    def failed(self, where: str, problem: Exception) -> None:
        """Take out what failed and note it; the phases go on without accepted counts."""
        message = "%s: %s" % (type(problem).__name__, problem)
        hooks.remove_all(self._result_hooks)
        if where == "accepted":
            self.recorder.expect_no_results()
        else:
            hooks.remove_all(self._phase_hooks)
            self.recorder.stop()
        try:
            self._writer.error(where, message)
        except OSError as second:
            complain("%s: %s, and it cannot be noted: %s" % (where, message, second))

    def _end(self) -> None:
        try:
            self.recorder.settle(at_once=True)
            self._writer.close()
        except Exception as problem:  # noqa: BLE001 - the server is ending, and so do we
            complain("at the end: %s" % problem)

    # The wrappers. What the server passes and gets is never touched.

    def _cycle(self, original: Callable[..., Any]) -> Callable[..., Any]:
        recorder = self.recorder

        def cycle(worker: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                batch = args[0] if args else kwargs.get("batch", kwargs.get("model_worker_batch"))
                size, context_tokens, idle = reading.entry(batch)
                recorder.enter(size, context_tokens, idle=idle)
            except Exception as problem:  # noqa: BLE001 - the server must not notice
                self.failed("cycle", problem)
            try:
                returned = original(worker, *args, **kwargs)
            except BaseException:
                with contextlib.suppress(Exception):  # the server's own exception matters
                    recorder.abandon()
                raise
            try:
                recorder.leave(*reading.speculation(worker), reading.returned_accepted(returned))
            except Exception as problem:  # noqa: BLE001
                self.failed("cycle", problem)
            return returned

        return cycle

    def _draft(self, original: Callable[..., Any]) -> Callable[..., Any]:
        return self._timed("draft", original, None, self.recorder.drafted)

    def _verify(self, original: Callable[..., Any]) -> Callable[..., Any]:
        return self._timed("verify", original, self.recorder.verifying, self.recorder.verified)

    def _verify_of_target(self, original: Callable[..., Any]) -> Callable[..., Any]:
        timed = self._verify(original)

        def forward(*args: Any, **kwargs: Any) -> Any:
            return (timed if kwargs.get("is_verify") else original)(*args, **kwargs)

        return forward

    def _extend(self, original: Callable[..., Any]) -> Callable[..., Any]:
        return self._timed("extend", original, None, self.recorder.extended)

    def _timed(
        self,
        name: str,
        original: Callable[..., Any],
        begins: Optional[Callable[[], None]],
        ended: Callable[[float], None],
    ) -> Callable[..., Any]:
        now = self._now

        def phase(*args: Any, **kwargs: Any) -> Any:
            if begins is not None:
                try:
                    begins()
                except Exception as problem:  # noqa: BLE001
                    self.failed(name, problem)
            start_s = now()
            returned = original(*args, **kwargs)
            try:
                ended(now() - start_s)
            except Exception as problem:  # noqa: BLE001
                self.failed(name, problem)
            return returned

        return phase

    def _result(self, original: Callable[..., Any]) -> Callable[..., Any]:
        recorder = self.recorder

        def process(scheduler: Any, batch: Any, result: Any, *args: Any, **kwargs: Any) -> Any:
            counted: Optional[List[bool]] = None
            try:
                counted = reading.running(batch, result)
            except Exception as problem:  # noqa: BLE001
                self.failed("accepted", problem)
            returned = original(scheduler, batch, result, *args, **kwargs)
            try:
                if counted is not None:
                    accepted = reading.accepted(result, counted)
                    recorder.join(
                        len(counted), sum(counted), accepted, goes_on=reading.goes_on(batch)
                    )
            except Exception as problem:  # noqa: BLE001
                self.failed("accepted", problem)
            return returned

        return process


def attach(scheduler: Any, directory: str, every_cycles: int) -> Optional[Attached]:
    """Say hello in a file, and attach the probe to a scheduler that has made its workers.

    None: there are no cycles to be seen, or nothing to time them by. Raises OSError.
    """
    worker = getattr(scheduler, "draft_worker", None)
    adaptive = reading.is_adaptive(scheduler)
    pin = pinning.install(worker) if adaptive else None
    found = find(scheduler, worker) if worker is not None else {}
    device = reading.device(scheduler)
    clock = _clock(device)
    rank, ranks = reading.rank(scheduler)
    descriptor, own_rank = writing.create(directory, rank, ranks)
    patched = hand_made(worker if worker is not None else scheduler, scheduler)
    prints = own_rank == 0 and not patched
    names = [*found, pinning.PIN] if pin is not None else [*found]
    hello = header(worker, None if clock is None else clock.name, names, adaptive=adaptive)
    writer = writing.Writer(
        descriptor,
        {**hello, "rank": own_rank, "ranks": ranks, "patched": patched},
        Summary(every_cycles) if prints else None,
    )
    if pin is not None:
        pin.tell = writer.error
    if clock is None:
        writer.error("clock", "there is none for the device %r" % device)
    if clock is None or not found.keys() >= {"cycle", "verify"}:
        return None
    whole = not set(PHASES) & set(hello["missing"])
    recorder = Recorder(clock, time.monotonic, writer, frozenset(found), whole=whole)
    attached = Attached(recorder, writer, time.monotonic)
    attached.install(found)
    writer.start(recorder.settle, attached.failed)
    return attached


def find(scheduler: Any, worker: Any) -> Dict[str, hooks.Hook]:
    """Return the methods that a scheduler and its worker run, by phase."""
    objects = hooks.worker_objects(worker)
    target = [worker.target_worker] if _looks_up(worker) else []
    places = {
        "cycle": hooks.find([worker], hooks.CYCLE),
        "draft": hooks.find(objects, (*hooks.DRAFT, *hooks.LOOKUP)),
        "verify": hooks.find([worker], hooks.VERIFY) or hooks.find(target, hooks.FORWARD),
        "extend": hooks.find(objects, hooks.EXTEND),
        "accepted": hooks.find([scheduler], hooks.RESULT),
    }
    found = {name: hook for name, hook in places.items() if hook is not None}
    if "cycle" in found and "extend" in found:
        cycle, extend = found["cycle"].owner, found["extend"].owner
        if cycle is not extend and issubclass(cycle, extend):
            del found["extend"]  # inherited and not called: 0.5.3's V2 extends while it verifies
    return found


def _looks_up(worker: Any) -> bool:
    """Whether a worker drafts n-grams."""
    return any(hasattr(worker, name) for name in hooks.LOOKUP)


def _clock(device: str) -> Optional[DeviceClock]:
    if device == "cpu":
        return WallClock()
    if device == "cuda":
        return CudaClock(sys.modules["torch"].cuda, _EVENTS)
    return None


def header(
    worker: Any, clock: Optional[str], found: Collection[str], *, adaptive: bool = False
) -> Dict[str, Any]:
    """Return the handshake, but for the rank; `adaptive`: steps are to be pinned."""
    now = dt.datetime.now(dt.timezone.utc)
    return {
        "v": 1,
        "event": "armed",
        "pid": os.getpid(),
        "engine": "sglang",
        "engine_version": getattr(sys.modules.get("sglang"), "__version__", None),
        "module": _file(worker),
        "worker": None if worker is None else type(worker).__name__,
        "clock": clock,
        "hooks": [name for name in (*PHASES, pinning.PIN) if name in found],
        "missing": [name for name in _expected(worker, adaptive) if name not in found],
        "utc": now.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "fields": list(FIELDS),
    }


def _expected(worker: Any, adaptive: bool) -> Tuple[str, ...]:
    """Return the hooks that a worker should have: none is needed where nothing is drafted."""
    pin = (pinning.PIN,) if adaptive else ()
    if worker is None:
        return pin
    if _looks_up(worker):
        return (*(name for name in PHASES if name != "extend"), *pin)
    elsewhere = getattr(worker, "draft_worker", worker) is None and hasattr(worker, "verify")
    # With pipeline parallelism only the last stage drafts; the others verify their part.
    return (*(name for name in PHASES if not (elsewhere and name in _DRAFTING)), *pin)


def _file(item: Any) -> Optional[str]:
    """Return the file of an object's class."""
    module = sys.modules.get(type(item).__module__)
    return None if item is None else getattr(module, "__file__", None)


def hand_made(*objects: Any) -> List[str]:
    """Return the installed sources, beside those of the objects' classes, that someone has
    instrumented by hand."""
    folders = {os.path.dirname(path) for path in map(_file, objects) if path}
    sources = sorted(path for folder in folders for path in glob.glob(folder + "/*.py"))
    return [path for path in sources if _holds(path, _PATCH)]


def _holds(path: str, text: bytes) -> bool:
    try:
        with open(path, "rb") as stream:
            return text in stream.read()
    except OSError:
        return False
