"""A small vocabulary as a GGUF without a model: all bytes, pieces of several kinds, some special tokens."""

from __future__ import annotations

from pathlib import Path

import gguf

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
    return finish_vocab(writer, path)


def finish_vocab(writer: gguf.GGUFWriter, path: Path) -> str:
    """Write what there is of a model that has a vocabulary and nothing else."""
    writer.add_context_length(64)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return str(path)
