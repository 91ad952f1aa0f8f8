"""Reads texts and code below folders with the loop guard, and shows which of them it would end, had a model written
them: none, or the guard would cut off answers that only look like loops.

Files that are not UTF-8 are left out, the same text is read once, and of a long one only the first --bytes count.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

from bench.errors import BenchError
from bench.micro.recipe import path_of
from llamad.engine.testing.loop_guard_probe import LoopGuardProbe
from llamad.tokenizer.vocab_file import VocabFile

ENDINGS = frozenset(
    """.1 .am .asc .bib .c .cc .cfg .cmake .conf .cpp .css .csv .cxx .dat .diff .f .f90 .go .h .hpp .html .ini .ipynb
    .java .jinja .js .json .log .m4 .map .md .mjs .patch .pl .pm .po .ps .py .pyi .pyx .R .rb .rs .rst .sh .sql .svg
    .tcl .tex .toml .ts .tsv .txt .xml .yaml .yml""".split()
)
NAMES = frozenset(("AUTHORS", "COPYING", "LICENSE", "Makefile", "NEWS", "README", "changelog", "copyright"))
LEAST_BYTES = 200
N_SHOWN = 10


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folders", nargs="+", metavar="FOLDER", help="folders to search for texts")
    parser.add_argument("--vocab", metavar="GGUF", help="model whose vocabulary is used (default: SmolLM2)")
    parser.add_argument(
        "--texts", type=int, default=10_000, help="texts to read, chosen at random (default: 10000)"
    )
    parser.add_argument("--bytes", type=int, default=400_000, help="bytes to read of each (default: 400000)")


def candidates(folders: list[str]) -> list[Path]:
    """Return the files whose names say that they are texts."""
    paths = []
    for top in folders:
        for folder, _, names in os.walk(top):
            paths += [Path(folder, one) for one in names if one in NAMES or Path(one).suffix in ENDINGS]
    return sorted(paths)


def texts(paths: list[Path], n_bytes: int) -> Iterator[tuple[Path, bytes]]:
    seen = set()
    for path in paths:
        try:
            data = path.read_bytes()[:n_bytes] if path.is_file() and not path.is_symlink() else b""
        except OSError:
            continue
        digest = hashlib.sha256(data).digest()
        text = data.decode("utf-8", "ignore").encode()
        if len(data) < LEAST_BYTES or len(data) - len(text) > 3 or digest in seen:
            continue
        seen.add(digest)
        yield path, text


def main(flags: argparse.Namespace) -> int:
    vocab = VocabFile(flags.vocab or path_of("model"), [], api_only=False).vocab(special=False)
    probe = LoopGuardProbe(vocab)
    paths = candidates(flags.folders)
    random.Random(1).shuffle(paths)
    n_texts = n_tokens = 0
    seconds = 0.0
    ended: list[tuple[Path, int]] = []
    near: list[tuple[float, Path]] = []
    for path, text in texts(paths, flags.bytes):
        tokens = vocab.tokenize(text, False, False)
        t_begin = time.process_time()
        n_read, nearness = probe.read(tokens)
        seconds += time.process_time() - t_begin
        n_texts += 1
        n_tokens += len(tokens) // 4
        near.append((nearness, path))
        if n_read >= 0:
            ended.append((path, n_read))
        if n_texts == flags.texts:
            break
    if not n_texts:
        raise BenchError("there are no texts in these folders")
    print(f"{n_texts} texts, {n_tokens} tokens, {seconds / n_tokens * 1e9:.0f} ns for a token")
    print(f"ended: {len(ended)}")
    for path, n_read in ended:
        print(f"  after {n_read} tokens: {path}")
    print("the nearest (1 is a loop):")
    for nearness, path in sorted(near, reverse=True)[:N_SHOWN]:
        print(f"  {nearness:.2f} {path}")
    return 0
