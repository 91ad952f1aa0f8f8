"""The messages between the front and its media processes. Plain data; large data is sent as descriptors of shared
memory."""

from __future__ import annotations

import msgspec

# The number of the descriptor that is a media process's socket.
SOCKET_FD = 3
PACKET_MAX = 1 << 16
# The prefix of lines in a media process's log that the operator should see.
WARNING = "warning: "


class Decode(msgspec.Struct, tag=True):
    """A request to decode a file, with one descriptor: the file's memory."""

    n_bytes: int
    is_sound: bool
    pixels_max: int
    seconds_max: float
    sample_rate: int  # of the decoded sound


class Pixels(msgspec.Struct, tag=True):
    """A decoded image, with one descriptor: its lines of red, green and blue bytes."""

    width: int
    height: int


class Samples(msgspec.Struct, tag=True):
    """A decoded sound, with one descriptor: its samples, mono float32."""

    n_samples: int


class Refused(msgspec.Struct, tag=True):
    """The file cannot be used; `reason` is for the client."""

    reason: str


Decoded = Pixels | Samples | Refused


class Open(msgspec.Struct, tag=True):
    """The first message to the encoder: which projector to open."""

    model: str
    projector: str
    n_threads: int
    uses_gpu: bool
    device: str | None
    image_min_tokens: int
    image_max_tokens: int
    flash_attn: str  # on, off or auto


class Opened(msgspec.Struct, tag=True):
    """The reply to Open: what the projector can do."""

    sees: bool
    hears: bool
    sample_rate: int
    has_mrope: bool
    n_row: int


class Encode(msgspec.Struct, tag=True):
    """A request to encode, with one descriptor: the pixels of an image, or the samples of a sound. For a sound `width`
    is the number of samples, and `height` is 0."""

    width: int
    height: int
    tokens_max: int


class Piece(msgspec.Struct):
    """A run of tokens in the prompt: text tokens, or embeddings."""

    n_tokens: int
    n_pos: int
    is_non_causal: bool = False
    is_grid: bool = False
    tokens: list[int] = []  # the text tokens; empty for embeddings


class Encoded(msgspec.Struct, tag=True):
    """An encoded file, with one descriptor: all embeddings, then the positions t, y, x of those of each grid."""

    pieces: list[Piece]


FromEncoder = Opened | Encoded | Refused
