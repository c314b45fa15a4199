"""Launches that want the same node or the same GPUs."""

from __future__ import annotations

from dataclasses import replace

from fakes.launching import Bench, document, trial

from sweep.agent.wire import Owner

IMPATIENT = replace(document(nonce="x").deadlines, claim_s=0.5)
PATIENT = replace(IMPATIENT, claim_s=30)
LONG = [trial(requests=200)]
GPUS = {
    "gpus": [
        {"index": number, "uuid": f"GPU-{number}", "name": "Fake", "memory.total": 81920,
         "memory.used": 3, "utilization.gpu": 0, "driver_version": "1.0"}
        for number in range(2)
    ]
}  # fmt: skip


def test_a_held_claim_refuses_and_names_the_owner(bench: Bench) -> None:
    """The second launch gives up after claim_s, and starts no server."""
    first = bench.launch("--rate", "10", trials=LONG)
    first.phase("load")
    outcome = bench.launch(deadlines=IMPATIENT).outcome()
    assert (outcome.end, outcome.phase, outcome.server) == ("claim_timeout", "claim", None)
    assert outcome.detail is not None
    assert "sweep test-sweep of tester on here" in outcome.detail
    claims = bench.inspect({})["claims"]
    assert [(claim["resource"], claim["alive"]) for claim in claims] == [("node", True)]
    assert claims[0]["holder"]["sweep"] == "test-sweep"
    first.stop()
    assert bench.inspect({})["claims"] == []
    assert bench.launch().outcome().end == "done"


def test_waiting_for_a_claim(bench: Bench) -> None:
    """It goes on when the owner is done, and says once who it waits for."""
    first = bench.launch("--rate", "10", trials=LONG)
    first.phase("load")
    patient = bench.launch(deadlines=PATIENT)
    assert "test-sweep" in patient.event("claim_wait")["owner"]
    first.stop()
    assert patient.outcome().end == "done"
    assert len(patient.events("claim_wait")) == 1


def test_a_dead_owner_whose_server_lives_still_holds(bench: Bench) -> None:
    """The message names the server and what to do; after the cleaning the node is free."""
    first = bench.launch("--rate", "10", trials=LONG)
    first.phase("measure")
    first.kill_agent()
    outcome = bench.launch(deadlines=IMPATIENT).outcome()
    assert outcome.end == "claim_timeout"
    assert outcome.detail is not None
    assert f"pid {first.event('server_started')['pid']}" in outcome.detail
    assert "`sweep clean test-sweep`" in outcome.detail
    first.stop()
    assert bench.launch().outcome().end == "done"


def test_the_sweep_of_a_dead_agent_goes_on_before_others(bench: Bench) -> None:
    """Whoever waits gets nothing between the cleaning and the sweep's next attempt."""
    first = bench.launch("--rate", "10", trials=LONG)
    first.phase("measure")
    theirs = Owner("bob", "pc", "their-sweep")
    waiting = bench.launch(deadlines=PATIENT, owner=theirs)
    waiting.event("claim_wait")
    first.kill_agent()
    assert first.stop() == {"was": "dead", "clean": True, "left": []}
    (kept,) = bench.inspect({})["claims"]
    assert "between two launches" in kept["reason"]
    second = bench.launch()
    assert second.outcome().end == "done"
    assert bench.verb("release", "test-sweep") == {"released": ["node"]}
    assert waiting.outcome().end == "done"
    owners = [event["owner"] for event in waiting.events("claim_wait")]
    assert all("sweep test-sweep of tester" in owner for owner in owners)


def test_stopping_a_launch_that_waits(bench: Bench) -> None:
    """It ends without having started anything."""
    first = bench.launch("--rate", "10", trials=LONG)
    first.phase("load")
    second = bench.launch(deadlines=PATIENT)
    second.event("claim_wait")
    assert second.stop()["clean"]
    outcome = second.outcome()
    assert (outcome.end, outcome.phase, outcome.server) == ("stopped", "claim", None)
    first.stop()


def test_different_gpus_of_one_node(bench: Bench) -> None:
    """Two launches run side by side on different GPUs, and exclude each other on the same."""
    bench.install_gpus(GPUS)
    first = bench.launch("--rate", "10", trials=LONG, gpus=[0])
    first.phase("measure")
    assert bench.launch(gpus=["GPU-1"]).outcome().end == "done"
    outcome = bench.launch(gpus=[1, 0], deadlines=IMPATIENT).outcome()
    assert outcome.end == "claim_timeout"
    assert outcome.detail is not None
    assert outcome.detail.startswith("GPU-0 is claimed by")
    first.stop()


def test_a_gpu_that_is_not_there(bench: Bench) -> None:
    """An unknown GPU is named, with those that there are."""
    bench.install_gpus(GPUS)
    outcome = bench.launch(gpus=[5]).outcome()
    assert (outcome.end, outcome.detail) == ("error", "no GPU 5 on this node; there are: 0, 1")


def test_someone_else_computes_on_our_gpus(bench: Bench) -> None:
    """The process is named with its user, and the launch waits for it to leave."""
    used = {**GPUS, "processes": [{"gpu_uuid": "GPU-1", "pid": 1}]}
    bench.install_gpus(used)
    outcome = bench.launch(gpus=[0, 1], deadlines=IMPATIENT).outcome()
    assert (outcome.end, outcome.phase) == ("claim_timeout", "clean")
    assert outcome.detail is not None
    assert "pid 1 (" in outcome.detail
    waiting = bench.launch(gpus=[0, 1], deadlines=PATIENT)
    assert waiting.event("busy")["processes"][0]["pid"] == 1
    bench.install_gpus(GPUS)
    assert waiting.outcome().end == "done"


def test_claims_that_cannot_be_taken(bench: Bench) -> None:
    """A directory of locks that is not there ends the launch before anything is started."""
    missing = str(bench.root / "none")
    bench.environment["SWEEP_CLAIM_DIR"] = missing
    assert bench.inspect({})["claim_error"].startswith(f"{missing}, where claims")
    outcome = bench.launch().outcome()
    assert (outcome.end, outcome.phase, outcome.server) == ("claim_failed", "claim", None)
    assert outcome.detail is not None
    assert f"{missing}, where claims are kept, is not a directory" in outcome.detail
