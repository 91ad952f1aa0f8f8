"""Checks the replies of media processes, because a file may have taken over the process that read it.

Runs in the front. Nothing of a reply is mapped or used before it is checked here. A process whose reply fails a check
is broken, and the caller kills it.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from llamad.base import sealed_memory
from llamad.media.messages import Decode, Decoded, Encoded, FromEncoder, Opened, Piece, Pixels, Refused

T = TypeVar("T")

FLOAT_BYTES = 4
GRID_BYTES = 12
SAMPLES_SPARE = 4096  # a resampler may add some samples
REASON_MAX = 1000

_decoded: msgspec.msgpack.Decoder[Decoded] = msgspec.msgpack.Decoder(Decoded)
_encoded: msgspec.msgpack.Decoder[FromEncoder] = msgspec.msgpack.Decoder(FromEncoder)


class BrokenError(Exception):
    """The process sent a reply that a working process never sends; it must be killed."""


def _size(fds: list[int]) -> int:
    """Return the size of the memory that came with a reply, after checking that nobody can change it any more."""
    if len(fds) != 1:
        raise BrokenError(f"it sent {len(fds)} descriptors")
    try:
        return sealed_memory.checked_size(fds[0], contents=True)
    except sealed_memory.UnsealedError as error:
        raise BrokenError(str(error)) from None


def _refused(refused: Refused) -> Refused:
    return Refused(refused.reason[:REASON_MAX])


def _read(decoder: msgspec.msgpack.Decoder[T], packet: bytes) -> T:
    """Decode the message of a packet. Raises BrokenError."""
    try:
        return decoder.decode(packet)
    except msgspec.MsgspecError:
        raise BrokenError("it sent an invalid reply") from None


def decoded(packet: bytes, fds: list[int], request: Decode) -> Decoded:
    """Return a decoder's reply, after checking that its memory has the right size. Raises BrokenError."""
    n_bytes = _size(fds)
    reply = _read(_decoded, packet)
    if isinstance(reply, Refused):
        return _refused(reply)
    if isinstance(reply, Pixels):
        is_right = (
            not request.is_sound
            and reply.width > 0
            and reply.height > 0
            and reply.width * reply.height <= request.pixels_max
            and reply.width * reply.height * 3 == n_bytes
        )
    else:
        n_most = request.seconds_max * request.sample_rate + SAMPLES_SPARE
        is_right = (
            request.is_sound and 0 < reply.n_samples <= n_most and reply.n_samples * FLOAT_BYTES == n_bytes
        )
    if not is_right:
        raise BrokenError("its answer does not fit its memory")
    return reply


def opened(packet: bytes) -> Opened | Refused:
    """Return an encoder's first reply. Raises BrokenError."""
    reply = _read(_encoded, packet)
    if isinstance(reply, Refused):
        return _refused(reply)
    if not isinstance(reply, Opened) or reply.n_row < 1:
        raise BrokenError("it did not say what its projector can do")
    return reply


def encoded(packet: bytes, fds: list[int], tokens_max: int, n_row: int) -> tuple[Encoded | Refused, int]:
    """Return an encoder's reply and the size of its memory, after checking that it holds all embeddings. Raises
    BrokenError."""
    n_bytes = _size(fds)
    reply = _read(_encoded, packet)
    if isinstance(reply, Refused):
        return _refused(reply), 0
    if not isinstance(reply, Encoded):
        raise BrokenError("its reply belongs to another request")
    pieces = reply.pieces
    if not all(map(_is_piece, pieces)) or sum(piece.n_tokens for piece in pieces) > tokens_max:
        raise BrokenError("it sent pieces that no file has")
    n_rows = sum(piece.n_tokens for piece in pieces if not piece.tokens)
    n_grid = sum(piece.n_tokens for piece in pieces if piece.is_grid)
    if n_bytes == 0 or n_bytes != n_rows * n_row * FLOAT_BYTES + n_grid * GRID_BYTES:
        raise BrokenError("its answer does not fit its memory")
    return reply, n_bytes


def _is_piece(piece: Piece) -> bool:
    if piece.tokens:
        return piece.n_tokens == len(piece.tokens) and not piece.is_grid
    return piece.n_tokens > 0 and 0 < piece.n_pos <= piece.n_tokens
