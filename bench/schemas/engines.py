"""llamad's grammar engine, llguidance and xgrammar behind one interface.

Each engine runs alone in a process (bench/schemas/worker.py), on one thread, with the same vocabulary. The libraries
are imported only there, because they are no dependencies of llamad.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import json
import time
from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from bench.errors import BenchError
from bench.micro.llama_grammar import Words
from llamad.chat.schema import SchemaError, to_grammar
from llamad.grammar.grammar import Grammar, GrammarError, GrammarTooMuch, Matcher, Pieces


class RefusedError(Exception):
    """The engine does not compile this schema."""


class Engine(ABC):
    """One library with a vocabulary. A compiled schema and a matcher are whatever the library makes of them."""

    name = ""
    convert_ms = 0.0  # of the last compile(): the part before the engine's own compiler, if there is one
    has_strict = True  # the engine can refuse a schema because of keywords that it would not enforce

    @abstractmethod
    def __init__(self, words: Words) -> None: ...

    @abstractmethod
    def compile(self, schema: dict[str, Any], *, is_strict: bool) -> Any:
        """Return a compiled schema, or raise RefusedError."""

    @abstractmethod
    def matcher(self, compiled: Any) -> Any:
        """Return a matcher at the beginning of a text. Matchers of one compiled schema share its caches."""

    @abstractmethod
    def mask(self, matcher: Any) -> Any:
        """Compute which tokens may come next, and return it in the library's own form, or raise RefusedError."""

    @abstractmethod
    def has_bit(self, mask: Any, token: int) -> bool:
        """Return whether a mask allows a token."""

    @abstractmethod
    def accept(self, matcher: Any, token: int) -> bool:
        """Advance by a token. Return False, or raise RefusedError, if the token may not come next."""


class Llamad(Engine):
    name = "llamad"

    def __init__(self, words: Words) -> None:
        self._pieces = Pieces(words.vocab)

    def compile(self, schema: dict[str, Any], *, is_strict: bool) -> Grammar:
        t_start = time.process_time()
        try:
            text, _ = to_grammar(schema, strict=is_strict)
            self.convert_ms = (time.process_time() - t_start) * 1e3
            return Grammar(text, self._pieces)
        except (SchemaError, GrammarError, GrammarTooMuch) as error:
            raise RefusedError(str(error)) from None

    def matcher(self, compiled: Grammar) -> Matcher:
        return Matcher(compiled)

    def mask(self, matcher: Matcher) -> bytes:
        try:
            return matcher.bits()
        except GrammarTooMuch as error:
            raise RefusedError(str(error)) from None

    def has_bit(self, mask: bytes, token: int) -> bool:
        return bool(mask[token >> 3] >> (token & 7) & 1)

    def accept(self, matcher: Matcher, token: int) -> bool:
        try:
            return matcher.accept(token)
        except GrammarTooMuch as error:
            raise RefusedError(str(error)) from None


class _Tokenizer:
    """What llguidance's TokenizerWrapper reads."""

    def __init__(self, words: Words) -> None:
        self._words = words
        self.eos_token_id = words.vocab.eog_tokens()[0]
        self.bos_token_id = None
        self.tokens = [words.piece(token) for token in range(words.n_vocab)]
        self.special_token_ids = [
            token for token in range(words.n_vocab) if not words.vocab.piece(token, False)
        ]

    def __call__(self, text: bytes) -> list[int]:
        return list(memoryview(self._words.vocab.tokenize(text, False, False)).cast("i"))


class LLGuidance(Engine):
    name = "llguidance"

    def __init__(self, words: Words) -> None:
        self._library = importlib.import_module("llguidance")
        wrapper = self._library.TokenizerWrapper(_Tokenizer(words))
        slices = self._library.LLTokenizer.json_slices()
        self._tokenizer = self._library.LLTokenizer(wrapper, n_vocab=words.n_vocab, slices=slices)
        self._row = np.zeros((words.n_vocab + 31) // 32, np.int32)

    def compile(self, schema: dict[str, Any], *, is_strict: bool) -> Any:
        options = {
            "coerce_one_of": True,
            "lenient": not is_strict,
        }  # oneOf as anyOf, as llamad and xgrammar do
        matchers = self._library.LLMatcher
        try:
            grammar = matchers.grammar_from_json_schema(json.dumps(schema), overrides=options)
        except ValueError as error:
            raise RefusedError(str(error)) from None
        compiled = matchers(self._tokenizer, grammar, log_level=0)
        if compiled.is_error():
            raise RefusedError(compiled.get_error())
        return compiled

    def matcher(self, compiled: Any) -> Any:
        return compiled.deep_copy()

    def mask(self, matcher: Any) -> Any:
        matcher.unsafe_compute_mask_ptr(self._row.ctypes.data, self._row.nbytes)
        return self._row

    def has_bit(self, mask: Any, token: int) -> bool:
        return bool(int(mask[token >> 5]) >> (token & 31) & 1)

    def accept(self, matcher: Any, token: int) -> bool:
        return bool(matcher.consume_token(token))


class XGrammar(Engine):
    name = "xgrammar"
    has_strict = False

    def __init__(self, words: Words) -> None:
        self._library = importlib.import_module("xgrammar")
        # A token without bytes is special to xgrammar: no text matches it.
        tokens = [words.vocab.piece(token, False) for token in range(words.n_vocab)]
        info = self._library.TokenizerInfo(tokens, stop_token_ids=words.vocab.eog_tokens())
        self._compiler = self._library.GrammarCompiler(info, max_threads=1, cache_enabled=False)
        self._rows = np.zeros((1, (words.n_vocab + 31) // 32), np.int32)

    def compile(self, schema: dict[str, Any], *, is_strict: bool) -> Any:
        try:
            return self._compiler.compile_json_schema(json.dumps(schema))
        except Exception as error:  # its errors share no class
            raise RefusedError(str(error)) from None

    def matcher(self, compiled: Any) -> Any:
        return self._library.GrammarMatcher(compiled)

    def mask(self, matcher: Any) -> Any:
        matcher.fill_next_token_bitmask(self._rows)
        return self._rows[0]

    def has_bit(self, mask: Any, token: int) -> bool:
        return bool(int(mask[token >> 5]) >> (token & 31) & 1)

    def accept(self, matcher: Any, token: int) -> bool:
        return bool(matcher.accept_token(token))


ENGINES: dict[str, type[Engine]] = {engine.name: engine for engine in (Llamad, LLGuidance, XGrammar)}
# What each needs beside itself: xgrammar imports both, though nothing here uses them.
PACKAGES = {"llguidance": ("llguidance",), "xgrammar": ("xgrammar", "torch", "transformers")}


def check_installed(names: list[str]) -> None:
    """Raise a BenchError that says what to install if one of the libraries is missing."""
    unknown = [name for name in names if name not in PACKAGES]
    if unknown:
        raise BenchError(f"--beside: there is no {unknown[0]}; it takes {', '.join(PACKAGES)}")
    missing = [
        package for name in names for package in PACKAGES[name] if importlib.util.find_spec(package) is None
    ]
    if missing:
        raise BenchError(f"{missing[0]} is missing: .venv/bin/pip install {' '.join(missing)}")


def version(name: str) -> str:
    return f"{name} {importlib.metadata.version(name)}"
