"""Text that repeats itself is recognized soon, and no other text is. With drafts, and after a crash of the engine, it
ends at the same token."""

from __future__ import annotations

import asyncio
import random
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.drafts.drafted_tasks import greedy, play
from support.engine_harness import GREEDY, Harness
from support.live_daemon import model_path
from support.mortal_engine import MortalEngine

from llamad.client.task import RequestContext, Task
from llamad.engine.testing.fake import Fake
from llamad.engine.testing.known_drafter import KnownDrafter
from llamad.engine.testing.loop_guard_probe import LoopGuardProbe
from llamad.options.table import Options
from llamad.protocol.messages import STOP_LIMIT, STOP_LOOP
from llamad.tokenizer.vocab import Vocab
from llamad.tokenizer.vocab_file import VocabFile

PROSE = (Path(__file__).parents[2] / "bench" / "texts" / "prose.txt").read_text(encoding="utf-8")
PARAGRAPH = PROSE[2000:2700]
OBJECT = '    {"name": "sensor", "value": 10.5, "tags": ["indoor", "first floor"], "active": true},\n'


@pytest.fixture(scope="module")
def vocab() -> Vocab:
    return VocabFile(model_path(), [], api_only=False).vocab(special=False)


def n_tokens(vocab: Vocab, text: str) -> int:
    return len(vocab.tokenize(text.encode(), False, False)) // 4


def ended_after(vocab: Vocab, text: str) -> int:
    return LoopGuardProbe(vocab).read(vocab.tokenize(text.encode(), False, False))[0]


# A loop, and after how many tokens it ends at the latest.
LOOPS = {
    "a token": (" word" * 2000, 1050),
    "a phrase": (" I am not sure, but I think so." * 400, 1100),
    "a line": ("The cat sat on the mat.\n" * 400, 1100),
    "a paragraph": (PARAGRAPH * 40, 2000),
    "two languages": ("Das weiß ich nicht. 私は知りません。 " * 200, 1100),
    "equal objects": ("[\n" + OBJECT * 400, 1100),
    "a list that counts": ("".join(f"{i}. The answer is the same.\n" for i in range(1, 4000)), 28_000),
    "objects that count": ("".join(f'{{"id": {i}, "page": {i * 10}}},\n' for i in range(4000)), 36_000),
    "a row of zeros": ("0, " * 40_000, 66_000),
    "a row of dashes": ("-+" * 9000, 4200),
    "empty lines": (" \n" * 5000, 4200),
}
TEXTS = {
    "seven times a paragraph": PARAGRAPH * 7,
    "a table of 500 zeros": "static const uint8_t zeros[] = {\n" + "    0x00, 0x00, 0x00, 0x00,\n" * 125,
    "10,000 zeros": "0x00, " * 10_000,
    "a data set with two values in turns": "".join(f"1  1000000000000.{i % 2}\n" for i in range(2000)),
    "50 rows of 80 numbers": (", ".join(map(str, range(80))) + "\n") * 50,
    "counting to 1,000": ", ".join(map(str, range(1, 1001))),
    "300 lines that count": "".join(f"item_{i} = make_item({i})\n" for i in range(300)),
    "the small integers of CPython": "".join(
        f"    CheckRefcnt((PyObject *)&_Py_SINGLETON(small_ints)[_PY_NSMALLNEGINTS + {i}]);\n"
        for i in range(400)
    ),
    "a year of days": "".join(f'<option value="{i}">Day {i}</option>\n' for i in range(1, 366)),
    "4,000 rows of numbers": "".join(f"{i},0,0\n" for i in range(4000)),
    "equal objects with other values": "".join(f'{{"id": "{hash(i * 7.3) % 9973}"}},\n' for i in range(999)),
}


@pytest.mark.parametrize("name", LOOPS)
@pytest.mark.parametrize("before", ["", PROSE[:9000]], ids=["at once", "after a text"])
def test_loops_end(vocab: Vocab, name: str, before: str) -> None:
    text, latest = LOOPS[name]
    n = ended_after(vocab, before + text)
    assert 1000 < n - n_tokens(vocab, before) <= latest


@pytest.mark.parametrize("name", TEXTS)
def test_other_texts_do_not_end(vocab: Vocab, name: str) -> None:
    assert ended_after(vocab, TEXTS[name]) == -1


@pytest.mark.parametrize("name", ["chats.txt", "code.txt", "prose.txt"])
def test_real_texts_do_not_end(vocab: Vocab, name: str) -> None:
    path = Path(__file__).parents[2] / "bench" / "texts" / name
    assert ended_after(vocab, path.read_text(encoding="utf-8")) == -1


def words(vocab: Vocab) -> list[int]:
    """Return tokens that are words."""
    text = b" the cat sat on the mat and saw that all was well with us"
    return sorted(
        set(struct.unpack(f"{n_tokens(vocab, text.decode())}i", vocab.tokenize(text, False, False)))
    )


@settings(max_examples=100)
@given(seed=st.integers(0, 1 << 32), period=st.integers(1, 300), n_before=st.integers(0, 3000))
def test_a_repeated_text_ends_after_its_eighth_repetition(
    vocab: Vocab, seed: int, period: int, n_before: int
) -> None:
    """The last word of the period occurs once in it, so that no shorter period is the right one."""
    draw, pool = random.Random(seed), words(vocab)
    before = [draw.choice(pool) for _ in range(n_before)]
    unit = [draw.choice(pool[1:]) for _ in range(period - 1)] + pool[:1]
    tokens = before + unit * (12 + 2000 // period)
    n, _ = LoopGuardProbe(vocab).read(struct.pack(f"{len(tokens)}i", *tokens))
    needed = max(1024, 8 * period)
    assert n_before + period + needed <= n + period <= n_before + 3 * period + needed + 16


@settings(max_examples=100)
@given(seed=st.integers(0, 1 << 32), n_words=st.integers(1, 12))
def test_what_ends_has_repeated_itself(vocab: Vocab, seed: int, n_words: int) -> None:
    """Texts with repetitions of all lengths, some of them disturbed."""
    draw, pool = random.Random(seed), words(vocab)[:n_words]
    tokens: list[int] = []
    while len(tokens) < 6000:
        unit = [draw.choice(pool) for _ in range(draw.randrange(1, 60))]
        tokens += unit * draw.choice((1, 2, 9, 30))
        if draw.random() < 0.5:
            tokens[-draw.randrange(1, 60) :] = []
    n, nearness = LoopGuardProbe(vocab).read(struct.pack(f"{len(tokens)}i", *tokens))
    if n < 0:
        assert nearness < 1
        return
    text = tokens[:n]
    assert any(text[-1024:] == text[-1024 - period : -period] for period in range(1, 129))


LOOP = 256  # the period of the fake model's text: it writes all bytes in turns, half of which are parts of characters
N_LOOP = (
    LOOP + 8 + 8 * LOOP
)  # the first period, the tokens that are recognized, and as many as must be repeated


def answers(
    drafter: KnownDrafter | None, n_fixed: int, tasks: list[dict[str, Any]]
) -> tuple[list[Any], int, int]:
    """Return the tasks' outcomes, the steps that they took, and the loops that were counted."""
    h = Harness(Fake(n_ctx=4096, n_batch=256, n_seqs=4), n_slots=4, n_ctx=4096, n_batch=256)
    if drafter is not None:
        assert h.core.draft_with(drafter, n_fixed)
    outcomes, n_steps = play(h, h.fake, tasks)
    return outcomes, n_steps, h.stats()["n_loops"]


@pytest.mark.parametrize("n_fixed", [1, 7, 40])
@pytest.mark.parametrize("share", [0.7, 1.0])
def test_with_drafts_it_ends_at_the_same_token(share: float, n_fixed: int) -> None:
    fake = Fake()
    free = greedy(3, n_predict=3000)
    guarded = [{**task, "loop_guard": True} for task in free]
    plain, n_plain, n_loops = answers(None, 0, free)
    assert [seen[:2] for *_, seen in plain] == [[3000, STOP_LIMIT]] * 3
    assert n_loops == 0
    prompts = (
        memoryview(Vocab(fake.table, fake.vocab, fake.n_vocab).tokenize(b"p%d" % i, True, True))
        for i in range(3)
    )
    known = [[*prompt.cast("i"), *tokens] for prompt, (_, tokens, *_) in zip(prompts, plain, strict=True)]
    drafter = KnownDrafter(known, n_vocab=fake.n_vocab, share=share, seed=3)
    outcomes, n_steps, n_loops = answers(drafter, n_fixed, guarded)
    assert [seen[:2] for *_, seen in outcomes] == [[N_LOOP, STOP_LOOP]] * 3
    assert [tokens for _, tokens, *_ in outcomes] == [tokens[:N_LOOP] for _, tokens, *_ in plain]
    assert n_loops == 3
    assert n_steps < 0.9 * N_LOOP < n_plain


def test_after_a_crash_it_ends_at_the_same_token() -> None:
    async def work(crashes: random.Random | None) -> tuple[list[object], int]:
        engine = MortalEngine(lambda: Fake(n_ctx=4096, decode_us=20), resume_max=3, n_ctx=4096)
        tasks = [
            Task(
                RequestContext("request"),
                engine.vocab.tokenize(prompt, True, True),
                GREEDY,
                options=Options(n_predict=3000, loop_guard=True),
                vocab=engine.vocab,
                stream=i % 2 == 0,
            )
            for i, prompt in enumerate((b"one", b"two"))
        ]
        results = await engine.run(tasks, crashes, 3)
        n_went_on = engine.n_went_on
        await engine.close()
        return results, n_went_on

    expected, _ = asyncio.run(work(None))
    n_went_on = 0
    for seed in range(4):
        results, n = asyncio.run(work(random.Random(seed)))
        assert results == expected
        n_went_on += n
    assert n_went_on
    assert [result[4][0] for result in expected] == [STOP_LOOP] * 2
