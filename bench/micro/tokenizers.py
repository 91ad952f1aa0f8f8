"""Measures the µs to tokenize a text with llamad, llama.cpp (--llama-api-only) and tokenizers, if it is installed.

Texts are cut from bench/texts, each from another position of prose, code or chats. The programs use SmolLM2's
vocabulary and take turns on one thread; texts for which they give different tokens are counted. Times are CPU times.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import importlib.util
import itertools
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

from bench.errors import BenchError
from bench.micro.recipe import path_of
from llamad.tokenizer.vocab_file import VocabFile

TEXTS = Path(__file__).parents[1] / "texts"
SIZES = (300, 4_000)  # characters
N_TEXTS = 24

Tokenize = Callable[[str], list[int]]


def native(path: str, *, api_only: bool) -> Tokenize:
    vocab = VocabFile(path, [], api_only=api_only).vocab(special=False)
    return lambda text: list(memoryview(vocab.tokenize(text.encode(), False, False)).cast("i"))


def hugging_face(path: str) -> Tokenize:
    """Return the package's tokenizer, made of the vocabulary and the merges in a GGUF of SmolLM2."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    library = importlib.import_module("tokenizers")
    fields = importlib.import_module("gguf").GGUFReader(path).fields
    if fields["tokenizer.ggml.pre"].contents() != "smollm":
        raise BenchError(f"{path} has another pre-tokenizer than SmolLM2's: leave out --vocab")
    tokens = fields["tokenizer.ggml.tokens"].contents()
    merges = [tuple(merge.split(" ", 1)) for merge in fields["tokenizer.ggml.merges"].contents()]
    vocab = {token: i for i, token in enumerate(tokens)}
    tokenizer = library.Tokenizer(library.models.BPE(vocab=vocab, merges=merges))
    split = library.pre_tokenizers
    tokenizer.pre_tokenizer = split.Sequence(
        [split.Digits(individual_digits=True), split.ByteLevel(add_prefix_space=False)]
    )
    return lambda text: list(tokenizer.encode_batch_fast([text], add_special_tokens=False)[0].ids)


def cuts(source: str, size: int) -> list[str]:
    """Return texts of `size` characters, spread over the source."""
    firsts = [(len(source) - size) * i // N_TEXTS for i in range(N_TEXTS)]
    return [source[first : first + size] for first in firsts]


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--vocab", help="a GGUF of SmolLM2, with or without a model in it")
    parser.add_argument("--rounds", type=int, default=5)


def main(flags: argparse.Namespace) -> int:
    vocab = flags.vocab or path_of("model")
    programs = {"llamad": native(vocab, api_only=False), "llama.cpp": native(vocab, api_only=True)}
    if importlib.util.find_spec("tokenizers"):
        programs["tokenizers"] = hugging_face(vocab)
        print(f"tokenizers {importlib.metadata.version('tokenizers')}\n")
    else:
        print("tokenizers is left out: .venv/bin/pip install tokenizers gguf", file=sys.stderr)
    print(f"| µs a text, median | {' | '.join(programs)} |\n| --- |{' ---: |' * len(programs)}")
    n_different = 0
    for path, size in itertools.product(sorted(TEXTS.glob("*.txt")), SIZES):
        texts, times = (
            cuts(path.read_text(encoding="utf-8"), size),
            {name: list[float]() for name in programs},
        )
        for text in texts * flags.rounds:
            results = []
            for name, tokenize in programs.items():
                t_start = time.thread_time_ns()
                results.append(tokenize(text))
                times[name].append((time.thread_time_ns() - t_start) / 1e3)
            n_different += any(result != results[0] for result in results)
        medians = " | ".join(f"{statistics.median(some):,.0f}" for some in times.values())
        print(f"| {path.stem}, {size:,} characters | {medians} |", flush=True)
    print(f"\n{n_different} texts with different tokens")
    return 0
