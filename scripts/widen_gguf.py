"""Make a GGUF model heavier without changing what it computes.

A tiny model decodes so fast that speculation cannot pay. Here every feed-forward block is widened
by units whose down-projection is zero: the function stays, the work per token grows, and checking
several tokens at once becomes cheap in comparison, as it is for a large model on a GPU.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
from gguf import GGUFReader, GGUFValueType, GGUFWriter
from gguf.gguf_reader import ReaderTensor
from gguf.quants import dequantize

Floats = npt.NDArray[np.float32]
SEED = 0
SCALE = 0.02
"""Standard deviation of the added weights: the order of trained ones, so no value is special."""
ROWS_ADDED = ("ffn_up.weight", "ffn_gate.weight")
COLUMNS_ADDED = "ffn_down.weight"


def widened(name: str, weights: Floats, width: int, random: np.random.Generator) -> Floats:
    """Return a weight matrix (rows = outputs) as it is in the model with `width` hidden units."""
    if name.endswith(ROWS_ADDED):
        missing = width - weights.shape[0]
        added = random.standard_normal((missing, weights.shape[1]), dtype=np.float32) * SCALE
        return np.concatenate([weights, added.astype(np.float32)])
    if name.endswith(COLUMNS_ADDED):
        return np.pad(weights, ((0, 0), (0, width - weights.shape[1])))
    return weights


def _weights(tensor: ReaderTensor) -> Floats:
    """Return a tensor as floats, outermost dimension first (GGUF lists it last)."""
    shape = [int(size) for size in reversed(tensor.shape)]
    values: Floats = dequantize(tensor.data, tensor.tensor_type)
    return values.astype(np.float32).reshape(shape)


def _metadata(reader: GGUFReader, writer: GGUFWriter, width_key: str, width: int) -> None:
    written_by_writer = ("general.architecture", "general.file_type")
    for key, field in reader.fields.items():
        if key.startswith("GGUF.") or key in written_by_writer:
            continue
        item_type = field.types[-1] if field.types[0] is GGUFValueType.ARRAY else None
        value = width if key == width_key else field.contents()
        writer.add_key_value(key, value, field.types[0], item_type)


def _tensors(reader: GGUFReader, width: int) -> Iterator[tuple[str, npt.NDArray[np.generic]]]:
    random = np.random.default_rng(SEED)
    for tensor in reader.tensors:
        weights = widened(tensor.name, _weights(tensor), width, random)
        # Vectors (norms) stay in full precision, as llama.cpp expects them.
        yield tensor.name, weights if weights.ndim == 1 else weights.astype(np.float16)


def widen(source: Path, target: Path, width: int) -> None:
    """Write `source` with `width` hidden units in every feed-forward block, in half precision.

    The file appears whole or not at all. Raises ValueError when `source` is already as wide.
    """
    reader = GGUFReader(source)
    architecture = str(reader.fields["general.architecture"].contents())
    width_key = f"{architecture}.feed_forward_length"
    present = int(reader.fields[width_key].contents())
    if width <= present:
        raise ValueError(f"{source} has {present} hidden units already: give more than that")
    partial = target.with_suffix(f".{os.getpid()}.partial")
    writer = GGUFWriter(partial, architecture)
    _metadata(reader, writer, width_key, width)
    for name, weights in _tensors(reader, width):
        writer.add_tensor(name, np.ascontiguousarray(weights))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    partial.replace(target)


def main() -> None:
    """Widen a file, unless the result is there and newer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--width", type=int, default=16384, help="hidden units per block")
    options = parser.parse_args()
    source, target = options.source, options.target
    if target.exists() and target.stat().st_mtime >= source.stat().st_mtime:
        print(f"{target} is there")
        return
    widen(source, target, options.width)
    print(f"{target}: {target.stat().st_size / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
