"""Engines by kind."""

import pytest

from sweep.engines import KINDS, engine
from sweep.model.errors import UsageError


def test_every_kind_is_its_own() -> None:
    """Each kind names the engine that it gives."""
    assert KINDS == ("llama.cpp", "simulator")
    assert [engine(kind).kind for kind in KINDS] == list(KINDS)


def test_unknown_kind_names_those_that_exist() -> None:
    """An unknown kind is a mistake of the user, who is told what there is."""
    with pytest.raises(UsageError, match="'vllm' is not built") as caught:
        engine("vllm")
    assert caught.value.hint == "kinds: llama.cpp, simulator"
