"""With llama.cpp, slots that draft while long prompts are prefilled beside them have the text of plain steps."""

import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from support.live_daemon import Live, until
from support.models.tiny_kv_models import write_model

BODY = {"temperature": 0, "return_tokens": True, "ignore_eos": True, "n_probs": 2}
# Two tokens whose log-probabilities differ by less may change places with the rows of a step, also without drafts.
TIE = 1e-2


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """In float32, logits hardly depend on the rows of a step."""
    return write_model(tmp_path_factory.mktemp("model") / "model.gguf", "llama", np.float32)


def answers(model, *flags):
    """The answers to two short prompts, and to long ones that come while those decode."""
    with (
        Live(*flags, "-c", "32768", "-b", "4096", "-ub", "512", "--slots", model=model) as server,
        ThreadPoolExecutor(6) as threads,
    ):

        def ask(i, n, n_predict):
            return server.client.complete(f"{'abcdefgh' * n} {i}", **BODY, n_predict=n_predict)

        def n_decoding():
            return sum(slot["is_processing"] for slot in server.client.get("/slots").json)

        first = [threads.submit(ask, i, 20, 900) for i in range(2)]
        until(lambda: n_decoding() == 2)
        others = [threads.submit(ask, i, 500, 20) for i in range(4)]
        return [one.result() for one in (*first, *others)]


def assert_same(plain, drafted):
    """Compare two answers up to a near tie, after which their texts may be different ones."""
    assert len(plain["tokens"]) == len(drafted["tokens"])
    pairs = zip(plain["tokens"], drafted["tokens"], plain["completion_probabilities"], strict=True)
    for i, (token, other, probs) in enumerate(pairs):
        if token != other:
            first, second = (one["logprob"] for one in probs["top_logprobs"])
            assert first - second < TIE, f"token {i} is {other}, not {token}"
            return


@pytest.mark.parametrize("flags", [("-np", "4"), ("-np", "4", "-kvu")], ids=["streams", "unified"])
def test_the_text_is_that_of_plain_steps(model, tmp_path, flags):
    trace = tmp_path / "trace"
    plain = answers(model, *flags)
    drafted = answers(model, *flags, "--spec", "auto", "--spec-fixed", "7", "--step-trace", str(trace))
    for one, other in zip(plain, drafted, strict=True):
        assert_same(one, other)
    steps = [json.loads(line)["slots"] for line in trace.read_text().splitlines()]
    mixed = [
        slots
        for slots in steps
        if any(n > 1 and is_decoding for _, n, is_decoding in slots)
        and not all(is_decoding for *_, is_decoding in slots)
    ]
    assert mixed
