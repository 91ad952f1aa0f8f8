"""Lookup caches (-lcs, -lcd) in an engine: they draft where the text itself has no match, the dynamic one learns what
is generated, and a thread writes it."""

from __future__ import annotations

import logging
import stat
import time
from array import array
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.drafts.drafted_tasks import CHAOS, TASKS, play
from support.drafts.match_search import ids
from support.drafts.ngram_cache import Cache, parsed, update, written
from support.engine_harness import Harness

from llamad.engine.drafts.lookup_file import LookupFile
from llamad.engine.drafts.lookup_files import LookupWriter, open_dynamic, open_static
from llamad.engine.drafts.spec_types import DraftRules, ngram_cache
from llamad.engine.drafts.text_drafter import TextDrafter
from llamad.engine.testing.drafts_probe import hold, learn, let_go
from llamad.engine.testing.fake import Fake
from llamad.protocol.errors import FileRefused

NEVER = DraftRules(1000, 1, 8)  # no text has such a match
N_CTX = 256
N_VOCAB = Fake().n_vocab
WRONG = N_VOCAB - 1


def engine(
    n_slots: int = 4, n_fixed: int = 7, rules: DraftRules = NEVER, decode_us: int = 0, **files: Any
) -> tuple[Harness, Fake]:
    """Return an engine that drafts from files."""
    fake = Fake(n_ctx=N_CTX, n_batch=128, n_seqs=n_slots, chaos=CHAOS, decode_us=decode_us)
    h = Harness(fake, n_slots=n_slots, n_ctx=N_CTX, n_batch=128)
    drafter = TextDrafter(n_slots=n_slots, n_ctx=N_CTX, rules=[rules], answers=False, **files)
    assert h.core.draft_with(drafter, n_fixed)
    return h, fake


def text_of(h: Harness, task: int, prompt: bytes) -> list[int]:
    return [*array("i", h.vocab.tokenize(prompt, True, True)), *h.tokens(task)]


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    tasks=st.lists(st.tuples(st.binary(min_size=1, max_size=20), st.integers(1, 90)), min_size=1, max_size=4)
)
def test_it_learns_what_was_generated(tmp_path: Path, tasks: list[tuple[bytes, int]]) -> None:
    """A task's last token is not learned, because nothing follows it."""
    path = tmp_path / "dynamic"
    path.unlink(missing_ok=True)
    expected: Cache = {}
    file = LookupFile(str(path), N_VOCAB, learns=True)
    h, _ = engine(n_slots=2, dynamic=file)
    with h:
        for prompt, n_predict in tasks:
            task = h.submit(prompt, n_predict=n_predict)
            h.wait(task)
            text = text_of(h, task, prompt)
            update(expected, text[:-1], len(h.tokens(task)) - 1)
    file.write()
    assert parsed(path.read_bytes(), N_VOCAB) == expected


def static_of(texts: list[list[int]]) -> Cache:
    """A table of 2-grams, as llama-lookup-create makes it."""
    cache: Cache = {}
    for text in texts:
        update(cache, text, len(text))
    return {ngram: part for ngram, part in cache.items() if ngram[1] >= 0 > ngram[2]}


@pytest.mark.parametrize("kind", ["dynamic", "fixed"])
def test_text_that_a_file_knows_takes_fewer_steps(tmp_path: Path, kind: str) -> None:
    prompt, options = b"once upon", {"n_predict": 80}
    with Harness(Fake(n_ctx=N_CTX, n_batch=128, chaos=CHAOS), n_ctx=N_CTX, n_batch=128) as plain:
        task = plain.submit(prompt, **options)
        plain.wait(task)
        expected, n_plain = text_of(plain, task, prompt), plain.stats()["n_steps"]
    cache: Cache = {}
    for _ in range(4):
        update(cache, expected, len(expected))
    path = tmp_path / "file"
    path.write_bytes(written(cache if kind == "dynamic" else static_of([expected] * 2)))
    h, _ = engine(**{kind: LookupFile(str(path), N_VOCAB, learns=kind == "dynamic")})
    with h:
        task = h.submit(prompt, **options)
        h.wait(task)
        assert text_of(h, task, prompt) == expected
        assert h.stats()["n_steps"] < n_plain * (0.3 if kind == "dynamic" else 0.8)
        end = h.end(task)
        assert 0 < end.n_accepted <= end.n_drafted


def test_the_texts_own_match_comes_first(tmp_path: Path) -> None:
    """A file that is always wrong is not asked where the text has a match."""
    path = tmp_path / "file"
    path.write_bytes(written({(one, -1, -1, -1): {WRONG: 9} for one in range(N_VOCAB)}))
    results = []
    for rules in (NEVER, ngram_cache()):
        fake = Fake(n_ctx=N_CTX, n_batch=128, script=b"abcabc" * 20)
        h = Harness(fake, n_slots=1, n_ctx=N_CTX, n_batch=128)
        files = {"dynamic": LookupFile(str(path), N_VOCAB, learns=True)}
        h.core.draft_with(TextDrafter(n_slots=1, n_ctx=N_CTX, rules=[rules], answers=False, **files), 3)
        with h:
            task = h.submit(b"abcabcabc", n_predict=60)
            h.wait(task)
            results.append((h.end(task).n_accepted, h.end(task).n_drafted))
    assert results[0][0] < results[1][0]
    assert results[1][0] > 30


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    tasks=st.lists(TASKS, min_size=1, max_size=5),
    known=st.lists(st.integers(0, N_VOCAB - 1), max_size=60),
    n_fixed=st.sampled_from([-1, 1, 7]),
)
def test_files_change_no_text(
    tmp_path: Path, tasks: list[dict[str, Any]], known: list[int], n_fixed: int
) -> None:
    fake = Fake(n_ctx=N_CTX, n_batch=128, n_seqs=4, chaos=CHAOS)
    plain, _ = play(Harness(fake, n_slots=4, n_ctx=N_CTX, n_batch=128), fake, tasks)
    path = tmp_path / "static"
    path.write_bytes(written(static_of([known] * 2)))
    files = {
        "fixed": LookupFile(str(path), N_VOCAB),
        "dynamic": LookupFile(str(tmp_path / "none"), N_VOCAB, learns=True),
    }
    drafted, _ = play(*engine(n_fixed=n_fixed, rules=ngram_cache(), **files), tasks)
    assert drafted == plain


def test_the_engine_does_not_wait_for_a_thread_that_writes_and_learns_afterwards(tmp_path: Path) -> None:
    file = LookupFile(str(tmp_path / "file"), N_VOCAB, learns=True)
    h, _ = engine(n_slots=1, decode_us=2000, dynamic=file)
    assert hold(file)
    with h:
        task = h.submit(b"prompt", n_predict=150)
        h.until(lambda: len(h.tokens(task)) > 70)
        assert file.n_ngrams == 0
        let_go(file)
        h.wait(task)
        expected: Cache = {}
        update(expected, text_of(h, task, b"prompt")[:-1], 149)
    assert parsed(file.content(), N_VOCAB) == expected


# --- the files of the flags ---------------------------------------------------------------------------------------


def opened(static: Path | None = None, dynamic: Path | None = None) -> list[LookupFile | None]:
    named: Any = SimpleNamespace(
        lookup_cache_static=static and str(static), lookup_cache_dynamic=dynamic and str(dynamic)
    )
    return [open_static(named, 12), open_dynamic(named, 12)]


def test_bad_files_are_refused_with_what_to_do(tmp_path: Path) -> None:
    bad = tmp_path / "bad"
    bad.write_bytes(b"\1\0\0")
    assert opened() == [None, None]
    with pytest.raises(
        FileRefused, match=r"there is no file .*; make one for this model with llama-lookup-create"
    ):
        opened(static=tmp_path / "missing")
    with pytest.raises(FileRefused, match=r"--lookup-cache-static: .* it ends within a record; make one"):
        opened(static=bad)
    with pytest.raises(
        FileRefused, match=r"--lookup-cache-dynamic: .* it ends within a record; move it away"
    ):
        opened(dynamic=bad)
    with pytest.raises(FileRefused, match=r"could not be written, because .*nowhere is not a folder"):
        opened(dynamic=tmp_path / "nowhere" / "file")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad"]


def test_a_file_is_made_at_the_start_and_written_now_and_then_and_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "file"
    file = LookupFile(str(path), 12, learns=True)
    writer = LookupWriter(file, 0.01)
    writer.start()
    assert path.read_bytes() == b""
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    learn(file, ids([1, 2]), 1)
    t_end = time.monotonic() + 30
    while not path.stat().st_size and time.monotonic() < t_end:
        time.sleep(0.01)
    assert path.read_bytes() == file.content() == written({(1, -1, -1, -1): {2: 1}})
    before = path.stat()
    time.sleep(0.1)
    assert path.stat().st_ino == before.st_ino, "it is written only if something was learned"
    writer.stop()
    slow = LookupWriter(file, 1000)
    slow.start()
    learn(file, ids([3, 4]), 1)
    slow.stop()
    assert path.read_bytes() == file.content()


def test_a_write_that_fails_is_logged_once_and_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    file = LookupFile(str(folder / "file"), 12, learns=True)
    writer = LookupWriter(file, 0.005)
    folder.rmdir()
    with caplog.at_level(logging.WARNING):
        writer.start()
        time.sleep(0.1)
    folder.mkdir()
    learn(file, ids([1, 2]), 1)
    writer.stop()
    assert [record.getMessage() for record in caplog.records] == [
        f"cannot write {folder}/file: No such file or directory; it stays as it was"
    ]
    assert (folder / "file").read_bytes() == file.content() != b""
