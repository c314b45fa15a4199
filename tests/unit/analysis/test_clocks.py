"""Which trials the GPUs' clocks make doubtful."""

from __future__ import annotations

import pytest

from sweep.analysis.clocks import Clock, ClockSample, clocks_within, throttled

POWER_CAP, THERMAL = 0x4, 0x40


def test_only_samples_inside_the_windows_count() -> None:
    """What the GPU did while it loaded, warmed up or paused says nothing of the measurement."""
    samples = [
        ClockSample(float(at), uuid, clock, reasons)
        for at, clock, reasons in [
            (9, 300.0, THERMAL), (10, 2000.0, 0), (12, 1800.0, 0x1), (13, 400.0, THERMAL),
            (20, 1900.0, 0), (21, 1.0, THERMAL),
        ]
        for uuid in ("a", "b")
    ]  # fmt: skip
    found = clocks_within([(10.0, 12.0), (20.0, 20.5)], samples)
    assert found == {"a": Clock(1900.0, is_held_back=False), "b": Clock(1900.0, is_held_back=False)}
    assert clocks_within([(10.2, 11.9)], samples) == {}
    assert clocks_within([(9.0, 9.0)], samples)["a"] == Clock(300.0, is_held_back=True)


@pytest.mark.parametrize(
    ("mhz", "held_back", "flagged"),
    [(1584, True, True), (1584, False, False), (1881, True, False), (1880, True, True)],
)
def test_a_drop_with_a_reason_is_flagged(mhz: float, *, held_back: bool, flagged: bool) -> None:
    """More than five per cent below the best of equal work; idle GPUs are slow without a reason."""
    clocks = {
        "cool": {"gpu": Clock(1980.0, is_held_back=True)},
        "this": {"gpu": Clock(mhz, is_held_back=held_back)},
    }
    groups = {"cool": "c1", "this": "c1"}
    assert throttled(groups, clocks) == ({"this"} if flagged else set())


def test_clocks_are_compared_by_gpu_and_within_equal_work() -> None:
    """One slow GPU of several suffices; more streams draw more power and are their own group."""
    fast, slow = Clock(2000.0, is_held_back=True), Clock(1700.0, is_held_back=True)
    clocks = {
        "a": {"gpu-0": fast, "gpu-1": slow},
        "b": {"gpu-0": fast, "gpu-1": Clock(1710.0, is_held_back=True)},
        "c": {"gpu-0": fast, "gpu-1": Clock(1500.0, is_held_back=True)},
        "many": {"gpu-0": slow, "gpu-1": slow},
        "unsampled": {},
    }
    groups = dict.fromkeys(("a", "b", "c", "unsampled"), 1) | {"many": 8}
    assert throttled(groups, clocks) == {"c"}
