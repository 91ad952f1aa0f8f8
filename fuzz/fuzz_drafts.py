"""Runs random tasks over the fake model while a drafter of any quality, a draft model or both guess their tokens.

Invariant: every task has the text, tokens, probabilities and end that it has on an engine that decodes one token after
the other and serves it alone, whatever its samplers, grammar, limits and neighbours, and whatever the memory; a task
that is aborted has a beginning of that. Between two steps a sequence holds exactly the tokens of its slot, in the draft
model's context too nothing breaks llama.cpp's rules (Fake.bad_calls), and nothing crashes.

Tasks are aborted, outgrow the context (which is shifted) and the cells that slots share (then they are suspended), and
the draft model fails. `make fuzz` runs it; LLAMAD_FUZZ_CASES says how many cases there are.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.drafts.drafted_tasks import CHAOS, LETTERS, MEMORIES, SAMPLERS, TASKS, memory_options, outcome
from support.drafts.model_pair import Pair
from support.engine_harness import Harness

from llamad.engine.testing.fake import Fake
from llamad.engine.testing.fake_drafter import FakeDrafter
from llamad.grammar.grammar import Grammar, Pieces

N_CASES = max(50, int(os.environ.get("LLAMAD_FUZZ_CASES", "20000")) // 5)
BASES = (b"once upon a time there was a draft", b"ababababababab")


@dataclass(frozen=True)
class Drafting:
    """An engine. text: the share of drafts from text that are right; astray: the share of the draft model's that are
    wrong; None: there are none."""

    memory: str
    n_slots: int
    n_ctx: int
    has_device: bool
    grammar_work: int
    cache_bytes: int
    n_fixed: int
    text: float | None
    astray: float | None
    seed: int

    @property
    def options(self) -> dict[str, Any]:
        return {
            "has_device": self.has_device,
            "grammar_work": self.grammar_work,
            "cache_bytes": self.cache_bytes,
        }

    def alone(self) -> Harness:
        """Return an engine without drafts."""
        kind = {"n_ctx": self.n_ctx, "n_batch": 128, "n_seqs": self.n_slots, "chaos": CHAOS} | MEMORIES[
            self.memory
        ]
        sizes = {"n_slots": self.n_slots, "n_ctx": self.n_ctx, "n_batch": 128}
        return Harness(Fake(**kind), **sizes, **memory_options(self.memory, self.n_slots), **self.options)

    def drafting(self) -> tuple[Harness, Pair | None]:
        if self.astray is not None:
            pair = Pair(
                astray=self.astray,
                text=self.text,
                n_fixed=self.n_fixed,
                n_slots=self.n_slots,
                n_ctx=self.n_ctx,
                memory=self.memory,
                **self.options,
            )
            return pair.h, pair
        h = self.alone()
        drafter = FakeDrafter(h.fake.ctx, share=self.text or 0.0, seed=self.seed)
        assert h.core.draft_with(drafter, self.n_fixed, MEMORIES[self.memory].get("n_rollback", 0))
        return h, None


@dataclass(frozen=True)
class Ask:
    task: dict[str, Any]


@dataclass(frozen=True)
class Abort:
    """A client leaves after it has got some texts."""

    i: int
    n_texts: int


@dataclass(frozen=True)
class Fault:
    """The next decodes of the draft model fail."""

    code: int
    n: int


DRAFTINGS = st.builds(
    Drafting,
    memory=st.sampled_from(list(MEMORIES)),
    n_slots=st.integers(1, 5),
    n_ctx=st.sampled_from([96, 256]),
    has_device=st.booleans(),
    grammar_work=st.sampled_from([-1, 0, 1 << 40]),
    cache_bytes=st.sampled_from([0, 1 << 14, 1 << 20]),
    n_fixed=st.sampled_from([-1, -1, 1, 2, 7, 15, 63]),
    text=st.sampled_from([None, 0.0, 0.5, 0.9, 1.0]),
    astray=st.sampled_from([None, None, 0.0, 0.3, 1.0]),
    seed=st.integers(1, 1000),
)
PROMPTS = st.builds(
    lambda base, n, rest: (base[:n] + rest) or b"x",
    st.sampled_from(BASES),
    st.integers(0, 34),
    st.binary(max_size=8),
)
MORE = st.fixed_dictionaries(
    {},
    optional={
        "prompt": PROMPTS,
        "n_predict": st.integers(1, 150),
        "context_shift": st.just(True),
        "n_keep": st.integers(0, 20),
        "speculative_n_max": st.sampled_from([0, 1, 5]),
        "speculative_n_min": st.sampled_from([0, 3]),
        "group": st.integers(1, 3),
        "cache_prompt": st.booleans(),
    },
)


def asked(task: dict[str, Any], more: dict[str, Any]) -> Ask:
    """Tasks of one group have the same prompt."""
    task = {**task, **more}
    return Ask(task | ({"prompt": b"group %d" % task["group"]} if "group" in task else {}))


ASKS = st.builds(asked, TASKS, MORE)
ABORTS = st.builds(Abort, i=st.integers(0, 4), n_texts=st.sampled_from([0, 1, 5, 30]))
FAULTS = st.builds(Fault, code=st.sampled_from([1, -3]), n=st.integers(1, 4))


class World:
    """Submits tasks, and gives each the outcome that it has alone. Prompts take at most half of the context."""

    def __init__(self, h: Harness, n_ctx: int) -> None:
        self.h = h
        self.n_prompt_max = n_ctx // 2
        self.grammar = Grammar(LETTERS, Pieces(h.vocab))

    def submit(self, task: dict[str, Any]) -> int:
        options = dict(task)
        self.h.sampling = SAMPLERS[options.pop("samplers")]
        if options.pop("grammar", False):
            options["grammar"] = self.grammar.id
        return self.h.submit(options.pop("prompt")[: self.n_prompt_max], **options)


def check(drafted: Any, plain: Any, is_aborted: bool) -> None:
    if not is_aborted:
        assert drafted == plain
        return
    for one, other in zip(drafted[:3], plain[:3], strict=True):  # text, tokens, probabilities
        assert one == other[: len(one)]


TOTALS: Counter[str] = Counter()


@settings(max_examples=N_CASES, deadline=None, suppress_health_check=list(HealthCheck))
@given(drafting=DRAFTINGS, steps=st.lists(ASKS | ASKS | ASKS | ABORTS | FAULTS, min_size=1, max_size=14))
def test_any_drafts_give_the_texts_of_plain_decoding(
    drafting: Drafting, steps: list[Ask | Abort | Fault]
) -> None:
    tasks: list[tuple[int, dict[str, Any]]] = []
    aborted: set[int] = set()
    h, pair = drafting.drafting()
    with h:
        world = World(h, drafting.n_ctx)
        for step in steps:
            if isinstance(step, Ask):
                tasks.append((world.submit(step.task), step.task))
            elif isinstance(step, Fault):
                if pair is not None:
                    pair.draft.fail_next(step.code, n_times=step.n)
            elif tasks:
                task, _ = tasks[-1 - step.i % len(tasks)]
                h.until(lambda task=task, n=step.n_texts: h.end(task) or len(h.texts(task)) >= n)
                aborted.add(task)
                h.port.abort(task)
        h.wait(*(task for task, _ in tasks))
        drafted = [outcome(h, task) for task, _ in tasks]
    if pair is not None:
        assert pair.draft.bad_calls == 0
    TOTALS.update(h.stats())
    TOTALS["n_aborted"] += len(aborted)
    TOTALS["n_truncated"] += sum(bool(one[3][3]) for one in drafted)
    with drafting.alone() as plain_h:
        world = World(plain_h, drafting.n_ctx)
        for (task, options), one in zip(tasks, drafted, strict=True):
            alone = world.submit(options)
            plain_h.wait(alone)
            check(one, outcome(plain_h, alone), task in aborted)


def test_the_cases_were_as_meant() -> None:
    """Fail if the cases above never reach what they are meant to test."""
    if N_CASES < 1000:
        pytest.skip("too few cases")
    names = ("n_drafted", "n_accepted", "n_suspensions", "n_copied", "n_aborted", "n_truncated")
    assert all(TOTALS[name] for name in names), TOTALS
