"""Opens the vocabulary of a GGUF file for the front, without weights, devices or computation.

Runs in a worker thread. llama.cpp aborts on some broken vocabularies, so an engine must have checked the file before.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from llamad._llama import ffi, lib
from llamad.flags.types.values import KvOverride
from llamad.tokenizer.kv_overrides import kv_overrides
from llamad.tokenizer.vocab import Vocab

FileId = tuple[int, int, int, int]


class VocabError(Exception):
    """One line that says why the vocabulary cannot be opened."""


def file_id(path: str) -> FileId:
    """Return a value that changes when the file is replaced or written to. Raises VocabError."""
    try:
        stat = os.stat(path)
    except OSError as error:
        raise VocabError(f"{path}: {error.strerror}") from None
    return stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns


class VocabFile:
    """A llama.cpp model with only a vocabulary. It is closed with the last Vocab that uses it. Raises VocabError."""

    def __init__(self, path: str, overrides: Sequence[KvOverride], *, api_only: bool) -> None:
        lib.llamad_log_open(-1)  # no log here, because an engine logs the same lines
        rows = kv_overrides(overrides)
        self.handle: Any = lib.llamad_vocab_open(os.fsencode(path), rows, api_only)
        del rows
        if self.handle == ffi.NULL:
            reason = ffi.string(lib.llamad_last_error()).decode(errors="replace")
            raise VocabError(f"{path}: its vocabulary could not be read{': ' + reason if reason else ''}")

    def __del__(self) -> None:
        if self.handle != ffi.NULL:
            lib.llamad_model_close(self.handle)

    def vocab(self, *, special: bool) -> Vocab:
        vocab = lib.llama_model_get_vocab(self.handle)
        return Vocab(
            int(ffi.cast("uintptr_t", lib.llamad_llama_table())),
            int(ffi.cast("uintptr_t", vocab)),
            lib.llama_vocab_n_tokens(vocab),
            special,
            self,
        )
