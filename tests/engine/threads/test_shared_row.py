"""A single row of logits that several sampler threads scan: the text and its probabilities are those of one thread."""

import pytest
from support.engine_harness import Harness, sampling

from llamad.client.events import Failed
from llamad.engine.testing.fake import Fake
from llamad.protocol.messages import FAILURE_SAMPLER

N_VOCAB = 5 * 8192 + 300  # the last part is short, and so is the last piece
CHAINS = {
    "default": ["top_k", "top_p", "min_p", "temperature"],
    "penalties": ["penalties", "top_k", "temperature"],
    "greedy": ["temperature"],
    "top_p first": ["top_p", "temperature"],
}


def answers(n_threads: int, names: list[str], n_tasks: int = 3, **options):
    """Return the tokens and probabilities of tasks, one after the other."""
    fake = Fake(device_us=50, n_vocab=N_VOCAB, chaos=11)
    values = {"repeat_penalty": 1.3, "temperature": 0.0 if names == ["temperature"] else 0.8}
    with Harness(fake, n_slots=2, has_device=True, n_sampler_threads=n_threads) as h:
        h.sampling = sampling(names, seed=5, **values)
        told = []
        for i in range(n_tasks):
            task = h.submit(b"task %d" % i, n_predict=40, ignore_eos=True, **options)
            h.wait(task)
            told.append((h.tokens(task), h.text(task), h.probs(task)))
    return told


@pytest.mark.parametrize("names", CHAINS.values(), ids=CHAINS.keys())
@pytest.mark.parametrize("n_probs", [0, 3])
def test_threads_that_share_a_row_sample_as_one_does(names, n_probs):
    assert answers(4, names, n_probs=n_probs) == answers(1, names, n_probs=n_probs)


def test_one_slot_and_several_take_turns():
    """Rows of one slot have no sentinels, rows of several do, and the same threads serve both."""
    told = []
    for n_threads in (1, 7):
        fake = Fake(device_us=50, n_vocab=N_VOCAB, chaos=3)
        with Harness(fake, n_slots=4, has_device=True, n_sampler_threads=n_threads) as h:
            h.sampling = sampling(CHAINS["default"], seed=9)
            tasks = []
            for i in range(6):
                first = h.submit(b"first %d" % i, n_predict=30, ignore_eos=True)
                h.wait_first(first)
                rest = [h.submit(b"rest %d %d" % (i, k), n_predict=5, ignore_eos=True) for k in range(i % 4)]
                h.wait(first, *rest)
                tasks += [first, *rest]
            told.append([h.text(task) for task in tasks])
            assert all(len(text) for text in told[-1])
    assert told[0] == told[1]


def test_a_row_that_is_missing_fails_its_task_alone():
    fake = Fake(device_us=2000, n_vocab=N_VOCAB)
    with Harness(fake, n_slots=1, has_device=True, n_sampler_threads=4) as h:
        task = h.submit(b"a", n_predict=200)
        h.wait_first(task)
        fake.fail_rows()
        h.wait(task)
        assert h.told(task, Failed)[0].failure == FAILURE_SAMPLER
        again = h.submit(b"a", n_predict=3)
        h.wait(again)
        assert h.text(again) == b"bcd"
