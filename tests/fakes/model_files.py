"""Small model files in their real formats, whole or with a fault."""

from __future__ import annotations

import json
import math
import struct
from pathlib import Path
from typing import Any

TARGET = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "vocab_size": 1000,
    "num_hidden_layers": 8,
}
DRAFTER = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "model_type": "llama",
    "hidden_size": 64,
    "vocab_size": 1000,
    "draft_vocab_size": 500,
    "num_hidden_layers": 1,
    "eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 3, 6]},
}


def safetensors(size: int = 256, *, name: str = "w", shape: list[int] | None = None) -> bytes:
    """A file of one tensor of this shape, or with this many bytes."""
    size = math.prod(shape or [size])
    tensor = {"dtype": "U8", "shape": shape or [size], "data_offsets": [0, size]}
    header = json.dumps({"__metadata__": {"format": "pt"}, name: tensor}).encode()
    return len(header).to_bytes(8, "little") + header + b"\x01" * size


def write_model(directory: Path, config: dict[str, Any], shards: int = 2) -> Path:
    """A directory as on the hub: config, index and shards, or one file without an index."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(config))
    if shards == 1:
        (directory / "model.safetensors").write_bytes(safetensors())
        return directory
    names = [f"model-{n:05d}-of-{shards:05d}.safetensors" for n in range(1, shards + 1)]
    for name in names:
        (directory / name).write_bytes(safetensors())
    index = {"weight_map": {f"layer.{n}": name for n, name in enumerate(names)}}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))
    return directory


def _text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def gguf(hidden: int = 64, vocabulary: int = 1000, layers: int = 8) -> bytes:
    """A file of one F32 tensor of hidden² values, with a vocabulary of empty words."""
    words = struct.pack("<IQ", 8, vocabulary) + _text("") * vocabulary
    fields = [
        ("general.architecture", struct.pack("<I", 8) + _text("llama")),
        ("llama.embedding_length", struct.pack("<II", 4, hidden)),
        ("llama.block_count", struct.pack("<II", 4, layers)),
        ("general.file_type", struct.pack("<IQ", 10, 0)),
        ("tokenizer.ggml.tokens", struct.pack("<I", 9) + words),
        ("tokenizer.ggml.scores", struct.pack("<IIQ", 9, 6, 2) + b"\0" * 8),
    ]
    header = b"GGUF" + struct.pack("<IQQ", 3, 1, len(fields))
    header += b"".join(_text(key) + value for key, value in fields)
    header += _text("w") + struct.pack("<IQQIQ", 2, hidden, hidden, 0, 0)
    return header + b"\0" * (-len(header) % 32) + b"\0" * (4 * hidden * hidden)


def write_hub(cache: Path, name: str, config: dict[str, Any], revision: str = "abc123") -> Path:
    """A model in a cache of the hub's library: blobs, links to them, and refs/main."""
    base = cache / f"models--{name.replace('/', '--')}"
    blobs = write_model(base / "blobs", config)
    snapshot = base / "snapshots" / revision
    snapshot.mkdir(parents=True)
    for blob in blobs.iterdir():
        (snapshot / blob.name).symlink_to(blob)
    (base / "refs").mkdir()
    (base / "refs" / "main").write_text(revision)
    return snapshot
