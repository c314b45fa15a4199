"""One lane over a fake node: attaching, versions, damage, and what is fetched."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from fakes.clock import FakeClock
from fakes.launching import document
from fakes.node import Event, FakeNode, Finish, Hold, Script, good, load

from sweep.agent import wire
from sweep.driver.lane import (
    PATIENCE_S,
    STOP_PATIENCE_S,
    Attached,
    Ended,
    Lane,
    LaneEvent,
    LaunchTask,
    Lines,
    Unanswered,
)
from sweep.model.errors import NodeError, NodeUnreachableError, WireVersionError
from sweep.ports import Completed

DIRECTORY = "/w/sweep/L1/1"
TASK = LaunchTask(
    launch_id="L1",
    attempt=1,
    directory=DIRECTORY,
    document=wire.encode(document(nonce="n")),
    archive_name="agent.pyz",
    archive=b"agent",
    python="python3",
)


def made(script: Script = good) -> tuple[FakeNode, Lane]:
    """A node with a lane."""
    clock = FakeClock()
    node = FakeNode(clock, script)
    return node, Lane(lambda: node, clock)


def run(lane: Lane, **changes: object) -> list[LaneEvent]:
    """Run an attempt to its end."""
    return list(lane.run(replace(TASK, **changes)))  # type: ignore[arg-type]


def test_a_first_start_ships_agent_and_document() -> None:
    """The agent lies beside the sweep's launches, the document in the launch's directory."""
    node, lane = made()
    events = run(lane)
    assert events[0] == Attached("started")
    assert node.files["/w/sweep/agent.pyz"] == b"agent"
    assert node.files[f"{DIRECTORY}/launch.json"] == TASK.document.encode()
    last = events[-1]
    assert isinstance(last, Ended)
    assert last.outcome == node.files[f"{DIRECTORY}/outcome.json"].decode()


def test_a_document_that_is_there_is_not_written_again() -> None:
    """A start that was interrupted between document and agent goes on with that document."""
    node, lane = made()
    other = wire.encode(replace(document(nonce="n"), label="as first sent"))
    node.put(f"{DIRECTORY}/launch.json", other.encode())
    assert run(lane)[0] == Attached("started")
    assert node.files[f"{DIRECTORY}/launch.json"] == other.encode()


def test_the_same_attempt_is_attached_then_found_finished() -> None:
    """Whoever comes again reads on; nobody starts it twice."""
    node, lane = made()
    first = lane.run(TASK)
    assert next(first) == Attached("started")
    assert run(lane)[0] == Attached("attached")
    assert run(lane)[0] == Attached("finished")
    assert node.started == [DIRECTORY]


def test_nothing_before_the_offsets_is_told() -> None:
    """A lane that is given offsets tells only what comes after them."""
    _, lane = made()
    whole = [event for event in run(lane) if isinstance(event, Lines)]
    offsets = {event.name: event.next_offset for event in whole[:4]}
    rest = [event for event in run(lane, offsets=offsets) if isinstance(event, Lines)]
    for name in (wire.EVENTS_FILE, wire.REQUESTS_FILE):
        lines = [line for event in whole for line in event.lines if event.name == name]
        told = [line for event in rest for line in event.lines if event.name == name]
        assert told == lines[len(lines) - len(told) :]
        sizes = sum(len(line) + 1 for line in lines[: len(lines) - len(told)])
        assert sizes == offsets.get(name, 0)


def test_half_a_line_waits_for_its_end() -> None:
    """Only whole lines are told, and each once."""
    node, lane = made(lambda _: [Event("agent"), *[Event("clean")] * 3, Finish()])
    stream = lane.run(TASK)
    next(stream)
    node.files[f"{DIRECTORY}/events.jsonl"] = bytearray(b'{"event":"agent"}\n{"eve')
    first = next(stream)
    assert isinstance(first, Lines)
    assert (first.lines, first.next_offset) == (('{"event":"agent"}',), 18)
    node.files[f"{DIRECTORY}/events.jsonl"] += b'nt":"clean"}\n'
    second = next(stream)
    assert isinstance(second, Lines)
    assert (second.offset, second.lines) == (18, ('{"event":"clean"}',))


def test_a_stop_at_once_starts_nothing() -> None:
    """An attempt that is no longer wanted is only stopped, whether it ever ran or not."""
    node, lane = made()
    assert run(lane, stop_at_once=True) == [Ended(None, clean=True, left=())]
    assert node.started == []
    node, lane = made(lambda doc: [*load(doc), Hold()])
    next(iter(lane.run(TASK)))
    last = run(lane, stop_at_once=True)[-1]
    assert isinstance(last, Ended)
    assert last.outcome is not None
    assert wire.decode_outcome(last.outcome).end == "stopped"
    assert node.started == node.stopped == [DIRECTORY]


def test_a_dead_agent_is_cleaned_up_after_once() -> None:
    """Its leftovers are stopped by the agent's own verb, and what it then says is told."""
    node, lane = made(lambda doc: [*load(doc), Hold()])
    stream = lane.run(TASK)
    assert next(stream) == Attached("started")
    node.kill_agents()
    events = list(stream)
    assert node.stopped == [DIRECTORY]
    assert events[-1] == Ended(None, clean=True, left=())
    told = [json.loads(line)["event"] for each in events if isinstance(each, Lines)
            for line in each.lines]  # fmt: skip
    assert told[-1] == "clean"


def test_what_is_left_is_named() -> None:
    """A node that cannot be cleaned says what is there still."""
    node, lane = made(lambda doc: [*load(doc), Hold()])
    node.left = ["pid 7"]
    stream = lane.run(TASK)
    next(stream)
    node.kill_agents()
    assert list(stream)[-1] == Ended(None, clean=False, left=("pid 7",))


def silent_for(node: FakeNode, seconds: float) -> None:
    """Let the node not answer from now on; after so many seconds of its clock it does again."""
    node.silent = True
    until_s = node.clock.now_s + seconds

    def look() -> None:
        node.silent = node.silent and node.clock.now_s < until_s

    node.clock.on_sleep.append(look)


def test_a_silent_node_is_borne_and_told_once(tmp_path: Path) -> None:
    """A quarter of an hour without a link, twice: one start, and every line once."""
    node, lane = made()
    events: list[LaneEvent] = []
    for event in lane.run(TASK):
        events.append(event)
        if len(events) in (2, 6):
            silent_for(node, 900)
    assert node.started == [DIRECTORY]
    silence = Unanswered("fake: no connection")
    assert [event for event in events if isinstance(event, (Attached, Unanswered))] == [
        Attached("started"), silence, Attached("finished"), silence, Attached("finished"),
    ]  # fmt: skip
    fetched(node, lane, tmp_path)
    for name in (wire.EVENTS_FILE, wire.REQUESTS_FILE):
        told = [line for event in events if isinstance(event, Lines) and event.name == name
                for line in event.lines]  # fmt: skip
        assert told == (tmp_path / name).read_text().splitlines()


def test_a_node_that_stays_silent_is_given_up(tmp_path: Path) -> None:
    """After half an hour; an attempt that was never begun is not begun."""
    node, lane = made()
    node.silent = True
    with pytest.raises(NodeUnreachableError, match="fake: no connection"):
        run(lane)
    assert PATIENCE_S <= node.clock.now_s - 1000.0 < PATIENCE_S + 5
    began_s = node.clock.now_s
    with pytest.raises(NodeUnreachableError):
        lane.fetch(DIRECTORY, str(tmp_path), keep=False)
    assert PATIENCE_S <= node.clock.now_s - began_s < PATIENCE_S + 5
    assert node.started == []


def test_a_stop_gives_a_silent_node_up_soon(tmp_path: Path) -> None:
    """Three minutes after the stop, however long it was silent before; the error says what goes
    on there and what to do. A fetch ends with it."""
    node, lane = made(lambda doc: [*load(doc), Hold()])
    stream = lane.run(TASK)
    next(stream)
    silent_for(node, 1e9)
    assert isinstance(next(stream), Unanswered)
    node.clock.now_s += 600
    lane.cancel()
    asked_s = node.clock.now_s
    with pytest.raises(NodeUnreachableError, match="did not answer for 180 s after the stop") as e:
        list(stream)
    assert STOP_PATIENCE_S <= node.clock.now_s - asked_s < STOP_PATIENCE_S + 5
    assert "goes on" in str(e.value.hint)
    assert "`sweep cancel`" in str(e.value.hint)
    with pytest.raises(NodeUnreachableError, match="after the stop"):
        lane.fetch(DIRECTORY, str(tmp_path), keep=False)
    assert node.clock.now_s - asked_s < STOP_PATIENCE_S + 5
    assert node.running() == [DIRECTORY]


def test_a_node_that_answers_soon_after_a_stop_is_stopped() -> None:
    """And one on which nothing was started yet stays so."""
    node, lane = made(lambda doc: [*load(doc), Hold()])
    stream = lane.run(TASK)
    next(stream)
    silent_for(node, 60)
    lane.cancel()
    last = list(stream)[-1]
    assert isinstance(last, Ended)
    assert last.outcome is not None
    assert node.running() == []
    node, lane = made()
    silent_for(node, 60)
    stream = lane.run(TASK)
    assert isinstance(next(stream), Unanswered)
    lane.cancel()
    assert list(stream) == [Ended(None, clean=True, left=())]
    assert node.started == []


def test_a_released_lane_leaves_a_silent_node_to_the_next() -> None:
    """Without an error, which would be taken for the node's."""
    node, lane = made()
    silent_for(node, 900)
    stream = lane.run(TASK)
    assert isinstance(next(stream), Unanswered)
    lane.release()
    assert list(stream) == []
    assert node.clock.now_s < 1005
    assert run(Lane(lambda: node, node.clock))[1] == Attached("started")


def test_a_lane_that_has_only_to_stop_does_not_wait_long() -> None:
    """Nobody needs the node for anything else; the launch stays open."""
    node, lane = made()
    node.silent = True
    stream = lane.run(replace(TASK, stop_at_once=True))
    assert isinstance(next(stream), Unanswered)
    before_s = node.clock.now_s
    with pytest.raises(NodeUnreachableError):
        next(stream)
    assert 180.0 <= node.clock.now_s - before_s < 185.0


def test_a_fetch_goes_on_after_a_silence(tmp_path: Path) -> None:
    """Files that had arrived are not fetched again."""
    node, lane = made()
    run(lane)
    taken: list[str] = []
    fetch = node.fetch

    def first_then_silence(path: str, target: str) -> None:
        fetch(path, target)
        taken.append(path)
        if len(taken) == 1:
            silent_for(node, 300)

    node.fetch = first_then_silence  # type: ignore[method-assign]
    fetched(node, lane, tmp_path)
    assert len(taken) == len(set(taken)) == 5


@pytest.mark.parametrize("name", ["agent.json", "outcome.json"])
def test_another_version_is_refused(name: str) -> None:
    """Both versions are named, and where the agent of the right one lies."""
    node, lane = made()
    node.put(f"{DIRECTORY}/{name}", b'{"wire": 99}')
    with pytest.raises(WireVersionError, match="speaks wire version 99, this program speaks") as e:
        run(lane)
    assert "/w/sweep" in str(e.value.hint)


@pytest.mark.parametrize("name", ["agent.json", "outcome.json"])
def test_a_damaged_file_is_an_error_of_the_node(name: str) -> None:
    """Not an exception of the JSON reader."""
    node, lane = made()
    node.put(f"{DIRECTORY}/{name}", b"\xff{")
    with pytest.raises(NodeError, match="a file in /w/sweep/L1/1 is damaged"):
        run(lane)


def test_an_agent_that_does_not_answer_is_shown_with_its_words() -> None:
    """What Python said, and what the agent needs."""
    node, lane = made()
    node.put("/w/sweep/agent.pyz", b"agent")
    node.programs["python2"] = lambda _argv, _timeout_s: Completed(1, b"", b"SyntaxError: x")
    with pytest.raises(NodeError, match=r"`run` failed: exit code 1: SyntaxError: x") as raised:
        run(lane, python="python2")
    assert "Python 3.9 or newer" in str(raised.value.hint)


def fetched(node: FakeNode, lane: Lane, target: Path, *, keep: bool = False) -> None:
    """Fetch the attempt's files."""
    lane.fetch(DIRECTORY, str(target), keep=keep)
    assert node.exists(DIRECTORY) is keep


def test_files_are_fetched_with_proof_and_deleted(tmp_path: Path) -> None:
    """Every file that the outcome names, then the directory goes, unless it is to be kept."""
    node, lane = made()
    run(lane)
    fetched(node, lane, tmp_path / "a", keep=True)
    fetched(node, lane, tmp_path / "b")
    names = {path.name for path in (tmp_path / "b").iterdir()}
    assert names == {"launch.json", "agent.json", "events.jsonl", "requests.jsonl", "outcome.json"}


def test_a_file_that_changed_is_not_taken_for_fetched(tmp_path: Path) -> None:
    """The hash decides, and the node keeps its files."""
    node, lane = made()
    run(lane)
    node.files[f"{DIRECTORY}/requests.jsonl"] += b"more\n"
    with pytest.raises(NodeError, match=r"requests\.jsonl does not have the hash"):
        lane.fetch(DIRECTORY, str(tmp_path), keep=False)
    assert node.exists(DIRECTORY)


@pytest.mark.parametrize("name", ["../escape", "/etc/passwd", "a/../../b"])
def test_a_name_outside_the_directory_is_refused(tmp_path: Path, name: str) -> None:
    """An outcome cannot make the controller write elsewhere."""
    node, lane = made()
    run(lane)
    path = f"{DIRECTORY}/outcome.json"
    outcome = wire.decode_outcome(node.files[path].decode())
    files = {name: wire.FileProof(1, "0")}
    node.put(path, wire.encode(replace(outcome, files=files)).encode())
    with pytest.raises(NodeError, match="outside its directory"):
        lane.fetch(DIRECTORY, str(tmp_path), keep=False)
    assert list(tmp_path.iterdir()) == []


def test_a_dead_agents_files_are_fetched_as_they_are(tmp_path: Path) -> None:
    """Without an outcome there is no proof: what is known is copied, and nothing is deleted."""
    node, lane = made(lambda doc: [*load(doc), Hold()])
    stream = lane.run(TASK)
    next(stream)
    node.kill_agents()
    list(stream)
    for rank in (0, 1):
        node.put(f"{DIRECTORY}/cycles.{rank}.jsonl", b"{}\n")
    lane.fetch(DIRECTORY, str(tmp_path), keep=False)
    assert {path.name for path in tmp_path.iterdir()} == {
        "launch.json",
        "agent.json",
        "events.jsonl",
        "cycles.0.jsonl",
        "cycles.1.jsonl",
    }
    assert node.exists(DIRECTORY)
