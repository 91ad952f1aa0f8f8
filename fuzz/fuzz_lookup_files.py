"""Reads damaged files of n-grams (-lcs, -lcd) with llamad and with a reader in Python.

Invariant: a file is either refused with a sentence that names it, or the table has exactly the records that the Python
reader finds, and can be learned into, drafted from and written; drafted tokens are tokens of the vocabulary; nothing
crashes, and no memory is allocated for a file that is refused.

`make fuzz` runs it; LLAMAD_FUZZ_CASES says how many files there are.
"""

from __future__ import annotations

import os
import random
from array import array
from pathlib import Path

import pytest
from support.drafts.ngram_cache import N_VOCAB, Cache, drafted, padded, parsed, update, written

from llamad.engine.drafts.lookup_file import BadLookupFile, LookupFile
from llamad.engine.testing.drafts_probe import draft_ngrams, learn

N_CASES = int(os.environ.get("LLAMAD_FUZZ_CASES", "20000"))
UNUSUAL = (-(2**31), -2, -1, 0, 1, N_VOCAB - 1, N_VOCAB, 2**16, 2**30, 2**31 - 1)


def whole(dice: random.Random) -> Cache:
    cache: Cache = {}
    for _ in range(dice.randint(0, 8)):
        ngram = padded(dice.choices(range(N_VOCAB), k=dice.randint(1, 4)))
        followers = dice.sample(range(N_VOCAB), dice.randint(1, 4))
        cache[ngram] = {token: dice.choice([1, 2, 3, 1000, 2**31 - 1]) for token in followers}
    return cache


def damaged(dice: random.Random, raw: bytes) -> bytes:
    numbers = array("i", raw)
    for _ in range(dice.choice([0, 1, 1, 2, 5])):
        if numbers:
            at = dice.randrange(len(numbers))
            kind = dice.randrange(4)
            if kind == 0:
                del numbers[at : at + dice.randint(1, 8)]
            elif kind == 1:
                numbers[at:at] = numbers[dice.randrange(len(numbers)) :][: dice.randint(1, 16)]
            else:
                numbers[at] = dice.choice(UNUSUAL)
    raw = numbers.tobytes()
    return raw[: dice.randrange(len(raw) + 1)] if dice.random() < 0.2 else raw


def check(path: Path, raw: bytes, dice: random.Random) -> bool:
    """Return whether the file was read."""
    path.write_bytes(raw)
    expected = parsed(raw, N_VOCAB)
    if expected is None:
        with pytest.raises(BadLookupFile, match=str(path)):
            LookupFile(str(path), N_VOCAB)
        return False
    file = LookupFile(str(path), N_VOCAB)
    assert file.content() == written(expected)
    text = dice.choices(range(N_VOCAB), k=dice.randint(2, 12))
    for dynamic, fixed in ((file, None), (None, file), (file, file)):
        draft = draft_ngrams(None, dynamic, fixed, array("i", text), 8)[0]
        assert draft == drafted({}, expected if dynamic else {}, expected if fixed else {}, text, 8)
        assert all(0 <= token < N_VOCAB for token in draft)
    if dice.random() < 0.1 and all(max(part.values()) < 2**30 for part in expected.values()):
        file = LookupFile(str(path), N_VOCAB, learns=True)
        learn(file, array("i", text), len(text))
        update(expected, text, len(text))
        file.write()
        assert path.read_bytes() == written(expected)
    return True


def test_damaged_files(tmp_path: Path) -> None:
    dice = random.Random(11)
    folder = Path("/dev/shm") if Path("/dev/shm").is_dir() else tmp_path
    path = folder / f"llamad-{os.getpid()}.ngrams"
    try:
        n_read = sum(check(path, damaged(dice, written(whole(dice))), dice) for _ in range(N_CASES))
    finally:
        path.unlink(missing_ok=True)
    assert n_read > N_CASES // 10
    assert n_read < N_CASES - N_CASES // 10
