"""Slot states as llama.cpp writes them, for memories of any form: made in Python, with the place of every field, so
that a test can lie in one of them."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from llamad.protocol.blobs import Blob
from llamad.ses1.ses1 import Layout, StateError

BLOB_MAGIC = 0xAF143CD8
FILE_MAGIC = 0x67677371
N_VOCAB = 1000
N_CTX = 64

# ggml's number, bytes of a block, and where in it the f16 numbers lie.
TYPES = {
    "f32": (0, 4),
    "f16": (1, 2),
    "q4_0": (2, 18),
    "q4_1": (3, 20),
    "q5_0": (6, 22),
    "q5_1": (7, 24),
    "q8_0": (8, 34),
    "iq4_nl": (20, 18),
    "bf16": (30, 2),
}
N_HALVES = {"q4_0": 1, "q4_1": 2, "q5_0": 1, "q5_1": 2, "q8_0": 1, "iq4_nl": 1}


@dataclass(frozen=True)
class Kv:
    """Attention: n_layer layers, whose rows hold n_blocks blocks."""

    n_layer: int = 2
    k_type: str = "f16"
    v_type: str = "f16"
    n_blocks: int = 3
    v_trans: bool = False
    has_v: bool = True
    ext: str = ""  # "position" (M-RoPE) or "zero" (the token alone)
    window: int = 0  # holds only so many of the last tokens


@dataclass(frozen=True)
class Recurrent:
    n_layer: int = 4  # the model's
    rows: tuple[tuple[str, int], ...] = (("f32", 3), ("f32", 3), ("f32", 8), ("f32", 8))


@dataclass(frozen=True)
class Form:
    sections: tuple[Kv | Recurrent, ...]
    n_stream: int = 1
    stream: int = 0  # the slot's, where each has one

    @property
    def window(self) -> int:
        return max((one.window for one in self.sections if isinstance(one, Kv)), default=0)


FORMS = {
    "plain": Form((Kv(),)),
    "streams": Form((Kv(),), n_stream=4, stream=2),
    "no flash attention": Form((Kv(v_trans=True),)),
    "mixed types": Form((Kv(k_type="q8_0", v_type="q4_1"),), n_stream=2),
    "no values": Form((Kv(has_v=False),)),
    "window": Form((Kv(n_layer=1), Kv(n_layer=3, n_blocks=2, window=5)), n_stream=2, stream=1),
    "window without flash attention": Form((Kv(v_trans=True), Kv(v_trans=True, window=5))),
    "window only": Form((Kv(n_layer=0), Kv(n_layer=2, window=5))),
    "m-rope": Form((Kv(ext="position"),)),
    "tokens in cells": Form((Kv(ext="zero"),), n_stream=2),
    "recurrent": Form((Recurrent(),)),
    "hybrid": Form((Kv(n_layer=1), Recurrent()), n_stream=2),
    "hybrid with m-rope": Form((Kv(n_layer=1, ext="position"), Recurrent())),
    "hybrid without values": Form((Kv(n_layer=1, has_v=False), Recurrent())),
    "hybrid with empty rows": Form((Kv(n_layer=1), Recurrent(rows=(("f32", 3), ("f32", 0))))),
    "hybrid with a window": Form((Kv(n_layer=1), Kv(n_layer=1, window=5), Recurrent()), n_stream=3, stream=2),
}


@dataclass
class Writer:
    data: bytearray = field(default_factory=bytearray)
    marks: dict[str, int] = field(default_factory=dict)  # where a field begins

    def put(self, mark: str, code: str, value: int) -> None:
        self.marks.setdefault(mark, len(self.data))
        self.data += struct.pack("<" + code, value)

    def rows(self, mark: str, kind: str, n_blocks: int, chance: random.Random) -> None:
        self.marks.setdefault(mark, len(self.data))
        for _ in range(n_blocks):
            self.data += block(kind, chance)


def block(kind: str, chance: random.Random) -> bytes:
    """One block of finite numbers."""
    if kind == "f32":
        return struct.pack("<f", chance.uniform(-9, 9))
    if kind == "bf16":
        return struct.pack("<f", chance.uniform(-9, 9))[2:]
    n_halves = N_HALVES.get(kind, 1)
    halves = b"".join(struct.pack("<e", chance.uniform(-9, 9)) for _ in range(n_halves))
    return halves + chance.randbytes(TYPES[kind][1] - 2 * n_halves)


def _kv(
    out: Writer, name: str, kv: Kv, form: Form, tokens: list[int], seq: int, chance: random.Random
) -> None:
    first = max(0, len(tokens) - kv.window) if kv.window else 0
    cells = list(range(first, len(tokens)))
    out.put(f"{name}.n_stream", "I", form.n_stream)
    for stream in range(form.n_stream):
        if stream != form.stream or not cells:
            out.put(f"{name}.empty", "I", 0)
            continue
        out.put(f"{name}.n_cells", "I", len(cells))
        for pos in cells:
            out.put(f"{name}.pos{pos}", "i", pos)
            out.put(f"{name}.n_seq_id", "I", 1)
            if kv.ext:
                out.put(f"{name}.x{pos}", "i", pos if kv.ext == "position" else 0)
                out.put(f"{name}.y{pos}", "i", pos if kv.ext == "position" else 0)
                out.put(f"{name}.token{pos}", "i", tokens[pos])
            out.put(f"{name}.seq_id", "i", seq)
        out.put(f"{name}.v_trans", "I", kv.v_trans)
        out.put(f"{name}.n_layer", "I", kv.n_layer)
        for layer in range(kv.n_layer):
            number, size = TYPES[kv.k_type]
            out.put(f"{name}.k{layer}.type", "i", number)
            out.put(f"{name}.k{layer}.row", "Q", size * kv.n_blocks)
            out.rows(f"{name}.k{layer}", kv.k_type, kv.n_blocks * len(cells), chance)
        for layer in range(kv.n_layer if kv.has_v else 0):
            number, size = TYPES[kv.v_type]
            out.put(f"{name}.v{layer}.type", "i", number)
            if kv.v_trans:
                out.put(f"{name}.v{layer}.element", "I", size)
                out.put(f"{name}.v{layer}.n_elements", "I", kv.n_blocks)
            else:
                out.put(f"{name}.v{layer}.row", "Q", size * kv.n_blocks)
            out.rows(f"{name}.v{layer}", kv.v_type, kv.n_blocks * len(cells), chance)
    out.marks[f"{name}.end"] = len(out.data)


def _recurrent(out: Writer, name: str, one: Recurrent, n_tokens: int, chance: random.Random) -> None:
    out.put(f"{name}.n_cells", "I", int(n_tokens > 0))
    if n_tokens:
        out.put(f"{name}.pos", "i", n_tokens - 1)
        out.put(f"{name}.n_seq_id", "I", 0)
    out.put(f"{name}.s_trans", "I", 0)
    out.put(f"{name}.n_layer", "I", one.n_layer)
    for layer, (kind, n_blocks) in enumerate(one.rows):
        out.put(f"{name}.r{layer}.type", "i", TYPES[kind][0])
        out.put(f"{name}.r{layer}.row", "Q", TYPES[kind][1] * n_blocks)
        out.rows(f"{name}.r{layer}", kind, n_blocks if n_tokens else 0, chance)


def write_memory(out: Writer, form: Form, tokens: list[int], seed: int = 1) -> None:
    """What llama.cpp's per-sequence call writes."""
    chance = random.Random(seed)
    out.put("magic", "I", BLOB_MAGIC)
    out.put("seq", "i", form.stream)
    for i, section in enumerate(form.sections):
        if isinstance(section, Kv):
            _kv(out, f"s{i}", section, form, tokens, form.stream, chance)
        else:
            _recurrent(out, f"s{i}", section, len(tokens), chance)


def memory(form: Form, tokens: list[int], seed: int = 1) -> bytes:
    out = Writer()
    write_memory(out, form, tokens, seed)
    return bytes(out.data)


def state(form: Form, tokens: list[int], seed: int = 1) -> Writer:
    """A whole SES1 blob."""
    out = Writer()
    out.data += b"SES1"
    out.put("n_tokens", "I", len(tokens))
    for i, token in enumerate(tokens):
        out.put(f"token{i}", "i", token)
    write_memory(out, form, tokens, seed)
    return out


def learn(form: Form) -> Layout:
    """As the engine does: from slot 0."""
    first = replace(form, stream=0)
    return Layout(memory(first, [7]), memory(first, [7, 7]), form.window)


def as_blob(data: bytes) -> Blob:
    blob = Blob(len(data))
    blob.size = len(data)
    if data:
        memoryview(blob)[:] = data
    return blob


def is_answered(call: Callable[[], object]) -> bool:
    """Done, or refused with a reason."""
    try:
        call()
    except StateError as error:
        return str(error) != ""
    return True
