"""Engines by kind."""

import pytest

from sweep.engines import KINDS, engine_of
from sweep.model.errors import UsageError
from sweep.model.experiment import EngineSpec


def test_every_kind_is_its_own() -> None:
    """Each kind names the engine that it gives."""
    assert KINDS == ("llama.cpp", "sglang", "simulator")
    assert [engine_of(EngineSpec(kind, "m")).kind for kind in KINDS] == list(KINDS)


def test_a_rehearsal_is_simulated_whatever_it_rehearses() -> None:
    """What answers is the simulator."""
    assert engine_of(EngineSpec("simulator", "m", rehearses="llama.cpp")).kind == "simulator"


@pytest.mark.parametrize(
    "spec", [EngineSpec("vllm", "m"), EngineSpec("simulator", "m", rehearses="vllm")]
)
def test_unknown_kind_names_those_that_exist(spec: EngineSpec) -> None:
    """An unknown kind is a mistake of the user, who is told what there is."""
    with pytest.raises(UsageError, match="'vllm' is not built") as caught:
        engine_of(spec)
    assert caught.value.hint == "kinds: llama.cpp, sglang, simulator"
