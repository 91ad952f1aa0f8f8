"""Owns what crosses between the front and its media processes. Plain data; large parts travel as descriptors of
memory."""

from __future__ import annotations

import msgspec

# The descriptor under which a media process finds its socket.
SOCKET_FD = 3
PACKET_MAX = 1 << 16
# A line of a media process's log that an operator should see begins so.
WARNING = "warning: "


class Decode(msgspec.Struct, tag=True):
    """With one descriptor: the file."""

    n_bytes: int
    is_sound: bool
    pixels_max: int
    seconds_max: float
    sample_rate: int  # that sound is wanted at


class Pixels(msgspec.Struct, tag=True):
    """With one descriptor: rows of red, green and blue bytes."""

    width: int
    height: int


class Samples(msgspec.Struct, tag=True):
    """With one descriptor: mono float32."""

    n_samples: int


class Refused(msgspec.Struct, tag=True):
    """The file is wrong; `reason` is for whoever sent it."""

    reason: str


Decoded = Pixels | Samples | Refused


class Open(msgspec.Struct, tag=True):
    """The encoder's first message."""

    model: str
    projector: str
    n_threads: int
    uses_gpu: bool
    device: str | None
    image_min_tokens: int
    image_max_tokens: int
    flash_attn: str  # on, off or auto


class Opened(msgspec.Struct, tag=True):
    """What the projector can do."""

    sees: bool
    hears: bool
    sample_rate: int
    has_mrope: bool
    n_row: int


class Encode(msgspec.Struct, tag=True):
    """With one descriptor: the pixels of an image, or a sound's samples, whose `height` is 0."""

    width: int
    height: int
    tokens_max: int


class Piece(msgspec.Struct):
    """A run of the prompt: text tokens, or rows."""

    n_tokens: int
    n_pos: int
    is_non_causal: bool = False
    is_grid: bool = False
    tokens: list[int] = []  # of text


class Encoded(msgspec.Struct, tag=True):
    """With one descriptor: all rows, then t, y, x of the rows of each grid."""

    pieces: list[Piece]


FromEncoder = Opened | Encoded | Refused
