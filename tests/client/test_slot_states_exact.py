"""States of real memories: after a save and a restore the next token's logits are, bit for bit, those without the
detour. Tiny models of every kind of memory, and the default model."""

import struct

import numpy as np
import pytest
from support.hosted_model import Hosted
from support.live_daemon import model_path
from support.models.tiny_kv_models import HYBRID_WINDOW, KINDS, WINDOW, write_models
from support.states.ses1_layouts import as_blob

from llamad.client.slot_states import StateRefused

ALL = (*KINDS, HYBRID_WINDOW)
TOKENS = [1, *(3 + byte for byte in b"a text that is longer than the window of the model with one")]
MORE = [*TOKENS, 70, 71, 72]
N = len(TOKENS)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return write_models(tmp_path_factory.mktemp("models"), ALL, np.float16)


def saved_bytes(h, slot):
    return bytes(h.run(h.states.save(slot)).blob)


def restore(h, slot, data):
    return h.run(h.states.restore(slot, as_blob(data)))


SETTINGS = [
    (),
    ("-fa", "off"),
    ("-fa", "on", "-ctk", "q8_0", "-ctv", "q8_0"),
    ("-fa", "on", "-ctk", "q4_0", "-ctv", "q5_1"),
    ("-ctk", "bf16", "-ctv", "bf16"),
    ("-ctk", "f32", "-ctv", "f32", "-fa", "off"),
    ("--kv-unified",),
    ("--kv-unified", "-fa", "off"),
    ("--swa-full",),
]


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("flags", SETTINGS, ids=" ".join)
def test_what_follows_a_restore_is_what_follows_without_it(tiny, kind, flags):
    if kind in ("mamba", "jamba") and "q4_0" in flags:
        flags = ("-fa", "on", "-ctk", "q8_0", "-ctv", "q5_0")
    with Hosted(tiny[kind], "-c", "768", "-np", "3", *flags) as h:
        h.read(0, TOKENS)
        data = saved_bytes(h, 0)
        straight = h.next(0, MORE, N)
        assert len(straight[0][1]) == 40
        h.read(2, [1, 9, 9, 9])
        neighbour = h.run(h.states.save(2)).blob
        for slot in (1, 0):
            assert restore(h, slot, data).n_tokens == N
            assert h.run(h.states.tokens(slot)).tokens == TOKENS
            assert h.next(slot, MORE, N) == straight
        assert bytes(h.run(h.states.save(2)).blob) == bytes(neighbour)
        assert h.local.core.check_integrity() == 0


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize(
    ("there", "here"),
    [
        (("-np", "1", "-c", "256"), ("-np", "4", "-c", "1024")),
        (("-np", "5", "-c", "1280"), ("-np", "2", "-c", "512")),
        (("-np", "3", "-c", "768"), ("-np", "2", "-c", "512", "--kv-unified")),
        (("-np", "2", "-c", "512", "--kv-unified"), ("-np", "3", "-c", "768")),
    ],
    ids=lambda flags: " ".join(flags),
)
def test_a_state_of_another_number_of_slots(tiny, kind, there, here):
    with Hosted(tiny[kind], *there) as h:
        slot = h.engine.n_slots - 1
        h.read(slot, TOKENS)
        data = saved_bytes(h, slot)
        straight = h.next(slot, MORE, N)
    with Hosted(tiny[kind], *here) as h:
        assert restore(h, 1, data).n_tokens == N
        moved = h.next(1, MORE, N)
        h.read(0, TOKENS)
        assert moved == h.next(0, MORE, N)
        if "--kv-unified" not in there + here:  # else the shapes differ
            assert moved == straight


@pytest.mark.parametrize("flags", [(), ("-fa", "off"), ("--kv-unified",)], ids=" ".join)
@pytest.mark.parametrize("kind", ["llama", "gemma3"])
def test_a_shifted_slot_goes_on_as_it_would(tiny, kind, flags):
    """The state is saved right after the shift, which llama.cpp does at its next decode only. What is restored lies in
    other cells than the shifted one, so its sums are added in another order: alike, not equal."""
    window = ["--swa-full"] if kind == "gemma3" else []
    with Hosted(tiny[kind], "-c", "768", "-np", "3", *flags, *window) as h:
        h.read(0, TOKENS)
        assert h.run(h.states.shift(0, 4, 10)) == N - 10
        shifted = TOKENS[:4] + TOKENS[14:]
        assert h.run(h.states.tokens(0)).tokens == shifted
        restore(h, 2, saved_bytes(h, 0))
        own = h.next(0, [*shifted, 70, 71], N - 10)
        moved = h.next(2, [*shifted, 70, 71], N - 10)
        assert likeliest(moved) == pytest.approx(likeliest(own), abs=0.02)
    with Hosted(tiny[kind], "-c", "768", "-np", "3", *flags, *window) as h:
        h.read(0, shifted)
        assert likeliest(h.next(0, [*shifted, 70, 71], N - 10)) != pytest.approx(likeliest(own), abs=0.002)
        h.run(h.states.erase(0))
        h.read(0, TOKENS)
        h.run(h.states.shift(0, 4, 10))
        without_save = h.next(0, [*shifted, 70, 71], N - 10)
        assert likeliest(without_save) == pytest.approx(likeliest(own), abs=0.02)
        if "--kv-unified" not in flags:  # else its cells are others
            assert without_save == own


def likeliest(probs):
    """The five likeliest tokens' logprobs."""
    return dict(probs[0][1][:5])


@pytest.mark.parametrize("flags", [(), ("--swa-full",)], ids=" ".join)
def test_a_restored_window_is_not_cut_back(tiny, flags):
    """Its state holds the window alone, with --swa-full too: a shorter prefix of it must be read again."""
    with Hosted(tiny["gemma3"], "-c", "512", "-np", "2", *flags) as h:
        h.read(0, TOKENS)
        data = saved_bytes(h, 0)
        short = [*TOKENS[:20], 80]
        restore(h, 0, data)
        cut = h.next(0, short, 0)
        assert cut == h.next(1, short, 0)
        restore(h, 0, data)
        with pytest.raises(StateRefused, match="cannot be moved"):
            h.run(h.states.shift(0, 10, N - 10))
        assert h.run(h.states.tokens(0)).tokens == TOKENS


@pytest.mark.parametrize("kind", ["mamba", "jamba", "qwen2vl"])
def test_memories_that_cannot_be_shifted(tiny, kind):
    with Hosted(tiny[kind], "-c", "512", "-np", "2") as h:
        h.read(0, TOKENS)
        for n_keep, n_discard in ((0, 5), (4, 10), (5, N - 5)):
            if kind == "qwen2vl" and n_keep + n_discard == N:
                continue  # a cut is no move
            with pytest.raises(StateRefused, match="cannot be moved") as caught:
                h.run(h.states.shift(0, n_keep, n_discard))
            assert caught.value.status == 501
        follows = h.next(0, MORE, N)
        h.read(1, TOKENS)
        assert h.next(1, MORE, N) == follows
        assert h.run(h.states.shift(0, 0, N + 3)) == 0
        assert h.run(h.states.tokens(0)).tokens == []


def test_states_of_other_models_and_settings_are_refused(tiny):
    blobs = {}
    for kind in KINDS:
        with Hosted(tiny[kind], "-c", "256", "-np", "1") as h:
            h.read(0, TOKENS)
            blobs[kind] = saved_bytes(h, 0)
    for name, flags in (("off", ("-fa", "off")), ("q8_0", ("-ctk", "q8_0", "-fa", "on"))):
        with Hosted(tiny["llama"], "-c", "256", "-np", "1", *flags) as h:
            h.read(0, TOKENS)
            blobs[name] = saved_bytes(h, 0)
    del blobs["llama"]
    with Hosted(tiny["llama"], "-c", "512", "-np", "2") as h:
        h.read(0, TOKENS)
        h.read(1, TOKENS)
        for name, data in blobs.items():
            with pytest.raises(StateRefused, match="cannot be restored") as caught:
                restore(h, 1, data)
            assert caught.value.status == 400, name
        assert h.next(1, MORE, N) == h.next(0, MORE, N)


def test_a_huge_key_would_reach_the_others(tiny):
    """In a cache that all slots share, without flash attention: a finite key that becomes infinite once it is
    multiplied and, with the mask, not a number for everybody. It is refused."""
    flags = ("-c", "512", "-np", "2", "--kv-unified", "-fa", "off", "-ctk", "f32", "-ctv", "f32")
    with Hosted(tiny["llama"], *flags) as h:
        h.read(0, TOKENS)
        data = bytearray(saved_bytes(h, 0))
        at = 8 + 4 * N + 8 + 8 + 12 * N + 8 + 12
        for value in (3e38, float("inf"), float("nan")):
            struct.pack_into("<f", data, at, value)
            with pytest.raises(
                StateRefused, match="keys of layer 0 hold values that are not finite, or too large"
            ):
                restore(h, 1, bytes(data))
        h.next(0, MORE, N)


def test_the_default_model():
    with Hosted(model_path(), "-c", "1024", "-np", "2", "-fa", "off", "-ctk", "q8_0") as h:
        text = "Save this state, restore it elsewhere, and the next word is the same word."
        packed = h.vocab.tokenize(text.encode(), True, True)
        tokens = list(struct.unpack(f"<{len(packed) // 4}i", packed))
        h.read(0, tokens[:-1])
        data = saved_bytes(h, 0)
        straight = h.next(0, tokens, len(tokens) - 1)
        for slot in (1, 0):
            restore(h, slot, data)
            assert h.next(slot, tokens, len(tokens) - 1) == straight


def test_the_window_of_the_tiny_model():
    assert WINDOW < N - 10
