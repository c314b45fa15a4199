"""Prompts as tokens."""

from __future__ import annotations

import pytest
from fakes.sweeps import small_experiment

from sweep.spec.rendering import rendered


def test_tokens_are_laid_beside_the_prompts_that_they_are_of() -> None:
    """By workload and in order; a workload without an entry is left as it is."""
    code, story = rendered(small_experiment(), {"code": [[1, 2], [3]]}).workloads
    assert [prompt.token_ids for prompt in code.prompts] == [(1, 2), (3,)]
    assert [prompt.text for prompt in code.prompts] == ["A", "B"]
    assert story == small_experiment().workloads[1]


def test_another_number_of_prompts_is_an_error() -> None:
    """Tokens must not stand beside another prompt."""
    with pytest.raises(ValueError, match="shorter"):
        rendered(small_experiment(), {"code": [[1, 2]]})
