"""YAML as a tree: source text kept, places right, duplicates and bombs refused."""

from __future__ import annotations

import pytest

from sweep.spec import yaml_tree
from sweep.spec.yaml_tree import Mark, Plain, parse


@pytest.mark.parametrize(
    "written", ["no", "08", "22:22", "1_000", "0x10", "1e3", "2024-01-02", "~", "012", "True"]
)
def test_plain_scalars_keep_their_source_text(written: str) -> None:
    """What YAML 1.1 would turn into a number, a date or a boolean stays as written."""
    value = parse(f"key: {written}").value["key"]
    assert value == written
    assert isinstance(value, Plain)


def test_quoted_and_tagged_scalars_are_text() -> None:
    """Quotes and !!str say that no other type is meant."""
    value = parse("a: '5'\nb: !!str no\nc: |\n  x\n").value
    assert value == {"a": "5", "b": "no", "c": "x\n"}
    assert not any(isinstance(item, Plain) for item in value.values())


def test_places_count_from_one() -> None:
    """Values and keys know their line and column, inside lists and flow mappings too."""
    tree = parse("a:\n  - {b: 1, c: 2}\n")
    assert tree.mark(("a", 0, "c")) == Mark(2, 15)
    assert tree.mark(("a", 0, "c"), of_key=True) == Mark(2, 12)
    assert tree.mark(("a", 0, "nowhere")) == Mark(2, 5)


@pytest.mark.parametrize("second", ["num_steps", "num-steps"])
def test_a_key_given_twice_names_both_lines(second: str) -> None:
    """Both spellings are one key, at any depth; the first value is kept."""
    tree = parse(f"sweep:\n  num_steps: 1\n  {second}: 2\n")
    (problem,) = tree.problems
    assert (problem.line, problem.column) == (3, 3)
    assert "line 2" in problem.message
    assert tree.value == {"sweep": {"num_steps": "1"}}


def test_merge_keys_fill_in_what_is_not_there() -> None:
    """Own keys win over merged ones, earlier sources over later ones; places are the anchor's."""
    tree = parse("a: &a {x: 1, y: 1}\nb: &b {y: 2, z: 2}\nc:\n  <<: [*a, *b]\n  x: 3\n")
    assert tree.problems == []
    assert tree.value["c"] == {"x": "3", "y": "1", "z": "2"}
    assert tree.mark(("c", "z")) == Mark(2, 17)


def test_merging_respects_both_spellings() -> None:
    """A merged key that stands there in the other spelling is not added beside it."""
    tree = parse("a: &a {ctx_size: 1}\nb: {<<: *a, ctx-size: 2}\n")
    assert tree.value["b"] == {"ctx-size": "2"}


def test_an_alias_bomb_is_refused() -> None:
    """Nine lines that stand for a billion values end at the limit."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    tree = parse("\n".join(lines))
    assert tree.value is None
    assert str(yaml_tree.MAX_VALUES) in tree.problems[0].message


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a:\n\tb: 1\n", "\\t"),
        ("a: [1, 2\nb: 3\n", "not YAML"),
        ("a: &x [*x]\n", "inside itself"),
        ("a: &x {<<: *x}\n", "inside itself"),
        ("<<: 5\n", "takes a mapping"),
        ("[" * 100_000, "nested"),
        ("a: 1\n---\nb: 2\n", "single document"),
        ("a: *nowhere\n", "undefined alias"),
        ('a: "\\UFFFFFFFF"\n', "escape"),
        ("a: \x07\n", "U+0007"),
        ("? [a, b]\n: 1\n", "a key must be a word"),
        ("a: !!python/object:os.system {}\n", "tag"),
        ('a: "\\0"\n', "NUL"),
        ('a: "\\uD800"\n', "surrogate"),
        ("x: " + "y" * yaml_tree.MAX_BYTES, "larger than"),
    ],
)
def test_what_cannot_be_read_is_a_problem(text: str, words: str) -> None:
    """Everything that is no plain YAML is a problem with a place, never an exception."""
    problems = parse(text).problems
    assert words in problems[0].message
    assert problems[0].line is not None


def test_a_syntax_error_points_at_its_place() -> None:
    """Line and column are those of the character that YAML trips over."""
    problem = parse("a: 1\nb: {c: 1, d: [}\n").problems[0]
    assert (problem.line, problem.column) == (2, 15)


def test_a_forbidden_character_points_at_its_place() -> None:
    """Also for characters that the reader refuses before any parsing."""
    problem = parse("a: 1\nbc: x\x01\n").problems[0]
    assert (problem.line, problem.column) == (2, 6)
