"""The fake's memory against llama.cpp's own, of every kind: after any operations both hold the same positions in the
same cells, and take or refuse the same batches. Decodes that compute wrong logits are those that the fake counts."""

import os
import random
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.models.tiny_contexts import Sizes, TinyContext, TinyModel
from support.models.tiny_kv_models import HYBRID_WINDOW, N_VOCAB, WINDOW, write_model
from support.states.state_reader import StateReader

from llamad.engine.testing.fake import Fake
from llamad.engine.testing.memory_driver import MemoryDriver

N_SEQS, N_BATCH = 3, 64
ON_DEVICE = 2
N_EXAMPLES = int(os.environ.get("LLAMAD_MEMORY_EXAMPLES", "10"))
FAKES = {
    "llama": {},
    "gemma3": {"n_swa": WINDOW},
    "mamba": {"recurrent": True},
    "jamba": {"hybrid": True},
    HYBRID_WINDOW: {"hybrid": True, "n_swa": WINDOW},
}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    opened = {kind: TinyModel(write_model(folder / f"{kind}.gguf", kind, np.float32)) for kind in FAKES}
    yield opened
    for model in opened.values():
        model.close()


def fake_of(kind: str, sizes: Sizes) -> Fake:
    n_cells = sizes.n_ctx if sizes.unified else sizes.n_ctx // sizes.n_seqs
    return Fake(
        n_ctx=n_cells,
        n_cells=n_cells,
        n_seqs=sizes.n_seqs,
        n_batch=sizes.n_batch,
        n_ubatch=sizes.n_ubatch,
        unified=sizes.unified,
        swa_full=sizes.swa_full,
        n_rollback=sizes.n_rollback,
        **FAKES[kind],
    )


# --- what a state tells of cells ----------------------------------------------------------------------------------


def layout(kind: str, state: bytes, partial: bool) -> list[list[int] | int]:
    data = StateReader(state)
    has_base = kind != "mamba" and not (partial and FAKES[kind])
    out: list[list[int] | int] = [data.cells().positions] if has_base else []
    if "n_swa" in FAKES[kind]:
        out.append(data.cells().positions)
    if "recurrent" in FAKES[kind] or "hybrid" in FAKES[kind]:
        out.append(next(iter(data.state().positions), -1))
    return out


# --- both memories ------------------------------------------------------------------------------------------------


@dataclass
class Saved:
    real: bytes
    fake: bytes
    flags: int


class Pair:
    """The same operations on both. Fails where they differ."""

    def __init__(self, kind: str, context: TinyContext, fake: Fake) -> None:
        self.kind, self.context, self.fake = kind, context, fake
        self.real = context.driver
        self.faked = MemoryDriver(fake.table, fake.ctx, N_BATCH)
        self.saved: list[Saved] = []
        self.copies: dict[int, Saved] = {}  # the last of each sequence
        fake.set_device_bytes(1 << 30)
        self.random = random.Random(3)
        self.n_refused = 0

    def decode(self, counts: list[tuple[int, int]], is_interleaved: bool, n_skipped: int) -> None:
        """Of each sequence the next tokens; after a gap of n_skipped positions, which is not allowed."""
        tokens = []
        for seq, n in dict(counts).items():
            first = self.context.pos_max(seq) + 1
            first += n_skipped if first > 0 else 0
            tokens += [(k, seq, first + k) for k in range(n)]
        if is_interleaved:
            tokens.sort(key=lambda token: token[0])
        batch = [(seq, pos, self.random.randrange(3, N_VOCAB)) for _, seq, pos in tokens[:N_BATCH]]
        code = self.real.decode(batch)
        self.n_refused += code == 1
        assert code == self.faked.decode(batch), batch

    def rm(self, seq: int, p0: int, p1: int) -> None:
        assert self.real.seq_rm(seq, p0, p1) is self.faked.seq_rm(seq, p0, p1)

    def back(self, seq: int, n: int) -> None:
        """Removes the last n tokens."""
        self.rm(seq, max(1, self.context.pos_max(seq) + 1 - n), -1)

    def cp(self, src: int, dst: int) -> None:
        if src != dst:
            self.rm(dst, -1, -1)
            self.real.seq_cp(src, dst)
            self.faked.seq_cp(src, dst)

    def add(self, seq: int, p0: int, delta: int) -> None:
        """Moves what is behind p0. No position may become negative."""
        assert self.real.can_shift() is self.faked.can_shift()
        if self.real.can_shift():
            self.real.seq_add(seq, p0, -1, max(delta, -p0))
            self.faked.seq_add(seq, p0, -1, max(delta, -p0))

    def save(self, seq: int, partial: bool) -> None:
        if self.context.pos_max(seq) >= 0:
            self.saved.append(Saved(self.real.save(seq, partial), self.faked.save(seq, partial), partial))

    def restore(self, seq: int, k: int) -> None:
        all_saved = [*self.saved, *self.copies.values()]
        if all_saved:
            saved = all_saved[k % len(all_saved)]
            is_restored = self.real.restore(seq, saved.real, saved.flags)
            assert is_restored is self.faked.restore(seq, saved.fake, saved.flags)
            if not is_restored:
                self.rm(seq, -1, -1)

    def copy(self, seq: int) -> None:
        """Replaces the sequence's copy on the device."""
        if self.context.pos_max(seq) >= 0:
            self.copies[seq] = Saved(
                self.real.save(seq, ON_DEVICE), self.faked.save(seq, ON_DEVICE), ON_DEVICE
            )

    def check(self) -> None:
        for seq in range(N_SEQS):
            assert self.context.pos_max(seq) == self.fake.pos_max(seq)
            assert self.real.pos_min(seq) == self.faked.pos_min(seq)
            for partial in (False, True):
                real = layout(self.kind, self.real.save(seq, partial), partial)
                assert real == layout(self.kind, self.faked.save(seq, partial), partial)


def steps(seed: int, n: int) -> list[tuple]:
    """Operations that fill any cache: most of them are decodes of many tokens."""
    some = random.Random(seed)

    def seq() -> int:
        return some.randrange(N_SEQS)

    makers = {
        "decode": lambda: (
            [(seq(), some.choice([1, 3, 20, 31, 50, N_BATCH])) for _ in range(some.randint(1, N_SEQS))],
            some.random() < 0.5,
            int(some.random() < 0.05),
        ),
        "rm": lambda: (seq(), some.randrange(400), some.choice([-1, some.randrange(400)])),
        "back": lambda: (seq(), some.randint(1, 5)),
        "cp": lambda: (seq(), seq()),
        "add": lambda: (seq(), some.randrange(300), some.randint(-40, 5)),
        "save": lambda: (seq(), some.random() < 0.5),
        "restore": lambda: (seq(), some.randrange(20)),
        "copy": lambda: (seq(),),
    }
    names = some.choices([*makers], weights=[7, 1, 1, 1, 1, 1, 1.5, 1], k=n)
    return [(name, *makers[name]()) for name in names]


@pytest.mark.parametrize("unified", [False, True], ids=["streams", "unified"])
@pytest.mark.parametrize(
    ("kind", "swa_full", "n_rollback"),
    [
        *((kind, False, 0) for kind in FAKES),
        ("gemma3", True, 0),
        (HYBRID_WINDOW, True, 0),
        (HYBRID_WINDOW, False, 3),
        (HYBRID_WINDOW, True, 1),
    ],
    ids=lambda value: {False: "", True: "full"}.get(value, value) if isinstance(value, bool) else str(value),
)
def test_any_operations_leave_the_same_cells(models, kind, swa_full, n_rollback, unified):
    n_refused = 0

    @settings(max_examples=N_EXAMPLES, derandomize=N_EXAMPLES <= 100)
    @given(
        seed=st.integers(0, 1 << 32),
        n=st.integers(25, 60),
        n_ubatch=st.sampled_from([5, 16, 64]),
        n_pages=st.integers(1, 2),
    )
    def run(seed, n, n_ubatch, n_pages):
        nonlocal n_refused
        n_ctx = 256 * n_pages * (1 if unified else N_SEQS)
        sizes = Sizes(n_ctx, N_SEQS, N_BATCH, n_ubatch, unified, swa_full, n_rollback)
        with TinyContext(models[kind], sizes) as context:
            pair = Pair(kind, context, fake_of(kind, sizes))
            for name, *arguments in steps(seed, n):
                getattr(pair, name)(*arguments)
                pair.check()
            assert pair.fake.n_refused == pair.n_refused
            n_refused += pair.n_refused

    run()
    assert (n_refused > 0) is (kind != "mamba"), "caches were never full"


# --- wrong logits -------------------------------------------------------------------------------------------------

TEXT = [3 + (i * i + i // 7) % 250 for i in range(400)]
OTHER = [3 + (i * 7 + i // 5) % 250 for i in range(400)]
NEXT = 77
STREAMS = Sizes(N_SEQS * 512, N_SEQS, N_BATCH, 16, unified=False, swa_full=False)


class Reading:
    """Texts in both memories, and whether what they compute is right."""

    def __init__(self, kind: str, context: TinyContext) -> None:
        self.fake = fake_of(kind, STREAMS)
        self.drivers = (context.driver, MemoryDriver(self.fake.table, self.fake.ctx, N_BATCH))

    def read(self, seq: int, tokens: list[int], first: int = 0) -> None:
        for at in range(first, len(tokens), 20):
            batch = [(seq, pos, tokens[pos]) for pos in range(at, min(at + 20, len(tokens)))]
            assert [driver.decode(batch) for driver in self.drivers] == [0, 0]

    def judge(self, seq: int, tokens: list[int]) -> tuple[bool, bool]:
        """Whether the next token in a sequence that should hold these is computed wrong, and whether the fake counts
        it. Sequence 2 computes it anew."""
        n_wrong = self.fake.n_wrong
        self.read(seq, [*tokens, NEXT], len(tokens))
        is_counted = self.fake.n_wrong > n_wrong
        logits = np.array(self.drivers[0].logits(N_VOCAB))
        for driver in self.drivers:
            driver.seq_rm(2, -1, -1)
        self.read(2, [*tokens, NEXT])
        difference = np.abs(logits - np.array(self.drivers[0].logits(N_VOCAB))).max()
        assert not 0.02 < difference < 0.2, difference
        return bool(difference > 0.1), is_counted


@pytest.mark.parametrize("n", [399, 390, 300, 200, 160, 140, 100, 20, 1])
def test_a_window_that_is_gone_is_counted(models, n):
    with TinyContext(models["gemma3"], STREAMS) as context:
        reading = Reading("gemma3", context)
        reading.read(0, TEXT)
        assert reading.fake.used("window") < reading.fake.used() == 400
        is_gone = reading.drivers[0].pos_min(0) > max(0, n + 1 - WINDOW)
        for driver in reading.drivers:
            driver.seq_rm(0, n, -1)
        if context.pos_max(0) < 0:  # nothing of the window is left
            assert is_gone
        assert reading.judge(0, TEXT[:n]) == (is_gone, is_gone)


@pytest.mark.parametrize("kind", ["gemma3", "jamba", HYBRID_WINDOW])
@pytest.mark.parametrize("text", [TEXT, OTHER], ids=["the same", "another"])
def test_a_partial_state_that_does_not_belong_is_counted(models, kind, text):
    with TinyContext(models[kind], STREAMS) as context:
        reading = Reading(kind, context)
        reading.read(0, TEXT[:100])
        states = [driver.save(0, True) for driver in reading.drivers]
        reading.read(1, text[:300])
        for driver, state in zip(reading.drivers, states, strict=True):
            assert driver.restore(1, state, True)
            assert driver.seq_rm(1, 100, -1)
        is_wrong = text is not TEXT
        assert reading.judge(1, text[:100]) == (is_wrong, is_wrong)
        assert (reading.fake.bad_calls > 0) is is_wrong


@pytest.mark.parametrize("options", [{"n_swa": 8}, {"hybrid": True}], ids=["window", "hybrid"])
def test_a_partial_state_without_a_cut_after_it_is_counted(options):
    """The next token would see another one at its own position. Logits change little, if at all."""
    fake = Fake(n_seqs=2, **options)
    driver = MemoryDriver(fake.table, fake.ctx, 64)
    assert driver.decode([(0, pos, 5) for pos in range(20)]) == 0
    state = driver.save(0, True)
    assert driver.decode([(0, pos, 6) for pos in range(20, 30)]) == 0
    assert driver.restore(0, state, True)
    assert driver.decode([(0, 20, 7)]) == 0
    assert (fake.n_wrong, fake.bad_calls) == (1, 0)


def test_what_would_abort_over_copies_on_the_device_is_counted():
    fake = Fake(n_seqs=2)
    fake.set_device_bytes(1000)
    driver = MemoryDriver(fake.table, fake.ctx, 64)
    assert driver.decode([(0, pos, 5) for pos in range(20)]) == 0
    early = driver.save(0, ON_DEVICE)
    driver.seq_rm(0, 10, -1)
    late = driver.save(0, ON_DEVICE)
    assert driver.restore(1, late, ON_DEVICE)
    assert fake.bad_calls == 0
    assert not driver.restore(1, early, ON_DEVICE)
    assert fake.bad_calls == 1
    driver.save(1, ON_DEVICE)
    assert fake.bad_calls == 1
    fake.set_device_bytes(300)
    driver.save(1, ON_DEVICE)
    assert fake.bad_calls == 2
    driver.seq_rm(0, -1, -1)
    driver.save(0, ON_DEVICE)  # would leave the old copy
    assert fake.bad_calls > 2


# --- what a test of the engine sees -------------------------------------------------------------------------------


def test_a_full_cache_refuses_and_keeps_what_it_has():
    fake = Fake(unified=True, n_cells=40, n_seqs=2)
    driver = MemoryDriver(fake.table, fake.ctx, 64)
    assert driver.decode([(0, pos, 5) for pos in range(30)]) == 0
    driver.seq_cp(0, 1)  # takes no cells
    assert fake.used() == 30
    assert fake.owned(1)[0] == (0, 5, [0, 1])
    before = fake.cells(0), fake.cells(1)
    assert driver.decode([(1, 30 + i, 6) for i in range(11)]) == 1
    assert (fake.cells(0), fake.cells(1)) == before
    assert driver.decode([(1, 30 + i, 6) for i in range(10)]) == 0
    assert (fake.used(), fake.size(), fake.n_refused) == (40, 40, 1)
    state = driver.save(0, False)
    assert not driver.restore(0, driver.save(1, False), False)  # 40 cells, of which 1 keeps all
    assert (fake.held(0), fake.held(1)) == (0, 40)
    driver.seq_rm(1, -1, -1)
    assert driver.restore(0, state, False)
    assert fake.cells(0) == before[0]


def test_copies_of_a_recurrent_state_share_it_until_one_goes_on():
    fake = Fake(recurrent=True, n_seqs=3)
    driver = MemoryDriver(fake.table, fake.ctx, 64)
    assert driver.decode([(0, pos, 10 + pos) for pos in range(5)]) == 0
    driver.seq_cp(0, 1)
    driver.seq_cp(0, 2)
    assert fake.used("states") == 1
    assert fake.owned(2, "states") == [(4, 14, [0, 1, 2])]
    assert driver.decode([(1, 5, 99)]) == 0
    assert fake.used("states") == 2
    assert fake.cells(1) == [*fake.cells(0), (5, 99)]
    assert not driver.seq_rm(0, 2, -1)
    assert driver.seq_rm(0, -1, -1)
    assert fake.cells(2) == [(pos, 10 + pos) for pos in range(5)]
