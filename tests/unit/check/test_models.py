"""Models on a node, and drafters for them."""

from __future__ import annotations

from typing import Any

import pytest
from fakes.facts import facts, model

from sweep.check import models
from sweep.check.line import CheckLine, Level
from sweep.ports import Installation

HEAD = {
    "architecture": "LlamaForCausalLMEagle3",
    "hidden_size": 64,
    "vocab_size": 1000,
    "draft_vocab_size": 500,
    "layers": [1, 3, 6],
}
DRAFT_MODEL = {"architecture": "LlamaForCausalLM", "hidden_size": 16, "vocab_size": 1000}


def target(**changes: Any) -> CheckLine:
    """The line about a target with these differences."""
    installation = Installation(("org/m",), True)
    (line,) = models.lines(facts(models={"org/m": model(**changes)}), installation, {})
    return line


def pair(config: dict[str, Any], algorithm: str | None = None) -> list[CheckLine]:
    """The lines that compare a drafter of this config with the target."""
    found = {"m": model(), "d": model(config=config)}
    lines = models.lines(facts(models=found), Installation(("m", "d")), {"d": algorithm})
    return list(lines)[2:]


def test_a_whole_model() -> None:
    """Size, files, kind, and the revision of one in the hub's cache."""
    line = target()
    assert (line.level, line.subject) == (Level.OK, "model")
    assert line.finding == "org/m: 595 GB, 64 files, llama"
    cached = target(kind="hub", revision="0123456789abcdef", weights=1, config={})
    assert cached.finding == "org/m: 595 GB, 1 file, revision 0123456789ab"


def test_a_model_that_is_not_there() -> None:
    """A path is wrong; a name may be downloaded, unless that is forbidden."""
    missing = target(kind="missing", path=None)
    assert (missing.level, missing.finding) == (Level.ERROR, "org/m does not exist")
    absent = target(kind="hub", path=None, offline=False)
    assert absent.level is Level.WARNING
    assert absent.remedy == "on the node: hf download org/m"
    forbidden = target(kind="hub", path=None, offline=True)
    assert forbidden.level is Level.ERROR
    assert "HF_HUB_OFFLINE forbids" in forbidden.finding


def test_shards_that_are_missing_or_cut() -> None:
    """The first of them by name, and what to do by where the model comes from."""
    problems = [f"model-{n:05d} is missing" for n in range(7)]
    line = target(problems=problems)
    assert line.level is Level.ERROR
    assert line.finding.endswith("model-00004 is missing and 2 more")
    assert line.remedy == "copy or download these files again"
    cached = target(kind="hub", problems=problems[:1], partial_files=2)
    assert cached.finding == "org/m: model-00000 is missing; 2 downloads did not end"
    assert cached.remedy == "complete it on the node: hf download org/m"


def test_files_that_were_not_looked_into() -> None:
    """Not known to be whole."""
    assert target(unread=3).level is Level.WARNING


def test_models_that_could_not_be_asked_for() -> None:
    """Another line says why."""
    assert list(models.lines(facts(models=None), Installation(("m",)), {})) == []


def test_an_engine_without_model_files() -> None:
    """The simulated server has none."""
    assert list(models.lines(facts(), Installation(), {})) == []


def test_a_head_that_fits() -> None:
    """Vocabulary, hidden size, and the layers that it reads."""
    (line,) = pair(HEAD)
    assert line.level is Level.OK
    assert line.finding == "d: fits, 1000 tokens, hidden size 64, layers 1, 3, 6 of 8"
    (line,) = pair({**HEAD, "layers": None})
    assert line.finding.endswith("no list of layers: the engine's default is read")
    (line,) = pair({**HEAD, "hidden_size": 32, "target_hidden_size": 64})
    assert line.level is Level.OK


@pytest.mark.parametrize(
    ("change", "level", "finding"),
    [
        ({"hidden_size": 32}, Level.ERROR, "it reads hidden states of size 32, the target's have"),
        ({"target_hidden_size": 96}, Level.ERROR, "hidden states of size 96"),
        ({"vocab_size": 1001}, Level.ERROR, "its vocabulary has 1001 tokens, the target's 1000"),
        ({"layers": [1, 3, 8]}, Level.ERROR, "it reads layers 1, 3, 8, the target's are 0 to 7"),
        ({"layers": [-1, 3, 6]}, Level.ERROR, "it reads layers -1, 3, 6"),
        ({"layers": ["a"]}, Level.ERROR, "it reads layers a"),
        ({"layers": [1, 3], "inputs": 192}, Level.ERROR, "hidden states of 3"),
        ({"layers": [1, 3, 3], "inputs": 192}, Level.ERROR, "layers 1, 3, 3, each once, but"),
        ({"layers": [1, 3, 7]}, Level.WARNING, "nothing of the last, 7"),
        ({"layers": [1, 3, 3]}, Level.WARNING, "layers 1, 3, 3, one of them twice"),
        ({"hidden_size": None}, Level.WARNING, "hidden sizes: not compared"),
        ({"vocab_size": None}, Level.WARNING, "vocabularies: not compared"),
    ],
)
def test_a_head_for_another_target(change: dict[str, Any], level: Level, finding: str) -> None:
    """Each would cost a load, or acceptance in silence."""
    (line,) = pair({**HEAD, **change})
    assert line.level is level
    assert finding in line.finding


def test_of_a_llama_nothing_follows_the_last_layer() -> None:
    """Tried with the real server; the layer before it is the last that can be read."""
    target = model()
    llama = {**target, "config": {**target["config"], "architecture": "LlamaForCausalLM"}}
    for layers, level in (([1, 3, 7], Level.ERROR), ([1, 3, 6], Level.OK)):
        found = {"m": llama, "d": model(config={**HEAD, "layers": layers})}
        lines = list(models.lines(facts(models=found), Installation(("m", "d")), {}))
        assert lines[-1].level is level


def test_as_many_layers_as_the_weights_take() -> None:
    """The list and the weights agree."""
    (line,) = pair({**HEAD, "inputs": 192})
    assert line.level is Level.OK


def test_a_model_of_its_own_is_no_eagle3_head() -> None:
    """Its class cannot be read as one; whose class is that of a head may be called anything."""
    (line,) = pair({**HEAD, "architecture": "LlamaForCausalLM"}, "EAGLE3")
    assert line.level is Level.ERROR
    assert "names LlamaForCausalLM, a model of its own and no head" in line.finding
    for architecture in ("Eagle3DeepseekV2ForCausalLM", "LlamaForCausalLMEagle3", None):
        (line,) = pair({**HEAD, "architecture": architecture}, "EAGLE3")
        assert line.level is Level.OK


def test_all_that_does_not_fit_is_told_at_once() -> None:
    """Three lines for three faults."""
    assert len(pair({**HEAD, "vocab_size": 1, "hidden_size": 1, "layers": [9]})) == 3


def test_a_draft_model_has_a_size_of_its_own() -> None:
    """Its vocabulary is what must fit; llama.cpp lets it differ by 128 tokens."""
    (line,) = pair(DRAFT_MODEL)
    assert (line.level, line.finding) == (Level.OK, "d: fits, 1000 tokens")
    (line,) = pair({**DRAFT_MODEL, "vocab_size": 1128})
    assert line.level is Level.WARNING
    (line,) = pair({**DRAFT_MODEL, "vocab_size": 1129})
    assert line.level is Level.ERROR


def test_the_algorithm_makes_a_head_of_a_plain_config() -> None:
    """Older heads do not say in their config that they are one."""
    (line,) = pair(DRAFT_MODEL, "EAGLE")
    assert line.level is Level.ERROR
    assert "hidden states" in line.finding


def test_a_drafter_without_a_config_is_not_compared() -> None:
    """What is wrong with it stands in its own line."""
    assert pair({}) == []
