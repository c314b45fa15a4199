"""Something that runs beside a test."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Background:
    """Something that runs in a thread, with what came of it."""

    def __init__(self, act: Callable[[], object]) -> None:
        self.result: object = None
        self.error: BaseException | None = None
        self._act = act
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.result = self._act()
        except BaseException as error:  # noqa: BLE001 - handed to the test
            self.error = error

    def join(self, within_s: float) -> None:
        """Wait for its end."""
        self._thread.join(within_s)
        assert not self._thread.is_alive(), f"still running after {within_s:g} s"
