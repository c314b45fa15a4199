"""How source text becomes text, numbers, flags and durations."""

from __future__ import annotations

import pytest
from fakes.files import SMALL, load, only_problem

from sweep.spec.scalars import duration_s


@pytest.mark.parametrize(
    "written",
    [
        "no",
        "yes",
        "on",
        "True",
        "08",
        "012",
        "22:22",
        "1e-3",
        "1_000",
        "0x10",
        "2024-01-02",
        "1.10",
    ],
)
def test_environment_values_are_kept_as_written(written: str) -> None:
    """Nothing that YAML could take for another type changes."""
    experiment = load(SMALL, [f"engine.env.NAME={written}"])
    assert experiment.engine.env == {"NAME": written}


def test_unset_and_empty_are_different() -> None:
    """A tilde means unset; an empty text is a value."""
    text = SMALL.replace("model: m", 'env: {A: ~, B: "", C: "null", D: "~"}, model: m')
    assert load(text).engine.env == {"A": None, "B": "", "C": "null", "D": "~"}


@pytest.mark.parametrize("written", ["null", "NULL", ""])
def test_what_may_be_unset_or_a_word_is_refused(written: str) -> None:
    """`null` and nothing at all could mean two things."""
    problem = only_problem(SMALL.replace("model: m", f"env: {{A: {written}}}, model: m"))
    assert (problem.line, "~ for unset" in (problem.hint or "")) == (2, True)


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("8", 8),
        ("-1", -1),
        ("1e-3", 0.001),
        ("0.5", 0.5),
        (".5", 0.5),
        ("true", True),
        ("False", False),
        ("08", "08"),
        ("1_000", "1_000"),
        ("22:22", "22:22"),
        ("q8_0", "q8_0"),
        ('"on"', "on"),
        ('"8"', "8"),
        ('""', ""),
        ("1e999", "1e999"),
    ],
)
def test_arguments_are_numbers_flags_or_text(written: str, value: object) -> None:
    """Only what is clearly a number or a flag is one; the rest reaches the server as written."""
    given = load(SMALL, [f"engine.args.name={written}"]).engine.args["name"]
    assert (type(given), given) == (type(value), value)


@pytest.mark.parametrize(("written", "advice"), [("on", "true"), ("No", "false")])
def test_words_that_may_be_flags_are_refused(written: str, advice: str) -> None:
    """`flash-attn: on` is a word for llama.cpp and a flag for YAML 1.1."""
    problem = only_problem(SMALL, [f"engine.args.flash-attn={written}"])
    assert advice in (problem.hint or "")
    assert f'"{written}" in quotes' in (problem.hint or "")


def test_argument_names_have_one_spelling() -> None:
    """Underscores become dashes; dashes in front are refused with the name to write."""
    assert load(SMALL, ["engine.args.ctx_size=1"]).engine.args == {"ctx-size": 1}
    problem = only_problem(SMALL, ["engine.args.--tp-size=8"])
    assert (problem.hint or "").endswith("tp-size")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90.0), ("30m", 1800.0), ("2h", 7200.0), ("1h30m", 5400.0), ("0.5h", 1800.0)],
)
def test_durations(text: str, seconds: float) -> None:
    """Hours, minutes and seconds, in that order."""
    assert duration_s(text) == seconds
    assert load(SMALL, [f"timeouts.load={text}"]).timeouts.load_s == seconds


@pytest.mark.parametrize("text", ["900", "10x", "0s", "-5s", "1s1m", "1.2.3s", "22:22"])
def test_what_is_no_duration(text: str) -> None:
    """A bare number has no unit; nothing and less is no deadline."""
    assert "timeouts.load" in only_problem(SMALL, [f"timeouts.load={text}"]).message


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("workloads.0.max_tokens=08", "not a whole number"),
        ('workloads.0.max_tokens="8"', "in quotes is text"),
        ("workloads.0.max_tokens=1e3", "not a whole number"),
        ("workloads.0.max_tokens=0", "greater than or equal to 1"),
        ("workloads.0.temperature=warm", "not a number"),
        ("workloads.0.temperature=.inf", "not a number"),
        ("workloads.0.ignore_eos=yes", "neither true nor false"),
        ("baseline=~", "has no value"),
        ("name=a b", "cannot be a name"),
        ("name=../x", "cannot be a name"),
        ("engine.env.A-B=1", "environment variable"),
        ("engine.env.SWEEP_NONCE=1", "set by sweep itself"),
        ("engine.env.A=[1]", "one text"),
        ("engine.args.np=[1, 2]", "one value"),
        ("node.gpus=[0, x]", "index"),
        ("node.gpus=[0, 0]", "twice"),
    ],
)
def test_values_of_the_wrong_type_are_refused(override: str, words: str) -> None:
    """One problem, that names the override and what is wrong."""
    problem = only_problem(SMALL, [override])
    assert problem.message.startswith(f"--set {override}: ")
    assert words in problem.message


def test_a_float_is_a_float_where_one_is_asked() -> None:
    """`1e-3` is text to PyYAML and a number here."""
    text = SMALL.replace("name: code,", "name: code, temperature: 1e-3,")
    assert load(text).workloads[0].temperature == 0.001
