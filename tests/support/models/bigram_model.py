"""A GGUF whose next token depends on the last one alone, with logits written down here: embeddings are one-hot, the
layer adds nothing, and the output matrix is the table of logits. So tests can compute what an option must do."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import gguf
import numpy as np

N_EMBD, N_HEAD, N_FF = 400, 25, 16  # 400 = 20 * 20: the norm scales a one-hot row by exactly 20
NEVER = -60.0

UNK, BOS, EOS = 0, 1, 2
EXTRA = ("▁", "ST", "OP", "é")
PIECES = (
    "<unk>",
    "<s>",
    "</s>",
    *(f"<0x{byte:02X}>" for byte in range(256)),
    *"abcdefghijklmnopqrstuvwxyz",
    *EXTRA,
)
N_VOCAB = len(PIECES)
NL = 3 + 10

# The letters that follow each other independently, with these probabilities.
DICE = dict(zip("abcdefgh", (0.30, 0.22, 0.16, 0.12, 0.08, 0.06, 0.04, 0.02), strict=True))


def token(piece: str | int) -> int:
    """The id of a piece, or of a byte."""
    return 3 + piece if isinstance(piece, int) else PIECES.index(piece)


def tokens(text: str) -> list[int]:
    return [NL if character == "\n" else token(character) for character in text]


def _follow(*pairs: tuple[str | int, float]) -> dict[int, float]:
    return {token(piece): logit for piece, logit in pairs}


_TRIO = _follow(("i", 3.0), ("j", 2.0), ("k", 1.0))
_LINES = _follow((10, 3.0), ("w", 2.0))

# After the token on the left: the logits of those that may come; all others have NEVER.
ROWS: dict[int, dict[int, float]] = {
    **{token(letter): _TRIO for letter in "ijk"},
    **{one: _LINES for one in (NL, token("w"))},
    # A loop with a way out, for DRY.
    token("l"): _follow(("m", 3.0)),
    token("m"): _follow(("n", 3.0)),
    token("n"): _follow(("o", 3.0), ("p", 2.9)),
    token("o"): _follow(("l", 3.0)),
    token("p"): _follow(("l", 3.0)),
    # An end that can be refused, and one that comes after some 500 tokens.
    token("q"): {EOS: 3.0, token("r"): 2.0},
    token("r"): _follow(("q", 3.0)),
    token("x"): {token("x"): math.log(0.998), EOS: math.log(0.002)},
    # "STOPts" for ever: a stop string that is made of pieces.
    token("s"): _follow(("ST", 3.0)),
    token("ST"): _follow(("OP", 3.0)),
    token("OP"): _follow(("t", 3.0)),
    token("t"): _follow(("s", 3.0)),
    # A llama of four bytes, and a byte that is never part of a character.
    token("u"): _follow((0xF0, 3.0)),
    token(0xF0): _follow((0x9F, 3.0)),
    token(0x9F): _follow((0xA6, 3.0)),
    token(0xA6): _follow((0x99, 3.0)),
    token(0x99): _follow(("v", 3.0)),
    token("v"): _follow(("é", 3.0)),
    token("é"): _follow(("u", 3.0)),
    token("y"): _follow((0xFF, 3.0)),
    token(0xFF): _follow(("z", 3.0)),
    token("z"): _follow(("y", 3.0)),
}
_DICE_ROW = {token(letter): math.log(p) for letter, p in DICE.items()}


def logits(last: int) -> list[float]:
    """The whole row after a token."""
    row = ROWS.get(last, _DICE_ROW)
    return [row.get(i, NEVER) for i in range(N_VOCAB)]


def write_bigram(path: Path, special: tuple[str, ...] = (), chain: tuple[str, ...] = ()) -> str:
    """`special` are control tokens to follow PIECES, then the new ones of a `chain`: each of its pieces is followed
    by the next, the last by the end."""
    added = [piece for piece in chain if piece not in special]
    pieces = (*PIECES, *special, *added)
    n_vocab = len(pieces)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("bigram")
    writer.add_context_length(4096)
    writer.add_embedding_length(N_EMBD)
    writer.add_block_count(1)
    writer.add_feed_forward_length(N_FF)
    writer.add_head_count(N_HEAD)
    writer.add_head_count_kv(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(N_EMBD // N_HEAD)
    writer.add_vocab_size(n_vocab)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(list(pieces))
    writer.add_token_scores([0.0] * n_vocab)
    kinds = [gguf.TokenType.UNKNOWN, gguf.TokenType.CONTROL, gguf.TokenType.CONTROL]
    kinds += [gguf.TokenType.BYTE] * 256 + [gguf.TokenType.NORMAL] * (N_VOCAB - 259)
    kinds += [gguf.TokenType.CONTROL] * len(special) + [gguf.TokenType.NORMAL] * len(added)
    writer.add_token_types(kinds)
    writer.add_unk_token_id(UNK)
    writer.add_bos_token_id(BOS)
    writer.add_eos_token_id(EOS)
    writer.add_add_bos_token(True)
    writer.add_add_eos_token(False)
    writer.add_add_space_prefix(False)
    head = N_EMBD // N_HEAD
    embedding = np.zeros((n_vocab, N_EMBD), np.float32)
    np.fill_diagonal(embedding, 1000.0)
    ones, zeros = np.ones(N_EMBD, np.float32), np.zeros
    for name, values in (
        ("token_embd", embedding),
        ("output_norm", ones),
        ("output", _output(pieces, chain)),
        ("blk.0.attn_norm", ones),
        ("blk.0.ffn_norm", ones),
        ("blk.0.attn_q", zeros((N_EMBD, N_EMBD), np.float32)),
        ("blk.0.attn_k", zeros((head, N_EMBD), np.float32)),
        ("blk.0.attn_v", zeros((head, N_EMBD), np.float32)),
        ("blk.0.attn_output", zeros((N_EMBD, N_EMBD), np.float32)),
        ("blk.0.ffn_gate", zeros((N_FF, N_EMBD), np.float32)),
        ("blk.0.ffn_up", zeros((N_FF, N_EMBD), np.float32)),
        ("blk.0.ffn_down", zeros((N_EMBD, N_FF), np.float32)),
    ):
        writer.add_tensor(f"{name}.weight", values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return str(path)


def _output(pieces: tuple[str, ...], chain: tuple[str, ...]) -> np.ndarray:
    """The matrix that makes the logits of every row."""
    n_vocab = len(pieces)
    table = np.array([logits(last) for last in range(n_vocab)], np.float64)
    output = np.zeros((n_vocab, N_EMBD), np.float32)
    output[:, :n_vocab] = NEVER / math.sqrt(N_EMBD)
    output[:N_VOCAB, :n_vocab] = table.T / math.sqrt(N_EMBD)
    for piece, after in itertools.pairwise((*chain, "</s>")):
        output[:, pieces.index(piece)] = NEVER / math.sqrt(N_EMBD)
        output[pieces.index(after), pieces.index(piece)] = 3.0 / math.sqrt(N_EMBD)
    return output
