"""Files of n-grams (-lcs, -lcd): checked before use, drafted from by llama.cpp's rules, learned and written."""

from __future__ import annotations

import os
import random
import stat
import threading
from array import array
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.drafts.match_search import ids
from support.drafts.ngram_cache import CACHES, N_VOCAB, TOKENS, Cache, drafted, parsed, update, written

from llamad.engine.drafts.lookup_file import BadLookupFile, LookupFile
from llamad.engine.testing.drafts_probe import ContextTable, draft_ngrams, hold, learn, let_go

ROW = -4
TEXTS = st.lists(TOKENS | st.sampled_from([0, 1, 2, ROW]), max_size=40)
SETTINGS = settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
WHOLE: Cache = {(1, 2, -1, -1): {3: 4, 5: 1}, (1, 2, 3, 4): {5: 6}}


def opened(folder: Path, data: bytes, *, learns: bool = False) -> LookupFile:
    path = folder / "file"
    path.write_bytes(data)
    return LookupFile(str(path), N_VOCAB, learns=learns)


# --- reading ------------------------------------------------------------------------------------------------------


@SETTINGS
@given(CACHES)
def test_a_file_is_read_and_written_as_it_was(tmp_path: Path, cache: Cache) -> None:
    file = opened(tmp_path, written(cache))
    assert file.n_ngrams == len(cache)
    assert file.content() == written(cache)


def test_of_two_records_the_first_counts(tmp_path: Path) -> None:
    numbers = [1, -1, -1, -1, 2, 5, 7, 5, 9, 1, -1, -1, -1, 1, 6, 1]
    assert opened(tmp_path, array("i", numbers).tobytes()).content() == written({(1, -1, -1, -1): {5: 7}})


@pytest.mark.parametrize(
    ("numbers", "fault"),
    [
        ([1, 2, -1, -1], "at byte 0, it ends within a record"),
        ([1, 2, -1, -1, 1], "at byte 0, it ends within a record"),
        ([1, 2, -1, -1, 2, 5, 5, 6], "at byte 0, it ends within a record"),
        ([1, 2, -1, -1, 1, 5, 5, 1], "at byte 28, it ends within a record"),
        ([-1, -1, -1, -1, 1, 5, 5], "at byte 0, this is not a token of the model"),
        ([1, -1, 2, -1, 1, 5, 5], "at byte 0, this is not a token of the model"),
        ([1, -2, -1, -1, 1, 5, 5], "at byte 0, this is not a token of the model"),
        ([N_VOCAB, -1, -1, -1, 1, 5, 5], "at byte 0, this is not a token of the model"),
        ([1, -1, -1, -1, 1, N_VOCAB, 5], "at byte 20, this is not a token of the model"),
        ([1, -1, -1, -1, 2, 5, 5, -1, 5], "at byte 28, this is not a token of the model"),
        ([1, -1, -1, -1, 0], "at byte 0, this is not a number of tokens that followed an n-gram"),
        ([1, -1, -1, -1, -5, 1, 1], "at byte 0, this is not a number of tokens that followed an n-gram"),
        ([1, -1, -1, -1, 2**31 - 1, 1, 1], "at byte 0, this is not a number of tokens"),
        ([1, -1, -1, -1, 1, 5, 0], "at byte 20, a count is not positive"),
        ([1, -1, -1, -1, 1, 5, -3], "at byte 20, a count is not positive"),
    ],
)
def test_a_broken_file_is_refused_with_a_sentence(tmp_path: Path, numbers: list[int], fault: str) -> None:
    with pytest.raises(BadLookupFile, match=fault) as info:
        opened(tmp_path, array("i", numbers).tobytes())
    assert str(tmp_path / "file") in str(info.value)


def test_a_file_of_odd_length_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadLookupFile, match="at byte 64, it ends within a record"):
        opened(tmp_path, written(WHOLE) + b"\0")


@SETTINGS
@given(CACHES, st.data())
def test_damaged_files_are_read_as_python_reads_them(
    tmp_path: Path, cache: Cache, data: st.DataObject
) -> None:
    numbers = array("i", written(cache))
    for _ in range(data.draw(st.integers(1, 3))):
        if numbers:
            at = data.draw(st.integers(0, len(numbers) - 1))
            numbers[at] = data.draw(st.integers(-3, N_VOCAB + 1) | st.integers(-(2**31), 2**31 - 1))
    raw = numbers.tobytes()[: data.draw(st.none() | st.integers(0, 4 * len(numbers)))]
    expected = parsed(raw, N_VOCAB)
    if expected is None:
        with pytest.raises(BadLookupFile):
            opened(tmp_path, raw)
    else:
        assert opened(tmp_path, raw).content() == written(expected)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", "missing", ".", "folder/missing"):
        with pytest.raises(BadLookupFile, match=str(tmp_path)):
            LookupFile(str(tmp_path / name), N_VOCAB)
    with pytest.raises(BadLookupFile, match="pipe is not a regular file"):
        LookupFile(str(tmp_path / "pipe"), N_VOCAB, learns=True)


# --- drafts -------------------------------------------------------------------------------------------------------


@settings(max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(CACHES, CACHES, TEXTS, st.integers(0, 40), st.integers(0, 9))
def test_drafts_are_those_of_llama_cpp(
    tmp_path: Path, dynamic: Cache, static: Cache, text: list[int], n_learned: int, n_max: int
) -> None:
    context: Cache = {}
    n_learned = min(n_learned, len(text))
    update(context, text, n_learned)
    table = ContextTable(1000)
    assert table.learn(ids(text), n_learned)
    if not text:
        return
    draft, n_match, count = draft_ngrams(
        table, opened(tmp_path, written(dynamic)), opened(tmp_path, written(static)), ids(text), n_max
    )
    assert draft == drafted(context, dynamic, static, text, n_max)
    assert (n_match > 0) == (count > 0) == bool(draft)
    assert draft_ngrams(None, None, None, ids(text), n_max) == ([], 0, 0)


def test_the_fixed_table_weighs_and_drafts_alone(tmp_path: Path) -> None:
    static = opened(tmp_path, written({(1, 2, -1, -1): {3: 1, 4: 1}, (4, 5, -1, -1): {6: 2}}))
    dynamic = opened(tmp_path, written({(9, 1, 2, -1): {7: 3, 4: 6}, (2, 4, -1, -1): {5: 3}}))
    assert draft_ngrams(None, dynamic, static, ids([9, 1, 2]), 8) == ([4, 5, 6], 3, 6)
    assert draft_ngrams(None, None, static, ids([9, 1, 2]), 8) == ([3], 2, 1)


# --- learning and writing -----------------------------------------------------------------------------------------


@SETTINGS
@given(CACHES, st.lists(st.tuples(TEXTS, st.integers(0, 40)), max_size=5))
def test_it_learns_and_writes_what_llama_cpp_would(
    tmp_path: Path, cache: Cache, texts: list[tuple[list[int], int]]
) -> None:
    cache = {ngram: {token: min(n, 10**6) for token, n in part.items()} for ngram, part in cache.items()}
    file = opened(tmp_path, written(cache), learns=True)
    for text, n_new in texts:
        assert learn(file, ids(text), min(n_new, len(text)))
        update(cache, text, min(n_new, len(text)))
    file.write()
    raw = (tmp_path / "file").read_bytes()
    assert parsed(raw, N_VOCAB) == cache
    assert raw == written(cache)


def test_a_missing_file_is_made(tmp_path: Path) -> None:
    path = tmp_path / "new"
    file = LookupFile(str(path), N_VOCAB, learns=True)
    file.write()
    assert path.read_bytes() == b""
    learn(file, ids([1, 2, 3]), 3)
    path.chmod(0o640)
    (tmp_path / "link").symlink_to(path)
    file.write()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert LookupFile(str(tmp_path / "link"), N_VOCAB).n_ngrams == 3
    assert sorted(name.name for name in tmp_path.iterdir()) == ["link", "new"]


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = opened(tmp_path, written(WHOLE), learns=True)
    learn(file, ids([7, 8]), 2)

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space left"):
        file.write()
    assert (tmp_path / "file").read_bytes() == written(WHOLE)
    assert os.listdir(tmp_path) == ["file"]


def test_nothing_is_learned_while_another_thread_writes(tmp_path: Path) -> None:
    file = opened(tmp_path, written(WHOLE), learns=True)
    assert hold(file)
    assert not learn(file, ids([7, 8]), 2)
    assert not hold(file)
    let_go(file)
    assert file.content() == written(WHOLE)
    assert learn(file, ids([7, 8]), 2)
    assert file.content() == written(WHOLE | {(7, -1, -1, -1): {8: 1}})


def test_a_table_is_written_while_it_learns(tmp_path: Path) -> None:
    file = opened(tmp_path, b"", learns=True)
    is_over = threading.Event()

    def work() -> None:
        dice = random.Random(5)
        while not is_over.is_set():
            learn(file, ids(dice.choices(range(4), k=50)), 50)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        for _ in range(50):
            assert parsed(file.content(), N_VOCAB) is not None
    finally:
        is_over.set()
        thread.join()


def test_a_full_table_counts_what_it_has() -> None:
    table = ContextTable(8)
    text = [1, 2, 3, 4, 5, 6, 7, 8]
    assert not table.learn(ids(text), len(text))
    assert not table.learn(ids(text), len(text))
    assert draft_ngrams(table, None, None, ids([1, 2]), 1) == ([3], 2, 2)


def test_a_large_file_that_learns_forgets_what_was_seen_once(tmp_path: Path) -> None:
    n_vocab = 1 << 20
    numbers = array("i")
    for i in range(600_000):
        numbers.extend([i, -1, -1, -1, 1, i + 1, 1 + i % 2])
    path = tmp_path / "file"
    path.write_bytes(numbers.tobytes())
    assert LookupFile(str(path), n_vocab).n_ngrams == 600_000
    assert LookupFile(str(path), n_vocab, learns=True).n_ngrams == 300_000
