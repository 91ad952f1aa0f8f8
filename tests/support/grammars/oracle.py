"""llama.cpp's own grammar sampler, in a child process that may hang or die: several grammars make it do so."""

from __future__ import annotations

import select
import signal
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np

CPU_SECONDS = 1.0  # of one question; what it can do takes milliseconds
TIMEOUT_SECONDS = 60.0  # in which a busy machine has those


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
        self.n_vocab = struct.unpack("<I", self._read(4, TIMEOUT_SECONDS))[0]

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
        readable = select.poll()
        readable.register(self.process.stdout, select.POLLIN)
        while len(out) < n:
            ready = readable.poll(seconds * 1000)
            piece = self.process.stdout.read1(n - len(out)) if ready else b""  # type: ignore[attr-defined]
            if not piece:
                self.close()
                raise OracleDied
            out += piece
        return out


# --- the child --------------------------------------------------------------------------------------------------


def _serve(vocab_path: str) -> None:
    sys.path[:0] = [str(Path(__file__).parents[2])]
    from bench.micro.llama_grammar import LlamaGrammar, Words

    words = Words(vocab_path)
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    sink.write(struct.pack("<I", words.n_vocab))
    sink.flush()
    grammar = None
    while kind := source.read(1):
        signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)  # ends the process
        if kind == b"g":
            if grammar is not None:
                grammar.close()
            text = source.read(struct.unpack("<I", source.read(4))[0])
            grammar = LlamaGrammar(words, text.decode())
            sink.write(b"\1" if grammar.is_open else b"\0")
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
