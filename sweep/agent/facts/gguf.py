"""The header of a GGUF file: whether the file is whole, and the model's dimensions."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import IO, Any, Dict, List, Optional

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_STRING, _ARRAY = 8, 9
_FORMATS = {
    0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q",
    12: "<d",
}  # fmt: skip
_ALIGNMENT = 32
_MOST = 1 << 24
"""A header that counts more than this of anything is not one."""

BLOCKS = {
    0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34),
    9: (32, 40), 10: (256, 84), 11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210),
    15: (256, 292), 16: (256, 66), 17: (256, 74), 18: (256, 98), 19: (256, 50), 20: (32, 18),
    21: (256, 110), 22: (256, 82), 23: (256, 136), 24: (1, 1), 25: (1, 2), 26: (1, 4), 27: (1, 8),
    28: (1, 8), 29: (256, 56), 30: (1, 2), 34: (256, 54), 35: (256, 66), 39: (32, 17),
    40: (64, 36), 41: (128, 18),
}  # fmt: skip
"""ggml's type of a tensor → values in a block, bytes of a block."""


class GgufError(ValueError):
    """It is no GGUF, or its header ends too early."""


class UnknownGgufError(ValueError):
    """It may be whole, but of a version or with values that this reader does not know."""


@dataclass
class Header:
    """`least_bytes`: what the file must have at least, by its tensors."""

    fields: Dict[str, Any] = field(default_factory=dict)
    """Single values by key; of an array, its length."""
    least_bytes: int = 0

    def dimension(self, name: str) -> Optional[int]:
        """Return a figure of the architecture, such as `embedding_length`."""
        value = self.fields.get("%s.%s" % (self.fields.get("general.architecture"), name))
        return value if isinstance(value, int) else None


class _Reader:
    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream

    def take(self, count: int) -> bytes:
        data = self._stream.read(count)
        if len(data) < count:
            raise GgufError("its header ends too early")
        return data

    def number(self, form: str) -> Any:
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def count(self) -> int:
        value: int = self.number("<Q")
        if value > _MOST:
            raise UnknownGgufError("it counts %d of something" % value)
        return value

    def text(self) -> str:
        return self.take(self.count()).decode("utf-8", "replace")

    def value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.text()
        if kind == _ARRAY:
            return self._array()
        if kind not in _FORMATS:
            raise UnknownGgufError("values of kind %d" % kind)
        return self.number(_FORMATS[kind])

    def _array(self) -> int:
        """Skip an array and return its length: vocabularies are long."""
        kind, length = self.number("<I"), self.count()
        if kind in (_ARRAY, _STRING):
            for _ in range(length):
                self.value(kind)
        elif kind in _FORMATS:
            self.take(struct.calcsize(_FORMATS[kind]) * length)
        else:
            raise UnknownGgufError("values of kind %d" % kind)
        return length

    def tell(self) -> int:
        return self._stream.tell()


def read_header(path: str) -> Header:
    """Read the header of a file. Raises GgufError, UnknownGgufError, OSError."""
    with open(path, "rb") as stream:
        reader = _Reader(stream)
        if stream.read(len(_MAGIC)) != _MAGIC:
            raise GgufError("it does not begin with GGUF")
        version = reader.number("<I")
        if version not in _VERSIONS:
            raise UnknownGgufError("version %d" % version)
        tensors, count = reader.count(), reader.count()
        header = Header()
        for _ in range(count):
            key = reader.text()
            header.fields[key] = reader.value(reader.number("<I"))
        ends = [_end(reader) for _ in range(tensors)]
        alignment = header.fields.get("general.alignment", _ALIGNMENT)
        start = -(-reader.tell() // alignment) * alignment
        header.least_bytes = start + max(ends) if ends else reader.tell()
        return header


def _end(reader: _Reader) -> int:
    """Read a tensor's entry and return where its data ends, counted from the first tensor's. Of
    a type that is not known, only the beginning counts."""
    reader.text()
    dimensions: List[int] = [reader.number("<Q") for _ in range(reader.number("<I"))]
    kind, offset = reader.number("<I"), int(reader.number("<Q"))
    values = 1
    for dimension in dimensions:
        values *= dimension
    per_block, block_bytes = BLOCKS.get(kind, (1, 0))
    return offset + values // per_block * block_bytes
