"""A GGUF taken apart into keys and tensors, and every small change to them that a stranger might make: for tests of
what loading it does."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import gguf

ARRAY, STRING = 9, 8
SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
FORMATS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "B", 10: "Q", 11: "q", 12: "d"}
ALIGNMENT = 32


def text(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


def array(kind: int, body: bytes, n: int) -> bytes:
    return struct.pack("<IQ", kind, n) + body


@dataclass(frozen=True)
class Key:
    name: bytes
    kind: int
    payload: bytes

    def elements(self) -> tuple[int, list[bytes]]:
        """Of an array: its type, and each element's bytes."""
        kind, n = struct.unpack_from("<IQ", self.payload)
        at, items = 12, []
        for _ in range(n):
            size = 8 + struct.unpack_from("<Q", self.payload, at)[0] if kind == STRING else SIZES[kind]
            items.append(self.payload[at : at + size])
            at += size
        return kind, items


@dataclass(frozen=True)
class Tensor:
    name: bytes
    dims: tuple[int, ...]
    kind: int
    offset: int


@dataclass(frozen=True)
class Gguf:
    keys: list[Key]
    tensors: list[Tensor]
    data: bytes
    version: int = 3
    n_keys: int | None = None
    n_tensors: int | None = None

    def build(self) -> bytes:
        n_tensors = len(self.tensors) if self.n_tensors is None else self.n_tensors
        n_keys = len(self.keys) if self.n_keys is None else self.n_keys
        out = [b"GGUF", struct.pack("<IQQ", self.version, n_tensors % 2**64, n_keys % 2**64)]
        out += [text(key.name) + struct.pack("<I", key.kind) + key.payload for key in self.keys]
        for one in self.tensors:
            dims = struct.pack(f"<I{len(one.dims)}Q", len(one.dims), *(n % 2**64 for n in one.dims))
            out.append(text(one.name) + dims + struct.pack("<IQ", one.kind, one.offset % 2**64))
        head = b"".join(out)
        return head + bytes(-len(head) % ALIGNMENT) + self.data

    def with_keys(self, **changed: tuple[int, bytes] | None) -> Gguf:
        """Other values of some keys; __ stands for a dot, None removes."""
        values = {key.name: key for key in self.keys}
        for name, value in changed.items():
            key = name.replace("__", ".").encode()
            values.pop(key, None)
            if value is not None:
                values[key] = Key(key, *value)
        return replace(self, keys=list(values.values()))


def laid_out(model: Gguf) -> Gguf:
    """With every tensor at its right place, and data to match."""
    tensors, at = [], 0
    for tensor in model.tensors:
        per_block, block_bytes = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType(tensor.kind)]
        tensors.append(replace(tensor, offset=at))
        size = math.prod(tensor.dims) // per_block * block_bytes
        at += size + -size % ALIGNMENT
    data = (model.data * (at // len(model.data) + 1))[:at]
    return replace(model, tensors=tensors, data=data)


def take_apart(path: str | Path) -> Gguf:
    raw = Path(path).read_bytes()
    version, n_tensors, n_keys = struct.unpack_from("<IQQ", raw, 4)
    at = 24

    def take(size: int) -> bytes:
        nonlocal at
        at += size
        return raw[at - size : at]

    def string() -> bytes:
        return take(struct.unpack("<Q", take(8))[0])

    keys, tensors = [], []
    for _ in range(n_keys):
        name, (kind,) = string(), struct.unpack("<I", take(4))
        begin = at
        if kind == STRING:
            string()
        elif kind == ARRAY:
            sub, n = struct.unpack("<IQ", take(12))
            for _ in range(n if sub == STRING else 0):
                string()
            take(0 if sub == STRING else n * SIZES[sub])
        else:
            take(SIZES[kind])
        keys.append(Key(name, kind, raw[begin:at]))
    for _ in range(n_tensors):
        name, (n_dims,) = string(), struct.unpack("<I", take(4))
        dims = struct.unpack(f"<{n_dims}Q", take(8 * n_dims))
        tensors.append(Tensor(name, dims, *struct.unpack("<IQ", take(12))))
    return Gguf(keys, tensors, raw[at + -at % ALIGNMENT :], version)


def with_bpe(model: Gguf) -> Gguf:
    """The same with a byte-level BPE tokenizer."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    chars = [
        chr(byte if byte in plain else 256 + i) for i, byte in enumerate(sorted(range(256), key=plain.count))
    ]
    tokens = [b"<unk>", b"<s>", b"</s>", *(char.encode() for char in chars[:-1]), b"ab"]
    return model.with_keys(
        tokenizer__ggml__model=(STRING, text(b"gpt2")),
        tokenizer__ggml__pre=(STRING, text(b"smollm")),
        tokenizer__ggml__scores=None,
        tokenizer__ggml__tokens=(ARRAY, array(STRING, b"".join(map(text, tokens)), len(tokens))),
        tokenizer__ggml__token_type=(ARRAY, array(5, struct.pack("<259i", 2, 3, 3, *[1] * 256), 259)),
        tokenizer__ggml__merges=(ARRAY, array(STRING, text(b"a b"), 1)),
        tokenizer__chat_template=(STRING, text(b"{{ messages[0].content }}")),
    )


# --- changes ----------------------------------------------------------------------------------------------------

LAID_OUT_MAX = 1 << 20
KNOWN_TYPES = {int(kind) for kind in gguf.GGMLQuantizationType}
NUMBERS = (0, 1, 2, 3, 7, 511, 513, 2**31 - 1, 2**31, 2**32 - 1)
FLOATS = (0.0, -1.0, 1e-38, 3e38, float("nan"), float("inf"))
TEXTS = (
    b"",
    b"x",
    b"\xff\xfe",
    b"a" * 100_000,
    b"llama",
    b"bert",
    b"gpt2",
    b"t5",
    b"mamba",
    b"no_vocab",
    b"rwkv",
)
OTHER = {
    0: b"\x01",
    3: b"\x01\x00",
    4: struct.pack("<I", 2),
    5: struct.pack("<i", -1),
    6: struct.pack("<f", 1.0),
    7: b"\x01",
    STRING: text(b"2"),
    ARRAY: array(4, struct.pack("<2I", 2, 2), 2),
    10: struct.pack("<Q", 2),
    12: struct.pack("<d", 1.0),
    13: b"",
}


def of_key(key: Key) -> Iterator[tuple[str, Key | None]]:
    yield "is missing", None
    for kind, payload in OTHER.items():
        if kind != key.kind:
            yield f"is of type {kind}", Key(key.name, kind, payload)
    if key.kind in (4, 5, 10, 11, 2, 3, 0, 1):
        (old,) = struct.unpack("<" + FORMATS[key.kind], key.payload)
        for value in {*NUMBERS, old + 1, max(0, old - 1), 2 * old}:
            if value != old:
                raw = value % 2 ** (8 * SIZES[key.kind])
                yield f"is {value}", replace(key, payload=raw.to_bytes(SIZES[key.kind], "little"))
    elif key.kind == 6:
        for number in FLOATS:
            yield f"is {number}", replace(key, payload=struct.pack("<f", number))
    elif key.kind == 7:
        yield "is the other", replace(key, payload=bytes([1 - key.payload[0]]))
        yield "is 7", replace(key, payload=b"\x07")
    elif key.kind == STRING:
        for string in TEXTS:
            yield f"is {string[:12]!r} ({len(string)})", replace(key, payload=text(string))
        yield "is longer than the file", replace(key, payload=struct.pack("<Q", 2**40) + b"x")
    elif key.kind == ARRAY:
        for told, payload in of_array(*key.elements()):
            yield told, replace(key, payload=payload)
    yield "has no name", replace(key, name=b"")
    yield "has a long name", replace(key, name=b"k" * 70_000)


def of_array(kind: int, items: list[bytes]) -> Iterator[tuple[str, bytes]]:
    def made(found: list[bytes], n: int | None = None, sub: int = kind) -> bytes:
        return array(sub, b"".join(found), len(found) if n is None else n)

    yield "is empty", made([])
    yield "is one shorter", made(items[:-1])
    yield "is one longer", made([*items, items[-1]])
    yield "is one element", made(items[:1])
    yield "claims one more", made(items, len(items) + 1)
    yield "claims 2^40", made(items, 2**40)
    yield "claims 2^63", made(items, 2**63)
    yield "holds arrays", made(items, sub=ARRAY)
    yield "holds what is not known", made(items, sub=99)
    yield "holds other numbers", made([struct.pack("<H", 1)] * len(items), sub=2)
    if kind == STRING:
        last = len(items) - 1
        for i in sorted({0, min(1, last), last}):
            for value in (b"", b"\xff\xfe\xfd", b"<0x0A>", b"a b c", b"nospace", b" ", b"z" * 70_000, b"\0"):
                yield f"[{i}] is {value[:8]!r}", made([*items[:i], text(value), *items[i + 1 :]])
            yield (
                f"[{i}] is longer than the file",
                made([*items[:i], struct.pack("<Q", 2**50), *items[i + 1 :]]),
            )
        yield "repeats its first", made([items[0], items[0], *items[2:]])
        yield "is all empty", made([text(b"")] * len(items))
        yield "is all alike", made([text(b"a")] * len(items))
    else:
        for name, byte in (("0", 0), ("-1", 255), ("large", 127)):
            yield f"is all {name}", made([bytes([byte]) * len(item) for item in items])


def of_tensor(tensor: Tensor) -> Iterator[tuple[str, Tensor]]:
    dims = tensor.dims
    for i, n in enumerate(dims):
        for value in {0, 1, n - 1, n + 1, 2 * n, n // 2, 2**31, 2**62, 2**64 - 1}:
            yield f"dimension {i} is {value}", replace(tensor, dims=(*dims[:i], value, *dims[i + 1 :]))
    yield "has no dimensions", replace(tensor, dims=())
    yield "is turned", replace(tensor, dims=dims[::-1])
    yield "has four dimensions", replace(tensor, dims=(*dims, 1, 1, 1)[:4])
    yield "has a third dimension", replace(tensor, dims=(*dims, 2))
    yield "has five dimensions", replace(tensor, dims=(*dims, 1, 1, 1, 1)[:5])
    for kind in (0, 1, 2, 4, 8, 9, 15, 24, 26, 27, 28, 30, 31, 36, 39, 40, 99, 2**31):
        yield f"is of type {kind}", replace(tensor, kind=kind)
    for offset in (0, 1, tensor.offset + 32, 2**31, 2**63, 2**64 - 32):
        yield f"is at {offset}", replace(tensor, offset=offset)
    yield "has no name", replace(tensor, name=b"")
    yield "has a long name", replace(tensor, name=b"n" * 64)
    yield "has another name", replace(tensor, name=b"something.weight")


def changes(model: Gguf) -> Iterator[tuple[str, bytes]]:
    """What was changed, and the file."""
    for i, key in enumerate(model.keys):
        for told, other in of_key(key):
            kept = [other] if other is not None else []
            yield (
                f"{key.name.decode()} {told}",
                replace(model, keys=[*model.keys[:i], *kept, *model.keys[i + 1 :]]).build(),
            )
        yield f"{key.name.decode()} comes twice", replace(model, keys=[*model.keys, key]).build()
    for i, tensor in enumerate(model.tensors):
        yield (
            f"{tensor.name.decode()} is missing",
            replace(model, tensors=model.tensors[:i] + model.tensors[i + 1 :]).build(),
        )
        for told, moved in of_tensor(tensor):
            changed = replace(model, tensors=[*model.tensors[:i], moved, *model.tensors[i + 1 :]])
            yield f"{tensor.name.decode()} {told}", changed.build()
            if moved.kind in KNOWN_TYPES and math.prod(moved.dims) < LAID_OUT_MAX:
                yield f"{tensor.name.decode()} {told}, others moved", laid_out(changed).build()
    for version in (0, 1, 2, 4, 0x03000000, 2**32 - 1):
        yield f"version {version}", replace(model, version=version).build()
    for n in (0, 1, len(model.keys) - 1, len(model.keys) + 1, 2**31, 2**63, 2**64 - 1):
        yield f"{n} keys", replace(model, n_keys=n).build()
    for n in (0, 1, len(model.tensors) - 1, len(model.tensors) + 1, 2**31, 2**63, 2**64 - 1):
        yield f"{n} tensors", replace(model, n_tensors=n).build()
    for value in (0, 1, 3, 8, 16, 64, 2**31, 2**32 - 1):
        alignment = Key(b"general.alignment", 4, struct.pack("<I", value))
        yield f"alignment {value}", replace(model, keys=[*model.keys, alignment]).build()
    whole = model.build()
    for n in (
        0,
        3,
        4,
        8,
        20,
        24,
        30,
        len(whole) // 4,
        len(whole) // 2,
        len(whole) - len(model.data),
        len(whole) - 1,
    ):
        yield f"cut to {n} bytes", whole[:n]
