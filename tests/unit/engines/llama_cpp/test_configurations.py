"""Flags, problems and rules of llama-server."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sweep.engines.llama_cpp import LlamaCpp, arguments
from sweep.model.errors import Problem
from sweep.model.experiment import (
    Axes,
    EngineSpec,
    Experiment,
    Profile,
    Prompt,
    Variant,
    Workload,
)
from sweep.model.plan import Configuration

ENGINE = LlamaCpp()
PROMPTS = (Prompt("p", text="x"),)
DEFAULT = Variant("default")


def experiment(
    *, engine: dict[str, Any] | None = None, concurrency: tuple[int, ...] = (1, 4), **axes: Any
) -> Experiment:
    """An experiment with a draft model."""
    fields: dict[str, Any] = {
        "kind": "llama.cpp",
        "model": "/m/target.gguf",
        "draft_model": "/m/draft.gguf",
        "algorithm": "draft-simple",
        "args": {"threads": 1},
    } | (engine or {})
    return Experiment(
        name="e",
        engine=EngineSpec(**fields),
        workloads=(Workload("w", PROMPTS, max_tokens=100, concurrency=concurrency),),
        axes=Axes(**({"num_steps": (1, 3)} | axes)),
    )


def steps(number: int | None = 3, **fields: Any) -> Configuration:
    """A configuration with the experiment's algorithm."""
    values: dict[str, Any] = {"algorithm": "draft-simple", "topk": 1} | fields
    return Configuration(num_steps=number, **values)


def argv(configuration: Configuration, subject: Experiment) -> tuple[str, ...]:
    """The argv of a configuration after judgement."""
    return ENGINE.server(ENGINE.judge(configuration, subject, None).configuration, subject).argv


BASELINE_ARGV = (
    "llama-server",
    *("--model", "/m/target.gguf", "--host", "127.0.0.1", "--port", "0"),
    *("--parallel", "4", "--threads", "1", "--metrics", "--slots"),
)


def test_baseline_command() -> None:
    """A baseline carries no speculative flag and no draft model, and a slot per request."""
    command = ENGINE.server(Configuration(None), experiment())
    assert command.argv == BASELINE_ARGV
    assert command.argv[command.port_at - 1 : command.port_at + 1] == ("--port", "0")


def test_speculation_only_adds_flags() -> None:
    """An arm's configurations differ from its baseline by speculation alone."""
    speculation = ("--spec-type", "draft-simple", "--spec-draft-model", "/m/draft.gguf")
    assert argv(steps(3), experiment()) == (
        *BASELINE_ARGV,
        *speculation,
        *("--spec-draft-n-max", "3"),
    )


def test_speculative_arguments_stay_out_of_the_baseline() -> None:
    """An argument that matters to speculation alone is given to speculation alone."""
    subject = experiment(engine={"args": {"spec-draft-p-min": 0.5, "threads-draft": 2}})
    assert "0.5" not in argv(Configuration(None), subject)
    assert "2" not in argv(Configuration(None), subject)
    assert "--spec-draft-p-min" in argv(steps(), subject)
    assert "--threads-draft" in argv(steps(), subject)


def test_swept_speculative_arguments_share_a_baseline() -> None:
    """The baseline of a swept speculative argument is one and the same for all its values."""
    swept = Configuration(None, args={"spec-draft-p-min": 0.5, "threads": 2})
    judged = ENGINE.judge(swept, experiment(), None)
    assert judged.configuration == Configuration(None, args={"threads": 2})


@pytest.mark.parametrize(
    ("args", "flags"),
    [
        ({"no-warmup": True}, ("--no-warmup",)),
        ({"no-warmup": False}, ()),
        ({"c": 4096}, ("--ctx-size", "4096")),
        ({"x": 1}, ("-x", "1")),
        ({"cache_type_k": "q8_0"}, ("--cache-type-k", "q8_0")),
    ],
)
def test_arguments_become_flags(args: dict[str, Any], flags: tuple[str, ...]) -> None:
    """True is a bare flag, False none; short names are spelt out where they are known."""
    found = argv(Configuration(None), experiment(engine={"args": {"parallel": 4, **args}}))
    others = ("--parallel", "4", "--metrics", "--slots")
    assert tuple(part for part in found[7:] if part in flags) == flags
    assert tuple(part for part in found[7:] if part not in flags) == others


def test_layers_of_arguments() -> None:
    """The variant's arguments lie over the engine's, the swept ones over both."""
    variant = Variant("v", args={"threads": 2, "poll": 0}, env={"B": "2", "C": None})
    subject = experiment(
        engine={"args": {"t": 1, "poll": 50}, "env": {"A": "1", "B": "1", "C": "1"}},
        variants=(DEFAULT, variant),
    )
    configuration = Configuration(None, variant="v", args={"threads": 3})
    command = ENGINE.server(configuration, subject)
    assert command.argv[7:-2] == ("--parallel", "4", "--poll", "0", "--threads", "3")
    assert command.env == {"A": "1", "B": "2"}
    assert command.unset == ("C",)


def test_the_order_in_the_file_does_not_count() -> None:
    """The same arguments in another order, or under other names, start the same server."""
    one, other = ({"threads": 1, "c": 64}, {"ctx_size": 64, "t": 1})
    commands = [argv(steps(), experiment(engine={"args": args})) for args in (one, other)]
    assert commands[0] == commands[1]


def test_a_variant_brings_its_own_draft() -> None:
    """A variant's draft model replaces the engine's, and counts for the identity."""
    subject = experiment(variants=(DEFAULT, Variant("big", draft_model="/m/big.gguf")))
    assert "/m/big.gguf" in argv(steps(variant="big"), subject)
    assert "/m/draft.gguf" in argv(steps(), subject)
    assert ENGINE.identity_paths(subject) == ("/m/target.gguf", "/m/draft.gguf", "/m/big.gguf")


def test_command_of_the_file() -> None:
    """engine.command replaces llama-server, and its paths count for the identity."""
    subject = experiment(engine={"command": ("/v/bin/python", "/s/server.py")})
    command = ENGINE.server(Configuration(None), subject)
    assert command.argv[:3] == ("/v/bin/python", "/s/server.py", "--model")
    assert command.argv[command.port_at - 1] == "--port"
    assert ENGINE.identity_paths(subject)[2:] == ("/v/bin/python", "/s/server.py")


@pytest.mark.parametrize(
    ("algorithm", "flag"),
    [
        ("draft-eagle3", "--spec-draft-n-max"),
        ("draft-mtp", "--spec-draft-n-max"),
        ("ngram-mod", "--spec-ngram-mod-n-max"),
        ("ngram-simple", "--spec-ngram-simple-size-m"),
        ("ngram-map-k", "--spec-ngram-map-k-size-m"),
        ("ngram-map-k4v", "--spec-ngram-map-k4v-size-m"),
    ],
)
def test_the_flag_of_the_draft_length(algorithm: str, flag: str) -> None:
    """Each algorithm has its own flag for the draft length; n-grams take no draft model."""
    found = argv(steps(5, algorithm=algorithm), experiment(engine={"algorithm": algorithm}))
    assert found[found.index(flag) + 1] == "5"
    assert ("--spec-draft-model" in found) == algorithm.startswith("draft-")


def test_a_draft_model_means_draft_simple() -> None:
    """Steps without an algorithm are drafted by the draft model."""
    judged = ENGINE.judge(steps(2, algorithm=None), experiment(engine={"algorithm": None}), None)
    assert judged.reason is None
    assert judged.configuration.algorithm == "draft-simple"


def test_a_chain_verifies_one_more_than_its_steps() -> None:
    """The judged configuration counts the root, as the glossary does."""
    configuration = ENGINE.judge(steps(3, topk=None), experiment(), None).configuration
    assert (configuration.topk, configuration.num_draft_tokens) == (1, 4)
    assert ENGINE.judge(steps(3, num_draft_tokens=4), experiment(), None).reason is None


@pytest.mark.parametrize(
    ("configuration", "words"),
    [
        (steps(3, topk=2), "drafts a chain"),
        (steps(3, num_draft_tokens=8), "verifies 4 tokens"),
        (steps(None), "must be given"),
        (steps(0), "at least 1 token"),
        (steps(3, algorithm="EAGLE"), "no algorithm 'EAGLE'"),
    ],
)
def test_impossible_configurations(configuration: Configuration, words: str) -> None:
    """What the server cannot run is not launched, and the reason says why."""
    reason = ENGINE.judge(configuration, experiment(), None).reason
    assert reason is not None
    assert words in reason


def test_a_draft_algorithm_needs_a_draft() -> None:
    """draft-simple without a draft model would serve without speculation."""
    reason = ENGINE.judge(steps(), experiment(engine={"draft_model": None}), None).reason
    assert reason == "draft-simple needs a draft model: engine.draft_model is not given"


def test_ngram_drafting_says_what_it_learns() -> None:
    """Repeats of a prompt get faster under n-gram drafting, which the plan must say."""
    judged = ENGINE.judge(steps(algorithm="ngram-mod"), experiment(), None)
    assert judged.note is not None
    assert "repeats of a prompt get faster" in judged.note


def problems(**fields: Any) -> list[str]:
    """Messages and hints of an experiment's problems."""
    found = ENGINE.problems(experiment(**fields))
    return [f"{problem.message} | {problem.hint}" for problem in found]


def test_messages_go_by_chat_only() -> None:
    """The server's own API takes plain text."""
    chat = Prompt("1", messages=(("user", "x"),))
    native = Workload("talk", (chat,), max_tokens=8)
    (problem,) = ENGINE.problems(replace(experiment(), workloads=(native,)))
    assert problem.message == "workload 'talk': messages cannot be sent by api: native"
    by_chat = (replace(native, api="chat"),)
    assert ENGINE.problems(replace(experiment(), workloads=by_chat)) == ()


def test_a_good_experiment_has_no_problems() -> None:
    """Nothing is said of an experiment that can run."""
    assert problems(engine={"args": {"threads": 1, "ctx-size": 2048, "parallel": 8}}) == []


def test_there_is_no_probe_for_it() -> None:
    """Phases that nothing measures are refused, not left out."""
    (problem,) = ENGINE.problems(replace(experiment(), profile=Profile()))
    assert "profile has no meaning for llama.cpp" in problem.message
    assert problem.path == ("profile",)


@pytest.mark.parametrize("name", ["draft-max", "draft_min", "draft"])
def test_removed_flags_are_refused_by_name(name: str) -> None:
    """Flags that llama-server removed are refused before a launch, with what to use."""
    (problem,) = problems(engine={"args": {name: 4}})
    assert f"--{name.replace('_', '-')} cannot be set" in problem
    assert "llama-server removed it" in problem


@pytest.mark.parametrize(
    ("where", "fields"),
    [
        ("engine.args", {"engine": {"args": {"np": 1, "m": "/x"}}}),
        ("variant 'v'", {"variants": (DEFAULT, Variant("v", args={"model": "/x"}))}),
        ("sweep.args", {"args": {"model": ("/x", "/y")}}),
    ],
)
def test_reserved_flags_are_found_everywhere(where: str, fields: dict[str, Any]) -> None:
    """What sweep sets itself cannot be set in the engine, a variant or an axis."""
    assert f"{where}: llama.cpp's --model cannot be set here | use engine.model" in problems(
        **fields
    )


def test_one_flag_under_two_names() -> None:
    """A flag given by its short and its long name is a mistake."""
    (problem,) = problems(engine={"args": {"c": 1024, "ctx-size": 2048}})
    assert "c and ctx-size are the same flag --ctx-size" in problem


def test_fewer_slots_than_requests() -> None:
    """Fewer slots than the largest concurrency would measure a queue."""
    (problem,) = problems(engine={"args": {"parallel": 2}})
    assert "parallel 2 is less than the largest concurrency, 4" in problem


def test_a_slot_must_hold_an_answer() -> None:
    """ctx-size is shared by the slots: 400 tokens are 100 for each of 4."""
    (problem,) = problems(engine={"args": {"ctx-size": 400}})
    assert "100 tokens each: too few for max_tokens 100" in problem
    assert problems(engine={"args": {"ctx-size": 400}}, concurrency=(1,)) == []
    assert problems(engine={"args": {"ctx-size": 400, "kv-unified": True}}) == []
    assert problems(engine={"args": {"ctx-size": 0}}) == []


@pytest.mark.parametrize(
    ("algorithm", "words"),
    [
        ("ngram-cache", "cannot be set"),
        ("draft-dflash", "never tried"),
        ("none", "baseline: true"),
        ("EAGLE3", "none of llama.cpp's | one of draft-simple"),
    ],
)
def test_algorithms_are_refused_by_name(algorithm: str, words: str) -> None:
    """Unknown algorithms, and those whose length cannot be set, are refused with the reason."""
    (problem,) = problems(engine={"algorithm": algorithm})
    assert words in problem


def test_answers_must_hold_a_draft() -> None:
    """Of 2 tokens none is ever drafted, of 3 one may be; a baseline alone may be that short."""

    def found(max_tokens: int, **fields: Any) -> list[Problem]:
        short = Workload("s", PROMPTS, max_tokens=max_tokens)
        subject = experiment(**fields)
        return list(ENGINE.problems(replace(subject, workloads=(*subject.workloads, short))))

    (problem,) = found(2)
    assert problem.path == ("workloads", 1, "max_tokens")
    assert "fewer than 3 tokens" in problem.message
    assert found(3) == []
    assert found(1, engine={"algorithm": None, "draft_model": None}, num_steps=()) == []


def test_nothing_to_draft_with() -> None:
    """Steps without algorithm and draft model are a mistake."""
    (problem,) = problems(engine={"algorithm": None, "draft_model": None})
    assert "nothing to draft with" in problem


def test_python_means_nothing_here() -> None:
    """engine.python would be ignored, so it is refused."""
    (problem,) = problems(engine={"python": "/usr/bin/python3"})
    assert "use engine.command" in problem


def test_no_reserved_flag_is_ever_an_alias() -> None:
    """Short names lead to long names, so that reserved flags cannot be reached by them."""
    assert arguments.full_name("md") in arguments.RESERVED
    assert arguments.full_name("m") in arguments.RESERVED
