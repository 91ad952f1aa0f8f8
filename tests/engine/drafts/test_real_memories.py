"""Drafts of any quality over llama.cpp's own memories: each text is the one that llama.cpp writes when it decodes one
token after the other, and afterwards the slot's sequence holds exactly what plain decoding leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from support.drafts.plain_decoding import PlainDecoding
from support.hosted_model import Hosted
from support.models.tiny_contexts import TinyModel
from support.models.tiny_kv_models import (
    BOS,
    DELTA_NET,
    FIRST_BYTE,
    HYBRID_WINDOW,
    N_VOCAB,
    SENSITIVE,
    SINKS,
    WINDOW,
    write_model,
)
from support.states.state_reader import Section, StateReader

from llamad.engine.testing.known_drafter import KnownDrafter

N_SLOTS, N_CTX = 3, 256
N_PREDICT = 48
PROMPTS = [[BOS, *(FIRST_BYTE + (i * i + 31 * k) % 97 for i in range(20 + 15 * k))] for k in range(N_SLOTS)]
TURN = [FIRST_BYTE + 40 + i for i in range(9)]
STREAMS = ("-np", str(N_SLOTS), "-c", str(N_SLOTS * N_CTX))
UNIFIED = ("-np", str(N_SLOTS), "-c", str(N_SLOTS * N_CTX), "--kv-unified")
# llama.cpp keeps their states after each of a step's last tokens, if drafts are on.
HYBRIDS = (HYBRID_WINDOW, DELTA_NET)
# How much of a row may be another one if it was computed in another shape. The row of another token is all different.
TOLERANCES = {"f32": 1e-3, "q8_0": 0.1, "q4_0": 0.5}


@dataclass(frozen=True)
class Case:
    """A model and the flags that shape its memory. cache: the type of keys and values."""

    kind: str
    flags: tuple[str, ...]
    cache: str = "f32"
    n_fixed: int = 7

    def __str__(self) -> str:
        return " ".join([self.kind, *self.flags[4:], self.cache, str(self.n_fixed)])

    @property
    def all_flags(self) -> tuple[str, ...]:
        flash = "off" if self.cache == "f32" else "on"
        rollback = ("--spec", "auto", "--spec-fixed", str(self.n_fixed)) if self.kind in HYBRIDS else ()
        return (*self.flags, "-fa", flash, "-ctk", self.cache, "-ctv", self.cache, *rollback)

    def sections(self, state: bytes) -> list[Section]:
        """Return what each memory holds. The oldest cell of a window is left out: the next token does not see it, so
        another slot may have got it."""
        reader = StateReader(state, has_ext=self.kind in ("qwen2vl", DELTA_NET))
        sections = [reader.cells().newest()]
        if self.kind in ("gemma3", SINKS, HYBRID_WINDOW):
            sections.append(reader.cells().newest(WINDOW - 1))
        if self.kind in HYBRIDS:
            sections.append(reader.state())
        assert reader.at == len(state)
        return sections


CASES = [
    Case("llama", STREAMS),
    Case("llama", STREAMS, n_fixed=30),
    Case("llama", UNIFIED),
    Case("llama", STREAMS, "q8_0"),
    Case("llama", UNIFIED, "q4_0"),
    Case("gemma3", STREAMS),
    Case("gemma3", UNIFIED),
    Case("gemma3", (*UNIFIED, "-ub", "32")),
    Case("gemma3", UNIFIED, "q8_0"),
    Case(SINKS, STREAMS),
    Case(SINKS, UNIFIED),
    Case("qwen2vl", STREAMS),
    Case(HYBRID_WINDOW, STREAMS),
    Case(HYBRID_WINDOW, UNIFIED),
    Case(HYBRID_WINDOW, UNIFIED, n_fixed=1),
    Case(DELTA_NET, STREAMS),
    Case(DELTA_NET, STREAMS, n_fixed=3),
    Case(DELTA_NET, UNIFIED),
    Case(DELTA_NET, UNIFIED, n_fixed=15),
]


class Models:
    """Tiny models, written and opened when they are needed first."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.paths: dict[str, str] = {}
        self.opened: dict[str, TinyModel] = {}

    def open(self, kind: str) -> TinyModel:
        if kind not in self.opened:
            path = self._folder / f"{kind}.gguf"
            self.paths[kind] = write_model(path, kind, np.float32, weights=SENSITIVE)
            self.opened[kind] = TinyModel(self.paths[kind])
        return self.opened[kind]

    def close(self) -> None:
        for model in self.opened.values():
            model.close()


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Models]:
    models = Models(tmp_path_factory.mktemp("models"))
    yield models
    models.close()


def same_state(case: Case, state: bytes, plain: bytes) -> bool:
    """Return whether both hold the same positions, with the same numbers as far as shapes do not change them."""
    for one, other in zip(case.sections(state), case.sections(plain), strict=True):
        if one.positions != other.positions:
            return False
        for rows, plain_rows in zip(one.rows, other.rows, strict=True):
            norms = np.maximum(np.linalg.norm(plain_rows, axis=1), 1e-30)
            differences = np.linalg.norm(rows - plain_rows, axis=1) / norms
            if differences.max() > TOLERANCES[case.cache]:
                return False
    return True


def check(h: Hosted, case: Case, oracle: PlainDecoding, prompts: list[list[int]]) -> list[list[int]]:
    """Let all slots write at once, and compare with the oracle. Return their texts."""

    async def write() -> list[list[int]]:
        asked = [h.write(slot, prompt, N_PREDICT) for slot, prompt in enumerate(prompts)]
        return [sink.tokens for sink, _ in await asyncio.gather(*asked)]

    texts = h.run(write())
    for slot, (prompt, text) in enumerate(zip(prompts, texts, strict=True)):
        assert oracle.is_text(prompt, text, N_PREDICT), (slot, text)
        held = prompt + text[:-1]
        assert h.run(h.states.tokens(slot)).tokens == held
        state = bytes(h.run(h.states.save(slot)).blob)[8 + 4 * len(held) :]
        assert same_state(case, state, oracle.state()), slot
    assert h.local.core.check_integrity() == 0
    return texts


@pytest.mark.parametrize("share", [1.0, 0.5, 0.0], ids=["right", "half", "wrong"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_texts_and_states_are_those_of_plain_decoding(models: Models, case: Case, share: float) -> None:
    oracle = PlainDecoding(models.open(case.kind), case.cache, N_CTX)
    known = [prompt + oracle.write(prompt, N_PREDICT) for prompt in PROMPTS]
    turns = [text + TURN for text in known]
    known += [turn + oracle.write(turn, N_PREDICT) for turn in turns]
    drafter = KnownDrafter(known, n_vocab=N_VOCAB, share=share, seed=3)
    with Hosted(models.paths[case.kind], *case.all_flags, drafter=drafter, n_fixed=case.n_fixed) as h:
        check(h, case, oracle, PROMPTS)
        check(h, case, oracle, turns)
        stats = h.engine.stats()
    oracle.close()
    n_drafted, n_accepted = stats["n_drafted"], stats["n_accepted"]
    assert n_drafted > N_PREDICT
    if share == 0.0:
        assert n_accepted == 0
    elif share < 1.0:
        assert 0 < n_accepted < n_drafted
    elif case.cache == "f32":
        assert n_accepted >= n_drafted - len(known)  # a token that ends a text is not counted


def test_a_state_with_a_wrong_token_is_another_one(models: Models) -> None:
    """Else the tests above could not fail."""
    for case in CASES:
        oracle = PlainDecoding(models.open(case.kind), case.cache, N_CTX)
        states = []
        for token in (40, 41):
            oracle.write([*PROMPTS[0], token, 42], 1)
            states.append(oracle.state())
        oracle.write([*PROMPTS[0], 40], 1)
        states.append(oracle.state())
        oracle.close()
        assert same_state(case, states[0], states[0])
        assert not same_state(case, states[0], states[1])
        assert not same_state(case, states[0], states[2])
