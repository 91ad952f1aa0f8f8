"""Owns the messages of the control socket between the front and an engine: what is rare, or has no fixed size.

Plain data, encoded as MessagePack behind a length. What happens at every token goes through the rings instead.
"""

from __future__ import annotations

import struct
from typing import TypeAlias

import msgspec

from llamad.protocol.model_info import AdapterInfo, ModelInfo, VectorInfo

_LENGTH = struct.Struct("<I")


class Message(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Any of them; the class's name is its tag."""


# From the front.


class Start(Message, frozen=True):
    """The first one."""

    settings: bytes  # of the model (flags/engine_settings.py)
    is_verbose: bool  # whether the log shows lines for debugging
    kept: bytes = b""  # of the Planned message of the last engine


class Run(Message, frozen=True):
    """The front is ready for this model: serve."""

    markers: list[str]  # texts of special tokens that tasks may ask to see


class Compile(Message, frozen=True):
    """Answered by Compiled or Refused."""

    id: int
    text: str
    time_max_us: int


class DropGrammar(Message, frozen=True):
    grammar: int


class Lend(Message, frozen=True):
    """A blob that a command to come will name. Answered by Lent."""

    id: int
    blob: int
    capacity: int


class GiveBack(Message, frozen=True):
    blob: int


class MediaRun(msgspec.Struct, frozen=True, array_like=True):
    """Rows of an image or a sound within a text, in a blob that was lent."""

    blob: int
    rows_at: int  # in bytes
    grid_at: int  # likewise, of t[n], y[n] and x[n], int32 each and relative to its first position; -1: none
    first: int  # index in the text
    n_rows: int
    n_pos: int  # positions that it takes
    is_non_causal: bool


class Embed(Message, frozen=True):
    """A batch of texts: their tokens (int32) lie in the blob one behind the other, and their rows shall lie behind
    them. A text with images or sound goes alone. Answered by Embedded."""

    id: int
    blob: int
    capacity: int
    lengths: list[int]  # in tokens
    runs: list[MediaRun]
    adapters: list[tuple[int, float]]  # their numbers and scales


class OpenAdapter(Message, frozen=True):
    """Check the file and open it under this number. Answered by AdapterOpened or AdapterRefused."""

    id: int
    adapter: int
    path: str


class CloseAdapter(Message, frozen=True):
    """No batch of texts uses it any more. An engine that generates is told through its ring instead, since its thread
    must not be in a decode."""

    adapter: int


# From the engine.


class Progress(Message, frozen=True):
    """Of the load. The first one says that llama.cpp has read the vocabulary, and so can the front."""

    permille: int


class Planned(Message, frozen=True):
    """The engine has decided what it takes of the devices. What else needs their memory may be loaded from now on."""

    kept: bytes = b""  # for the next engine, which should choose alike; empty if nothing was chosen


class Loaded(Message, frozen=True):
    """The model is open and has its contexts."""

    info: ModelInfo
    n_ctx: int
    n_ctx_slot: int
    can_generate: bool
    vectors: VectorInfo | None
    vectors_pack: tuple[int, int]  # tokens and texts of one batch
    suppressed_tokens: list[int]
    adapters: list[AdapterInfo] = msgspec.field(default_factory=list)


class Ready(Message, frozen=True):
    """It serves, and the channel has its memory. `states` are those of one token and of two (ses1.Layout), empty where
    the model has none; `n_window` is its sliding window."""

    states: list[bytes]
    n_window: int


class LoadFailed(Message, frozen=True):
    """One line that says why and what to do. The process ends."""

    reason: str
    is_refused: bool = False  # because of a file that a flag names beside the model


class Terminated(Message, frozen=True):
    """Somebody sent SIGTERM to the engine. It goes on: the front decides whether it ends."""


class Compiled(Message, frozen=True):
    id: int
    grammar: int
    n_bytes: int


class Refused(Message, frozen=True):
    """The grammar cannot be used; line and column are 0 when it is not about a place."""

    id: int
    line: int
    column: int
    reason: str


class Lent(Message, frozen=True):
    id: int
    blob: int
    is_mapped: bool


class Embedded(Message, frozen=True):
    """llama.cpp's code: 0, or there are no rows."""

    id: int
    code: int
    seconds: float


class AdapterOpened(Message, frozen=True):
    id: int
    info: AdapterInfo


class AdapterRefused(Message, frozen=True):
    """The file cannot be used, and nothing has changed."""

    id: int
    reason: str


class Failed(Message, frozen=True):
    """An exception came instead of the answer. The engine has logged it, and goes on."""

    id: int
    reason: str


FromFront: TypeAlias = (
    Start | Run | Compile | DropGrammar | Lend | GiveBack | Embed | OpenAdapter | CloseAdapter
)
Question: TypeAlias = Compile | Lend | Embed | OpenAdapter
Reply: TypeAlias = Compiled | Refused | Lent | Embedded | AdapterOpened | AdapterRefused | Failed
FromEngine: TypeAlias = Progress | Planned | Loaded | Ready | LoadFailed | Terminated | Reply

_encode = msgspec.msgpack.Encoder().encode
decode_front = msgspec.msgpack.Decoder(FromFront).decode
decode_engine = msgspec.msgpack.Decoder(FromEngine).decode


def packed(message: Message) -> bytes:
    """The message as it crosses the socket."""
    data = _encode(message)
    return _LENGTH.pack(len(data)) + data


def unpack(buffer: bytearray) -> list[bytes]:
    """The whole messages in the buffer, which keeps the rest."""
    found, at = [], 0
    while len(buffer) - at >= _LENGTH.size:
        (n,) = _LENGTH.unpack_from(buffer, at)
        if len(buffer) - at - _LENGTH.size < n:
            break
        found.append(bytes(buffer[at + _LENGTH.size : at + _LENGTH.size + n]))
        at += _LENGTH.size + n
    del buffer[:at]
    return found
