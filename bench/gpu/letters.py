"""A vocabulary that needs no file: bytes, letters and pairs of letters, for models with a few hundred tokens.

Pure functions. A word has about half as many tokens as letters.
"""

from __future__ import annotations

import string
from collections import Counter
from typing import Any

from bench import prompts
from bench.errors import BenchError

SPACE = "\u2581"  # how a SentencePiece vocabulary writes a space
N_BYTES = 256


def pieces(n: int) -> list[str]:
    """Return `n` different texts: every letter, every letter after a space, then the most frequent pairs of letters."""
    pairs = Counter(
        word[i : i + 2]
        for word in (SPACE + each for each in prompts.words())
        for i in range(1, len(word) - 1)
    )
    common = [pair for pair, _ in sorted(pairs.items(), key=lambda item: (-item[1], item[0]))]
    every = [a + b for a in string.ascii_lowercase for b in string.ascii_lowercase]
    letters = [SPACE, ".", *string.ascii_lowercase, *(SPACE + letter for letter in string.ascii_lowercase)]
    return list(dict.fromkeys([*letters, *common, *every]))[:n]


def add_tokenizer(gguf: Any, writer: Any, n_vocab: int) -> int:
    """Add the vocabulary to a GGUF; return its size."""
    kind = gguf.TokenType
    texts = pieces(max(0, n_vocab - 3 - N_BYTES))
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{i:02X}>" for i in range(N_BYTES)), *texts]
    types = [kind.UNKNOWN, kind.CONTROL, kind.CONTROL, *[kind.BYTE] * N_BYTES, *[kind.NORMAL] * len(texts)]
    if len(tokens) != n_vocab:
        least, most = 3 + N_BYTES, 3 + N_BYTES + len(pieces(n_vocab))
        raise BenchError(f"--n-vocab {n_vocab} needs a --vocab: without one it is {least} to {most}")
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * (3 + N_BYTES) + [-float(i) for i in range(len(texts))])
    writer.add_token_types([int(one) for one in types])
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(True)
    return n_vocab
