"""The function of a widened feed-forward block, and the file it goes into."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import numpy.typing as npt
import pytest
from gguf import GGUFReader

ROOT = Path(__file__).parents[3]
Floats = npt.NDArray[np.float32]
DRAFT = ROOT / "experiments" / "models" / "tiny-draft-q8_0.gguf"


def load(name: str) -> ModuleType:
    """Return a script as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


widen_gguf = load("widen_gguf")


def test_a_wider_block_computes_the_same() -> None:
    """Units whose down-projection is zero add work and change nothing."""
    random = np.random.default_rng(7)
    up, gate = (random.standard_normal((6, 4), dtype=np.float32) for _ in range(2))
    down = random.standard_normal((4, 6), dtype=np.float32)
    vector = random.standard_normal(4, dtype=np.float32)

    def block(up: Floats, gate: Floats, down: Floats) -> Floats:
        return down @ ((gate @ vector) * (up @ vector))

    wide = [
        widen_gguf.widened(f"blk.0.ffn_{name}.weight", weights, 32, random)
        for name, weights in (("up", up), ("gate", gate), ("down", down))
    ]
    assert [weights.shape for weights in wide] == [(32, 4), (32, 4), (4, 32)]
    np.testing.assert_allclose(block(*wide), block(up, gate, down), rtol=1e-6)
    assert np.all(wide[0][6:] != 0)


def test_other_tensors_stay() -> None:
    """Attention, embeddings and norms are not touched."""
    weights = np.ones((3, 3), dtype=np.float32)
    random = np.random.default_rng(7)
    assert widen_gguf.widened("blk.0.attn_q.weight", weights, 32, random) is weights


def test_the_file_says_its_width(tmp_path: Path) -> None:
    """The written model has the new width, the old vocabulary and every tensor."""
    target = tmp_path / "wide.gguf"
    widen_gguf.widen(DRAFT, target, 1024)
    before, after = GGUFReader(DRAFT), GGUFReader(target)
    assert after.fields["llama.feed_forward_length"].contents() == 1024
    tokens = "tokenizer.ggml.tokens"
    assert after.fields[tokens].contents() == before.fields[tokens].contents()
    assert {t.name for t in after.tensors} == {t.name for t in before.tensors}
    assert list(tmp_path.iterdir()) == [target]


def test_a_model_is_not_narrowed(tmp_path: Path) -> None:
    """A width that the model has already is refused, and nothing is written."""
    with pytest.raises(ValueError, match="hidden units already"):
        widen_gguf.widen(DRAFT, tmp_path / "wide.gguf", 8)
    assert list(tmp_path.iterdir()) == []
