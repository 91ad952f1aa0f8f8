"""Rows that are read while somebody still writes them: nothing is taken before it is there."""

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from support.engine_harness import Harness
from support.timing_retries import learned

from llamad.client.events import Done, Failed
from llamad.engine.testing.fake import Fake
from llamad.engine.testing.sampler_probe import row_await, row_fill_sentinels
from llamad.protocol.messages import FAILURE_SAMPLER

N = 5000


def awaited(row, is_over):
    """A thread that copies the row as soon as it counts as arrived."""
    copies = []

    def run():
        maxima = np.full(N // 256 * 16, 9e9, np.float32)
        copies.append((row_await(row, is_over, maxima), row.copy(), maxima))

    thread = threading.Thread(target=run)
    thread.start()
    return thread, copies


@pytest.mark.parametrize("seed", range(8))
def test_a_row_has_arrived_when_its_last_number_has(seed):
    rng = np.random.default_rng(seed)
    values = rng.normal(size=N).astype(np.float32)
    row, is_over = np.zeros(N, np.float32), np.zeros(1, np.int32)
    row_fill_sentinels(row)
    thread, copies = awaited(row, is_over)
    pieces = np.array_split(rng.permutation(N), 6)  # in whatever order the bus likes
    for piece in pieces:
        assert not copies
        row[piece] = values[piece]
        time.sleep(0.002)
    thread.join(10)
    has_maxima, found, maxima = copies[0]
    assert np.array_equal(found, values)
    assert has_maxima
    groups = values[: N // 256 * 256].reshape(-1, 16, 16)
    assert np.array_equal(maxima, groups.max(axis=1).ravel())


def test_no_number_arrives_unseen_while_its_row_is_looked_through():
    """A device writes just where a thread reads. What counts as arrived must be in the maxima."""
    n = 1 << 16
    values = np.random.default_rng(1).normal(size=n).astype(np.float32)
    expected = values.reshape(-1, 16, 16).max(axis=1).ravel()
    row, is_over, maxima = np.zeros(n, np.float32), np.zeros(1, np.int32), np.zeros(n // 16, np.float32)
    # Across the row again and again, so that numbers come into every piece that is looked at.
    to, across = row.reshape(64, -1).T, values.reshape(64, -1).T.copy()
    with ThreadPoolExecutor(1) as reader:
        for _ in range(1500):
            row_fill_sentinels(row)
            maxima[:] = 9e9
            reading = reader.submit(row_await, row, is_over, maxima)
            time.sleep(2e-5)  # it begins
            to[:] = across
            assert reading.result(10)
            assert np.array_equal(maxima, expected)


def test_numbers_like_the_mark_wait_for_the_end_of_all():
    row, is_over = np.zeros(N, np.float32), np.zeros(1, np.int32)
    row_fill_sentinels(row)
    row[: N - 1] = 1
    thread, copies = awaited(row, is_over)
    time.sleep(0.01)
    assert not copies
    is_over[0] = 1
    thread.join(10)
    [(has_maxima, _, _)] = copies
    assert not has_maxima


def test_no_other_nan_is_taken_for_the_mark():
    row, is_over = np.zeros(N, np.float32), np.zeros(1, np.int32)
    row_fill_sentinels(row)
    assert np.isnan(row).all()
    row[:] = np.array([np.nan, -np.nan, np.inf, -np.inf], np.float32)[np.arange(N) % 4]
    assert row_await(row, is_over, np.zeros(N, np.float32))


@pytest.mark.parametrize("n_threads", [1, 4])
def test_the_engine_takes_every_token_from_its_own_row(n_threads):
    """The fake writes its rows only when it is asked for them, after the device's time."""
    fake = Fake(device_us=500)
    with Harness(fake, n_slots=8, has_device=True, n_sampler_threads=n_threads) as h:
        prompts = [bytes([97 + 2 * i]) for i in range(8)]
        tasks = [h.submit(prompt, n_predict=20 + i) for i, prompt in enumerate(prompts)]
        h.wait(*tasks)
        for i, (task, prompt) in enumerate(zip(tasks, prompts, strict=True)):
            assert h.text(task) == bytes((prompt[0] + 1 + k) % 256 for k in range(20 + i))
        assert h.stats()["n_landed"] > 15


@pytest.mark.parametrize("n", [1, 2])
def test_only_rows_that_are_awaited_get_sentinels(n):
    """Filling a row takes as long as sampling it, and a single row is never awaited."""
    fake = Fake(device_us=100)
    with Harness(fake, n_slots=3, has_device=True) as h:
        fake.block(True)
        busy = h.submit(b"busy", n_predict=1)
        h.catch()  # the tasks begin in one step, and so they end in one
        tasks = [h.submit(b"a", n_predict=20) for _ in range(n)]
        fake.block(False)
        h.wait(busy, *tasks)
    assert np.isnan(fake.row(0)).all() == (n > 1)


def test_steps_of_every_width_give_each_slot_its_own_token():
    """Tasks of all lengths come and go, so that a step's picks are ever others than the last one's; some want their
    prompts' probabilities, which the same threads tell first."""
    rng = random.Random(5)
    with Harness(Fake(device_us=100), n_slots=24, has_device=True, n_sampler_threads=6) as h:
        tasks = {}
        for i in range(200):
            prompt, n = (
                bytes([rng.randrange(97, 123) for _ in range(rng.randrange(1, 9))]),
                rng.randrange(1, 30),
            )
            wanted = {"n_probs": 1, "prompt_probs": True} if i % 5 == 0 else {}
            tasks[h.submit(prompt, n_predict=n, **wanted)] = bytes(
                (prompt[-1] + 1 + k) % 256 for k in range(n)
            )
        h.wait(*tasks)
        assert {task: h.text(task) for task in tasks} == tasks
        assert h.stats()["n_landed"] > 20


def landed(h, fake, prompts, **wanted) -> int:
    """In how many steps rows were picked from as they came, of those that read these prompts at once."""
    fake.block(True)
    warm = [h.submit(b"%d" % i, n_predict=6, id_slot=i) for i in range(8)]
    fake.block(False)
    h.wait(*warm)  # every row has been there, and is marked
    fake.block(True)
    busy = h.submit(b"busy", n_predict=1, id_slot=7)
    h.catch()
    before = h.stats()["n_landed"]
    tasks = [h.submit(prompt, n_predict=1, id_slot=i, **wanted) for i, prompt in enumerate(prompts)]
    fake.block(False)
    h.wait(busy, *tasks)
    assert [h.text(task) for task in tasks] == [bytes([prompt[-1] + 1]) for prompt in prompts]
    return h.stats()["n_landed"] - before


@learned
def test_rows_of_prompts_that_are_one_graph_are_picked_from_as_they_come():
    fake = Fake(n_ctx=1024, n_batch=1024, device_us=500, token_us=30)
    options = {"n_ctx": 1024, "n_batch": 1024, "n_ubatch": 1024}
    with Harness(fake, n_slots=8, has_device=True, n_sampler_threads=4, **options) as h:
        equal = [b"%d" % i + b"x" * 40 + bytes([97 + i]) for i in range(6)]
        assert landed(h, fake, equal) == 1
        unequal = [b"%d" % i + b"x" * (30 + 5 * i) + bytes([97 + i]) for i in range(6)]
        assert landed(h, fake, unequal) == 1  # made equally long
        assert landed(h, fake, [b"0" + b"y" * 500, b"1" + b"y" * 8 + b"q"]) == 0  # two graphs
        # Told first, with all rows.
        assert landed(h, fake, [prompt.upper() for prompt in equal], n_probs=1, prompt_probs=True) == 0


def test_no_row_is_awaited_where_the_host_computes():
    with Harness(Fake(device_us=300), n_slots=4) as h:
        h.wait(*[h.submit(b"%d" % i, n_predict=20) for i in range(4)])
        assert h.stats()["n_landed"] == 0


def test_a_decode_that_fails_leaves_no_row_behind():
    fake = Fake(device_us=300)
    with Harness(fake, n_slots=3, has_device=True) as h:
        tasks = [h.submit(b"%c" % (97 + i), n_predict=200) for i in range(3)]
        for task in tasks:
            h.wait_first(task)
        fake.fail_next(-3)
        h.wait(*tasks)
        again = [h.submit(b"%c" % (65 + i), n_predict=20) for i in range(3)]
        h.wait(*again)
        assert [h.text(task)[:3] for task in again] == [b"BCD", b"CDE", b"DEF"]


@pytest.mark.parametrize("has_device", [False, True])
@pytest.mark.parametrize("is_first", [False, True])
def test_without_logits_the_tasks_of_the_step_fail_and_no_others(has_device, is_first):
    """In the step that has read the prompts, or in a later one."""
    fake = Fake(device_us=300)
    with Harness(fake, n_slots=3, has_device=has_device) as h:
        if is_first:
            fake.fail_rows()
        tasks = [h.submit(b"%c" % (97 + i), n_predict=200) for i in range(3)]
        if not is_first:
            for task in tasks:
                h.wait_first(task)
            fake.fail_rows()
        h.until(lambda: any(h.end(task) for task in tasks))
        failed = [task for task in tasks if isinstance(h.end(task), Failed)]
        assert failed
        assert {h.end(task).failure for task in failed} == {FAILURE_SAMPLER}
        again = [h.submit(b"%c" % (65 + i), n_predict=5) for i in range(3)]
        h.wait(*again)
        assert [h.text(task) for task in again] == [b"BCDEF", b"CDEFG", b"DEFGH"]


def test_a_first_token_has_come_when_its_logits_have():
    """Although everything that it needs is made ready while the device computes."""
    with Harness(Fake(device_us=30_000), n_slots=2, has_device=True) as h:
        tasks = [h.submit(b"%c" % (97 + i), n_predict=1) for i in range(2)]
        h.wait(*tasks)
        for task in tasks:
            done = h.end(task)
            assert isinstance(done, Done)
            assert done.prompt_us >= 29_000
            assert done.predict_us < 29_000
        assert h.stats()["prompt_us"] >= 2 * 29_000
