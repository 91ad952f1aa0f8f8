"""Hashes of a prompt's beginnings, by which the index finds entries without comparing tokens.

Pure functions, any thread. Each block of tokens is hashed together with everything before it, so that two prompts have
a hash in common exactly if they begin with the same blocks. The salt makes collisions impossible to prepare.
"""

from __future__ import annotations

from hashlib import blake2b

import msgspec

BLOCK_TOKENS = 128
TOKEN_BYTES = 4
BLOCK_BYTES = BLOCK_TOKENS * TOKEN_BYTES
HASH_BYTES = 8  # a block's hash in the index and in files
_DIGEST_BYTES = 16


class Group(msgspec.Struct, frozen=True):
    """What must be equal for one prompt to use the state of another."""

    fingerprint: str  # the model's file and all settings that change its states
    owner: str  # the salted hash of the API key; "" for requests without one, or with --share-prefixes
    adapters: int  # the number of the LoRA adapters' set, which comes from their digests and scales; 0: none

    def packed(self) -> bytes:
        return f"{self.fingerprint}/{self.owner}/{self.adapters}".encode()


class Chain:
    """The hashes of all beginnings of a prompt that consist of whole blocks. `tokens` are int32 ids."""

    __slots__ = ("_digests", "_tokens", "hashes")

    def __init__(self, salt: bytes, group: Group, tokens: bytes | memoryview) -> None:
        self._tokens = memoryview(tokens).cast("B")
        digest = blake2b(group.packed(), key=salt, digest_size=_DIGEST_BYTES).digest()
        self._digests = digests = [digest]
        for at in range(0, len(self._tokens) - BLOCK_BYTES + 1, BLOCK_BYTES):
            block = self._tokens[at : at + BLOCK_BYTES]
            digest = blake2b(block, key=digest, digest_size=_DIGEST_BYTES).digest()
            digests.append(digest)
        # The hash of each whole block with everything before it.
        self.hashes = [digest[:HASH_BYTES] for digest in digests[1:]]

    @property
    def n_tokens(self) -> int:
        return len(self._tokens) // TOKEN_BYTES

    def end(self, n_tokens: int) -> bytes:
        """Return the hash of exactly the first n_tokens, which need not end with a block."""
        n_blocks = n_tokens // BLOCK_TOKENS
        rest = self._tokens[n_blocks * BLOCK_BYTES : n_tokens * TOKEN_BYTES]
        return blake2b(rest, key=self._digests[n_blocks], digest_size=_DIGEST_BYTES).digest()


def split(packed: bytes) -> list[bytes]:
    """Return the hashes in a file's description, where they are one text."""
    return [packed[at : at + HASH_BYTES] for at in range(0, len(packed), HASH_BYTES)]


def n_common(one: bytes, other: bytes) -> int:
    """Return how many tokens two prompts have in common from their beginning on."""
    low, high = (
        0,
        min(len(one), len(other)) // TOKEN_BYTES,
    )  # the first `low` tokens are equal, at most `high` are
    while low < high:
        middle = (low + high + 1) // 2
        begin, end = low * TOKEN_BYTES, middle * TOKEN_BYTES
        if one[begin:end] == other[begin:end]:
            low = middle
        else:
            high = middle - 1
    return low
