"""An engine in rehearsal: the real rules, the simulated server."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from typing import Any

import pytest

from sweep.agent.wire import RequestRecord
from sweep.engines.llama_cpp import LlamaCpp
from sweep.engines.rehearsed import Rehearsed
from sweep.engines.sglang import SGLang
from sweep.engines.simulator import Simulator
from sweep.model.experiment import Axes, EngineSpec, Experiment, Prompt, Workload
from sweep.model.plan import Configuration, PlannedTrial
from sweep.model.states import Failure
from sweep.ports import EngineFacts

REHEARSED = Rehearsed(LlamaCpp())
EXPERIMENT = Experiment(
    name="e",
    engine=EngineSpec(
        "simulator",
        "/m/target.gguf",
        command=("/opt/llama-server",),
        draft_model="/m/draft.gguf",
        algorithm="draft-simple",
        args={"ctx-size": 4096},
        env={"NCCL_PROTO": "LL"},
        rehearses="llama.cpp",
    ),
    workloads=(Workload("w", (Prompt("a", text="A"),)),),
    axes=Axes(num_steps=(4,)),
)
FOUR_STEPS = Configuration("draft-simple", num_steps=4)


def answered(meta: dict[str, Any]) -> RequestRecord:
    """A measured request whose answer carried `meta`."""
    fields: dict[str, Any] = dict.fromkeys(item.name for item in dataclasses.fields(RequestRecord))
    return RequestRecord(**(fields | {"role": "measure", "output_tokens": 20, "meta": meta}))


def words(configuration: Configuration) -> list[str]:
    """The command line of a configuration's server."""
    return list(REHEARSED.server(configuration, EXPERIMENT).argv)


def test_rules_files_and_version_are_the_real_engines() -> None:
    """What the real engine refuses is refused, and what it needs on the node is looked for."""
    real = LlamaCpp()
    assert REHEARSED.judge(FOUR_STEPS, EXPERIMENT, None) == real.judge(FOUR_STEPS, EXPERIMENT, None)
    impossible = replace(FOUR_STEPS, topk=2)
    assert real.judge(impossible, EXPERIMENT, None).reason
    assert REHEARSED.judge(impossible, EXPERIMENT, None) == real.judge(impossible, EXPERIMENT, None)
    assert REHEARSED.identity_paths(EXPERIMENT) == real.identity_paths(EXPERIMENT)
    assert REHEARSED.version_argv(EXPERIMENT) == ("/opt/llama-server", "--version")


def test_the_simulated_server_gets_the_real_arguments_and_environment() -> None:
    """Loads shortened, the steps as asked, the root counted among the draft tokens."""
    argv = words(FOUR_STEPS)
    assert argv[argv.index("--load-speedup") + 1] == "300"
    assert argv[argv.index("--ctx-size") + 1] == "4096"
    assert argv[argv.index("--speculative-num-steps") + 1] == "4"
    assert argv[argv.index("--speculative-num-draft-tokens") + 1] == "5"
    assert REHEARSED.server(FOUR_STEPS, EXPERIMENT).env == {"NCCL_PROTO": "LL"}


def test_a_baseline_is_rehearsed_without_speculation() -> None:
    """Nothing of speculation is on its command line."""
    assert not [word for word in words(Configuration(None)) if "speculative" in word]


@pytest.mark.parametrize(
    ("configuration", "steps", "topk", "tokens"),
    [
        (Configuration("NGRAM", num_draft_tokens=8), "7", "1", "8"),
        (Configuration("EAGLE3", 3, 2, 6), "3", "2", "6"),
        (Configuration("EAGLE3", 2, 2, 60), "2", "2", "7"),
        (Configuration("EAGLE3", 2, 4, None), "2", "4", "21"),
    ],
)
def test_what_the_simulator_cannot_do_is_replaced(
    configuration: Configuration, steps: str, topk: str, tokens: str
) -> None:
    """Other algorithms become EAGLE3; a tree is never larger than its candidates."""
    argv = words(configuration)
    assert argv[argv.index("--speculative-algorithm") + 1] == "EAGLE3"
    assert argv[argv.index("--speculative-num-steps") + 1] == steps
    assert argv[argv.index("--speculative-eagle-topk") + 1] == topk
    assert argv[argv.index("--speculative-num-draft-tokens") + 1] == tokens


def test_a_trial_is_judged_as_the_simulator_ran_it() -> None:
    """Four steps of llama.cpp are five tokens of the simulated server; other counts are told."""
    trial = PlannedTrial("t", "c", FOUR_STEPS, EXPERIMENT.workloads[0], 1)

    def judged(drafted: int) -> Failure | None:
        meta = {"spec_verify_ct": 10, "spec_num_proposed_drafts": drafted}
        return REHEARSED.classify_trial(trial, [answered(meta)])

    assert judged(40) is None
    failure = judged(30)
    assert failure is not None
    assert failure.failure_class == "bad_args"


def test_the_time_of_a_simulated_load_is_known() -> None:
    """A rehearsal's is 3 s, whatever the size of the real models; what those are stays known."""
    installed = REHEARSED.installation(EXPERIMENT)
    assert installed.load_s == 3.0
    assert installed.models == LlamaCpp().installation(EXPERIMENT).models


@pytest.mark.parametrize(
    ("args", "load_s"),
    [({}, 900.0), ({"load-speedup": 100}, 9.0), ({"calibration": "/c.json"}, None)],
)
def test_the_simulators_own_load_is_that_of_its_calibration(
    args: dict[str, Any], load_s: float | None
) -> None:
    """Divided by the speed-up; of a calibration on the node nothing is known here."""
    engine = EngineSpec("simulator", "m", args=args)
    assert Simulator().installation(replace(EXPERIMENT, engine=engine)).load_s == load_s


def test_a_scan_is_rehearsed_by_the_real_engines_rules() -> None:
    """On the simulated server, whose requests choose their steps alike; llama.cpp has none."""
    assert REHEARSED.scan is None
    rehearsed, real = Rehearsed(SGLang()).scan, SGLang().scan
    assert rehearsed is not None
    chain = Configuration("EAGLE3", 4, 1, 5)
    for version in ("sglang 0.5.11", "sglang 0.5.23"):
        known = EngineFacts(version)
        obstacle = rehearsed.obstacle(chain, EXPERIMENT, known)
        assert obstacle == real.obstacle(chain, EXPERIMENT, known)
    command = rehearsed.server([chain, replace(chain, num_steps=2)], EXPERIMENT)
    assert command.argv[command.argv.index("--load-speedup") + 1] == "300"
    assert '"candidate_steps": [2, 4]' in command.files[0].text
    request = REHEARSED.throwaway(EXPERIMENT.workloads[0])
    assert rehearsed.asking(request, 2) == real.asking(request, 2)
    assert rehearsed.in_force(2) == real.in_force(2)
