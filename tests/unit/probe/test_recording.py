"""From marks and calls to rows: what is billed to which phase, cycle and request."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from fakes.device import FakeDevice

from sweep.probe.recording import FIELDS, MOST_PENDING, Recorder, Row

ALL = frozenset({"cycle", "draft", "verify", "extend", "accepted"})
DRAFT_S, VERIFY_S, EXTEND_S = 0.001, 0.026, 0.0005


class Rows:
    """Keeps rows as dicts."""

    def __init__(self) -> None:
        self.rows: list[dict[str, float | None]] = []
        self.dropped = 0
        self.hurried = 0

    def take(self, row: Row) -> None:
        """Take a row."""
        self.rows.append(dict(zip(FIELDS, row, strict=True)))

    def drop(self, cycles: int) -> None:
        """Count."""
        self.dropped += cycles

    def hurry(self) -> None:
        """Count."""
        self.hurried += 1

    def column(self, name: str) -> list[float | None]:
        """The values of a field."""
        return [row[name] for row in self.rows]


class Server:
    """Decodes on a device, with a recorder hooked in."""

    def __init__(
        self, hooks: Iterable[str] = ALL, *, synchronous: bool = False, anywhere: bool = False
    ) -> None:
        self.device = FakeDevice(synchronous=synchronous)
        self.device.anywhere = anywhere
        self.sink = Rows()
        whole = {"draft", "verify", "extend"} <= set(hooks)
        self.recorder = Recorder(
            self.device, self.device.now, self.sink, frozenset(hooks), whole=whole
        )
        self.hooks = frozenset(hooks)

    def _call(self, work_s: float, *, wait: bool = False) -> float:
        start_s = self.device.now()
        self.device.submit(work_s)
        if wait:
            self.device.wait()
        return self.device.now() - start_s

    def cycle(
        self,
        size: int = 1,
        *,
        idle: bool = False,
        drafts: bool = True,
        extends: bool = True,
        waits: bool = False,
    ) -> None:
        """One decode cycle; `waits`: verification synchronises, as in older versions."""
        recorder = self.recorder
        recorder.enter(size, 10 * size, idle=idle)
        if drafts:
            host_s = self._call(DRAFT_S)
            if "draft" in self.hooks:
                recorder.drafted(host_s)
        recorder.verifying()
        recorder.verified(self._call(VERIFY_S, wait=waits))
        if extends:
            host_s = self._call(EXTEND_S)
            if "extend" in self.hooks:
                recorder.extended(host_s)
        recorder.leave(3, 4)

    def prefill(self) -> None:
        """A call that verifies nothing."""
        self.recorder.enter(1, 37, idle=False)
        self.device.submit(0.1)
        self.recorder.leave(3, 4)

    def finish(self) -> Rows:
        """Let the server be idle for a while."""
        self.device.wait()
        self.device.sleep(2.0)
        self.recorder.settle()
        return self.sink


def test_device_time_is_billed_to_the_phase_that_took_it() -> None:
    """Though the host returns at once, and a wall clock would find next to nothing anywhere."""
    server = Server()
    for _ in range(4):
        server.cycle()
        server.recorder.join(1, 1, 2)
    rows = server.finish()
    for row in rows.rows[1:]:
        assert row["draft_s"] == pytest.approx(DRAFT_S)
        assert row["verify_s"] == pytest.approx(VERIFY_S)
        assert row["extend_s"] == pytest.approx(EXTEND_S)
        assert row["host_verify_s"] == pytest.approx(0.0001)
        assert row["host_cycle_s"] == pytest.approx(0.0003)
    assert rows.column("cycle_s")[1:3] == [pytest.approx(DRAFT_S + VERIFY_S + EXTEND_S)] * 2
    assert rows.column("other_s")[1:3] == [pytest.approx(0.0, abs=1e-9)] * 2
    assert server.device.marks == 0


def test_a_wall_clock_bills_the_phase_that_waits() -> None:
    """With one synchronisation, in verification, the host pays the draft's and the extension's
    work there; the device's marks do not."""
    server = Server()
    for _ in range(4):
        server.cycle(waits=True)
        server.recorder.join(1, 1, 2)
    row = server.finish().rows[2]
    assert row["host_draft_s"] == pytest.approx(0.0001)
    assert row["host_verify_s"] == pytest.approx(EXTEND_S + DRAFT_S + VERIFY_S - 0.0001)
    assert row["verify_s"] == pytest.approx(VERIFY_S, rel=0.01)
    assert row["draft_s"] == pytest.approx(DRAFT_S, rel=0.01)


def test_what_the_device_waits_for_is_other() -> None:
    """A pause of the host between two cycles is in the cycle, and in none of its phases."""
    server = Server()
    for _ in range(4):
        server.cycle()
        server.recorder.join(1, 1, 0)
        server.device.wait()
        server.device.sleep(0.005)
    rows = server.finish()
    assert rows.column("other_s")[:3] == [pytest.approx(0.005, abs=2e-4)] * 3
    for row in rows.rows[:3]:
        parts = [row[name] or 0.0 for name in ("draft_s", "verify_s", "extend_s", "other_s")]
        assert row["cycle_s"] == pytest.approx(sum(parts))


def test_marks_are_read_two_cycles_later() -> None:
    """By the thread that decodes: another's question could break a graph that is being captured.
    Nothing waits for the device, however far the host is ahead of it."""
    server = Server()
    for _ in range(5):
        server.cycle()
        server.recorder.join(1, 1, 1)
        server.recorder.settle()
        assert server.sink.rows == []  # the device has not come that far
    server.device.wait()
    server.recorder.settle()
    assert server.sink.rows == []
    server.cycle()
    assert server.sink.column("n") == [1, 2, 3, 4]


def test_the_last_cycle_of_all_is_given_out_at_once() -> None:
    """When nobody is served any more, the server may be stopped at any moment."""
    server = Server()
    server.cycle(2)
    server.recorder.join(2, 2, 1, goes_on=True)
    server.cycle(1)
    server.recorder.join(1, 1, 1, goes_on=False)
    assert server.sink.hurried == 1
    server.device.wait()
    server.recorder.settle()
    assert server.sink.column("n") == [1, 2]
    assert [value is None for value in server.sink.column("cycle_s")] == [False, True]


def test_a_cycle_that_was_launched_before_all_ended_comes_to_nothing() -> None:
    """With overlap: it brings nobody anything, and ends the one before."""
    server = Server()
    server.cycle()
    server.cycle()
    server.recorder.join(1, 1, 1, goes_on=False)
    assert server.sink.hurried == 0
    server.recorder.join(1, 0, 0, goes_on=False)
    assert server.sink.hurried == 1
    server.device.wait()
    server.recorder.settle()
    (row,) = server.sink.rows
    assert row["cycle_s"] == pytest.approx(DRAFT_S + VERIFY_S + EXTEND_S, rel=0.01)


@pytest.mark.parametrize("between", ["prefill", "idle", "pause", "exception"])
def test_a_cycle_ends_where_something_else_comes(between: str) -> None:
    """Its phases are known and its length is not."""
    server = Server()
    server.cycle()
    server.recorder.join(1, 1, 1)
    if between == "prefill":
        server.prefill()
    elif between == "idle":
        server.cycle(idle=True)
    elif between == "pause":
        server.device.wait()
        server.device.sleep(1.5)
    else:
        server.recorder.enter(1, 1, idle=False)
        server.recorder.abandon()
    for _ in range(2):
        server.cycle()
        server.recorder.join(1, 1, 1)
    rows = server.finish()
    assert rows.column("n") == [1, 2, 3]
    assert [value is None for value in rows.column("cycle_s")] == [True, False, True]
    assert [value is None for value in rows.column("other_s")] == [True, False, True]
    assert rows.column("verify_s") == [pytest.approx(VERIFY_S)] * 3
    assert server.device.marks == 0


def test_results_that_come_one_cycle_later_join_in_order() -> None:
    """With overlap, the scheduler processes a result after it has launched the next cycle."""
    server = Server()
    server.cycle(size=3)
    for number in range(2, 6):
        server.cycle(size=3)
        server.recorder.join(3, 3, number)
    server.recorder.join(3, 2, 6)
    rows = server.finish()
    assert rows.column("accepted") == [2, 3, 4, 5, 6]
    assert rows.column("requests") == [3, 3, 3, 3, 2]
    assert rows.column("context_tokens") == [30] * 5


def test_a_cycle_that_nobody_got_anything_of_is_left_out() -> None:
    """It ends the one before, and is not counted."""
    server = Server()
    for requests in (1, 0, 1):
        server.cycle()
        server.recorder.join(1, requests, requests)
    rows = server.finish()
    assert rows.column("n") == [1, 2]
    assert rows.column("cycle_s")[0] == pytest.approx(DRAFT_S + VERIFY_S + EXTEND_S, rel=0.01)


def test_a_lost_result_is_unknown_and_the_others_stay_in_place() -> None:
    """Sizes tell: what is known is never moved to another cycle."""
    server = Server()
    for size in (4, 3, 3):
        server.cycle(size)
    server.recorder.join(3, 3, 7)
    server.recorder.join(3, 3, 8)
    server.recorder.join(3, 3, 9)  # of no cycle
    rows = server.finish()
    assert rows.column("accepted") == [None, 7, 8]
    assert rows.column("requests") == [4, 3, 3]


def test_what_the_call_itself_says_counts_where_the_result_says_nothing() -> None:
    """As in the oldest versions."""
    server = Server()
    server.cycle()
    server.recorder.enter(1, 1, idle=False)
    server.recorder.verifying()
    server.recorder.verified(0.0)
    server.recorder.leave(3, 4, accepted=2)
    server.recorder.join(1, 1, None)
    server.recorder.join(1, 1, None)
    assert server.finish().column("accepted") == [None, 2]


def test_no_drafting_takes_no_time() -> None:
    """Zero steps: the phase is there and has nothing to do; so has the extension at the end."""
    server = Server()
    server.cycle(drafts=False, extends=False)
    server.recorder.join(1, 1, 0)
    (row,) = server.finish().rows
    assert (row["draft_s"], row["host_draft_s"]) == (0.0, 0.0)
    assert row["extend_s"] == pytest.approx(0.0, abs=1e-9)
    assert row["verify_s"] == pytest.approx(VERIFY_S, rel=0.01)
    assert (row["steps"], row["draft_tokens"]) == (3, 4)


@pytest.mark.parametrize(("phase", "other"), [("draft", "extend"), ("extend", "draft")])
def test_a_phase_without_a_hook_is_unknown(phase: str, other: str) -> None:
    """So is what is left of the cycle; the others keep their own time."""
    server = Server(ALL - {phase})
    for _ in range(3):
        server.cycle()
        server.recorder.join(1, 1, 0)
    row = server.finish().rows[1]
    assert row[f"{phase}_s"] is None
    assert row[f"host_{phase}_s"] is None
    assert row["other_s"] is None
    assert row[f"{other}_s"] == pytest.approx({"draft": DRAFT_S, "extend": EXTEND_S}[other])
    assert row["verify_s"] == pytest.approx(VERIFY_S)
    assert row["cycle_s"] == pytest.approx(DRAFT_S + VERIFY_S + EXTEND_S)


def test_without_results_cycles_are_given_out_all_the_same() -> None:
    """Accepted tokens are unknown then."""
    server = Server(ALL - {"accepted"})
    for _ in range(3):
        server.cycle(2)
    rows = server.finish()
    assert rows.column("accepted") == [None] * 3
    assert rows.column("requests") == [2] * 3


def test_results_may_end_in_the_middle() -> None:
    """A hook that fails takes nothing away from what the others measure."""
    server = Server()
    server.cycle()
    server.recorder.join(1, 1, 2)
    server.cycle()
    server.recorder.expect_no_results()
    server.cycle()
    assert server.finish().column("accepted") == [2, None, None]


def test_cycles_that_never_complete_are_bounded() -> None:
    """What comes on top is given up and counted, and its marks come back."""
    server = Server()
    for _ in range(MOST_PENDING + 10):
        server.cycle()
    assert server.sink.dropped == 10
    assert server.device.marks == 4 * MOST_PENDING
    rows = server.finish()
    assert rows.column("n") == list(range(1, MOST_PENDING + 1))
    assert rows.column("cycle_s")[-1] is None
    assert server.device.marks == 0


def test_nothing_is_recorded_while_a_graph_is_captured() -> None:
    """A timing event would fail the capture."""
    server = Server()
    server.device.capturing = True
    server.cycle()
    server.device.capturing = False
    server.cycle()
    server.recorder.join(1, 1, 1)
    assert server.finish().column("n") == [1]


def test_a_server_that_decodes_is_left_alone() -> None:
    """The last cycle may still have a successor: only a pause or the end settles it."""
    server = Server()
    server.cycle()
    server.recorder.join(1, 1, 1)
    server.device.wait()
    server.recorder.settle()
    assert server.sink.rows == []
    server.recorder.settle(at_once=True)
    assert server.sink.column("accepted") == [1]


def test_after_a_stop_nothing_follows() -> None:
    """What was not complete is forgotten."""
    server = Server()
    server.cycle()
    server.recorder.stop()
    assert server.finish().rows == []


def test_where_any_thread_may_read_marks_the_other_one_gives_out() -> None:
    """The decoding thread only notes, while others follow and long after; if the other thread has
    no turn, it helps itself before cycles are lost."""
    server = Server(synchronous=True, anywhere=True)
    for _ in range(10):
        server.cycle()
        server.recorder.join(1, 1, 2)
    assert server.sink.rows == []
    server.recorder.settle()
    assert server.sink.column("n") == list(range(1, 9))
    assert (
        server.sink.column("cycle_s") == [pytest.approx(DRAFT_S + VERIFY_S + EXTEND_S + 3e-4)] * 8
    )
    for _ in range(MOST_PENDING):
        server.cycle()
        server.recorder.join(1, 1, 2)
    assert server.sink.dropped == 0
    assert len(server.sink.rows) >= MOST_PENDING // 2
    server.recorder.settle(at_once=True)
    assert server.sink.column("n") == list(range(1, 10 + MOST_PENDING + 1))
    assert server.device.marks == 0
