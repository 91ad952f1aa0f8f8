"""States of real memories, cut and joined: the bytes are llama.cpp's own, and a sequence that gets them continues with
the same logits."""

import random
from itertools import pairwise

import numpy as np
import pytest
from support.models.tiny_contexts import Sizes, TinyContext, TinyModel
from support.models.tiny_kv_models import DELTA_NET, HYBRID_WINDOW, KINDS, SINKS, write_model
from support.states.real_states import continued, learned, prefill, text
from support.states.state_reader import StateReader

from llamad.ses1 import ses1
from llamad.ses1.ses1 import StateError

PARTIAL = 1
N_TOKENS = 150
ALL = (*KINDS, SINKS, HYBRID_WINDOW, DELTA_NET)
HAS_CELLS = [kind for kind in ALL if kind != "mamba"]
CACHES = {"f16": ("f16", True), "f16, no flash attention": ("f16", False), "q8_0": ("q8_0", True)}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    opened = {kind: TinyModel(write_model(folder / f"{kind}.gguf", kind, np.float32)) for kind in ALL}
    yield opened
    for model in opened.values():
        model.close()


def context(model, unified=True, swa_full=False, cache="f16"):
    type_name, flash = CACHES[cache]
    n_ctx = 512 if unified else 3 * 512
    return TinyContext(model, Sizes(n_ctx, 3, 32, 32, unified, swa_full), type_name, flash)


def pieces_of(layout, state, n_tokens, chance):
    """Return pieces of random lengths."""
    cuts = sorted({0, n_tokens, *(chance.randrange(1, n_tokens) for _ in range(5))})
    return [ses1.cut(layout, state, a, b) for a, b in pairwise(cuts)]


def scatter(c, seq):
    """Prefill a sequence whose cells are in another order than its positions, because others were there."""
    tokens = text(N_TOKENS)
    prefill(c, 2, text(40, seed=3))
    prefill(c, seq, tokens[:50])
    prefill(c, 1, text(300, seed=4))
    prefill(c, seq, tokens[50:90], 50)
    assert c.driver.seq_rm(2, -1, -1)
    prefill(c, seq, tokens[90:140], 90)
    assert c.driver.seq_rm(1, -1, -1)
    prefill(c, seq, tokens[140:], 140)


@pytest.mark.parametrize("unified", [True, False], ids=["unified", "streams"])
@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("kind", ALL)
def test_pieces_and_the_end_join_to_the_very_state(models, kind, cache, unified):
    chance = random.Random(5)
    with (
        context(models[kind], unified, cache=cache) as c,
        context(models[kind], unified, cache=cache) as other,
    ):
        layout = learned(c)
        prefill(c, 1, text(N_TOKENS))
        state, partial = c.driver.save(1, 0), c.driver.save(1, PARTIAL)
        assert layout.has_cells() is (kind != "mamba")
        assert layout.has_end() is (kind not in ("llama", "qwen2vl"))
        end = ses1.cut_end(layout, state) if layout.has_end() else None
        pieces = pieces_of(layout, state, N_TOKENS, chance) if layout.has_cells() else []
        assert ses1.join(layout, pieces, end, seq=1) == state
        if end is not None:
            # llama.cpp's own partial state is the end; only the number of the sequence differs.
            assert ses1.join(layout, pieces, partial, seq=1) == state
            assert len(end) == len(partial)
        # In another context, and in another sequence.
        joined = ses1.join(layout, pieces, end, seq=2)
        assert other.driver.restore(2, joined, 0)
        assert other.driver.save(2, 0) == joined
        assert np.array_equal(continued(other, 2, N_TOKENS), continued(c, 1, N_TOKENS))


@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("kind", HAS_CELLS)
def test_cells_in_any_order_become_those_of_a_sequence_alone(models, kind, cache):
    """A piece has its cells in the order of positions, so the join is what an empty context makes of the state."""
    chance = random.Random(6)
    has_ext = kind in ("qwen2vl", DELTA_NET)
    with context(models[kind], cache=cache) as c, context(models[kind], cache=cache) as other:
        layout = learned(c)
        scatter(c, 0)
        state = c.driver.save(0, 0)
        positions = StateReader(state, has_ext).cells().positions
        assert positions != sorted(positions)
        end = ses1.cut_end(layout, state) if layout.has_end() else None
        joined = ses1.join(layout, pieces_of(layout, state, N_TOKENS, chance), end)
        assert joined != state
        assert len(joined) == len(state)
        assert ses1.join(layout, [state], end) == joined
        assert other.driver.restore(0, joined, 0)
        assert other.driver.save(0, 0) == joined
        expected, cells = StateReader(state, has_ext).cells().newest(), StateReader(joined, has_ext).cells()
        assert cells.positions == expected.positions == list(range(N_TOKENS))
        assert all(np.array_equal(a, b) for a, b in zip(cells.rows, expected.rows, strict=True))
        # Attention sums in the order of cells, in f16, so the logits differ by rounding.
        assert np.allclose(continued(other, 0, N_TOKENS), continued(c, 0, N_TOKENS), atol=0.05)


@pytest.mark.parametrize("kind", HAS_CELLS)
def test_a_piece_is_what_llama_cpp_saves_of_these_positions(models, kind):
    with context(models[kind]) as c:
        layout = learned(c)
        prefill(c, 0, text(N_TOKENS))
        state = c.driver.save(0, 0)
        c.copy_range(0, 2, 60, 100)
        copied = c.driver.save(2, 0)
        assert c.driver.seq_rm(2, -1, -1)
        piece = ses1.cut(layout, state, 60, 100)
        assert len(piece) == layout.piece_bytes(40)
        if not layout.has_end():
            assert ses1.join(layout, [piece], seq=2) == copied
        assert ses1.cut(layout, copied, 60, 100) == piece
        assert c.driver.save(0, 0) == state


@pytest.mark.parametrize("kind", ALL)
def test_what_is_not_there_is_refused(models, kind):
    with context(models[kind]) as c:
        layout = learned(c)
        prefill(c, 0, text(40))
        early = c.driver.save(0, 0)
        prefill(c, 0, text(N_TOKENS)[40:], 40)
        state = c.driver.save(0, 0)
        with pytest.raises(StateError):
            ses1.cut(layout, state, 100, 100)
        if not layout.has_cells():
            with pytest.raises(StateError, match="cannot be cut"):
                ses1.cut(layout, state, 0, 10)
            with pytest.raises(StateError, match="needs its end"):
                ses1.join(layout, [])
            return
        pieces = [ses1.cut(layout, state, a, b) for a, b in ((0, 40), (40, 90), (90, N_TOKENS))]
        with pytest.raises(StateError, match="no cells at these positions"):
            ses1.cut(layout, state, N_TOKENS, N_TOKENS + 5)
        with pytest.raises(
            StateError, match="piece 1 begins at position 40, but the one before it ends at 89"
        ):
            ses1.join(layout, [ses1.cut(layout, state, 0, 90), pieces[1]])
        if kind not in ("qwen2vl", DELTA_NET):
            with pytest.raises(StateError, match="has only 140 to 149"):
                ses1.cut(layout, state, 140, N_TOKENS + 1)
            with pytest.raises(
                StateError, match="piece 1 begins at position 90, but the one before it ends at 39"
            ):
                ses1.join(layout, [pieces[0], pieces[2]])
        if layout.has_end():
            with pytest.raises(StateError, match="the end: its end is of position 39 instead of 149"):
                ses1.join(layout, pieces, ses1.cut_end(layout, early))
            with pytest.raises(StateError, match="it has no end"):
                ses1.cut_end(layout, pieces[-1])
        else:
            with pytest.raises(StateError, match="have no end"):
                ses1.cut_end(layout, state)
            with pytest.raises(StateError, match="have no end"):
                ses1.join(layout, pieces, state)
