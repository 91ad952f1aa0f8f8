"""What is given up first, in slots and in host memory: not what is oldest, but what is worth least."""

import pytest
from support.engine_harness import Harness

from llamad.engine.testing.fake import Fake

MANY = 1 << 30
N_CTX = 4096
N_LONG = 3000
N_TITLES = 100


def text(seed: int, n: int) -> bytes:
    return bytes(33 + (i * i + 7 * seed + i // (seed + 1)) % 90 for i in range(n))


def title(i: int) -> bytes:
    return b"%03d: a title, please. " % i + text(i, 280)


LONG = text(200, N_LONG)


def engine(n_slots: int = 1, **more) -> Harness:
    fake = Fake(n_ctx=N_CTX, n_batch=512, unified=more.get("n_cells", 0) > 0)
    return Harness(fake, n_slots=n_slots, n_ctx=N_CTX, n_batch=512, **more)


def ask(h: Harness, prompt: bytes, **options) -> int:
    """How many of the prompt's tokens were not computed."""
    task = h.submit(prompt, **({"n_predict": 1} | options))
    h.wait(task)
    return h.n_cached(task)


def bytes_of(*prompts: bytes) -> int:
    """What the prompt cache takes for these prompts."""
    with engine(cache_bytes=MANY) as h:
        for prompt in (*prompts, b"something else"):
            ask(h, prompt)
        assert h.stats()["cache_entries"] == len(prompts)
        return h.stats()["cache_bytes"]


def test_a_hundred_titles_push_no_long_conversation_out_of_host_memory():
    with engine(cache_bytes=bytes_of(LONG, title(0), title(1))) as h:
        ask(h, LONG)
        for i in range(N_TITLES):
            ask(h, title(i))
        assert h.stats()["cache_dropped"] >= N_TITLES - 4
        assert ask(h, LONG + b"go on") >= N_LONG


@pytest.mark.parametrize("n_cells", [0, N_LONG + 1000])
def test_a_hundred_titles_push_no_long_conversation_out_of_its_slot(n_cells):
    with engine(n_slots=3, n_cells=n_cells) as h:
        ask(h, LONG)
        for i in range(N_TITLES):
            ask(h, title(i))
        assert ask(h, LONG + b"go on") >= N_LONG


def test_busy_neighbours_are_no_reason_to_give_up_a_long_conversation():
    with engine(n_slots=3) as h:
        ask(h, LONG, id_slot=1)
        ask(h, title(1), id_slot=2)
        h.fake.block(True)
        running = h.submit(title(2), id_slot=0, n_predict=60)
        h.until(lambda: h.fake.is_waiting)
        beside = h.submit(title(3), n_predict=1)
        h.fake.block(False)
        h.wait(running, beside)
        assert h.slot(beside) == 2
        assert ask(h, LONG + b"go on") >= N_LONG


def test_short_prompts_give_way_in_the_order_of_their_age():
    with engine(n_slots=3) as h:
        for i in range(3):
            ask(h, text(i, 40 + 50 * i), id_slot=2 - i, session=i % 2)
        slots = []
        for i in range(3):
            task = h.submit(text(50 + i, 20), n_predict=1)
            h.wait(task)
            slots.append(h.slot(task))
        assert slots == [2, 1, 0]


A, B, C = text(1, 600), text(2, 600), text(3, 600)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"session": 5}, {}),
        ({"retention_s": 300}, {}),
        ({}, {"retention_s": -1}),
    ],
)
def test_what_the_client_says_counts_more_than_the_age(first, second):
    with engine(cache_bytes=bytes_of(A, B)) as h:
        ask(h, A, **first)
        ask(h, B, **second)
        ask(h, C)
        ask(h, b"something else")  # C is saved, for which one of the others goes
        assert ask(h, A) >= len(A)
    with engine(n_slots=2) as h:
        slots = [h.submit(A, n_predict=1, **first), h.submit(B, n_predict=1, **second)]
        h.wait(*slots)
        ask(h, C)
        assert ask(h, A) >= len(A)


def test_what_was_used_again_stays():
    with engine(cache_bytes=bytes_of(A, B)) as h:
        ask(h, A)
        ask(h, B)
        assert ask(h, A) >= len(A)
        ask(h, C)
        ask(h, text(9, 600), session=4)
        ask(h, b"something else")
        assert ask(h, A) >= len(A)


def test_hints_of_one_key_take_no_more_than_its_share():
    prompts = [text(i, 600) for i in range(12)]
    with engine(cache_bytes=bytes_of(*prompts[:6])) as h:
        for prompt in prompts[:6]:  # says of all that it is precious
            ask(h, prompt, owner=1, session=7, retention_s=86400)
        for prompt in prompts[6:9]:
            ask(h, prompt, owner=2)
        for prompt in prompts[9:]:
            ask(h, prompt, owner=1, session=7, retention_s=86400)
        ask(h, b"something else")
        assert sum(ask(h, prompt + b"!", owner=2, id_slot=0) >= 600 for prompt in prompts[6:9]) >= 2
