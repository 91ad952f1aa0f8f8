"""One model's answers in the cache on disk: they are kept for each key, and found by their place in a conversation.

Any thread; nothing here waits for the disk.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

from llamad.models.cache_disk.disk_cache import DiskCache
from llamad.models.cache_disk.prefixes import DIGEST_BYTES
from llamad.models.cache_disk.source import Source
from llamad.models.cache_disk.turn_files import Answer


class DiskTurns:
    """Answers are found only by the same model with the same settings, like prompts, and by the same key."""

    def __init__(self, cache: DiskCache, source: Source) -> None:
        self._cache = cache
        self._source = source

    def find(self, key_name: str, place: bytes) -> list[Answer]:
        """Return the answers that were kept under this place, the newest one first."""
        fingerprint = self._source.fingerprint
        return self._cache.turns.find(self._name(fingerprint, key_name, place)) if fingerprint else []

    def keep(self, key_name: str, places: Sequence[bytes], tokens: bytes, data: bytes) -> None:
        """Keep an answer under these places. Its file is written soon."""
        fingerprint, folder = self._source.fingerprint, self._cache.folder
        if fingerprint:
            names = tuple(self._name(fingerprint, key_name, place) for place in places)
            self._cache.turns.keep(Answer(folder.salt_id, folder.owner(key_name), names, tokens, data))

    def _name(self, fingerprint: str, key_name: str, place: bytes) -> bytes:
        folder = self._cache.folder
        whose = f"{fingerprint}/{folder.owner(key_name)}/".encode()
        return blake2b(whose + place, key=folder.salt, digest_size=DIGEST_BYTES).digest()
