"""Measures the microseconds that a JSON grammar adds to a token, alternately in llamad and in llama.cpp's sampler.

It runs in this process, by default with Llama 3's vocabulary (128,256 tokens). JSON documents are followed token by
token: either each token fits (it is checked alone and accepted), or each is refused first (checked, refused, all tokens
masked, then one accepted). Both do what their servers do. llamad's grammar begins with empty caches.

With --beside llguidance,xgrammar it measures those libraries instead, on several hundred real JSON schemas
(bench/schemas).
"""

from __future__ import annotations

import argparse
import json
import random
import time
from typing import Any

import numpy as np

from bench.errors import BenchError
from bench.micro.llama_grammar import LlamaGrammar, Words
from bench.micro.recipe import path_of
from bench.schemas import command
from llamad.engine.llama_log import LlamaLog
from llamad.grammar.grammar import Grammar, Matcher, Pieces

JSON = r"""
root ::= object
value ::= object | array | string | number | ("true" | "false" | "null") ws
object ::= "{" ws (string ":" ws value ("," ws string ":" ws value)*)? "}" ws
array ::= "[" ws (value ("," ws value)*)? "]" ws
string ::= "\"" ([^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}))* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9]{1,15})? ws
ws ::= | " " | "\n" [ \t]{0,20}
"""
WORDS = "the name of a long river where Grüße meet 日本 and some café tables stand in the morning sun".split()


def document(rng: random.Random, depth: int = 0) -> Any:
    kind = rng.choice("oasnb" if depth < 4 else "snb") if depth else "o"
    if kind == "o":
        return {rng.choice(WORDS) + str(i): document(rng, depth + 1) for i in range(rng.randint(1, 4))}
    if kind == "a":
        return [document(rng, depth + 1) for _ in range(rng.randint(0, 4))]
    if kind == "s":
        return " ".join(rng.choices(WORDS, k=rng.randint(1, 12)))
    return (
        rng.choice([True, False, None]) if kind == "b" else rng.randint(-(10**6), 10**6) / rng.choice([1, 8])
    )


def texts(words: Words, n: int) -> list[list[int]]:
    rng = random.Random(5)
    out = []
    for i in range(n):
        data = json.dumps(document(rng), ensure_ascii=False, indent=1 if i % 2 else None).encode()
        out.append(list(memoryview(words.vocab.tokenize(data, False, False)).cast("i")))
    return out


def ours(words: Words, grammar: Grammar, tokens: list[int], obeys: bool, other: int) -> list[float]:
    matcher, out = Matcher(grammar), []
    row = np.zeros(words.n_vocab, np.float32)
    for token in tokens:
        row[:] = 0
        t_start = time.perf_counter()
        if not obeys and not matcher.allows(other):
            matcher.mask(row)
        if not matcher.allows(token) or not matcher.accept(token):
            raise BenchError("the text left the grammar")
        out.append((time.perf_counter() - t_start) * 1e6)
    return out


def theirs(words: Words, tokens: list[int], obeys: bool, other: int) -> list[float]:
    sampler, out = LlamaGrammar(words, JSON), []
    for token in tokens:
        sampler.clear()
        t_start = time.perf_counter()
        if not obeys and not sampler.allows(other):
            sampler.apply()
        if not sampler.allows(token):
            raise BenchError("the text left the grammar")
        sampler.accept(token)
        out.append((time.perf_counter() - t_start) * 1e6)
    sampler.close()
    return out


def show(name: str, program: str, times: list[float]) -> tuple[float, float]:
    p50, p99 = (float(np.percentile(times, p)) for p in (50, 99))
    print(f"{name:28} {program:10} {len(times):7,} {p50:10.1f} {p99:10.1f} {max(times):10.1f}", flush=True)
    return p50, p99


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--vocab", help="a GGUF whose vocabulary is used, with or without a model in it")
    parser.add_argument("--documents", type=int, default=12)
    parser.add_argument("--beside", help="compare with llguidance, xgrammar or both, on real JSON schemas")
    parser.add_argument("--limit", type=int, default=0, help="with --beside: how many schemas (all)")
    parser.add_argument(
        "--seconds", type=float, default=60, help="with --beside: the limit for one schema (60)"
    )
    parser.add_argument("--json", help="with --beside: a file for all measurements")


def main(flags: argparse.Namespace) -> int:
    if flags.beside:
        return command.main(flags)
    LlamaLog()  # keeps llama.cpp's lines off the screen
    words = Words(flags.vocab or path_of("vocabulary"))
    pieces = Pieces(words.vocab)
    other = next(t for t in range(words.n_vocab) if words.piece(t) == b"\x01")  # no JSON text has it
    all_tokens = texts(words, flags.documents)
    print(f"vocabulary {words.n_vocab:,}; µs added to a token")
    print(f"{'':28} {'':10} {'tokens':>7} {'p50':>10} {'p99':>10} {'most':>10}")
    for name, obeys in (("each token fits", True), ("each token is refused first", False)):
        grammar = Grammar(JSON, pieces)
        times: dict[str, list[float]] = {"llamad": [], "llama.cpp": []}
        for tokens in all_tokens:
            times["llamad"] += ours(words, grammar, tokens, obeys, other)
            times["llama.cpp"] += theirs(words, tokens, obeys, other)
        a, b = (show(name, program, some) for program, some in times.items())
        print(f"{'':28} {'ratio':10} {'':7} {a[0] / b[0]:10.4f} {a[1] / b[1]:10.4f}")
    return 0
