"""The file of one row: a block of a prompt, or the end of one. Its format, how it is written, read and verified.

Every function blocks and runs on a worker thread. A file is

    MAGIC | length and CRC-32 of the description (two uint32) | description (MessagePack) | a state's piece, or end

All numbers are little-endian. A file is complete when it has its name, because it is renamed after it was synced. Must
not interpret a state: its bytes are verified here, its content is checked by ses1.
"""

from __future__ import annotations

import os
import stat
import struct
import zlib
from collections.abc import Callable, Iterator

import msgspec

from llamad.base.atomic_file import PIECE
from llamad.models.cache_disk.prefixes import BLOCK_TOKENS, DIGEST_BYTES, TOKEN_BYTES, Group, digest_after
from llamad.protocol.cache_memory import checksum

# The kinds of rows.
BLOCK = 1  # at most BLOCK_TOKENS tokens, and a piece of a state with their cells
END = 2  # the part of a state that belongs to its last token (sliding windows, recurrent states)

MAGIC = b"LLDKV\x00\x00\x02"  # the last byte is the version of the format, which includes the checksum's
DESCRIPTION_MAX = 64 * 1024
HEAD_BYTES = 4096  # read at once: it has the description in most cases
ENDINGS = {BLOCK: ".block", END: ".end"}
_LENGTH = struct.Struct("<II")
_BEFORE = len(MAGIC) + _LENGTH.size


class EntryBroken(Exception):
    """A file that is no entry, or no longer one. str() says what is wrong with it."""


class Description(msgspec.Struct, frozen=True, array_like=True):
    """What is known of a row without reading its state."""

    group: Group
    salt_id: bytes  # says which salt has made the digests and the group's owner
    model: str  # the model's name, for people
    kind: int
    before: bytes  # the digest of the whole blocks before its tokens
    begin: int  # the number of their tokens
    tokens: bytes  # a block's own; an end has all tokens behind `begin` after which it was made
    n_bytes: int  # of the piece or end
    checksum: int  # likewise
    needs_ends: bool  # a prompt of this model can be used only where it has an end
    created: float  # seconds since the epoch
    is_named: bool  # what the value depends on (protocol/prompt_value.pyx), when it was written
    retention_s: int
    n_returns: int
    token_seconds: float = 0.0  # the time that a token took to compute when it was written; 0: unknown

    @property
    def n_tokens(self) -> int:
        """The number of tokens from the prompt's beginning on."""
        return self.begin + len(self.tokens) // TOKEN_BYTES

    @property
    def digest(self) -> bytes:
        """The digest of all these tokens."""
        return digest_after(self.before, self.tokens)

    @property
    def name(self) -> str:
        """The file's name, so that nothing is stored twice."""
        return self.digest.hex() + ENDINGS[self.kind]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Description).decode


def parts(description: Description, piece: bytes | memoryview) -> Iterator[bytes | memoryview]:
    """Yield the parts of a file."""
    packed = _encode(description)
    yield MAGIC + _LENGTH.pack(len(packed), zlib.crc32(packed)) + packed
    view = memoryview(piece)
    for at in range(0, len(view), PIECE):
        yield view[at : at + PIECE]


def file_bytes(description: Description) -> int:
    """Return the size of the file."""
    return _BEFORE + len(_encode(description)) + description.n_bytes


class RowFile:
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
            self.description, self._at = self._describe()
            if self.description.name != name:
                raise EntryBroken("it has the name of another")
        except BaseException:
            os.close(self._fd)
            raise

    def __enter__(self) -> RowFile:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def _describe(self) -> tuple[Description, int]:
        """Return the description, and where the row begins."""
        head = os.pread(self._fd, HEAD_BYTES, 0)
        if len(head) < _BEFORE:
            raise EntryBroken("it is too short")
        if not head.startswith(MAGIC):
            raise EntryBroken("it is not an entry, or one of another version")
        n, crc = _LENGTH.unpack_from(head, len(MAGIC))
        if n > min(self.size - _BEFORE, DESCRIPTION_MAX):
            raise EntryBroken("the size of its description is wrong")
        packed = head[_BEFORE : _BEFORE + n]
        if len(packed) < n:
            packed += os.pread(self._fd, n - len(packed), _BEFORE + len(packed))
        if zlib.crc32(packed) != crc:
            raise EntryBroken("the checksum of its description is wrong")
        try:
            about = _decode(packed)
        except msgspec.MsgspecError as error:
            raise EntryBroken(f"its description cannot be read: {error}") from None
        if not _is_possible(about):
            raise EntryBroken("it describes no row")
        if _BEFORE + n + about.n_bytes != self.size:
            raise EntryBroken("its size does not fit its description")
        return about, _BEFORE + n

    def read_into(
        self,
        view: memoryview,
        should_stop: Callable[[], bool] = lambda: False,
        count: Callable[[int], None] = lambda _: None,
    ) -> bool:
        """Fill the view, which has description.n_bytes, with the state's piece. Return False if `should_stop` has ended
        it. `count` gets the number of bytes whenever some were read."""
        pos = 0
        while pos < len(view):
            if should_stop():
                return False
            n = os.preadv(self._fd, [view[pos : pos + PIECE]], self._at + pos)
            if n == 0:
                raise EntryBroken("it was cut off while it was being read")
            pos += n
            count(n)
        about = self.description
        if checksum(view) != about.checksum:
            raise EntryBroken("its checksum is wrong")
        return True

    def verify(self) -> None:
        """Read all of it and compare the checksums."""
        self.read_into(memoryview(bytearray(self.description.n_bytes)))


def _is_possible(about: Description) -> bool:
    n_more, rest = divmod(len(about.tokens), TOKEN_BYTES)
    return (
        about.kind in ENDINGS
        and rest == 0
        and len(about.before) == DIGEST_BYTES
        and about.begin >= 0
        and about.begin % BLOCK_TOKENS == 0
        and about.n_tokens > 0
        and n_more <= BLOCK_TOKENS
        and (about.kind == END or n_more > 0)
        and about.n_bytes >= 0
    )
