"""The probe in the real SGLang server on a CPU, put there by the agent."""

from __future__ import annotations

import gzip
import hashlib
import json
import subprocess
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from fakes import sglang_server
from fakes.launching import Bench, LaunchUnderTest

from sweep.agent import cycles, wire
from sweep.analysis.trace import bin_trace
from sweep.driver.documents import launch_document
from sweep.engines.sglang import SGLang
from sweep.model.experiment import Experiment, NodeSpec, Profile
from sweep.spec.plan import make_plan

pytestmark = [
    pytest.mark.sglang,
    pytest.mark.skipif(sglang_server.missing() is not None, reason=str(sglang_server.missing())),
]
ENGINE = SGLang()
OWNER = wire.Owner("tester", "here", "probe")
LAUNCH_S = 400.0


class Served:
    """A launch that ended: what the client saw, and what the probe wrote."""

    def __init__(self, launch: LaunchUnderTest, outcome: wire.Outcome) -> None:
        self.directory = launch.directory
        self.outcome = outcome
        self.log = (launch.directory / wire.LOG_FILE).read_text()
        lines = (launch.directory / wire.REQUESTS_FILE).read_text().splitlines()
        self.records = [wire.decode_request(line) for line in lines]
        self.all_events = launch.events
        self.events = launch.events("window")

    def cycles(self) -> cycles.CycleFile:
        """The only rank's file."""
        return cycles.decode((self.directory / cycles.file_name(0)).read_text())


def serve(experiment: Experiment, root: Path) -> Served:
    """Run the experiment's only launch by the agent, from its archive."""
    (planned,) = make_plan(experiment, ENGINE).launches
    doc = launch_document(
        planned, planned.trials, experiment=experiment, engine=ENGINE, node=NodeSpec(),
        sweep_id="probe", attempt=1, nonce="", owner=OWNER,
    )  # fmt: skip
    names = ("argv", "port_at", "env", "unset", "engine", "trials", "deadlines")
    bench = Bench(root)
    try:
        launch = bench.launch(**{name: getattr(doc, name) for name in names})
        return Served(launch, launch.outcome(LAUNCH_S))
    finally:
        bench.close()


def installed() -> dict[str, str]:
    """The sources of the installed SGLang, by hash."""
    show = "import importlib.util as u; print(u.find_spec('sglang').submodule_search_locations[0])"
    done = subprocess.run(
        [sglang_server.PYTHON, "-c", show], capture_output=True, text=True, check=True, timeout=60
    )
    return {
        str(path): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in Path(done.stdout.strip()).rglob("*.py")
    }


@pytest.fixture(scope="module")
def before() -> dict[str, str]:
    """The installation, before any launch."""
    return installed()


@pytest.fixture(scope="module")
def served(before: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Served:
    """A launch with the probe; the server is told to decode four steps between schedulings."""
    experiment = sglang_server.experiment(
        profile=Profile(every_cycles=50, trace=True), args={"num-continuous-decode-steps": 4}
    )
    return serve(experiment, tmp_path_factory.mktemp("with"))


def test_the_launch_goes_as_without_it(served: Served) -> None:
    """Every request is answered, and nothing is left."""
    assert (served.outcome.end, served.outcome.clean) == ("done", True)
    assert [record.error for record in served.records if record.error] == []
    assert "eagle3_probe: " not in served.log


def test_the_handshake_names_the_real_worker(served: Served) -> None:
    """All five hooks are found in 0.5.23."""
    armed = served.cycles().armed
    assert armed is not None
    assert (armed.worker, armed.engine_version, armed.clock) == ("EAGLEWorkerV2", "0.5.23", "wall")
    assert armed.hooks == ("cycle", "draft", "verify", "extend", "accepted")
    assert armed.missing == armed.patched == ()
    assert str(armed.module).endswith("sglang/srt/speculative/eagle_worker_v2.py")


def test_counts_are_those_of_the_answers(served: Served) -> None:
    """Cycles and accepted tokens of all requests, exactly: of the ready request, warm-ups and
    throw-aways too, one at a time and two at a time."""
    found = served.cycles()
    assert (found.errors, found.dropped, found.damaged) == ((), 0, 0)
    metas = [record.meta for record in served.records]
    assert total(found, "requests") == sum(meta["spec_verify_ct"] for meta in metas)
    assert total(found, "accepted") == sum(meta["spec_num_correct_drafts"] for meta in metas)
    assert found.columns["n"] == list(range(1, len(found.columns["n"]) + 1))
    assert set(found.columns["requests"]) == {1, 2}
    assert set(found.columns["steps"]) == {3}
    assert set(found.columns["draft_tokens"]) == {4}


def total(found: cycles.CycleFile, name: str) -> float:
    """The sum of a column in which every value is known."""
    values = found.columns[name]
    assert None not in values
    return sum(value for value in values if value is not None)


def test_the_parts_are_the_whole(served: Served) -> None:
    """Phases and rest add up to the distance of a cycle to the next; the host, which waits for a
    CPU's work, finds the same."""
    rows = whole_cycles(served.cycles())
    assert len(rows) > 100
    for row in rows:
        parts = [row[name] for name in ("draft_s", "verify_s", "extend_s", "other_s")]
        assert sum(parts) == pytest.approx(row["cycle_s"], abs=1e-6)
        assert min(parts) > 0
    # Single cycles are interrupted between the two clocks, where a machine is busy.
    assert median(abs(row["host_verify_s"] - row["verify_s"]) for row in rows) < 1e-3
    shares = [row["other_s"] / row["cycle_s"] for row in rows]
    assert median(shares) < 0.5


def whole_cycles(found: cycles.CycleFile) -> list[dict[str, Any]]:
    """The cycles whose length is known."""
    names = list(found.columns)
    rows = [dict(zip(names, row, strict=True)) for row in zip(*found.columns.values(), strict=True)]
    return [row for row in rows if row["cycle_s"] is not None]


def test_cycles_fill_the_time_that_the_client_waited(served: Served) -> None:
    """From the first to the last token of an answer alone, its cycles follow one another."""
    found = served.cycles()
    alone = [r for r in served.records if r.role == "measure" and r.trial == first_trial(served)]
    assert len(alone) == 6
    for record in alone:
        assert None not in (record.first_s, record.last_s)
        begin_s, end_s = record.sent_s, record.sent_s + (record.last_s or 0)
        rows = [row for row in whole_cycles(found) if begin_s <= row["start_s"] < end_s]
        assert len(rows) == record.meta["spec_verify_ct"] - 1  # the last one has no next
        spent_s = sum(row["cycle_s"] for row in rows)
        waited_s = (record.last_s or 0) - (record.first_s or 0)
        assert 0.7 * waited_s < spent_s < 1.1 * waited_s


def first_trial(served: Served) -> str:
    """The trial with one request at a time."""
    trial: str = served.events[0]["trial"]
    return trial


def test_the_summary_is_in_the_log(served: Served) -> None:
    """Every 50 cycles, in the shape that is known of old."""
    count = len(served.cycles().columns["n"])
    blocks = served.log.count("EAGLE3_PROF (50 cycles, ")
    assert blocks == count // 50 > 0
    for line in ("Draft steps:", "Target verify:", "Draft re-extend:", "Other overhead:", "TOTAL:"):
        assert served.log.count(f"  {line}") == blocks


def test_verification_was_traced(served: Served) -> None:
    """By the server's own profiler, when all was measured; the CPU's operators bin, matrix products
    more than attention, and nothing else was disturbed."""
    (event,) = served.all_events("trace")
    assert event["problem"] is None
    (name,) = event["files"]
    path = served.directory / wire.TRACES_DIR / event["trial"] / name
    with gzip.open(path, "rt") as stream:
        found = bin_trace(json.load(stream))
    assert (found.source, found.scope) == ("operators", "verify")
    assert found.steps is not None
    assert 8 <= found.steps <= 12
    assert found.seconds["communication"] == found.seconds["experts"] == 0.0
    assert found.share("dense") > found.share("attention") > 0.0
    assert sum(found.share(kind) for kind in found.seconds) == pytest.approx(1.0)
    traced = [record for record in served.records if record.role == "trace"]
    assert [(record.error, record.output_tokens) for record in traced] == [(None, 48)]
    ends = [item["t_s"] for item in served.all_events("trial_end")]
    assert len(ends) == 2
    assert max(ends) < event["t_s"]
    assert f"{wire.TRACES_DIR}/{event['trial']}/{name}" in served.outcome.files


def test_without_it_there_is_no_trace(
    served: Served, before: dict[str, str], tmp_path: Path
) -> None:
    """Another launch of the same installation, and the installation itself, are as they were."""
    plain = serve(sglang_server.experiment(max_tokens=16), tmp_path)
    assert plain.outcome.end == "done"
    assert list(plain.directory.glob("cycles.*")) == []
    assert not (plain.directory / wire.PROBE_DIR).exists()
    for trace in ("EAGLE3_PROF", "eagle3_probe"):
        assert trace not in plain.log
    assert installed() == before
