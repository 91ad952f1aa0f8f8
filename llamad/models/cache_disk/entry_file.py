"""The file of one entry: its format, how it is written and how it is read and verified.

Every function blocks and runs on a worker thread. A file is

    MAGIC | SES1: the tokens and the state | description (MessagePack) | its length and CRC-32 (two uint32) | MAGIC

The description comes last, so that a file that was cut off is recognized at once. All numbers are little-endian.
Must not interpret a state: its bytes are verified here, its content is checked by ses1.
"""

from __future__ import annotations

import os
import stat
import struct
import zlib
from collections.abc import Callable, Iterator

import msgspec

from llamad.base.atomic_file import PIECE
from llamad.models.cache_disk.prefixes import HASH_BYTES, TOKEN_BYTES, Group, split
from llamad.protocol.cache_memory import checksum

MAGIC = b"LLDKV\x00\x00\x01"  # the last byte is the version of the format, which includes the checksum's
# One checksum for so many bytes of SES1. They are copied with the GIL, so that more would stall the event loop.
SUM_BYTES = 1024 * 1024
DESCRIPTION_MAX = 64 * 1024 * 1024
_SES1_HEAD = struct.Struct("<4sI")  # and the number of tokens
_FOOT = struct.Struct("<II")
_END = _FOOT.size + len(MAGIC)


class EntryBroken(Exception):
    """A file that is no entry, or no longer one. str() says what is wrong with it."""


class Description(msgspec.Struct, frozen=True, array_like=True):
    """What is known of an entry without reading its state."""

    group: Group
    salt_id: bytes  # says which salt has made the hashes and the group's owner
    model: str  # the model's name, for people
    n_tokens: int
    n_bytes: int  # of SES1
    is_whole: bool  # it can be used only with all of its tokens
    has_session: bool
    created: float  # seconds since the epoch
    hashes: bytes  # of all whole blocks
    end: bytes  # the hash of all tokens
    tokens_sum: int  # the checksum of SES1 up to the end of its tokens
    sums: list[int]  # the checksums of all of it


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Description).decode


def tokens_end(n_tokens: int) -> int:
    """Return where the tokens end in SES1."""
    return _SES1_HEAD.size + n_tokens * TOKEN_BYTES


def tokens_in(entry: memoryview, n_tokens: int) -> bytes:
    """Return the tokens of SES1 as int32 ids. Raises EntryBroken if it is none with so many tokens."""
    if len(entry) < tokens_end(n_tokens) or _SES1_HEAD.unpack_from(entry) != (b"SES1", n_tokens):
        raise EntryBroken("it has no tokens, or another number of them")
    return bytes(entry[_SES1_HEAD.size : tokens_end(n_tokens)])


def pieces(
    entry: memoryview, n_tokens: int, describe: Callable[[int, list[int]], Description]
) -> Iterator[bytes]:
    """Yield the pieces of a file with this SES1. `describe` gets the checksums and returns the description. Each piece
    is copied first, because another process can change the memory: a file is what its checksums say."""
    yield MAGIC
    sums, tokens_sum = [], checksum(bytes(entry[: tokens_end(n_tokens)]))
    for at in range(0, len(entry), SUM_BYTES):
        piece = bytes(entry[at : at + SUM_BYTES])
        sums.append(checksum(piece))
        yield piece
    description = _encode(describe(tokens_sum, sums))
    yield description
    yield _FOOT.pack(len(description), zlib.crc32(description)) + MAGIC


class EntryFile:
    """A file that is open for reading. Raises OSError, EntryBroken."""

    def __init__(self, folder: int, name: str) -> None:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        self._fd = os.open(name, flags, dir_fd=folder)
        try:
            info = os.fstat(self._fd)
            if not stat.S_ISREG(info.st_mode):
                raise EntryBroken("it is not a regular file")
            self.size = info.st_size
            self.used = info.st_mtime
            self.description = self._describe()
        except BaseException:
            os.close(self._fd)
            raise

    def __enter__(self) -> EntryFile:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def _describe(self) -> Description:
        if self.size < len(MAGIC) + _END:
            raise EntryBroken("it is too short")
        if self._read(0, len(MAGIC)) != MAGIC:
            raise EntryBroken("it is not an entry, or one of another version")
        foot = self._read(self.size - _END, _END)
        if foot[_FOOT.size :] != MAGIC:
            raise EntryBroken("its end is missing")
        n, crc = _FOOT.unpack_from(foot)
        if n > min(self.size - len(MAGIC) - _END, DESCRIPTION_MAX):
            raise EntryBroken("the size of its description is wrong")
        packed = self._read(self.size - _END - n, n)
        if zlib.crc32(packed) != crc:
            raise EntryBroken("the checksum of its description is wrong")
        try:
            description = _decode(packed)
        except msgspec.MsgspecError as error:
            raise EntryBroken(f"its description cannot be read: {error}") from None
        if description.n_tokens <= 0 or description.n_bytes < tokens_end(description.n_tokens):
            raise EntryBroken("it describes no tokens")
        if len(MAGIC) + description.n_bytes + n + _END != self.size:
            raise EntryBroken("its size does not fit its description")
        if len(description.hashes) % HASH_BYTES:
            raise EntryBroken("its hashes are cut off")
        return description

    def _read(self, at: int, n: int) -> bytes:
        data = bytearray(n)
        self._read_into(memoryview(data), at)
        return bytes(data)

    def _read_into(self, view: memoryview, at: int) -> None:
        pos = 0
        while pos < len(view):
            n = os.preadv(self._fd, [view[pos : pos + PIECE]], at + pos)
            if n == 0:
                raise EntryBroken("it was cut off while it was being read")
            pos += n

    def read_tokens(self) -> bytes:
        """Return the tokens as int32 ids."""
        n_tokens = self.description.n_tokens
        head = self._read(len(MAGIC), tokens_end(n_tokens))
        if checksum(head) != self.description.tokens_sum:
            raise EntryBroken("the checksum of its tokens is wrong")
        return tokens_in(memoryview(head), n_tokens)

    def read_into(self, view: memoryview, should_stop: Callable[[], bool] = lambda: False) -> bool:
        """Fill the view, which has description.n_bytes, with SES1. Return False if `should_stop` has ended it."""
        for at, piece_sum in self._sums():
            if should_stop():
                return False
            with view[at : at + SUM_BYTES] as piece:
                self._read_into(piece, len(MAGIC) + at)
                if checksum(piece) != piece_sum:
                    raise EntryBroken("its checksum is wrong")
        return True

    def verify(self) -> None:
        """Read all of it and compare the checksums."""
        self.read_tokens()
        for at, piece_sum in self._sums():
            piece = self._read(len(MAGIC) + at, min(SUM_BYTES, self.description.n_bytes - at))
            if checksum(piece) != piece_sum:
                raise EntryBroken("its checksum is wrong")

    def _sums(self) -> Iterator[tuple[int, int]]:
        """Yield the places and the checksums of all pieces."""
        sums, places = self.description.sums, range(0, self.description.n_bytes, SUM_BYTES)
        if len(sums) != len(places):
            raise EntryBroken("checksums are missing")
        yield from zip(places, sums, strict=True)

    def hashes(self) -> list[bytes]:
        return split(self.description.hashes)
