"""Reads a GGUF's keys and packs large arrays of them, in a small part of the time that the gguf package takes: tests
write dozens of models with a whole vocabulary."""

from __future__ import annotations

import mmap
import struct
from pathlib import Path
from typing import Any

import gguf
import numpy as np

ARRAY, INT32, FLOAT32, STRING = (
    gguf.GGUFValueType.ARRAY,
    gguf.GGUFValueType.INT32,
    gguf.GGUFValueType.FLOAT32,
    gguf.GGUFValueType.STRING,
)
FORMATS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
LARGE = 1000


class _Cursor:
    def __init__(self, data: Any) -> None:
        self.data = data
        self.at = 4 + 4 + 8  # past magic, version and the number of tensors

    def number(self, kind: str) -> Any:
        (value,) = struct.unpack_from("<" + kind, self.data, self.at)
        self.at += struct.calcsize("<" + kind)
        return value

    def text(self) -> str:
        begin = self.at + 8
        self.at = begin + struct.unpack_from("<Q", self.data, self.at)[0]
        return self.data[begin : self.at].decode("utf-8")

    def value(self, kind: int) -> Any:
        if kind == STRING:
            return self.text()
        if kind != ARRAY:
            return self.number(FORMATS[kind])
        kind, n = self.number("I"), self.number("Q")
        if kind == STRING:
            return [self.text() for _ in range(n)]
        dtype = np.dtype("<" + FORMATS[kind])
        begin = self.at
        self.at += n * dtype.itemsize
        return np.frombuffer(self.data, dtype, n, begin).tolist()


def read_keys(path: str | Path) -> dict[str, tuple[Any, gguf.GGUFValueType]]:
    """The values of all keys, with their types."""
    keys = {}
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        assert data[:4] == b"GGUF"
        cursor = _Cursor(data)
        for _ in range(cursor.number("Q")):
            key, kind = cursor.text(), cursor.number("I")
            keys[key] = (cursor.value(kind), gguf.GGUFValueType(kind))
    return keys


class Unchanged(list):
    """An array that goes into many models as it is, and is packed once."""

    packed: bytes | None = None


class Writer(gguf.GGUFWriter):
    def _pack_val(self, val: Any, vtype: Any, add_vtype: bool, sub_type: Any = None) -> bytes:
        if vtype != ARRAY or len(val) < LARGE:
            return super()._pack_val(val, vtype, add_vtype, sub_type)
        assert add_vtype
        if not isinstance(val, Unchanged):
            return _pack_large(val)
        if val.packed is None:
            val.packed = _pack_large(val)
        return val.packed


def _pack_large(values: list[Any]) -> bytes:
    if isinstance(values[0], str):
        texts = [one.encode() if isinstance(one, str) else one for one in values]
        kind, body = STRING, b"".join([part for one in texts for part in (_length(one), one)])
    elif isinstance(values[0], float):
        kind, body = FLOAT32, np.array(values, "<f4").tobytes()
    else:
        kind, body = INT32, np.array(values, "<i4").tobytes()
    return struct.pack("<IIQ", ARRAY, kind, len(values)) + body


def _length(text: bytes) -> bytes:
    return len(text).to_bytes(8, "little")
