"""How a driver takes the signals that ask it to stop."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from sweep.driver.process import StopSignals

BOTH = (signal.SIGINT, signal.SIGTERM)


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    """This process takes signals afterwards as it did before."""
    before = {number: signal.getsignal(number) for number in BOTH}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)


@pytest.mark.parametrize("number", BOTH)
def test_a_signal_that_came_before_its_handler_is_taken(number: signal.Signals) -> None:
    """A driver is started with both held back."""
    signal.pthread_sigmask(signal.SIG_BLOCK, BOTH)
    signal.pthread_kill(threading.get_ident(), number)  # no other thread may take it
    signals = StopSignals()
    assert signals.requested() is None
    signals.install()
    assert signals.requested() == number.name


def test_the_first_signal_is_remembered_and_interrupts_nothing() -> None:
    """The run looks at it between events."""
    signals = StopSignals()
    signals.install()
    for number in BOTH:
        os.kill(os.getpid(), number)
    assert signals.requested() == "SIGINT"


def test_a_signal_ends_a_block_that_may_be_interrupted() -> None:
    """Once, and named; before and after, it only is remembered."""
    signals = StopSignals()
    signals.install()
    os.kill(os.getpid(), signal.SIGINT)
    with pytest.raises(KeyboardInterrupt, match="SIGTERM"), signals.interrupting():
        os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGTERM)
    with signals.interrupting():
        pass
    assert signals.requested() == "SIGINT"
