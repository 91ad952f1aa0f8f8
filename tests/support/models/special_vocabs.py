"""Small vocabularies as GGUFs without a model, of every kind that llama.cpp tokenizes, whose special tokens overlap."""

from __future__ import annotations

from pathlib import Path

import gguf

from llamad._llama import ffi, lib
from support.models.small_vocab import finish_vocab

KINDS = gguf.TokenType
CONTROL = (
    "<s>",
    "</s>",
    "<|im_end|>",
    "<|endoftext|>",
    "<mask>",
    "<ab",
    "ab>",
    "b><",
    "<ab><",
    "é",
    "aba",
    "bab",
)
PLAIN = ("  ", "   ", "\n\n", "\n \n", "bb", "<|x|>", "x|>", "ab", "ba", "<a", "日本")
TEXTS = (*"abcdxyz<>|_/s013 .,!\n", "ab", "ba", "abc", "aa", "xy", "01", "im", "end", "日", "é", "ß")

# Of each: what stands for a space, the tokenizer's name, and what else makes special tokens strip.
VOCABS: dict[str, dict[str, str]] = {
    "spm": {"model": "llama", "space": "\u2581"},
    "spm, the right stripped": {"model": "llama", "space": "\u2581", "name": "phi-3 of a kind"},
    "bpe": {"model": "gpt2", "space": "\u0120", "pre": "llama-bpe"},
    "bpe by std::regex": {"model": "gpt2", "space": "\u0120", "pre": "deepseek-llm"},
    "bpe, the left stripped": {"model": "gpt2", "space": "\u0120", "pre": "jina-v2-de"},
    "wpm": {"model": "bert", "space": "\u2581"},
    "ugm": {"model": "t5", "space": "\u2581"},
}


def write_special_vocab(path: Path, model: str, space: str, pre: str = "", name: str = "") -> str:
    writer = gguf.GGUFWriter(path, "llama")
    tokens = [("<unk>", KINDS.UNKNOWN)]
    if model in ("llama", "t5"):
        tokens += [(f"<0x{byte:02X}>", KINDS.BYTE) for byte in range(256)]
    if model == "bert":
        tokens += [("[CLS]", KINDS.CONTROL), ("[SEP]", KINDS.CONTROL)]
    known = {text for text, _ in tokens}
    for text in TEXTS:
        text = (
            text.replace(" ", space).replace("\n", "\u010a") if model == "gpt2" else text.replace(" ", space)
        )
        if text not in known and text not in CONTROL and text not in PLAIN:
            tokens.append((text, KINDS.NORMAL))
            known.add(text)
    if model == "bert":
        tokens += [(space + text, KINDS.NORMAL) for text in ("ab", "xy", "im", "a", "x")]
    tokens += [(text, KINDS.CONTROL) for text in CONTROL] + [(text, KINDS.USER_DEFINED) for text in PLAIN]
    at = {text: i for i, (text, _) in enumerate(tokens)}
    writer.add_tokenizer_model(model)
    if pre:
        writer.add_tokenizer_pre(pre)
    if name:
        writer.add_name(name)
    writer.add_token_list([text.encode() for text, _ in tokens])
    writer.add_token_scores([-float(i) for i in range(len(tokens))])
    writer.add_token_types([int(kind) for _, kind in tokens])
    if model == "gpt2":
        writer.add_token_merges(["a b", "b a", "ab c", "a a", "x y", "i m"])
    writer.add_bos_token_id(at["[CLS]" if model == "bert" else "<s>"])
    writer.add_eos_token_id(at["[SEP]" if model == "bert" else "</s>"])
    if model == "bert":
        writer.add_sep_token_id(at["[SEP]"])
    writer.add_unk_token_id(0)
    return finish_vocab(writer, path)


class OpenVocab:
    """A vocabulary alone, and what llamad and llama.cpp make of a text."""

    def __init__(self, path: str, *, api_only: bool = False) -> None:
        params = lib.llama_model_default_params()
        params.vocab_only = True
        state = ffi.new("llamad_load_state *")
        state.api_only = api_only
        self._model = lib.llamad_model_open(path.encode(), params, state)
        assert self._model, path
        self.vocab = lib.llama_model_get_vocab(self._model)

    def tokens(self, text: bytes, *, whole: bool, add: bool = False, parse: bool = True) -> list[int] | None:
        """Of the whole text by llama.cpp, or by llamad; None where it cannot be tokenized."""
        n_max = 3 * len(text) + 8
        tokens = ffi.new("llama_token[]", n_max)
        n = lib.llamad_tokenize(self.vocab, text, len(text), tokens, n_max, add, parse, whole)
        return list(tokens[0:n]) if n >= 0 else None

    def check(self, text: bytes) -> None:
        for add in (False, True):
            for parse in (False, True):
                expected = self.tokens(text, whole=True, add=add, parse=parse)
                assert self.tokens(text, whole=False, add=add, parse=parse) == expected, (text, add, parse)

    def close(self) -> None:
        lib.llamad_model_close(self._model)
