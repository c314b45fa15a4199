"""What a rehearsal keeps of an experiment, and what it shortens."""

from __future__ import annotations

from dataclasses import replace

from fakes.sweeps import small_experiment

from sweep.model.experiment import NodeSpec, Prompt, Repeats, Timeouts, Workload
from sweep.spec.rehearsal import rehearsal

LONG = Workload(
    "long",
    tuple(Prompt(str(number), text="P") for number in range(20)),
    max_tokens=1000,
    concurrency=(1, 8),
    repeats=Repeats(4, 12, 0.02),
)


def test_all_that_is_swept_and_where_is_kept() -> None:
    """Nodes, axes, arguments and deadlines are those of the file."""
    nodes, timeouts = (NodeSpec("gpu-a", gpus=(0, 1)),), Timeouts(load_s=1800)
    experiment = small_experiment([1, 2, 3], nodes=nodes, timeouts=timeouts)
    rehearsed = rehearsal(experiment)
    assert rehearsed.nodes == nodes
    assert rehearsed.timeouts == timeouts
    assert rehearsed.axes == experiment.axes
    assert rehearsed.engine.args == experiment.engine.args
    assert [item.name for item in rehearsed.workloads] == ["code", "story"]


def test_the_simulator_stands_in_for_the_engine() -> None:
    """It keeps in mind which, and the sweep's own name keeps it apart from the real one."""
    rehearsed = rehearsal(small_experiment())
    assert (rehearsed.engine.kind, rehearsed.engine.rehearses) == ("simulator", "llama.cpp")
    assert rehearsed.name == "small-rehearsal"


def test_answers_and_repeats_are_shortened() -> None:
    """Every concurrency is tried, with two windows, 150 tokens and two prompts, or as many as
    there are streams."""
    single = replace(LONG, name="single", concurrency=(1,))
    workload, other = rehearsal(small_experiment(workloads=(LONG, single))).workloads
    assert workload.concurrency == (1, 8)
    assert len(workload.prompts) == 8
    assert len(other.prompts) == 2
    assert (workload.max_tokens, workload.ignore_eos) == (150, True)
    assert workload.repeats == Repeats(2, 2, 0.02)


def test_an_api_that_is_not_simulated_becomes_one_that_is() -> None:
    """Chats stay chats; texts go to the native API."""
    chat = replace(LONG, name="chat", prompts=(Prompt("a", messages=(("user", "Hi"),)),))
    texts = replace(LONG, name="texts", api="completions")
    workloads = rehearsal(small_experiment(workloads=(chat, texts))).workloads
    assert [workload.api for workload in workloads] == ["chat", "native"]
