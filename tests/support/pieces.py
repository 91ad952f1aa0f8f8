"""A small vocabulary as a GGUF without a model: all bytes, pieces of several kinds, some special tokens."""

from __future__ import annotations

from pathlib import Path

import gguf

from llamad._llama import ffi, lib
from llamad.engine.vocab import Vocab

TEXTS = (
    *"abcdxyz01239 ",
    *('"', "{", "}", "[", "]", ",", ":", ".", "-", "\\", "\n", "(", ")", "+", "=", "/"),
    *("ab", "ba", "abc", "aa", "aaa", "bc", "cd", "xy", "10", "00", "12", "123", "  ", " a", "a b", "\n\n"),
    *(
        '{"',
        '"}',
        '":',
        '",',
        '"a',
        'a"',
        "],",
        "[[",
        "]]",
        "{}",
        "((",
        "))",
        "()",
        "a)",
        "(a",
        "true",
        "null",
    ),
    *("é", "ü", "éa", "aé", "ß", "日", "日本", "本", "a日", "€", "😀", "😀a", "…", "\u0301"),
)
SPECIAL = ("<think>", "</think>", "<|x|>")


def write_vocab(path: Path) -> str:
    writer = gguf.GGUFWriter(path, "llama")
    kinds = gguf.TokenType
    tokens = [("<unk>", kinds.UNKNOWN), ("<s>", kinds.CONTROL), ("</s>", kinds.CONTROL)]
    tokens += [(f"<0x{byte:02X}>", kinds.BYTE) for byte in range(256)]
    tokens += [(text.replace(" ", "\u2581"), kinds.NORMAL) for text in TEXTS]
    tokens += [(text, kinds.USER_DEFINED) for text in SPECIAL[:2]] + [(SPECIAL[2], kinds.CONTROL)]
    writer.add_tokenizer_model("llama")
    writer.add_token_list([text for text, _ in tokens])
    writer.add_token_scores([-float(i) for i in range(len(tokens))])
    writer.add_token_types([int(kind) for _, kind in tokens])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_add_space_prefix(False)
    writer.add_context_length(64)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return str(path)


class Words:
    """A vocabulary opened without its model."""

    def __init__(self, path: str) -> None:
        params = lib.llama_model_default_params()
        params.vocab_only = True
        self._model = lib.llamad_model_open(path.encode(), params, ffi.new("llamad_load_state *"))
        assert self._model != ffi.NULL, "the vocabulary could not be loaded"
        handle = lib.llama_model_get_vocab(self._model)
        self.address = int(ffi.cast("uintptr_t", handle))
        self.n_vocab = lib.llama_vocab_n_tokens(handle)
        table = int(ffi.cast("uintptr_t", lib.llamad_llama_table()))
        self.vocab = Vocab(table, self.address, self.n_vocab)

    def piece(self, token: int) -> bytes:
        return self.vocab.piece(token, True)

    def close(self) -> None:
        lib.llamad_model_close(self._model)
