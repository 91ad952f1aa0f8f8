"""The messages of the control socket between the front and an engine, for what is rare or has no fixed size.

Plain data, encoded as MessagePack after its length. What happens for every token goes through the rings instead.
"""

from __future__ import annotations

import struct
from typing import TypeAlias

import msgspec

from llamad.protocol.model_info import AdapterInfo, Model, ModelInfo, VectorInfo
from llamad.tokenizer.vocab import Vocab

_LENGTH = struct.Struct("<I")


class Message(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The base class of all messages. The name of the class is the message's tag."""


# Messages from the front.


class Budget(msgspec.Struct, frozen=True):
    """The memory that one model of several may take, in bytes by device. "host" is the memory of the machine itself.

    engine/fit/budget.py says what counts, and how the engine uses it."""

    # What other engines of this daemon hold or have reserved. "host" may be missing: the engine asks the system.
    ours: dict[str, int] = {}
    pinned: dict[str, int] = {}  # the part of it that belongs to pinned models, which are never unloaded
    share: float = 1.0  # the part of the room that a model should be content with, if its size is free
    spare: int = 0  # bytes to leave free on each device, after a load that failed because memory ran out
    bytes_max: int = 0  # the limit for all models together on each device (--models-memory-max); 0: none
    capacity: dict[str, int] = {}  # from the Planned messages of earlier engines of this daemon
    cache_bytes: int = 0  # prompts of all models in shared memory, which no process holds alone


class Start(Message, frozen=True):
    """Load the model. This is the first message."""

    settings: bytes  # the model's settings (flags/engine_settings.py)
    is_verbose: bool  # the log shows lines for debugging
    kept: bytes = b""  # from the Planned message of the last engine
    budget: Budget | None = None  # None: this is the daemon's only model, and may take all that is free


class Proceed(Message, frozen=True):
    """Open the weights: the memory of the Planned message is reserved. An engine that has no budget does not wait for
    this message."""


class Run(Message, frozen=True):
    """The front is ready for this model; the engine may serve."""

    markers: list[str]  # texts of the special tokens that Task.markers adds to the text


class Share(Message, frozen=True):
    """The part of the machine that this engine should use from now on: CPU threads, for steps of one token and for all
    others, and the memory for prompts (--cache-ram). 0: no change. The engine's other threads stay."""

    n_threads: int = 0
    n_threads_batch: int = 0
    cache_ram_bytes: int = 0


class Compile(Message, frozen=True):
    """Compile a grammar. The engine answers with Compiled or Refused."""

    id: int
    text: str
    time_max_us: int


class DropGrammar(Message, frozen=True):
    grammar: int


class Lend(Message, frozen=True):
    """Map a blob that a later command will name. The engine answers with Lent."""

    id: int
    blob: int
    capacity: int


class GiveBack(Message, frozen=True):
    blob: int


class MediaRun(msgspec.Struct, frozen=True, array_like=True):
    """Embeddings of an image or a sound within a text, in a blob that was lent."""

    blob: int
    rows_at: int  # offset of the embeddings in bytes
    grid_at: int  # offset of t[n], y[n] and x[n], int32 each and relative to the first position; -1: none
    first: int  # index of the first one in the text
    n_rows: int
    n_pos: int  # number of positions that they take
    is_non_causal: bool


class Embed(Message, frozen=True):
    """Compute the embeddings of a batch of texts. The blob has the tokens (int32) of all texts; the engine writes the
    embeddings after them. A text with images or sound is a batch of its own. The engine answers with Embedded."""

    id: int
    blob: int
    capacity: int
    lengths: list[int]  # in tokens
    runs: list[MediaRun]
    adapters: list[tuple[int, float]]  # their numbers and scales


class OpenAdapter(Message, frozen=True):
    """Check the file and open it under this number. The engine answers with AdapterOpened or AdapterRefused."""

    id: int
    adapter: int
    path: str


class CloseAdapter(Message, frozen=True):
    """Close an adapter that no batch of texts uses any more. An engine that generates gets a command through its ring
    instead, because its thread must not be in a decode."""

    adapter: int


# Messages from the engine.


class Progress(Message, frozen=True):
    """The progress of the load. The first one says that llama.cpp could read the vocabulary, so that the front can
    read it, too."""

    permille: int


class Planned(Message, frozen=True):
    """The engine has decided how much memory it uses on each device. From now on, others may use the rest."""

    kept: bytes = b""  # for the next engine, which should make the same choice; empty if nothing was chosen
    # Bytes by device, if the engine has a budget: what it will take, and what all models together may take.
    need: dict[str, int] = {}
    capacity: dict[str, int] = {}


class Loaded(Message, frozen=True):
    """The model is loaded and its contexts are created."""

    info: ModelInfo
    n_ctx: int
    n_ctx_slot: int
    can_generate: bool
    vectors: VectorInfo | None
    vectors_pack: tuple[int, int]  # maximum tokens and texts of one batch
    suppressed_tokens: list[int]
    adapters: list[AdapterInfo] = msgspec.field(default_factory=list)

    def model(self, vocab: Vocab) -> Model:
        """Return the model as the endpoints see it, with the front's vocabulary."""
        sizes = self.n_ctx, self.n_ctx_slot
        return Model(self.info, vocab, *sizes, self.can_generate, self.vectors, self.suppressed_tokens)


class Ready(Message, frozen=True):
    """The engine serves, and the channel has its memory. `states` are a state of one token and one of two tokens (for
    ses1.Layout), or empty if the model has no states; `n_window` is its sliding window; `spec_types` says how it
    drafts, "" if it does not; `measured` are the bytes that it holds by device, counted as in Planned.need;
    `has_device` says whether a GPU of this machine holds nearly all of it; `takes_parts` says whether its prompt cache
    takes states in parts."""

    states: list[bytes]
    n_window: int
    spec_types: str = ""
    measured: dict[str, int] = {}
    has_device: bool = False
    takes_parts: bool = False


class LoadFailed(Message, frozen=True):
    """The model cannot be loaded, and the process ends. `reason` is one line that says why and what to do."""

    reason: str
    is_refused: bool = False  # because of a file other than the model that a flag names
    is_memory: bool = False  # because there is not enough memory


class Terminated(Message, frozen=True):
    """The engine got a SIGTERM. It continues, because the front decides whether it ends."""


class Compiled(Message, frozen=True):
    id: int
    grammar: int
    n_bytes: int


class Refused(Message, frozen=True):
    """The grammar cannot be used. Line and column are 0 if the reason has no position in the text."""

    id: int
    line: int
    column: int
    reason: str


class Lent(Message, frozen=True):
    id: int
    blob: int
    is_mapped: bool


class Embedded(Message, frozen=True):
    """`code` is llama.cpp's return code. If it is not 0, there are no embeddings."""

    id: int
    code: int
    seconds: float


class AdapterOpened(Message, frozen=True):
    id: int
    info: AdapterInfo


class AdapterRefused(Message, frozen=True):
    """The adapter's file cannot be used; nothing has changed."""

    id: int
    reason: str


class Failed(Message, frozen=True):
    """The question raised an exception. The engine has logged it and continues."""

    id: int
    reason: str


FromFront: TypeAlias = (
    Start
    | Proceed
    | Run
    | Share
    | Compile
    | DropGrammar
    | Lend
    | GiveBack
    | Embed
    | OpenAdapter
    | CloseAdapter
)
Question: TypeAlias = Compile | Lend | Embed | OpenAdapter
Reply: TypeAlias = Compiled | Refused | Lent | Embedded | AdapterOpened | AdapterRefused | Failed
FromEngine: TypeAlias = Progress | Planned | Loaded | Ready | LoadFailed | Terminated | Reply

_encode = msgspec.msgpack.Encoder().encode
decode_front = msgspec.msgpack.Decoder(FromFront).decode
decode_engine = msgspec.msgpack.Decoder(FromEngine).decode


def packed(message: Message) -> bytes:
    """Return the message's bytes for the socket."""
    data = _encode(message)
    return _LENGTH.pack(len(data)) + data


def unpack(buffer: bytearray) -> list[bytes]:
    """Remove the complete messages from the buffer and return them."""
    messages, at = [], 0
    while len(buffer) - at >= _LENGTH.size:
        (n,) = _LENGTH.unpack_from(buffer, at)
        if len(buffer) - at - _LENGTH.size < n:
            break
        messages.append(bytes(buffer[at + _LENGTH.size : at + _LENGTH.size + n]))
        at += _LENGTH.size + n
    del buffer[:at]
    return messages
