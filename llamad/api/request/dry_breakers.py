"""The cache of tables for DRY's sequence breakers.

find() runs on the event loop; make() takes milliseconds and runs on a worker.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

from llamad.api.request.errors import bad
from llamad.tokenizer.dry_breakers import pack_breakers
from llamad.tokenizer.vocab import Vocab

KEPT_MAX = 32


class Breakers:
    """The most recently used tables of one vocabulary, by their strings. Another vocabulary empties the cache."""

    def __init__(self) -> None:
        self._vocab: Vocab | None = None
        self._kept: OrderedDict[tuple[str, ...], bytes] = OrderedDict()
        self._lock = threading.Lock()

    def find(self, vocab: Vocab, texts: tuple[str, ...]) -> bytes | None:
        """Return the table, or None if it is not cached."""
        with self._lock:
            if vocab is not self._vocab:
                return None
            table = self._kept.get(texts)
            if table is not None:
                self._kept.move_to_end(texts)
            return table

    def make(self, vocab: Vocab, texts: tuple[str, ...]) -> bytes:
        """Return the table; it is made if needed."""
        table = self.find(vocab, texts)
        if table is None:
            try:
                table = pack_breakers(vocab, [text.encode("utf-8", "replace") for text in texts])
            except ValueError:
                raise bad(
                    '"dry_sequence_breakers" match too many tokens of this model; give fewer or shorter ones'
                ) from None
            with self._lock:
                if vocab is not self._vocab:
                    self._vocab = vocab
                    self._kept.clear()
                self._kept[texts] = table
                while len(self._kept) > KEPT_MAX:
                    self._kept.popitem(last=False)
        return table
