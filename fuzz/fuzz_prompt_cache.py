"""Runs conversations of several API keys over few cells, with a small prompt cache in host memory and slot actions.

Invariant: whatever the order, every task that is not aborted and has no failed decode generates the text that its
prompt alone determines; no task reuses tokens that neither its owner nor a client without a key ever had in a slot; a
slot's tokens are those in the model's memory, at the right positions; cells and host memory stay within their limits;
and llama.cpp's rules are kept (Fake.bad_calls). Nothing crashes.

Many cases run over the fake model, whose memory can be inspected and where every call can fail. Fewer run through the
real program with tiny models, and are compared with a server without any cache. LLAMAD_FUZZ_CASES says how many.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.engine_harness import Harness, learn_layout
from support.live_daemon import Live
from support.models.tiny_kv_models import write_model

from llamad.client.events import Failed
from llamad.engine.testing.fake import Fake
from llamad.protocol.blobs import Blob
from llamad.protocol.messages import (
    ACTION_ERASE,
    ACTION_LOOK,
    ACTION_RESTORE,
    ACTION_SAVE,
    ACTION_SHIFT,
    RESULT_DONE,
    RESULT_NOT_YOURS,
)
from llamad.ses1 import ses1

N_CASES = int(os.environ.get("LLAMAD_FUZZ_CASES", "20000"))
N_SERVED = max(1, int(os.environ.get("LLAMAD_FUZZ_CASES", "20000")) // 10)
PAGE = 4096
N_CTX = 256
N_OWNERS = 3  # 0 has no key
BLOB_BYTES = 1 << 16


# --- steps ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Say:
    """A conversation continues with `n` more bytes, in any slot or in a certain one."""

    talk: int
    n: int
    n_predict: int
    slot: int
    is_waited_for: bool
    cache_prompt: bool


@dataclass(frozen=True)
class Fork:
    """A conversation starts again with the beginning of another one, perhaps of another owner."""

    talk: int
    other: int
    part: float


@dataclass(frozen=True)
class Act:
    kind: int
    slot: int
    owner: int
    i: int
    n_keep: int
    n_discard: int


@dataclass(frozen=True)
class Fault:
    """state: the next restore fails. decode: the next decode fails. abort: abort a task that may be running. settle:
    wait for everything, and check. gather: the next requests come as a burst, which is admitted one by one and decoded
    at its end."""

    kind: str
    i: int
    code: int


TALKS = 5
SAYS = st.builds(
    Say,
    talk=st.integers(0, TALKS - 1),
    n=st.integers(1, 20) | st.integers(60, 200),
    n_predict=st.integers(0, 6) | st.integers(0, 6) | st.integers(60, 200),
    slot=st.sampled_from([-1, -1, -1, 0, 1, 2, 3]),
    is_waited_for=st.booleans(),
    cache_prompt=st.sampled_from([True] * 7 + [False]),
)
FORKS = st.builds(Fork, talk=st.integers(0, TALKS - 1), other=st.integers(0, TALKS - 1), part=st.floats(0, 1))
ACTS = st.builds(
    Act,
    kind=st.sampled_from([ACTION_SAVE, ACTION_RESTORE, ACTION_RESTORE, ACTION_ERASE, ACTION_SHIFT]),
    slot=st.integers(0, 3),
    owner=st.integers(0, N_OWNERS - 1),
    i=st.integers(0, 7),
    n_keep=st.integers(0, 40),
    n_discard=st.integers(1, 120),
)
FAULTS = st.builds(
    Fault,
    kind=st.sampled_from(["state", "decode", "abort", "abort", "settle", "gather"]),
    i=st.integers(0, 7),
    code=st.sampled_from([1, 2, -1, -3]),
)


def begin(talk: int) -> bytes:
    """Return the beginning of a conversation; always two begin alike."""
    seed = talk // 2
    return bytes(33 + (i * i + 7 * seed) % 90 for i in range(70))


def more(talk: int, at: int, n: int) -> bytes:
    return bytes(33 + (13 * talk + at + i) * (at + i) % 90 for i in range(n))


# --- over the fake ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Layout:
    """The memory: how many slots over how many cells, of which kind, and the pages of the prompt cache."""

    n_slots: int
    n_cells: int  # 0: a stream for each slot
    kind: str  # plain; recurrent: cannot be cut; window: needs tokens that it has lost; or both
    has_parts: bool  # prompts are saved in parts, and with the ends of their states
    n_pages: int
    has_slow_decodes: bool
    has_device: bool  # with one, bursts are gathered, and only long prompts are saved


LAYOUTS = st.builds(
    Layout,
    n_slots=st.integers(1, 4),
    n_cells=st.sampled_from([0, 0, N_CTX, 300, 400, 600]),
    kind=st.sampled_from(["plain", "plain", "plain", "recurrent", "window", "window and recurrent"]),
    has_parts=st.booleans(),
    n_pages=st.integers(0, 14) | st.integers(14, 60),
    has_slow_decodes=st.sampled_from([False] * 4 + [True]),
    has_device=st.sampled_from([False] * 3 + [True]),
)


def tokens_of(text: bytes) -> list[int]:
    return [0, *(3 + byte for byte in text)]


def counted(prompt: bytes, n: int) -> bytes:
    """Return what the fake generates after a prompt: it counts on from its last byte."""
    return bytes((prompt[-1] + 1 + i) % 256 for i in range(n))


def n_common(a: list[int], b: list[int]) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


@dataclass
class Submitted:
    """A task that was submitted."""

    id: int
    prompt: bytes
    n_predict: int
    owner: int
    is_aborted: bool = False


@dataclass
class World:
    h: Harness
    fake: Fake
    layout: Layout
    texts: list[bytes] = field(default_factory=lambda: [begin(talk) for talk in range(TALKS)])
    tasks: list[Submitted] = field(default_factory=list)
    seen: list[list[list[int]]] = field(default_factory=lambda: [[] for _ in range(N_OWNERS)])
    blobs: list[Blob] = field(default_factory=list)
    n_decodes_to_fail: int = 0
    is_gathering: bool = False

    def may_have(self, owner: int, prompt: bytes) -> int:
        """Return the length of the longest prefix of the prompt that this owner may find in the cache."""
        tokens = tokens_of(prompt)
        return max((n_common(tokens, one) for one in self.seen[0] + self.seen[owner]), default=0)

    def say(self, step: Say) -> None:
        owner = step.talk % N_OWNERS
        prompt = self.texts[step.talk] + more(step.talk, len(self.texts[step.talk]), step.n)
        if len(prompt) + 8 > N_CTX:
            prompt = begin(step.talk)
        n_predict = min(step.n_predict, N_CTX - 2 - len(prompt))
        self.texts[step.talk] = prompt + counted(prompt, n_predict)
        slot = step.slot if step.slot < self.layout.n_slots else -1
        options = {
            "n_predict": n_predict,
            "owner": owner,
            "id_slot": slot,
            "wake": not self.is_gathering,
        }
        task = Submitted(
            self.h.submit(prompt, cache_prompt=step.cache_prompt, **options), prompt, n_predict, owner
        )
        self.tasks.append(task)
        self.seen[owner].append(tokens_of(self.texts[step.talk]))
        if step.is_waited_for and self.is_gathering:
            time.sleep(0.0005)  # admitted by now
        elif step.is_waited_for:
            self.h.wait(task.id)

    def fork(self, step: Fork) -> None:
        source = self.texts[step.other]
        self.texts[step.talk] = source[: max(1, round(len(source) * step.part))]

    def act(self, step: Act) -> None:
        slot = step.slot % self.layout.n_slots
        self.wake()
        if step.kind == ACTION_SAVE:
            self.settle()
            tokens = self.h.core.slot_tokens(slot)
            blob = Blob(BLOB_BYTES)
            acted = self.h.done(self.h.act(ACTION_SAVE, slot, blob, owner=step.owner))
            if acted.result == RESULT_DONE and acted.n_tokens:
                assert ses1.n_tokens(blob) == len(tokens)
                self.blobs.append(blob)
        elif step.kind == ACTION_RESTORE and self.blobs:
            blob = self.blobs[step.i % len(self.blobs)]
            n = ses1.n_tokens(blob)
            # A client only restores states that it has; its owner then owns the tokens.
            self.seen[step.owner].append(memoryview(blob)[8 : 8 + 4 * n].cast("i").tolist())
            self.h.done(self.h.act(ACTION_RESTORE, slot, blob, owner=step.owner, n_tokens=n))
        elif step.kind == ACTION_ERASE:
            self.h.done(self.h.act(ACTION_ERASE, slot, owner=step.owner))
        elif step.kind == ACTION_SHIFT:
            self.shift(step, slot)

    def shift(self, step: Act, slot: int) -> None:
        self.settle()
        before = self.h.core.slot_tokens(slot)
        options = {"n_keep": step.n_keep, "n_discard": step.n_discard}
        acted = self.h.done(self.h.act(ACTION_SHIFT, slot, owner=step.owner, **options))
        if acted.result == RESULT_DONE:
            after = before[: step.n_keep] + before[step.n_keep + step.n_discard :]
            assert self.h.core.slot_tokens(slot) == after
            for owner in {step.owner, 0}:
                if any(n_common(before, one) == len(before) for one in self.seen[owner]):
                    self.seen[owner].append(after)
        elif acted.result == RESULT_NOT_YOURS:
            assert self.h.core.slot_tokens(slot) == before

    def fault(self, step: Fault) -> None:
        if step.kind == "state":
            self.fake.fail_state()
        elif step.kind == "decode":
            self.n_decodes_to_fail += 1
            self.fake.fail_next(step.code)
        elif step.kind == "abort" and self.tasks:
            task = self.tasks[-1 - step.i % len(self.tasks)]
            task.is_aborted = True
            self.h.port.abort(task.id)
        elif step.kind == "settle":
            self.settle()
        elif step.kind == "gather" and not self.is_gathering:
            self.is_gathering = True
            self.h.port.announce()

    def wake(self) -> None:
        """End the burst, if there is one."""
        if self.is_gathering:
            self.is_gathering = False
            self.h.port.wake()

    def settle(self) -> None:
        """Wait for all tasks, and check all memory. An action is only done when the last step is over."""
        self.wake()
        self.h.wait(*(task.id for task in self.tasks))
        self.h.done(self.h.act(ACTION_LOOK, 0, Blob(BLOB_BYTES)))
        assert self.h.core.check_integrity() == 0
        self.h.check_cells()
        # Cells, and not the tokens of all slots: slots share cells, and parked tokens have none.
        assert not self.layout.n_cells or self.h.fake.used() <= self.layout.n_cells
        assert self.h.stats()["cache_bytes"] <= self.layout.n_pages * PAGE
        for task in self.tasks:
            self.check(task)
        self.tasks.clear()

    def check(self, task: Submitted) -> None:
        expected = counted(task.prompt, task.n_predict)
        if isinstance(self.h.end(task.id), Failed):
            assert task.is_aborted or self.n_decodes_to_fail
            assert expected.startswith(self.h.text(task.id))
        else:
            assert self.h.text(task.id) == expected
            assert self.h.n_cached(task.id) <= self.may_have(task.owner, task.prompt)


TOTALS: Counter[str] = Counter()


def parted(h: Harness, layout: Layout) -> Harness:
    """Let the engine know how states are laid out, if it is to save prompts in parts."""
    if layout.has_parts:
        h.core.adopt(learn_layout(h.core, 40), bytes(32))
    return h


@settings(max_examples=N_CASES, deadline=None, suppress_health_check=list(HealthCheck))
@given(layout=LAYOUTS, steps=st.lists(SAYS | SAYS | SAYS | FORKS | ACTS | FAULTS, min_size=1, max_size=40))
def test_any_conversations_over_the_fake(layout, steps):
    n_swa, is_recurrent = 32 * ("window" in layout.kind), "recurrent" in layout.kind
    has_spare = layout.has_parts and layout.n_cells > 0 and layout.kind == "plain"
    fake = Fake(
        n_ctx=N_CTX,
        unified=layout.n_cells > 0,
        can_cut=not is_recurrent,
        n_cells=layout.n_cells,
        n_swa=n_swa,
        n_seqs=layout.n_slots + has_spare,
        decode_us=50 * layout.has_slow_decodes,
    )
    options: dict[str, Any] = {"n_slots": layout.n_slots, "n_ctx": N_CTX, "n_cells": layout.n_cells}
    options |= {"can_share": not is_recurrent, "cache_bytes": layout.n_pages * PAGE, "n_swa": n_swa}
    options |= {"has_device": layout.has_device, "spare_seq": layout.n_slots if has_spare else -1}
    with parted(Harness(fake, **options), layout) as h:
        world = World(h, fake, layout)
        for step in steps:
            {Say: world.say, Fork: world.fork, Act: world.act, Fault: world.fault}[type(step)](step)
            assert h.stats()["cache_bytes"] <= layout.n_pages * PAGE
        world.settle()
    TOTALS.update(h.stats())


def test_the_fake_was_used_as_meant():
    """Fail if the cases above never reach what they are meant to test."""
    if N_CASES < 1000:
        pytest.skip("too few cases")  # in 200 cases, maybe none drops an entry or restores a state
    names = (
        "cache_saves",
        "cache_hits",
        "cache_dropped",
        "n_copied",
        "n_saves",
        "n_restores",
        "n_decode_failures",
        "n_suspensions",
        "n_recomputed",
    )
    assert all(TOTALS[name] for name in names), TOTALS


# --- through the real program -----------------------------------------------------------------------------------

F32 = ("-ctk", "f32", "-ctv", "f32")
KEYS = ("mine", "yours")
SERVERS = {
    "unified": ("llama", ("-np", "3", "-c", "512", "--kv-unified", "--cache-ram", "1", *F32)),
    "streams": ("llama", ("-np", "2", "-c", "512", "--cache-ram", "1", *F32)),
    "window": ("gemma3", ("-np", "3", "-c", "512", "--kv-unified", "--cache-ram", "1", *F32)),
    "hybrid": ("jamba", ("-np", "2", "-c", "512", "--cache-ram", "1")),
    "transposed": (
        "llama",
        ("-np", "2", "-c", "512", "--kv-unified", "-fa", "off", "--cache-ram", "1", *F32),
    ),
    "window streams": ("gemma3", ("-np", "2", "-c", "512", "--cache-ram", "1", *F32)),
}
SERVED_TALKS = 16
PROMPT_MAX = 230
N_PREDICT = 4
# Logits depend on the shapes in which they were computed, here by up to 0.05. Tokens of another prompt change them far
# more.
TOLERANCE = 0.2


class Reference:
    """The results of a server without any cache."""

    def __init__(self, model: str) -> None:
        self._server = Live("-np", "1", "-c", "256", "--cache-ram", "0", *F32, model=model)
        self._known: dict[tuple[int, ...], list[Any]] = {}

    def close(self) -> None:
        self._server.__exit__()

    def probabilities(self, prompt: list[int]) -> list[Any]:
        key = tuple(prompt)
        if key not in self._known:
            self._known[key] = ask(self._server, prompt, cache_prompt=False)["completion_probabilities"]
        return self._known[key]

    def check(self, prompt: list[int], found: list[Any]) -> None:
        for expected, got in zip(self.probabilities(prompt), found, strict=True):
            first, second = (row["logprob"] for row in expected["top_logprobs"][:2])
            if expected["id"] != got["id"]:
                assert first - second < TOLERANCE, f"{prompt}: {expected} is not {got}"
                return
            assert abs(expected["logprob"] - got["logprob"]) < TOLERANCE, f"{prompt}: {expected} is not {got}"


def ask(server: Live, prompt: list[int], key: str | None = None, **options: Any) -> Any:
    body = {"prompt": prompt, "n_predict": N_PREDICT, "temperature": 0, "n_probs": 2, "ignore_eos": True}
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    answer = server.client.post("/completion", body | options, headers=headers)
    assert answer.status == 200, answer.body
    return answer.json


class Served:
    """Conversations through the program, several at a time."""

    def __init__(self, server: Live, reference: Reference, seed: int, n_slots: int) -> None:
        self.server, self.reference = server, reference
        self.random = random.Random(seed)
        self.n_slots = n_slots
        self.talks = [[1, *tokens_of(begin(talk))[1:]] for talk in range(SERVED_TALKS)]
        self.states: list[bytes] = []

    def round(self, pool: ThreadPoolExecutor) -> int:
        """Send a few requests at once, then perhaps an action; return the number of requests."""
        chosen = self.random.sample(range(SERVED_TALKS), self.random.randint(1, 4))
        asked = []
        for talk in chosen:
            prompt = self.talks[talk]
            if self.random.random() < 0.1:  # it begins like another conversation
                other = self.random.choice(self.talks)
                prompt = other[: self.random.randint(1, len(other))]
            prompt = prompt + [3 + self.random.randint(33, 120) for _ in range(self.random.randint(1, 90))]
            prompt = prompt if len(prompt) <= PROMPT_MAX else prompt[: self.random.randint(65, 100)]
            asked.append((talk, prompt, pool.submit(ask, self.server, prompt, KEYS[talk % len(KEYS)])))
        for talk, prompt, future in asked:
            answer = future.result()
            self.reference.check(prompt, answer["completion_probabilities"])
            self.talks[talk] = prompt + [one["id"] for one in answer["completion_probabilities"]]
        if self.random.random() < 0.3:
            self.act()
        return len(asked)

    def act(self) -> None:
        slot = self.random.randrange(self.n_slots)
        headers = {"Authorization": f"Bearer {self.random.choice(KEYS)}"}
        kind = self.random.choice(["save-state", "restore-state", "erase", "context-shift"])
        path = f"/slots/{slot}?action={kind}"
        body: Any = {}
        if kind == "save-state":
            headers["Accept"] = "application/octet-stream"
        elif kind == "restore-state":
            if not self.states:
                return
            body = self.random.choice(self.states)
            headers["Content-Type"] = "application/octet-stream"
        elif kind == "context-shift":  # without BOS no prompt continues what is left
            body = {"n_keep": 0, "n_discard": self.random.randint(1, 50)}
        answer = self.server.client.post(path, body, headers=headers)
        assert answer.status in (200, 400, 404, 409, 501, 503), (kind, answer.status, answer.body)
        if kind == "save-state" and answer.status == 200:
            self.states = [*self.states[-7:], answer.body]


@pytest.mark.parametrize("name", SERVERS)
def test_any_conversations_through_the_program(name: str, tmp_path: Path) -> None:
    kind, flags = SERVERS[name]
    model = write_model(tmp_path / "tiny.gguf", kind)
    keys = [part for key in KEYS for part in ("--api-key", key)]
    reference = Reference(model)
    try:
        with Live(*flags, *keys, "--metrics", model=model) as server, ThreadPoolExecutor(4) as pool:
            served = Served(server, reference, 7, int(flags[1]))
            n = 0
            while n < N_SERVED // len(SERVERS) + 1:
                n += served.round(pool)
                assert server.process.poll() is None, server.lines[-20:]
            text = server.client.get("/metrics", headers={"Authorization": "Bearer mine"}).body.decode()
            shown = dict(line.split() for line in text.splitlines() if line.startswith("llamad:prompt_cache"))
            print(name, n, shown)
            assert float(shown["llamad:prompt_cache_bytes"]) <= 1 << 20
            assert n < 200 or float(shown["llamad:prompt_cache_hits_total"]) > 0
    finally:
        reference.close()
