"""Owns the checks of what a media process answers: a file that it read may have taken it over.

Runs in the front. Nothing is mapped, measured or believed before it is checked here; a process that fails a check is
broken, and whoever asked ends it.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from llamad.base import sealed_memory
from llamad.media.messages import Decode, Decoded, Encoded, FromEncoder, Opened, Piece, Pixels, Refused

T = TypeVar("T")

FLOAT_BYTES = 4
GRID_BYTES = 12
SAMPLES_SPARE = 4096  # a resampler may add some
REASON_MAX = 1000

_decoded: msgspec.msgpack.Decoder[Decoded] = msgspec.msgpack.Decoder(Decoded)
_encoded: msgspec.msgpack.Decoder[FromEncoder] = msgspec.msgpack.Decoder(FromEncoder)


class BrokenError(Exception):
    """The process sent what no such process sends: it must be ended."""


def _size(fds: list[int]) -> int:
    """Returns the size of the memory that came with an answer, whose contents nobody can change any more."""
    if len(fds) != 1:
        raise BrokenError(f"it sent {len(fds)} descriptors")
    try:
        return sealed_memory.checked_size(fds[0], contents=True)
    except sealed_memory.UnsealedError as error:
        raise BrokenError(str(error)) from None


def _refused(answer: Refused) -> Refused:
    return Refused(answer.reason[:REASON_MAX])


def _read(decoder: msgspec.msgpack.Decoder[T], packet: bytes) -> T:
    """Returns the message of a packet. Raises BrokenError."""
    try:
        return decoder.decode(packet)
    except msgspec.MsgspecError:
        raise BrokenError("it sent no answer") from None


def decoded(packet: bytes, fds: list[int], wanted: Decode) -> Decoded:
    """Returns the answer of a decoder, whose memory is as large as it says. Raises BrokenError."""
    n_bytes = _size(fds)
    answer = _read(_decoded, packet)
    if isinstance(answer, Refused):
        return _refused(answer)
    if isinstance(answer, Pixels):
        is_right = (
            not wanted.is_sound
            and answer.width > 0
            and answer.height > 0
            and answer.width * answer.height <= wanted.pixels_max
            and answer.width * answer.height * 3 == n_bytes
        )
    else:
        n_most = wanted.seconds_max * wanted.sample_rate + SAMPLES_SPARE
        is_right = (
            wanted.is_sound and 0 < answer.n_samples <= n_most and answer.n_samples * FLOAT_BYTES == n_bytes
        )
    if not is_right:
        raise BrokenError("its answer does not fit its memory")
    return answer


def opened(packet: bytes) -> Opened | Refused:
    """Returns an encoder's first answer. Raises BrokenError."""
    answer = _read(_encoded, packet)
    if isinstance(answer, Refused):
        return _refused(answer)
    if not isinstance(answer, Opened) or answer.n_row < 1:
        raise BrokenError("it did not say what its projector can do")
    return answer


def encoded(packet: bytes, fds: list[int], tokens_max: int, n_row: int) -> tuple[Encoded | Refused, int]:
    """Returns the answer of an encoder and the size of its rows, which are all there. Raises BrokenError."""
    n_bytes = _size(fds)
    answer = _read(_encoded, packet)
    if isinstance(answer, Refused):
        return _refused(answer), 0
    if not isinstance(answer, Encoded):
        raise BrokenError("it answered another question")
    pieces = answer.pieces
    if not all(map(_is_piece, pieces)) or sum(piece.n_tokens for piece in pieces) > tokens_max:
        raise BrokenError("it sent pieces that no file has")
    n_rows = sum(piece.n_tokens for piece in pieces if not piece.tokens)
    n_grid = sum(piece.n_tokens for piece in pieces if piece.is_grid)
    if n_bytes == 0 or n_bytes != n_rows * n_row * FLOAT_BYTES + n_grid * GRID_BYTES:
        raise BrokenError("its answer does not fit its memory")
    return answer, n_bytes


def _is_piece(piece: Piece) -> bool:
    if piece.tokens:
        return piece.n_tokens == len(piece.tokens) and not piece.is_grid
    return piece.n_tokens > 0 and 0 < piece.n_pos <= piece.n_tokens
