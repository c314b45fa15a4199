"""How the probe gets into a server: one `arm`, called as a plugin and after an import alike."""

from __future__ import annotations

import functools
import os
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Callable, Optional, Sequence

from .complaint import complain

ACTIVE_VARIABLE = "EAGLE3_PROFILE"
"""The probe does nothing unless this is 1."""
DIRECTORY_VARIABLE = "EAGLE3_PROFILE_DIR"
"""Where it writes."""
EVERY_VARIABLE = "EAGLE3_PROFILE_EVERY"
EVERY_CYCLES = 100

TARGET = "sglang.srt.managers.scheduler"
"""The module of the class Scheduler, of which each decoding process makes one."""
_MARK = "eagle3_probe"


def arm() -> None:
    """Have the probe attached to the scheduler that this process will make, if it makes one.

    May be called any number of times. Never raises.
    """
    try:
        if os.environ.get(ACTIVE_VARIABLE) != "1":
            return
        if not _patch(sys.modules.get(TARGET)) and not _waiting():
            sys.meta_path.insert(0, _Finder())
    except Exception as problem:  # noqa: BLE001 - the server must not notice
        complain("cannot arm: %s: %s" % (type(problem).__name__, problem))


def _waiting() -> bool:
    return any(isinstance(finder, _Finder) for finder in sys.meta_path)


def _patch(module: Optional[ModuleType]) -> bool:
    """Have `attach` called when a scheduler is made; return whether the class was there."""
    kind = getattr(module, "Scheduler", None)
    if kind is None:
        return False
    if not getattr(kind.__init__, _MARK, False):
        kind.__init__ = _attaching(kind.__init__)
    return True


def _attaching(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807 - replaces one
        original(self, *args, **kwargs)
        try:
            _attach_once(self)
        except Exception as problem:  # noqa: BLE001 - the server must not notice
            complain("cannot attach: %s: %s" % (type(problem).__name__, problem))

    setattr(__init__, _MARK, True)
    return __init__


def _attach_once(scheduler: Any) -> None:
    if not hasattr(scheduler, _MARK):
        from .attaching import attach  # noqa: PLC0415 - most processes make no scheduler

        directory = os.environ[DIRECTORY_VARIABLE]
        every_cycles = int(os.environ.get(EVERY_VARIABLE) or EVERY_CYCLES)
        setattr(scheduler, _MARK, attach(scheduler, directory, every_cycles))


class _Finder:
    """Sees the target module being imported, and patches it when it has run.

    Every later import is a second chance, should another finder have come first. It stays where it
    is: removed while the finders are gone through, it would hide the next one.
    """

    def __init__(self) -> None:
        self._done = False

    def find_spec(
        self, name: str, path: Optional[Sequence[str]], target: Optional[ModuleType] = None
    ) -> Optional[ModuleSpec]:
        """Find the target by the other finders; nothing else is ours."""
        try:
            self._done = self._done or _patch(sys.modules.get(TARGET))
            if name == TARGET and not self._done:
                return self._find(name, path, target)
        except Exception as problem:  # noqa: BLE001 - the import goes on without us
            complain("cannot follow the import of %s: %s" % (name, problem))
        return None

    def _find(
        self, name: str, path: Optional[Sequence[str]], target: Optional[ModuleType]
    ) -> Optional[ModuleSpec]:
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(name, path, target)
            if spec is not None:
                if spec.loader is not None:
                    _after(spec.loader)
                return spec
        return None


def _after(loader: Any) -> None:
    """Have `arm` called when this loader has executed its module."""
    original = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        original(module)
        arm()

    loader.exec_module = exec_module
