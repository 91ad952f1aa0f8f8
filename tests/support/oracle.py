"""llama.cpp's own grammar sampler, in a child process that may hang or die: several grammars make it do so."""

from __future__ import annotations

import ctypes
import select
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np

TIMEOUT_SECONDS = 5.0


class OracleDied(Exception):
    """The grammar was too much for it."""


class Oracle:
    """begin() with a grammar, then masks and accepted tokens in turn."""

    def __init__(self, vocab_path: str) -> None:
        self.vocab_path = vocab_path
        self.process: subprocess.Popen[bytes] | None = None
        self.n_vocab = 0

    def begin(self, grammar: str) -> bool:
        """False when llama.cpp refuses the grammar."""
        data = grammar.encode()
        answer = self._ask(b"g" + struct.pack("<I", len(data)) + data, 1)
        return answer == b"\1"

    def mask(self) -> np.ndarray:
        """What may come next, a bool for each token."""
        return np.frombuffer(self._ask(b"m", self.n_vocab), np.uint8).astype(bool)

    def accept(self, token: int) -> None:
        self._ask(b"a" + struct.pack("<i", token), 1)

    def close(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
            self.process = None

    def _start(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, __file__, self.vocab_path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self.n_vocab = struct.unpack("<I", self._read(4, 60.0))[0]

    def _ask(self, data: bytes, n_answer: int) -> bytes:
        if self.process is None:
            self._start()
            n_answer = n_answer if n_answer < 2 else self.n_vocab
        assert self.process is not None
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(data)
            self.process.stdin.flush()
        except OSError:
            self.close()
            raise OracleDied from None
        return self._read(n_answer, TIMEOUT_SECONDS)

    def _read(self, n: int, seconds: float) -> bytes:
        assert self.process is not None
        assert self.process.stdout is not None
        out = b""
        while len(out) < n:
            ready, _, _ = select.select([self.process.stdout], [], [], seconds)
            piece = self.process.stdout.read1(n - len(out)) if ready else b""  # type: ignore[attr-defined]
            if not piece:
                self.close()
                raise OracleDied
            out += piece
        return out


# --- the child --------------------------------------------------------------------------------------------------


class _Candidate(ctypes.Structure):
    _fields_ = (("id", ctypes.c_int32), ("logit", ctypes.c_float), ("p", ctypes.c_float))


class _Candidates(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("size", ctypes.c_size_t),
        ("selected", ctypes.c_int64),
        ("sorted", ctypes.c_bool),
    )


def open_library() -> ctypes.CDLL:
    import llamad._llama

    lib = ctypes.CDLL(str(Path(llamad._llama.__file__).parent / "lib" / "libllama.so.0"))
    lib.llama_sampler_init_grammar.restype = ctypes.c_void_p
    lib.llama_sampler_init_grammar.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p)
    lib.llama_sampler_apply.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
    lib.llama_sampler_accept.argtypes = (ctypes.c_void_p, ctypes.c_int32)
    lib.llama_sampler_free.argtypes = (ctypes.c_void_p,)
    return lib


class LlamaGrammar:
    """llama.cpp's sampler in this process: fast, but it may take the process with it."""

    def __init__(self, vocab_address: int, n_vocab: int, grammar: bytes) -> None:
        self.lib = open_library()
        self.sampler = self.lib.llama_sampler_init_grammar(vocab_address, grammar, b"root")
        self.rows = np.zeros(n_vocab, np.dtype([("id", "i4"), ("logit", "f4"), ("p", "f4")]))
        self.rows["id"] = np.arange(n_vocab)
        self._array = _Candidates(self.rows.ctypes.data, n_vocab, -1, False)

    def mask(self) -> np.ndarray:
        self.rows["logit"] = 0
        self.lib.llama_sampler_apply(self.sampler, ctypes.byref(self._array))
        return self.rows["logit"] == 0

    def allows(self, token: int) -> bool:
        one = _Candidate(token, 1.0, 0.0)
        array = _Candidates(ctypes.addressof(one), 1, -1, False)
        self.lib.llama_sampler_apply(self.sampler, ctypes.byref(array))
        return one.logit == 1.0

    def accept(self, token: int) -> None:
        self.lib.llama_sampler_accept(self.sampler, token)

    def close(self) -> None:
        if self.sampler:
            self.lib.llama_sampler_free(self.sampler)


def _serve(vocab_path: str) -> None:
    sys.path[:0] = [str(Path(__file__).parents[1])]
    from support.pieces import Words

    words = Words(vocab_path)
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    sink.write(struct.pack("<I", words.n_vocab))
    sink.flush()
    grammar: LlamaGrammar | None = None
    while kind := source.read(1):
        if kind == b"g":
            if grammar is not None:
                grammar.close()
            text = source.read(struct.unpack("<I", source.read(4))[0])
            grammar = LlamaGrammar(words.address, words.n_vocab, text)
            sink.write(b"\1" if grammar.sampler else b"\0")
        elif kind == b"m":
            assert grammar is not None
            sink.write(grammar.mask().astype(np.uint8).tobytes())
        elif kind == b"a":
            assert grammar is not None
            grammar.accept(struct.unpack("<i", source.read(4))[0])
            sink.write(b"\1")
        sink.flush()


if __name__ == "__main__":
    _serve(sys.argv[1])
