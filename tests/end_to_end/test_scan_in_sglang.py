"""Several step counts in one real SGLang server on a CPU, chosen by the requests."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from fakes import sglang_server
from fakes.launching import Bench

from sweep.agent import cycles, wire
from sweep.driver.documents import launch_document
from sweep.engines.sglang import SGLang
from sweep.model.experiment import Axes, NodeSpec, Profile
from sweep.model.plan import PlannedTrial
from sweep.ports import EngineFacts
from sweep.spec.plan import KnownNode, make_plan

pytestmark = [
    pytest.mark.sglang,
    pytest.mark.skipif(sglang_server.missing() is not None, reason=str(sglang_server.missing())),
]
ENGINE = SGLang()
STEPS = (8, 1, 5, 2, 3)
"""Up and down; the server is started with 8."""
LAUNCH_S = 400.0


class Scanned:
    """One launch of all step counts that ended."""

    def __init__(self, directory: Path, trials: tuple[PlannedTrial, ...]) -> None:
        self.steps = {trial.trial_id: trial.configuration.num_steps or 0 for trial in trials}
        self.alone = {trial.trial_id for trial in trials if trial.concurrency == 1}
        self.log = (directory / wire.LOG_FILE).read_text()
        lines = (directory / wire.REQUESTS_FILE).read_text().splitlines()
        self.records = [wire.decode_request(line) for line in lines]
        self.cycles = cycles.decode((directory / cycles.file_name(0)).read_text())

    def measured(self, steps: int) -> list[wire.RequestRecord]:
        """The measured requests that asked for so many steps."""
        return [
            record
            for record in self.records
            if record.role == "measure" and self.steps[record.trial or ""] == steps
        ]


@pytest.fixture(scope="module")
def launched(tmp_path_factory: pytest.TempPathFactory) -> tuple[Scanned, list[dict[str, object]]]:
    """The launch, and its events."""
    experiment = sglang_server.experiment(
        profile=Profile(every_cycles=1000), axes=Axes(num_steps=STEPS, scan=True), max_tokens=16
    )
    known = {"local": KnownNode(engine=EngineFacts("sglang 0.5.23"))}
    (planned,) = make_plan(experiment, ENGINE, known).launches
    doc = launch_document(
        planned, planned.trials, experiment=experiment, engine=ENGINE, node=NodeSpec(),
        sweep_id="scan", attempt=1, nonce="", owner=wire.Owner("tester", "here", "scan"),
    )  # fmt: skip
    names = ("argv", "port_at", "env", "unset", "engine", "trials", "deadlines", "files")
    bench = Bench(tmp_path_factory.mktemp("scan"))
    try:
        launch = bench.launch(**{name: getattr(doc, name) for name in names})
        outcome = launch.outcome(LAUNCH_S)
        assert (outcome.end, outcome.clean) == ("done", True), outcome.log_tail
        return Scanned(launch.directory, planned.trials), launch.events()
    finally:
        bench.close()


@pytest.fixture(scope="module")
def scanned(launched: tuple[Scanned, list[dict[str, object]]]) -> Scanned:
    """The launch alone."""
    return launched[0]


def test_the_probe_can_pin(scanned: Scanned) -> None:
    """Its handshake says so, and nothing failed."""
    armed = scanned.cycles.armed
    assert armed is not None
    assert "pin" in armed.hooks
    assert (armed.missing, scanned.cycles.errors, scanned.cycles.dropped) == ((), (), 0)
    assert "eagle3_probe: " not in scanned.log


def test_the_server_says_what_is_in_force(
    launched: tuple[Scanned, list[dict[str, object]]],
) -> None:
    """Before and after each trial: its own steps, and one token more to verify."""
    scanned, events = launched
    said = [(event["trial"], event["values"]) for event in events if event["event"] == "in_force"]
    assert said == [
        (trial, [steps, steps + 1]) for trial, steps in scanned.steps.items() for _ in range(2)
    ]
    ends = {event["end"] for event in events if event["event"] == "trial_end"}
    assert ends == {"complete"}


def test_every_measured_cycle_ran_with_the_steps_asked_for(scanned: Scanned) -> None:
    """By the probe, which reads them of the worker at each cycle; as many as the answers count."""
    starts, steps = (scanned.cycles.columns[name] for name in ("start_s", "steps"))
    for asked in STEPS:
        spans = [(r.sent_s, r.sent_s + (r.end_s or 0)) for r in scanned.measured(asked)]
        ran = [
            step
            for start, step in zip(starts, steps, strict=True)
            if any(begin <= (start or 0) < end for begin, end in spans)
        ]
        assert set(ran) == {asked}
        assert len(ran) > 10


def test_the_log_tells_each_change_once(scanned: Scanned) -> None:
    """From one trial's steps to the next one's, and never in between."""
    changes = re.findall(r"Switch adaptive runtime state: steps (\d+) -> (\d+)", scanned.log)
    assert changes == [("8", "1"), ("1", "5"), ("5", "2"), ("2", "3")]


def test_answers_have_no_more_accepted_tokens_than_steps(scanned: Scanned) -> None:
    """And some cycle accepts all of a short draft; more steps never need more cycles by much."""
    cycles_of = {}
    for asked in STEPS:
        metas = [record.meta for record in scanned.measured(asked)]
        deepest = [len(meta["spec_correct_drafts_histogram"]) - 1 for meta in metas]
        assert max(deepest) <= asked
        cycles_of[asked] = sum(meta["spec_verify_ct"] for meta in metas)
        for meta in metas:
            assert sum(meta["spec_correct_drafts_histogram"]) == meta["spec_verify_ct"]
    assert cycles_of[1] > cycles_of[3] >= cycles_of[8]


def test_windows_of_one_step_count_are_alike(scanned: Scanned) -> None:
    """The cache is flushed between them: the same texts, cycle by cycle, one request at a time."""
    for asked in STEPS:
        windows = [
            {
                record.prompt: (record.text_sha256, record.meta["spec_correct_drafts_histogram"])
                for record in scanned.measured(asked)
                if record.window == window and record.trial in scanned.alone
            }
            for window in (0, 1)
        ]
        assert len(windows[0]) == 3
        assert windows[0] == windows[1]
