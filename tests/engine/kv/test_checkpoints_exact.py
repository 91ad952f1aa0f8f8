"""Checkpoints over real memories: a conversation of twenty turns that is edited at its end, loses parts of its answers
and forks is prefilled where it is new, and its answers are those of a server that prefills everything. Tiny models of
each kind of memory, with two slots and the prompt cache."""

import random

import pytest
from support.hosted_model import Hosted
from support.models.tiny_kv_models import EXACT, write_models

BOS, END = 1, 2
OPENING = [70, 71, 72]  # of an answer
N_TURNS, N_ANSWER = 20, 12


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return write_models(tmp_path_factory.mktemp("models"), ("llama", "gemma3", "mamba", "jamba"))


def common(a, b):
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


class Talk:
    """Asks, and counts how much of what was computed before is computed again."""

    def __init__(self, h: Hosted) -> None:
        self.h = h
        self.random = random.Random(5)
        self.held: list[list[int]] = []  # every sequence that was computed
        self.n_known = self.n_again = 0
        self.asked: list[tuple[list[int], list[int]]] = []

    def message(self) -> list[int]:
        return [*(self.random.randrange(80, 200) for _ in range(self.random.randrange(30, 60))), END]

    def ask(self, prompt: list[int]) -> list[int]:
        sink, done = self.h.run(self.h.write(-1, prompt, N_ANSWER))
        n_known = max((common(one, prompt[:-1]) for one in self.held), default=0)
        self.n_known += n_known
        self.n_again += max(0, n_known - done.n_cached)
        self.held.append(prompt + sink.tokens[:-1])
        self.asked.append((prompt, sink.tokens))
        return sink.tokens

    def turn(self, history: list[int]) -> list[int]:
        prompt = history + self.message() + OPENING
        return prompt + self.ask(prompt) + [END]


def converse(talk: Talk) -> None:
    histories = [[BOS, *talk.message(), *talk.message()]]
    for i in range(N_TURNS):
        history = talk.turn(histories[-1])
        if i % 4 == 1:  # the message is written anew, twice
            talk.turn(histories[-1])
            history = talk.turn(histories[-1])
        if i % 4 == 3:  # the answer's reasoning is not sent again
            history = history[: -N_ANSWER - 1] + history[-N_ANSWER + 4 :]
        histories.append(history)
    for i in (15, 10, N_TURNS, 3, N_TURNS):  # other ways from there
        talk.turn(talk.turn(histories[i]))
    talk.ask(talk.asked[-1][0])  # the same again


@pytest.mark.parametrize(
    ("kind", "flags"),
    [
        ("llama", ()),
        # A small compute batch: the memory keeps one of them beyond the window.
        ("gemma3", ("-ub", "64")),
        ("gemma3", ("-ub", "64", "--kv-unified")),
        ("mamba", ()),
        ("jamba", ()),
        ("jamba", ("-kvu",)),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_a_conversation_reads_only_what_is_new(tiny, kind, flags):
    with Hosted(tiny[kind], "-c", "6144", "-np", "2", *EXACT, *flags) as h:
        talk = Talk(h)
        converse(talk)
        stats = h.engine.stats()
        assert h.local.core.check_integrity() == 0
    assert talk.n_again <= 0.03 * talk.n_known, (talk.n_again, talk.n_known)
    assert (stats["checkpoint_made"] > 0) is (stats["checkpoint_used"] > 0) is (kind != "llama")
    assert stats["checkpoints"] <= 32 * (2 + stats["cache_entries"])
    with Hosted(tiny[kind], "-c", "3072", "--cache-ram", "0", "--ctx-checkpoints", "0", *EXACT) as h:
        for prompt, answer in talk.asked[N_TURNS // 2 :: 5]:
            h.run(h.states.erase(0))
            assert h.run(h.write(0, prompt, N_ANSWER))[0].tokens == answer
        assert h.engine.stats()["checkpoint_made"] == 0
