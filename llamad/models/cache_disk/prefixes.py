"""Hashes of a prompt's beginnings, by which blocks are named and found.

Pure functions, any thread. Each block of tokens is hashed together with everything before it, so that two prompts have
a hash in common exactly if they begin with the same blocks. The salt makes collisions impossible to prepare.
"""

from __future__ import annotations

from hashlib import blake2b

import msgspec

BLOCK_TOKENS = 256  # as in the cache memory
TOKEN_BYTES = 4
BLOCK_BYTES = BLOCK_TOKENS * TOKEN_BYTES
DIGEST_BYTES = 16


class Group(msgspec.Struct, frozen=True):
    """What must be equal for one prompt to use the state of another."""

    fingerprint: str  # the model's file and all settings that change its states
    owner: str  # the salted hash of the API key; "" for requests without one, or with --share-prefixes
    adapters: int  # the number of the LoRA adapters' set, which comes from their digests and scales; 0: none

    def packed(self) -> bytes:
        return f"{self.fingerprint}/{self.owner}/{self.adapters}".encode()


def root(salt: bytes, group: Group) -> bytes:
    """Return the digest of no tokens."""
    return blake2b(group.packed(), key=salt, digest_size=DIGEST_BYTES).digest()


def digest_after(before: bytes, tokens: bytes | memoryview) -> bytes:
    """Return the digest of a prompt with these tokens, at most a block, behind whole blocks with that digest."""
    return blake2b(tokens, key=before, digest_size=DIGEST_BYTES).digest()


class Chain:
    """The digests of all beginnings of a prompt that consist of whole blocks. `tokens` are int32 ids."""

    __slots__ = ("digests", "tokens")

    def __init__(self, salt: bytes, group: Group, tokens: bytes | memoryview) -> None:
        self.tokens = view = memoryview(tokens).cast("B")
        digest = root(salt, group)
        self.digests = [digest]  # of 0, 1, … blocks
        for at in range(0, len(view) - BLOCK_BYTES + 1, BLOCK_BYTES):
            digest = digest_after(digest, view[at : at + BLOCK_BYTES])
            self.digests.append(digest)

    @property
    def n_tokens(self) -> int:
        return len(self.tokens) // TOKEN_BYTES

    def behind(self, n_blocks: int) -> memoryview:
        """Return the tokens behind so many blocks, at most a block of them."""
        return self.tokens[n_blocks * BLOCK_BYTES : (n_blocks + 1) * BLOCK_BYTES]


def n_common(one: bytes | memoryview, other: bytes | memoryview) -> int:
    """Return how many tokens two lists have in common from their beginning on."""
    n = min(len(one), len(other)) // TOKEN_BYTES
    if one[: n * TOKEN_BYTES] == other[: n * TOKEN_BYTES]:
        return n
    low, high = 0, n - 1  # the first `low` tokens are equal, at most `high` are
    while low < high:
        middle = (low + high + 1) // 2
        begin, end = low * TOKEN_BYTES, middle * TOKEN_BYTES
        if one[begin:end] == other[begin:end]:
            low = middle
        else:
            high = middle - 1
    return low
