"""Reads the head of an untrusted GGUF file: its keys, the positions of its arrays, its tensors. It trusts no number.

Runs in the opening thread, before llama.cpp opens the file, so it must import little. It only checks that the file is
complete and well formed; gguf_rules.py checks the values. Every LoadError names the key or the tensor.
"""

from __future__ import annotations

import mmap
import struct
from typing import Any, NamedTuple

from llamad._llama import ffi, lib
from llamad.protocol.errors import LoadError

VERSIONS = (2, 3)
STRING, ARRAY = 8, 9
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
SIZES = {kind: struct.calcsize("<" + code) for kind, code in SCALARS.items()}

# These limits are far above every real model. They bound what is allocated and how long reading takes.
KEYS_MAX = 1 << 16
TENSORS_MAX = 1 << 18
NAME_MAX = 65535
HEAD_BYTES_MAX = 1 << 30

TENSOR_NAME_MAX = 63  # GGML_MAX_NAME without the NUL
DIMS_MAX = 4
ALIGNMENT = 32  # ggml's alignment of tensors in memory, and GGUF's default
ALIGNMENT_MAX = 1 << 20
INT64_MAX = (1 << 63) - 1


class Array(NamedTuple):
    kind: int
    n: int
    at: int  # the position of the first element


class Tensor(NamedTuple):
    name: str
    dims: tuple[int, ...]
    kind: int
    offset: int  # relative to data_at


Value = bool | int | float | bytes | Array  # bytes: a string


class Malformed(Exception):
    """What is wrong with the file; the text follows "it ", such as "has ..." or "is ..."."""

    def at(self, path: str) -> LoadError:
        return LoadError(
            f"{path} could not be loaded as a GGUF model: it {self}; download or convert it again"
        )


class Head:
    """The head of a file. `keys` has the values by name, `kinds` their types. close() unmaps the file."""

    def __init__(self, path: str) -> None:
        with open(path, "rb") as file:
            self.n_bytes = file.seek(0, 2)
            if self.n_bytes < 24:
                raise Malformed("ends in its first 24 bytes")
            self.data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._buffer = ffi.from_buffer(self.data)
        self._at = 4
        self.keys: dict[str, Value] = {}
        self.kinds: dict[str, int] = {}
        self.tensors: dict[str, Tensor] = {}
        self.data_at = 0  # where the tensors' data begin
        try:
            self._read()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        ffi.release(self._buffer)
        self.data.close()

    def elements(self, array: Array) -> tuple[Any, ...]:
        """Return the numbers of an array, which must be short."""
        return struct.unpack_from(f"<{array.n}{SCALARS[array.kind]}", self.data, array.at)

    def strings(self, array: Array, is_set: bool = False) -> Any:
        """Return what llamad_gguf_strings() says about an array of strings, or None if it does not fit the file."""
        summary = ffi.new("llamad_strings *")
        code = lib.llamad_gguf_strings(self._buffer, self.n_bytes, array.at, array.n, is_set, summary)
        if code == -2:
            raise Malformed(f"has an array of {array.n:,} strings, too many for this machine's memory")
        return summary if code == 0 else None

    # --- bytes ------------------------------------------------------------------------------------------------

    def _take(self, code: str, of: str) -> Any:
        size = struct.calcsize("<" + code)
        self._need(size, of)
        values = struct.unpack_from("<" + code, self.data, self._at)
        self._at += size
        return values[0] if len(values) == 1 else values

    def _need(self, size: int, of: str) -> None:
        if size > self.n_bytes - self._at:
            raise Malformed(f"ends in the middle of {of}: it is cut short, or a size in it is wrong")
        if self._at + size > HEAD_BYTES_MAX:
            raise Malformed(f"has a head of more than {HEAD_BYTES_MAX >> 20} MiB, at {of}")

    def _text(self, of: str, n_max: int | None = None) -> bytes:
        n: int = self._take("Q", of)
        if n_max is not None and not 0 < n <= n_max:
            raise Malformed(f"has {of} of {n:,} bytes: 1 to {n_max:,} are allowed")
        self._need(n, of)
        self._at += n
        return self.data[self._at - n : self._at]

    def _name(self, of: str, n_max: int) -> str:
        raw = self._text(of, n_max)
        try:
            name = raw.decode()
        except UnicodeDecodeError:
            raise Malformed(f"has {of} that is not UTF-8") from None
        if not name.isprintable():
            raise Malformed(f"has {of} with control characters")
        return name

    # --- keys and tensors -------------------------------------------------------------------------------------

    def _read(self) -> None:
        version, n_tensors, n_keys = self._take("IQQ", "its first 24 bytes")
        if version not in VERSIONS:
            if version & 0xFFFF == 0 and version:
                raise Malformed("is big-endian; convert it to this machine's byte order")
            raise Malformed(f"is GGUF version {version}; llama.cpp reads {VERSIONS[0]} and {VERSIONS[1]}")
        if n_keys > KEYS_MAX or n_tensors > TENSORS_MAX:
            raise Malformed(f"claims {n_keys:,} keys and {n_tensors:,} tensors")
        for i in range(n_keys):
            name = self._name(f"the name of key {i}", NAME_MAX)
            if name in self.keys:
                raise Malformed(f"has the key {name} twice")
            self.kinds[name] = self._take("I", name)
            self.keys[name] = self._value(self.kinds[name], name)
        alignment = self._alignment()
        end = 0
        for i in range(n_tensors):
            end = self._tensor(i, alignment, end)
        self.data_at = data_at = self._at + -self._at % alignment
        if n_tensors and data_at + end > self.n_bytes:
            raise Malformed(
                f"is cut short: its tensors end at byte {data_at + end:,}, the file at {self.n_bytes:,}"
            )

    def _value(self, kind: int, name: str) -> Value:
        if kind in SCALARS:
            value: Value = self._take(SCALARS[kind], name)
            return value
        if kind == STRING:
            return self._text(name)
        if kind != ARRAY:
            raise Malformed(f"has the key {name} of type {kind}, which GGUF does not have")
        sub, n = self._take("IQ", name)
        array = Array(sub, n, self._at)
        if sub == STRING:
            summary = self.strings(array)
            if summary is None:
                raise Malformed(f"has the key {name} with {n:,} strings, which do not fit into the file")
            size = summary.end - self._at
        elif sub in SIZES:
            size = n * SIZES[sub]
        else:
            raise Malformed(f"has the key {name}, an array of type {sub}, which GGUF does not have")
        self._need(size, name)
        self._at += size
        return array

    def _alignment(self) -> int:
        value = self.keys.get("general.alignment", ALIGNMENT)
        if self.kinds.get("general.alignment", 4) != 4 or not isinstance(value, int):
            raise Malformed("has a general.alignment that is not a uint32")
        if not ALIGNMENT <= value <= ALIGNMENT_MAX or value & (value - 1):
            raise Malformed(
                f"has a general.alignment of {value}: it must be a power of two from {ALIGNMENT} to {ALIGNMENT_MAX}"
            )
        return value

    def _tensor(self, i: int, alignment: int, at: int) -> int:
        """Read a tensor's entry, whose data must be at this offset; return the offset of the next one."""
        name = self._name(f"the name of tensor {i}", TENSOR_NAME_MAX)
        if name in self.tensors:
            raise Malformed(f"has the tensor {name} twice")
        n_dims = self._take("I", name)
        if not 1 <= n_dims <= DIMS_MAX:
            raise Malformed(f"has the tensor {name} with {n_dims} dimensions: 1 to {DIMS_MAX} are allowed")
        dims = self._take(f"{n_dims}Q", name)
        dims = dims if isinstance(dims, tuple) else (dims,)
        kind, offset = self._take("IQ", name)
        per_block = lib.ggml_blck_size(kind) if kind < lib.GGML_TYPE_COUNT else 0
        if per_block == 0 or not lib.ggml_row_size(kind, per_block):
            raise Malformed(f"has the tensor {name} of type {kind}, which this llama.cpp does not have")
        n = 1
        for size in dims:
            n *= size
        if n == 0 or n > INT64_MAX or dims[0] % per_block:
            raise Malformed(f"has the tensor {name} of shape {dims}, which is not possible")
        if offset != at:
            raise Malformed(f"has the tensor {name} at {offset:,} instead of {at:,}")
        n_bytes: int = n // per_block * lib.ggml_row_size(kind, per_block)
        if n_bytes > self.n_bytes:
            raise Malformed(
                f"is cut short or wrong: the tensor {name} needs {n_bytes:,} bytes, the file has {self.n_bytes:,}"
            )
        self.tensors[name] = Tensor(name, dims, kind, offset)
        return at + n_bytes + -n_bytes % alignment


def read_head(path: str) -> Head:
    """Read the head of a model's file. Raises LoadError."""
    try:
        return Head(path)
    except Malformed as error:
        raise error.at(path) from None
    except OSError as error:
        raise LoadError(f"{path}: {error.strerror}; -m names a GGUF file") from None
