"""Whether a safetensors file is whole: its header says how long the file must be."""

from __future__ import annotations

import json
from typing import Any, Dict, List, Optional

_LENGTH_BYTES = 8
_LONGEST_HEADER_BYTES = 100_000_000
"""The format's own limit."""
_LFS_POINTER = b"version https://git-lfs"


def fault(path: str, size: int) -> Optional[str]:
    """Return what is wrong with a file of this size [bytes], None: nothing. Raises OSError."""
    with open(path, "rb") as stream:
        start = stream.read(_LENGTH_BYTES)
        length = int.from_bytes(start, "little")
        if len(start) < _LENGTH_BYTES:
            return "is cut short: %d bytes" % size
        if length > _LONGEST_HEADER_BYTES:
            pointer = (start + stream.read(len(_LFS_POINTER))).startswith(_LFS_POINTER)
            return "is a pointer of git-lfs, not the weights" if pointer else "is no safetensors"
        header = stream.read(length)
    if len(header) < length:
        return "is cut short: its header alone is %d bytes, the file %d" % (length, size)
    try:
        ends = [tensor["data_offsets"][1] for tensor in _tensors(header).values()]
    except (ValueError, TypeError, KeyError, IndexError, AttributeError):
        return "is no safetensors: its header cannot be read"
    expected = _LENGTH_BYTES + length + max(ends, default=0)
    if size != expected:
        how = "is cut short" if size < expected else "is too long"
        return "%s: %d bytes, its header says %d" % (how, size, expected)
    return None


def shape(path: str, name: str) -> Optional[List[int]]:
    """Return the shape of the tensor whose name ends so; None: it has none, or is not whole.

    Raises OSError.
    """
    with open(path, "rb") as stream:
        length = int.from_bytes(stream.read(_LENGTH_BYTES), "little")
        header = stream.read(min(length, _LONGEST_HEADER_BYTES))
    try:
        found = [tensor["shape"] for key, tensor in _tensors(header).items() if key.endswith(name)]
        return [int(size) for size in found[0]] if found else None
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def _tensors(header: bytes) -> Dict[str, Any]:
    tensors: Dict[str, Any] = json.loads(header)
    tensors.pop("__metadata__", None)
    return tensors
