"""The engine `simulator`: SGLang's rules, command lines, counts and classes."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from fakes.records import request as record

from sweep.agent.wire import Outcome, Probe, RequestRecord
from sweep.engines.sglang.log import MILESTONES, SIGNS
from sweep.engines.sglang.speculation import largest_pool
from sweep.engines.simulator import Simulator
from sweep.model.experiment import (
    Axes,
    EngineSpec,
    Experiment,
    Profile,
    Prompt,
    Scalar,
    Variant,
    Workload,
)
from sweep.model.plan import Configuration, PlannedTrial
from sweep.simulator.faults import FAILURES

ENGINE = Simulator()
WORKLOAD = Workload("guide", (Prompt("1", text="a guide"),), max_tokens=8)
EXPERIMENT = Experiment(
    name="e",
    engine=EngineSpec(
        "simulator", "target", draft_model="draft", algorithm="EAGLE3",
        args={"tp-size": 8, "speculative-attention-mode": "decode"}, env={"A": "1"},
    ),
    workloads=(WORKLOAD,),
    axes=Axes(variants=(Variant("default"), Variant("ll", env={"NCCL_PROTO": "LL", "A": None}))),
)  # fmt: skip


def judged(steps: int | None, topk: int | None = 1, tokens: int | None = None) -> Any:
    """What the rules make of a configuration."""
    return ENGINE.judge(Configuration("EAGLE3", steps, topk, tokens), EXPERIMENT, None)


def test_a_chain_verifies_its_steps_and_the_root() -> None:
    """Draft tokens follow from the steps; another number is replaced, and the plan says so."""
    assert judged(5).configuration.num_draft_tokens == 6
    assert judged(5).note is None
    assert judged(5, 1, 9).configuration.num_draft_tokens == 6
    assert "num_steps + 1" in judged(5, 1, 9).note
    assert judged(5, None).configuration.topk == 1


@pytest.mark.parametrize(("steps", "topk", "pool"), [(1, 2, 3), (2, 2, 7), (3, 4, 37), (1, 1, 2)])
def test_a_tree_has_only_so_many_candidates(steps: int, topk: int, pool: int) -> None:
    """1 + topk + (steps - 1)·topk²; one more fails after the load, so it is never launched."""
    assert largest_pool(steps, topk) == pool
    if topk > 1:
        assert judged(steps, topk, pool).reason is None
        assert str(pool) in judged(steps, topk, pool + 1).reason
        assert judged(steps, topk).configuration.num_draft_tokens == pool
    assert judged(5, 8).configuration.num_draft_tokens == 64


def test_impossible_configurations_are_told_before_any_load() -> None:
    """No steps, zero steps, no branch, no draft model."""
    assert "num_steps" in judged(None).reason
    assert "baseline" in judged(0).reason
    assert "topk -1" in judged(2, -1).reason
    without = replace(EXPERIMENT, engine=replace(EXPERIMENT.engine, draft_model=None))
    assert "draft model" in str(ENGINE.judge(Configuration("EAGLE3", 2), without, None).reason)


def test_command_lines_differ_in_speculation_alone() -> None:
    """Within an arm, and a variant's environment is laid over the engine's."""
    baseline = ENGINE.server(Configuration(None), EXPERIMENT)
    drafting = ENGINE.server(judged(2).configuration, EXPERIMENT)
    assert baseline.argv[baseline.port_at - 1 :] == (
        "--port", "0", "--model-path", "target", "--enable-metrics",
        "--enable-cache-report", "--max-running-requests", "48", "--tp-size", "8",
    )  # fmt: skip
    shared = baseline.argv[:-2]
    assert drafting.argv == (
        *shared, "--speculative-attention-mode", "decode", "--tp-size", "8",
        "--speculative-algorithm", "EAGLE3", "--speculative-draft-model-path", "draft",
        "--speculative-num-steps", "2", "--speculative-eagle-topk", "1",
        "--speculative-num-draft-tokens", "3",
    )  # fmt: skip
    tuned = ENGINE.server(replace(judged(2).configuration, variant="ll"), EXPERIMENT)
    assert tuned.env == {"NCCL_PROTO": "LL"}
    assert tuned.unset == ("SGLANG_SIMULATE_ACC_LEN", "SIMULATE_ACC_LEN", "A")
    assert tuned.argv == drafting.argv


def test_the_probe_is_there_where_phases_are_asked_for() -> None:
    """It is part of every command, so that launches with it and without it are different ones."""
    asked = replace(EXPERIMENT, profile=Profile(every_cycles=50))
    for configuration in (Configuration(None), judged(2).configuration):
        with_probe, without = (ENGINE.server(configuration, e) for e in (asked, EXPERIMENT))
        timing = {"EAGLE3_PROFILE": "1", "SGLANG_ENABLE_METRICS_DEVICE_TIMER": "1"}
        assert with_probe == replace(without, env={**without.env, **timing})
    assert ENGINE.document(asked).probe == Probe(50, "SGLANG_PLUGINS")
    assert ENGINE.document(EXPERIMENT).probe is None


def test_what_sweep_sets_cannot_be_set() -> None:
    """Each with what to do instead; a calibration is the packaged one or a path on the node."""
    args: dict[str, Scalar] = {"port": 1, "speculative_num_steps": 3, "calibration": "mine.json"}
    engine = replace(EXPERIMENT.engine, args=args, command=("x",), algorithm="NGRAM")
    chat = replace(WORKLOAD, api="completions")
    found = ENGINE.problems(replace(EXPERIMENT, engine=engine, workloads=(chat,)))
    assert [problem.path[-1] for problem in found] == [
        "port", "speculative_num_steps", "calibration", "command", "algorithm", "api",
    ]  # fmt: skip
    assert all(problem.hint for problem in found)
    assert ENGINE.problems(EXPERIMENT) == ()


def test_calibration_files_are_part_of_the_identity() -> None:
    """The packaged one is part of the simulator's version."""
    for given, paths in (("reference", ()), ("/c.json", ("/c.json",))):
        engine = replace(EXPERIMENT.engine, args={"calibration": given})
        assert ENGINE.identity_paths(replace(EXPERIMENT, engine=engine)) == paths


def test_requests_by_native_call_and_by_chat() -> None:
    """Both stream and ask for the same tokens; only chat takes messages."""
    native = ENGINE.request(WORKLOAD, WORKLOAD.prompts[0])
    assert native.path == "/generate"
    assert native.body["sampling_params"]["max_new_tokens"] == 8
    chat = replace(WORKLOAD, api="chat")
    talk = Prompt("2", messages=(("system", "be short"), ("user", "hi")))
    asked = ENGINE.request(chat, talk)
    assert asked.path == "/v1/chat/completions"
    assert [message["role"] for message in asked.body["messages"]] == ["system", "user"]
    assert asked.body["max_tokens"] == 8
    (problem,) = ENGINE.problems(
        replace(EXPERIMENT, workloads=(replace(WORKLOAD, prompts=(talk,)),))
    )
    assert problem.message == "workload 'guide': messages cannot be sent by api: native"
    with pytest.raises(ValueError, match="messages"):
        ENGINE.request(WORKLOAD, talk)
    assert ENGINE.answer(WORKLOAD).text_cumulative
    assert not ENGINE.answer(chat).text_cumulative


def measured(cycles: int | None, drafted: int | None, accepted: int | None = 3) -> RequestRecord:
    """A record with these counts."""
    meta = {
        "spec_verify_ct": cycles,
        "spec_num_proposed_drafts": drafted,
        "spec_num_correct_drafts": accepted,
    }
    given = {name: value for name, value in meta.items() if value is not None}
    return record(1, "t", "1", 0.0, meta=given)


def test_counts_are_the_engines_own() -> None:
    """Exact, and null where it does not say."""
    counters = ENGINE.count(measured(4, 20, 5))
    assert (counters.cycles, counters.drafted_tokens, counters.accepted_tokens) == (4, 20, 5)
    assert not counters.cycles_estimated
    assert ENGINE.count(measured(None, None, None)).cycles is None


@pytest.mark.parametrize("name", ["spec_accept_histogram", "spec_correct_drafts_histogram"])
def test_cycles_are_counted_by_what_they_accepted(name: str) -> None:
    """In both of SGLang's spellings; null where it does not say."""
    counted = ENGINE.count(record(1, "t", "1", 0.0, meta={name: [3, 2, 0, 1]}))
    assert counted.cycles_by_accepted == (3, 2, 0, 1)
    assert ENGINE.count(measured(4, 20, 5)).cycles_by_accepted is None


def trial(configuration: Configuration) -> PlannedTrial:
    """A trial of a configuration."""
    return PlannedTrial("t", "c", configuration, WORKLOAD, 1)


def test_servers_that_do_something_else_than_asked_are_found() -> None:
    """No verification, other settings, and a baseline that speculates."""
    asked = trial(judged(5).configuration)
    assert ENGINE.classify_trial(asked, [measured(4, 20)]) is None
    silent = ENGINE.classify_trial(asked, [measured(None, None, None)])
    assert silent is not None
    assert silent.failure_class == "speculation_inactive"
    changed = ENGINE.classify_trial(asked, [measured(4, 12)])
    assert changed is not None
    assert "4 tokens a cycle, 6 were asked" in changed.message
    baseline = trial(Configuration(None))
    assert ENGINE.classify_trial(baseline, [measured(None, None, None)]) is None
    assert ENGINE.classify_trial(baseline, [measured(4, 20)]) is not None


def outcome(*patterns: str) -> Outcome:
    """A launch whose server ended while it loaded, with these signs in its log."""
    return Outcome(
        end="server_exit", phase="load", detail=None, server=None, patterns=list(patterns),
        log_tail=[], clean=True, left=[], phases_s={}, files={},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "failure_class"),
    [
        ("oom", "oom"),
        ("memory_fraction", "oom"),
        ("nccl", "nccl_hang"),
        ("graph_capture", "graph_capture"),
        ("port", "port_in_use"),
        ("bad_args", "bad_args"),
        ("missing_file", "missing_file"),
    ],
)
def test_each_way_to_go_down_has_its_class(name: str, failure_class: str) -> None:
    """By what SGLang writes; its launcher's exit code says nothing."""
    lines = FAILURES[name].lines
    seen = [sign.name for sign in SIGNS if any(re.search(sign.regex, line) for line in lines)]
    failure = ENGINE.classify_launch(outcome(*seen))
    assert failure is not None
    assert failure.failure_class == failure_class


def test_names_of_patterns_are_unique() -> None:
    """The agent tells milestones from reasons to fail by name."""
    names = [pattern.name for pattern in MILESTONES] + [sign.name for sign in SIGNS]
    assert len(set(names)) == len(names)
