"""Reads states of sequences as llama.cpp writes them: which positions they hold, and with which numbers."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

import gguf
import numpy as np


@dataclass
class Section:
    """What one memory holds: the positions in the order of its cells, and for each tensor a row of numbers for each
    cell."""

    positions: list[int] = field(default_factory=list)
    rows: list[np.ndarray] = field(default_factory=list)

    def newest(self, n: int | None = None) -> Section:
        """Return the cells of the last n positions, or all of them, in the order of their positions."""
        order = np.argsort(self.positions)[-(n or len(self.positions)) :]
        return Section([self.positions[i] for i in order], [rows[order] for rows in self.rows])


class StateReader:
    """Reads the sections one after the other. has_ext: each cell has coordinates and a token, as with M-RoPE."""

    def __init__(self, data: bytes, has_ext: bool = False) -> None:
        self.data, self.at = data, 8  # behind the magic and the sequence
        self._has_ext = has_ext

    def _take(self, form: str) -> int:
        (value,) = struct.unpack_from(form, self.data, self.at)
        self.at += struct.calcsize(form)
        return int(value)

    def _bytes(self, n: int) -> np.ndarray:
        self.at += n
        return np.frombuffer(self.data, np.uint8, n, self.at - n)

    def _rows(self, n: int) -> np.ndarray:
        kind = gguf.GGMLQuantizationType(self._take("<i"))
        n_bytes = self._take("<Q")
        return _numbers(self._bytes(n * n_bytes).reshape(n, n_bytes), kind)

    def _columns(self, n: int) -> np.ndarray:
        """Read transposed rows."""
        kind = gguf.GGMLQuantizationType(self._take("<i"))
        n_bytes, n_columns = self._take("<I"), self._take("<I")
        return _numbers(self._bytes(n * n_bytes * n_columns).reshape(n_columns, n * n_bytes), kind).T

    def cells(self) -> Section:
        """Read the section of a KV cache. Of its streams only the sequence's has cells."""
        section = Section()
        for _ in range(self._take("<I")):
            n = self._take("<I")
            for _ in range(n):
                section.positions.append(self._take("<i"))
                assert self._take("<I") == 1
                self.at += 12 if self._has_ext else 0
                self._take("<i")
            if n:
                is_transposed, n_layers = self._take("<I"), self._take("<I")
                section.rows += [self._rows(n) for _ in range(n_layers)]
                section.rows += [
                    self._columns(n) if is_transposed else self._rows(n) for _ in range(n_layers)
                ]
        return section

    def state(self) -> Section:
        """Read the section of a recurrent state, which is the last one."""
        section = Section()
        n = self._take("<I")
        for _ in range(n):
            section.positions.append(self._take("<i"))
            assert self._take("<I") == 0
        assert self._take("<I") == 0  # not transposed
        self._take("<I")
        while self.at < len(self.data):
            section.rows.append(self._rows(n))
        return section


def _numbers(data: np.ndarray, kind: gguf.GGMLQuantizationType) -> np.ndarray:
    return gguf.dequantize(data, kind).astype(np.float32) if data.size else data.astype(np.float32)
