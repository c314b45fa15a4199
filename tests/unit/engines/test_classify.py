"""From facts to states, case by case."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from sweep.agent.wire import OUTCOME_ENDS, TRIAL_ENDS, Outcome, RequestRecord, ServerIdent
from sweep.engines.classify import LogSign, classify_outcome, judge_launch, judge_trial
from sweep.engines.llama_cpp import LlamaCpp
from sweep.model.experiment import Prompt, Repeats, Workload
from sweep.model.plan import Configuration, PlannedTrial
from sweep.model.states import Failure, LaunchState, TrialState

OOM = LogSign("memory", "out of memory", "oom", "no memory left")
FLAG = LogSign("flag", "bad flag", "bad_args", "a flag is wrong")
ENGINE = LlamaCpp()


def outcome(end: str = "done", phase: str = "measure", **fields: Any) -> Outcome:
    """An outcome without server, patterns or detail unless given."""
    values: dict[str, Any] = {
        "detail": None,
        "server": None,
        "patterns": [],
        "log_tail": [],
        "clean": True,
        "left": [],
        "phases_s": {},
        "files": {},
    } | fields
    return Outcome(end=end, phase=phase, **values)


def exited(returncode: int, phase: str = "load", **fields: Any) -> Outcome:
    """A server that ended with a return code."""
    return outcome("server_exit", phase, server=ServerIdent(1, 2, 3, returncode), **fields)


def trial(configuration: Configuration | None = None, least_windows: int = 2) -> PlannedTrial:
    """A trial of three draft steps unless given."""
    steps = Configuration("draft-simple", num_steps=3, topk=1, num_draft_tokens=4)
    workload = Workload("w", (Prompt("p", text="x"),), repeats=Repeats(min=least_windows, max=9))
    return PlannedTrial("t", "c", configuration or steps, workload, 1)


def record(n: int = 0, **fields: Any) -> RequestRecord:
    """A measured request that was answered with 20 tokens, 9 of 12 draft tokens accepted."""
    values: dict[str, Any] = {
        "status": 200,
        "error": None,
        "output_tokens": 20,
        "cached_tokens": 0,
        "meta": {"predicted_n": 20, "draft_n": 12, "draft_n_accepted": 9},
    } | fields
    return RequestRecord(
        n=n,
        trial="t",
        window=0,
        role="measure",
        prompt="p",
        stream=0,
        sent_s=0.0,
        first_s=0.1,
        last_s=0.2,
        end_s=0.2,
        chunks=20,
        first_chunk_tokens=1,
        input_tokens=5,
        text_sha256="0",
        **values,
    )


RECORDS = [record(n) for n in range(20)]


def end(how: str = "complete", windows: int = 2, detail: str | None = None) -> dict[str, Any]:
    """A trial_end event."""
    return {"event": "trial_end", "trial": "t", "end": how, "windows": windows, "detail": detail}


def judged(
    event: dict[str, Any] | None,
    records: Sequence[RequestRecord] = RECORDS,
    ended: Outcome | None = None,
    **fields: Any,
) -> tuple[TrialState, str | None]:
    """State and class of failure of a trial; the launch was done unless an outcome is given."""
    state, failure = judge_trial(
        ENGINE, trial(**fields), event, records, outcome() if ended is None else ended
    )
    return state, failure.failure_class if failure else None


def test_log_signs_win_in_their_order() -> None:
    """The first sign of the list that was seen names the failure, not the first in the log."""
    seen = exited(1, patterns=["flag", "memory"], detail="exit 1")
    assert classify_outcome(seen, (OOM, FLAG)) == Failure("oom", "no memory left (exit 1)")
    assert classify_outcome(seen, (FLAG,)) == Failure("bad_args", "a flag is wrong (exit 1)")


def test_a_sign_fails_a_launch_that_was_done() -> None:
    """A server that served in spite of what it logged has failed."""
    failure = classify_outcome(outcome(patterns=["flag"]), (FLAG,))
    assert failure is not None
    assert failure.failure_class == "bad_args"


def test_whoever_stopped_it_is_no_failure() -> None:
    """A launch that was stopped is not classified, whatever its log showed while it went down."""
    assert classify_outcome(outcome("stopped", patterns=["memory"]), (OOM,)) is None


@pytest.mark.parametrize(
    ("ended", "failure_class", "words"),
    [
        (exited(1), "unknown", "exit code 1 in phase load"),
        (exited(-9, "measure"), "server_died", "killed by signal 9 in phase measure"),
        (outcome("load_timeout", "load", detail="after 5 s: refused"), "load_timeout", "refused"),
        (outcome("not_ready", "ready"), "not_ready", "no token in time"),
        (outcome("stalled", "load"), "stalled", "no progress"),
        (outcome("stalled", "load", detail="gpu_busy"), "nccl_hang", "GPUs busy"),
        (outcome("claim_timeout", "claim", detail="held by eve"), "claim_timeout", "held by eve"),
        (
            outcome("claim_failed", "claim", detail="/x is no"),
            "claim_failed",
            "claim (/x is no)",
        ),
        (outcome("deadline"), "stalled", "deadline of the launch"),
        (outcome("start_failed", "start", detail="No such file"), "missing_file", "No such file"),
        (outcome("start_failed", "start", detail="Permission denied"), "bad_args", "Permission"),
        (outcome("error", "start", detail="OSError: x"), "unknown", "OSError: x"),
    ],
)
def test_classes_by_end(ended: Outcome, failure_class: str, words: str) -> None:
    """Without a sign in the log, the way a launch ended names its class."""
    state, failure = judge_launch(ENGINE, ended)
    assert state is LaunchState.FAILED
    assert failure is not None
    assert failure.failure_class == failure_class
    assert words in failure.message


def test_every_end_of_a_launch_has_a_state() -> None:
    """No end that the agent may write is left without a judgement."""
    states = {ended: judge_launch(ENGINE, outcome(ended))[0] for ended in OUTCOME_ENDS}
    assert states.pop("done") is LaunchState.DONE
    assert states.pop("stopped") is LaunchState.INTERRUPTED
    assert set(states.values()) == {LaunchState.FAILED}


def test_no_outcome_is_an_interrupted_launch() -> None:
    """An agent that died without an outcome is lost, and the launch may be tried again."""
    state, failure = judge_launch(ENGINE, None)
    assert state is LaunchState.INTERRUPTED
    assert failure is not None
    assert failure.failure_class == "agent_lost"


def test_ok_needs_every_condition() -> None:
    """Complete, enough windows, few errors, tokens, and speculation that drafted: ok."""
    assert judged(end()) == (TrialState.OK, None)
    assert judged(end(windows=1)) == (TrialState.PARTIAL, "unknown")
    assert judged(end(windows=0)) == (TrialState.FAILED, "unknown")


@pytest.mark.parametrize(
    ("failed", "state", "failure_class"),
    [(1, TrialState.OK, None), (2, TrialState.PARTIAL, "request_errors")],
)
def test_error_share(failed: int, state: TrialState, failure_class: str | None) -> None:
    """One failed request of 20 is within 5 %, two are not; whole windows are kept."""
    bad = [record(n, status=500, output_tokens=None, meta={}) for n in range(failed)]
    assert judged(end(), bad + RECORDS[failed:]) == (state, failure_class)


def test_nothing_usable_is_failed_not_partial() -> None:
    """A window in which every request failed is whole, but there is nothing in it."""
    bad = [record(n, error="timeout", status=None, output_tokens=None) for n in range(20)]
    assert judged(end("errors", windows=1), bad) == (TrialState.FAILED, "request_errors")


@pytest.mark.parametrize("tokens", [0, None])
def test_answers_without_tokens(tokens: int | None) -> None:
    """200 answers with no token, or with no count of them, are short_output."""
    empty = [record(n, output_tokens=tokens, meta={}) for n in range(20)]
    baseline = Configuration(None)
    found = judged(end(), empty, configuration=baseline)
    assert found == (TrialState.FAILED, "short_output")


@pytest.mark.parametrize(
    ("event", "ended", "state", "failure_class"),
    [
        (end("stalled", 0, "timeout: 3"), None, TrialState.FAILED, "stalled"),
        (end("stalled", 1), None, TrialState.PARTIAL, "stalled"),
        (end("stalled", 0, "gpu_busy"), None, TrialState.FAILED, "nccl_hang"),
        (end("errors", 0, "17 of 20"), None, TrialState.FAILED, "request_errors"),
        (end("not_pinned", 0, "steps is 8, not 3"), None, TrialState.FAILED, "not_pinned"),
        (end("deadline", 0, "request"), None, TrialState.FAILED, "request_timeout"),
        (end("deadline", 0), outcome("deadline"), TrialState.FAILED, "stalled"),
        (end("server_exit", 0), exited(-11, "measure"), TrialState.FAILED, "server_died"),
        (
            end("server_exit", 1),
            exited(1, "measure", patterns=["out_of_memory"]),
            TrialState.PARTIAL,
            "oom",
        ),
        (end("stopped", 1), outcome("stopped"), TrialState.INTERRUPTED, None),
    ],
)
def test_trials_that_ended_badly(
    event: dict[str, Any], ended: Outcome | None, state: TrialState, failure_class: str | None
) -> None:
    """How a trial ended names its class; with whole windows it is partial, stopped is neither."""
    assert judged(event, ended=ended) == (state, failure_class)


def test_every_end_of_a_trial_has_a_state() -> None:
    """No end that the agent may write is left without a judgement."""
    for how in TRIAL_ENDS:
        state, _ = judged(end(how, windows=0))
        assert state in (TrialState.FAILED, TrialState.INTERRUPTED)


def test_a_server_that_died_while_the_agent_died() -> None:
    """A trial that ended with its server is failed though the agent left no outcome."""
    state, failure = judge_trial(ENGINE, trial(), end("server_exit", 0), [], None)
    assert state is TrialState.FAILED
    assert failure is not None
    assert failure.failure_class == "server_died"


@pytest.mark.parametrize(
    ("ended", "state", "failure_class"),
    [
        (None, TrialState.INTERRUPTED, "agent_lost"),
        (outcome("stopped"), TrialState.INTERRUPTED, None),
        (exited(1, "load", patterns=["out_of_memory"]), TrialState.FAILED, "oom"),
        (outcome("claim_timeout", "claim"), TrialState.FAILED, "claim_timeout"),
        (exited(-6, "measure"), TrialState.NOT_RUN, None),
        (outcome("done"), TrialState.FAILED, "unknown"),
    ],
)
def test_trials_that_never_ended(
    ended: Outcome | None, state: TrialState, failure_class: str | None
) -> None:
    """A launch's failure before any trial is each trial's; one in an earlier trial is not."""
    found, failure = judge_trial(ENGINE, trial(), None, [], ended)
    assert (found, failure.failure_class if failure else None) == (state, failure_class)


def test_inactive_speculation_is_never_ok() -> None:
    """A speculating trial without a single draft token is failed, however whole its windows."""
    plain = [replace(item, meta={"predicted_n": 20}) for item in RECORDS]
    assert judged(end(), plain) == (TrialState.FAILED, "speculation_inactive")


def test_the_log_alone_proves_inactive_speculation() -> None:
    """When the log says that the draft was refused, no record can make the trial ok."""
    refused = outcome(patterns=["speculation_refused"])
    assert judged(end(), RECORDS, refused) == (TrialState.FAILED, "speculation_inactive")
    baseline = [replace(item, meta={"predicted_n": 20}) for item in RECORDS]
    found = judged(end(), baseline, refused, configuration=Configuration(None))
    assert found == (TrialState.OK, None)


@pytest.mark.parametrize("end", ["server_exit", "stalled", "deadline"])
def test_a_server_that_a_profiler_took_down_had_done_its_work(end: str) -> None:
    """Everything was measured; the agent's own trouble is a failure there too."""
    signs = {"patterns": [OOM.name]}
    assert classify_outcome(outcome(end, "trace", **signs), [OOM]) is None
    assert classify_outcome(outcome(end, "measure", **signs), [OOM]) is not None
    assert classify_outcome(outcome("error", "trace"), [OOM]) is not None
