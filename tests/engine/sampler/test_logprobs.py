"""The probabilities told with each token: right numbers, and with the right token's text."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.engine_harness import Harness

from llamad.client.events import Done, PromptTokens
from llamad.client.text_event import TextEvent
from llamad.engine.sampler.logprobs import top_logprobs
from llamad.engine.testing.fake import Fake
from llamad.protocol.messages import FAILURE_SAMPLER, STOP_EOS, STOP_LIMIT, STOP_WORD

# Of the fake model: every logit is 0 but the answer's, which is 10, and a full stop's, which is 5.
OWN = 10 - math.log(math.exp(10) + math.exp(5) + 257)
SECOND, OTHER = OWN - 5, OWN - 10


def logprobs(row: np.ndarray) -> np.ndarray:
    exact = row.astype(np.float64)
    return exact - exact.max() - math.log(np.exp(exact - exact.max()).sum())


@settings(max_examples=200, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    n_vocab=st.sampled_from([1, 3, 17, 1024, 4099, 32000]),
    n_top=st.integers(1, 200),
    scale=st.sampled_from([0.0, 0.1, 3.0, 1e4]),
    shape=st.sampled_from(["plain", "ties", "infinite"]),
)
def test_logprobs_are_those_of_an_exact_softmax(seed, n_vocab, n_top, scale, shape):
    random = np.random.default_rng(seed)
    row = (random.standard_normal(n_vocab) * scale).astype(np.float32)
    if shape == "ties":
        row = np.round(row)
    if shape == "infinite":
        row[random.random(n_vocab) < 0.5] = -np.inf
        row[0] = 1
    picked = int(random.integers(n_vocab))
    before = row.copy()
    own, top = top_logprobs(row, picked, n_top)
    assert np.array_equal(row, before)
    exact = np.maximum(logprobs(row), -np.finfo(np.float32).max)
    assert own == pytest.approx(exact[picked], rel=1e-6, abs=1e-5)
    assert len(top) == min(n_top, n_vocab)
    assert len({token for token, _ in top}) == len(top)
    for token, value in top:
        assert value == pytest.approx(exact[token], rel=1e-6, abs=1e-5)
    expected = np.sort(exact)[::-1][: len(top)]
    assert [value for _, value in top] == pytest.approx(expected.tolist(), rel=1e-6, abs=1e-5)


def run(script: bytes, stream: bool, **options):
    h = Harness(Fake(script=script, n_ctx=4096), n_ctx=4096)
    with h:
        task = h.submit(stream=stream, **options)
        h.wait(task)
    return h, task


@pytest.mark.parametrize("stream", [False, True])
def test_every_token_has_its_own_and_the_top(stream):
    h, task = run(b"hi", stream, n_probs=3)
    assert h.tokens(task) == [3 + ord("h"), 3 + ord("i"), 1]
    for token, (own, top) in zip(h.tokens(task), h.probs(task), strict=True):
        assert own == pytest.approx(OWN, abs=1e-5)
        assert top[0] == (token, pytest.approx(OWN, abs=1e-5))
        assert [value for _, value in top[1:]] == pytest.approx([SECOND, OTHER], abs=1e-5)


def test_probabilities_behind_the_sampler_are_of_what_it_left():
    h, task = run(b"hi", False, n_probs=3, post_sampling_probs=True)
    for token, (own, top) in zip(h.tokens(task), h.probs(task), strict=True):
        assert own == 1
        assert top == [(token, 1)]


def test_without_n_probs_nothing_is_told():
    h, task = run(b"hi", True)
    assert h.probs(task) == []


def test_tokens_of_a_removed_stop_word_are_not_told():
    for stream in (False, True):
        h, task = run(b"one END", stream, n_probs=2, stops=[b"END"])
        assert h.end(task).stop_type == STOP_WORD
        assert h.text(task) == b"one "
        assert len(h.tokens(task)) == 7
        assert [top[0][0] - 3 for _, top in h.probs(task)] == list(b"one ")


def test_tokens_leave_with_their_text():
    """A held back beginning of a stop string keeps its tokens, too."""
    h, task = run(b"say EN.", True, n_probs=1, stops=[b"END"])
    for text in h.texts(task):
        if text.data:
            assert bytes(token - 3 for token in text.tokens if token >= 3) == text.data
            assert [top[0][0] for _, top in text.probs] == text.tokens


def test_more_probabilities_than_the_ring_holds_come_in_pieces():
    stop = b"x" * 3000 + b"!"
    for stream in (False, True):
        h, task = run(b"x" * 3000 + b".", stream, n_probs=259, stops=[stop])
        assert h.text(task) == b"x" * 3000 + b"."
        assert len(h.probs(task)) == 3002
        assert all(len(top) == 259 for _, top in h.probs(task))


text = st.lists(st.sampled_from(["a", "b", "\n", " ", "\t", "E", "N", "ß", "€", "😀"]), max_size=40).map(
    "".join
)


@settings(max_examples=150, deadline=None)
@given(
    script=text,
    stops=st.lists(st.sampled_from(["EN", "\n\n", "😀", "b", "aE", "ßß", "N"]), max_size=2, unique=True),
    n_probs=st.sampled_from([0, 2]),
    n_indent=st.sampled_from([0, 0, 2]),
    n_predict=st.sampled_from([-1, 7]),
)
def test_the_stream_is_the_whole_in_pieces(script, stops, n_probs, n_indent, n_predict):
    options = {
        "stops": [stop.encode() for stop in stops],
        "n_probs": n_probs,
        "n_indent": n_indent,
        "n_predict": n_predict,
    }
    data = script.encode() or b"a"
    (h1, whole), (h2, stream) = run(data, False, **options), run(data, True, **options)
    assert h1.text(whole) == h2.text(stream)
    assert h1.tokens(whole) == h2.tokens(stream)
    assert h1.probs(whole) == h2.probs(stream)
    ends = [(end.stop_type, end.stop_word) for end in (h1.end(whole), h2.end(stream))]
    assert ends[0] == ends[1]
    assert data.startswith(h1.text(whole))
    if n_probs and not n_indent:
        n_told = len(h1.text(whole)) + (h1.end(whole).stop_type == STOP_EOS)
        assert len(h1.probs(whole)) == n_told


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("script", "expected", "stop_type"),
    [
        (b"def f():\n    a\n    b\nc = 1", b"def f():\n    a\n    b\n", STOP_LIMIT),
        (b"x\n  two\n", b"x\n  ", STOP_LIMIT),
        (b"x\n\ty", b"x\n\t", STOP_LIMIT),
        (b"x\n\n    y", b"x\n", STOP_LIMIT),  # an empty line has no indentation
        (b"one line", b"one line", STOP_EOS),
        (b"x\n    ", b"x\n    ", STOP_EOS),
        (b"x\n ", b"x\n ", STOP_EOS),
    ],
)
def test_a_line_with_too_little_indentation_ends_the_text(script, expected, stop_type, stream):
    h, task = run(script, stream, n_indent=4, n_probs=1)
    assert h.text(task) == expected
    assert h.end(task).stop_type == stop_type
    assert [top[0][0] - 3 for _, top in h.probs(task)][: len(expected)] == list(expected)
    h, task = run(script, stream)
    assert h.text(task) == script


def test_prompts_are_told():
    """The tokens of the prompts, each once and in order; a step asks for the logits of few of them."""
    letters = b"abcdefghijklmnopqrstuvwxyz" * 12 + b"cb"
    with Harness(Fake(n_ctx=4096, n_batch=512), n_ctx=4096, n_batch=512) as h:
        h.wait(h.submit(letters, n_predict=1))  # in a cache, which is of no use here
        tasks = [h.submit(letters, n_predict=n, n_probs=2, prompt_probs=True) for n in (0, 3)]
        alone = h.submit(b"", n_predict=1, n_probs=1, prompt_probs=True)
        for task in (*tasks, alone):
            h.wait(task)
    ids = np.frombuffer(h.vocab.tokenize(letters, True, True), np.int32).tolist()
    for task, n in zip(tasks, (0, 3), strict=True):
        told = h.told(task, PromptTokens)
        assert [token for part in told for token in part.tokens] == ids[1:]
        values = [own for part in told for own, _ in part.probs]
        is_next = [ids[i + 1] == ids[i] + 1 for i in range(1, len(ids) - 1)]
        assert values[1:] == pytest.approx([OWN if one else OTHER for one in is_next], abs=1e-5)
        assert all(len(top) == 2 for part in told for _, top in part.probs)
        kinds = [type(event) for event in h.events[task]]
        assert TextEvent not in kinds[: len(kinds) - kinds[::-1].index(PromptTokens)]
        assert (h.end(task).n_decoded, h.end(task).n_cached) == (n, 0)
    assert h.told(alone, PromptTokens) == []
    told_slots = {h.slot(task) for task in tasks}
    steps = [
        sum(row.n_tokens for row in step.slots if row.slot in told_slots and not row.is_decoding)
        for step in h.steps[1:]
    ]
    assert max(steps) <= 64
    assert sum(steps) >= 2 * len(ids)


@pytest.mark.parametrize("n_letters", [10, 100])  # in the step that would pick a token, and before
def test_a_prompt_without_its_row_fails_alone(n_letters):
    fake = Fake(n_ctx=4096, n_batch=512)
    with Harness(fake, n_ctx=4096, n_batch=512) as h:
        other = h.submit(b"x", n_predict=300, stream=True)
        h.wait_first(other)
        fake.fail_row()
        failed = h.submit(b"a" * n_letters, n_predict=5, n_probs=1, prompt_probs=True)
        h.wait(failed)
        assert h.end(failed).failure == FAILURE_SAMPLER
        after = h.submit(b"a" * n_letters, n_predict=5, n_probs=1, prompt_probs=True)
        for task in (other, after):
            h.wait(task)
        assert type(h.end(after)) is type(h.end(other)) is Done
    assert len(h.text(after)) == 5
