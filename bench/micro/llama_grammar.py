"""Calls llama.cpp's grammar sampler in this process. llamad's grammars are measured and tested against it.

It must not get untrusted grammars, because some make it hang and some crash the process.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import llamad._llama
from llamad._llama import ffi, lib
from llamad.tokenizer.vocab import Vocab


class Words:
    """A vocabulary that is opened without its model."""

    def __init__(self, path: str) -> None:
        params = lib.llama_model_default_params()
        params.vocab_only = True
        self._model = lib.llamad_model_open(path.encode(), params, ffi.new("llamad_load_state *"))
        if self._model == ffi.NULL:
            raise ValueError(f"{path} has no vocabulary")
        handle = lib.llama_model_get_vocab(self._model)
        self.address = int(ffi.cast("uintptr_t", handle))
        self.n_vocab: int = lib.llama_vocab_n_tokens(handle)
        table = int(ffi.cast("uintptr_t", lib.llamad_llama_table()))
        self.vocab = Vocab(table, self.address, self.n_vocab)

    def piece(self, token: int) -> bytes:
        return self.vocab.piece(token, True)

    def close(self) -> None:
        lib.llamad_model_close(self._model)


class _Candidate(ctypes.Structure):
    _fields_ = (("id", ctypes.c_int32), ("logit", ctypes.c_float), ("p", ctypes.c_float))


class _Candidates(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("size", ctypes.c_size_t),
        ("selected", ctypes.c_int64),
        ("sorted", ctypes.c_bool),
    )


def _open_library() -> ctypes.CDLL:
    library = ctypes.CDLL(str(Path(llamad._llama.__file__).parent / "lib" / "libllama.so.0"))
    library.llama_sampler_init_grammar.restype = ctypes.c_void_p
    library.llama_sampler_init_grammar.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p)
    library.llama_sampler_apply.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
    library.llama_sampler_accept.argtypes = (ctypes.c_void_p, ctypes.c_int32)
    library.llama_sampler_free.argtypes = (ctypes.c_void_p,)
    return library


class LlamaGrammar:
    """Follows one text through a grammar. `is_open` is False if llama.cpp refused the grammar."""

    def __init__(self, words: Words, grammar: str) -> None:
        self._lib = _open_library()
        self._sampler = self._lib.llama_sampler_init_grammar(words.address, grammar.encode(), b"root")
        self._rows = np.zeros(words.n_vocab, np.dtype([("id", "i4"), ("logit", "f4"), ("p", "f4")]))
        self._rows["id"] = np.arange(words.n_vocab)
        self._array = _Candidates(self._rows.ctypes.data, words.n_vocab, -1, False)

    @property
    def is_open(self) -> bool:
        return bool(self._sampler)

    def clear(self) -> None:
        """Reset all candidates before apply()."""
        self._rows["logit"] = 0

    def apply(self) -> None:
        """Rule out every token that must not come next."""
        self._lib.llama_sampler_apply(self._sampler, ctypes.byref(self._array))

    def mask(self) -> NDArray[np.bool_]:
        """Return which tokens may come next."""
        self.clear()
        self.apply()
        return np.asarray(self._rows["logit"] == 0)

    def allows(self, token: int) -> bool:
        one = _Candidate(token, 1.0, 0.0)
        array = _Candidates(ctypes.addressof(one), 1, -1, False)
        self._lib.llama_sampler_apply(self._sampler, ctypes.byref(array))
        return bool(one.logit == 1.0)

    def accept(self, token: int) -> None:
        self._lib.llama_sampler_accept(self._sampler, token)

    def close(self) -> None:
        if self._sampler:
            self._lib.llama_sampler_free(self._sampler)
            self._sampler = None
