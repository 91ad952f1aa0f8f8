"""The compiled checker of saved states: what llama.cpp would write passes, each single lie is refused with its reason,
and no bytes at all make it hang or read beyond them."""

import random
import struct
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.states.ses1_layouts import (
    FORMS,
    N_CTX,
    N_HALVES,
    N_VOCAB,
    TYPES,
    Form,
    Kv,
    as_blob,
    is_answered,
    learn,
    memory,
    state,
)

from llamad.ses1 import ses1
from llamad.ses1.ses1 import Layout, StateError

TOKENS = [5, 17, 999, 0, 17, 3, 44, 45]


def check(form, data, n_vocab=N_VOCAB, n_ctx=N_CTX):
    """(tokens, what llama.cpp would be given)."""
    n_tokens, blob = ses1.check(learn(form), as_blob(bytes(data)), n_vocab, n_ctx)
    return n_tokens, bytes(blob)


def refusal(form, data, **options):
    with pytest.raises(StateError) as caught:
        check(form, data, **options)
    assert str(caught.value)
    return str(caught.value)


def lie(written, mark, code, value):
    data = bytearray(written.data)
    struct.pack_into("<" + code, data, written.marks[mark], value)
    return data


forms = pytest.mark.parametrize("name", FORMS)


@forms
def test_what_llama_cpp_writes_passes_as_it_is(name):
    form = FORMS[name]
    for n in (1, 2, 4, 5, 6, len(TOKENS)):
        data = bytes(state(form, TOKENS[:n]).data)
        assert check(form, data) == (n, data)
        assert len(data) <= learn(form).bytes_max(n)


@forms
def test_an_empty_state_passes(name):
    form = FORMS[name]
    data = bytes(state(form, []).data)
    assert check(form, data) == (0, data)


@forms
def test_any_byte_less_or_more_is_refused(name):
    form = FORMS[name]
    data = bytes(state(form, TOKENS[:3]).data)
    layout = learn(form)
    for n in range(len(data)):
        with pytest.raises(StateError):
            ses1.check(layout, as_blob(data[:n]), N_VOCAB, N_CTX)
    for more in (b"\0", b"\0" * 4, data):
        with pytest.raises(StateError, match=f"{len(more)} bytes too many follow it"):
            ses1.check(layout, as_blob(data + more), N_VOCAB, N_CTX)


def test_cells_may_come_in_any_order():
    form = FORMS["plain"]
    written = state(form, TOKENS)
    data = bytearray(written.data)
    places = [written.marks[f"s0.pos{i}"] for i in range(len(TOKENS))]
    for place, pos in zip(places, [3, 0, 7, 1, 6, 2, 5, 4], strict=True):
        struct.pack_into("<i", data, place, pos)
    assert check(form, data) == (len(TOKENS), bytes(data))


def test_the_head():
    form = FORMS["plain"]
    written = state(form, TOKENS)
    assert "does not begin with" in refusal(form, b"SES2" + written.data[4:])
    assert "does not begin with" in refusal(form, b"")
    assert "ends within its first 8 bytes" in refusal(form, b"SES1\1\0\0")
    assert "a slot's context holds 64" in refusal(form, lie(written, "n_tokens", "I", 65))
    assert "a slot's context holds 64" in refusal(form, lie(written, "n_tokens", "I", 2**32 - 1))
    assert "a slot's context holds 7" in refusal(form, written.data, n_ctx=7)
    assert check(form, written.data, n_ctx=8)[0] == 8
    assert "token 3 stands for an image" in refusal(form, lie(written, "token3", "i", -1))
    assert "token 3 is -2," in refusal(form, lie(written, "token3", "i", -2))
    assert "token 2 is 999, but this model's tokens are 0 to 998" in refusal(
        form, written.data, n_vocab=N_VOCAB - 1
    )
    assert "no state of llama.cpp follows" in refusal(form, lie(written, "magic", "I", 0xAF143CD9))
    # One token more than there are: the magic is read as a token.
    assert refusal(form, lie(written, "n_tokens", "I", len(TOKENS) + 1))
    assert refusal(form, lie(written, "n_tokens", "I", len(TOKENS) - 1))
    # llama.cpp does not look at the sequence's number, so it may be any.
    assert check(form, lie(written, "seq", "i", -7))[0] == len(TOKENS)


@pytest.mark.parametrize("name", ["plain", "streams", "window", "hybrid"])
def test_streams_and_cells(name):
    form = FORMS[name]
    written = state(form, TOKENS)
    assert "it has 0 streams" in refusal(form, lie(written, "s0.n_stream", "I", 0))
    assert "it has 4097 streams" in refusal(form, lie(written, "s0.n_stream", "I", 4097))
    assert refusal(form, lie(written, "s0.n_stream", "I", form.n_stream + 1))
    for n in (0, 1, 7, 9, 2**31, 2**32 - 1):
        assert refusal(form, lie(written, "s0.n_cells", "I", n))
    assert "9 cells for 8 tokens" in refusal(form, lie(written, "s0.n_cells", "I", 9))
    assert "cell 2 has position -1" in refusal(form, lie(written, "s0.pos2", "i", -1))
    assert "cell 2 has position 8" in refusal(form, lie(written, "s0.pos2", "i", 8))
    assert "cell 2 has position 2147483647" in refusal(form, lie(written, "s0.pos2", "i", 2**31 - 1))
    assert "position 3 is there twice" in refusal(form, lie(written, "s0.pos2", "i", 3))
    for n in (0, 2, 2**32 - 1):
        assert f"cell 0 belongs to {n} sequences" in refusal(form, lie(written, "s0.n_seq_id", "I", n))
    for seq in (-1, 4096, -(2**31)):
        assert f"cell 0 belongs to sequence {seq}" in refusal(form, lie(written, "s0.seq_id", "i", seq))


def test_two_filled_streams_and_none():
    form = FORMS["streams"]
    written = state(form, TOKENS)
    begin, end = written.marks["s0.n_cells"], written.marks["s0.end"] - 4
    body = written.data[begin:end]
    twice = written.data[:end] + body + written.data[written.marks["s0.end"] :]
    assert "more than one of its streams is filled" in refusal(form, twice)
    without = written.data[:begin] + b"\0" * 4 + written.data[end:]
    assert "it has no cells for its 8 tokens" in refusal(form, without)
    one = FORMS["plain"]
    assert "cells for 0 tokens" in refusal(
        one, state(one, []).data[:16] + struct.pack("<II", 1, 1) + state(one, [3]).data[28:]
    )


def test_sections_of_different_streams():
    form = FORMS["window"]
    written = state(form, TOKENS)
    data = lie(written, "s1.n_stream", "I", 3)
    end = written.marks["s1.end"]
    assert "its sections differ in their streams" in refusal(form, data[:end] + b"\0" * 4 + data[end:])


def test_windows():
    form = FORMS["window"]
    written = state(form, TOKENS)
    # Position 3 is the window's first.
    assert "cell 0 has position 2" in refusal(form, lie(written, "s1.pos3", "i", 2))
    wide = replace(form, sections=(form.sections[0], replace(form.sections[1], window=6)))
    assert "6 cells in a window, but this model's holds 5" in refusal(form, state(wide, TOKENS).data)
    narrow = replace(form, sections=(form.sections[0], replace(form.sections[1], window=4)))
    assert check(form, state(narrow, TOKENS).data)[0] == len(TOKENS)
    short = replace(form, sections=(replace(form.sections[0], window=5), form.sections[1]))
    assert "5 cells for 8 tokens" in refusal(form, state(short, TOKENS).data)


@pytest.mark.parametrize("name", ["m-rope", "tokens in cells", "hybrid with m-rope"])
def test_what_cells_tell_beside_their_position(name):
    form = FORMS[name]
    written = state(form, TOKENS)
    for mark in ("x", "y"):
        for value in (3, -1, 2**31 - 1):
            assert "not a text token's" in refusal(form, lie(written, f"s0.{mark}2", "i", value))
    for value in (-1, 998, 5):
        assert "names another token" in refusal(form, lie(written, "s0.token2", "i", value))


def test_layers_types_and_rows():
    form = FORMS["mixed types"]
    written = state(form, TOKENS)
    assert "saved with flash attention off" in refusal(form, lie(written, "s0.v_trans", "I", 1))
    for n in (0, 1, 3, 2**32 - 1):
        assert f"it has {n} layers, but this model's cache has 2" in refusal(
            form, lie(written, "s0.n_layer", "I", n)
        )
    for kind, name in ((1, "f16"), (-1, ""), (2**31 - 1, "")):
        assert f"keys of layer 1 are of type {kind}" in refusal(
            form, lie(written, "s0.k1.type", "i", kind)
        ), name
    assert "values of layer 0 are of type 8, but this cache's are q4_1 (3)" in refusal(
        form, lie(written, "s0.v0.type", "i", 8)
    )
    for row in (0, 34, 34 * 3 + 1, 2**63, 2**64 - 1):
        assert f"keys of layer 0 have rows of {row} bytes" in refusal(
            form, lie(written, "s0.k0.row", "Q", row)
        )
    assert "values of layer 1 have rows of 1 bytes" in refusal(form, lie(written, "s0.v1.row", "Q", 1))
    turned = FORMS["no flash attention"]
    written = state(turned, TOKENS)
    assert "saved with flash attention on" in refusal(turned, lie(written, "s0.v_trans", "I", 0))
    assert "values of layer 0 have 3 dimensions of 4 bytes" in refusal(
        turned, lie(written, "s0.v0.element", "I", 4)
    )
    assert "values of layer 1 have 4 dimensions of 2 bytes" in refusal(
        turned, lie(written, "s0.v1.n_elements", "I", 4)
    )


@pytest.mark.parametrize("name", ["recurrent", "hybrid", "hybrid with a window"])
def test_recurrent_states(name):
    form = FORMS[name]
    at = f"s{len(form.sections) - 1}"
    written = state(form, TOKENS)
    for n in (0, 2, 2**32 - 1):
        assert f"it has {n} recurrent states" in refusal(form, lie(written, f"{at}.n_cells", "I", n))
    for pos in (-1, 0, 8, 2**31 - 1):
        assert f"recurrent state is of position {pos}" in refusal(form, lie(written, f"{at}.pos", "i", pos))
    assert "belongs to 1 sequences" in refusal(form, lie(written, f"{at}.n_seq_id", "I", 1))
    assert "is transposed" in refusal(form, lie(written, f"{at}.s_trans", "I", 1))
    assert "it has 5 layers, but this model has 4" in refusal(form, lie(written, f"{at}.n_layer", "I", 5))
    assert "recurrent rows of layer 2 are of type 1" in refusal(form, lie(written, f"{at}.r2.type", "i", 1))
    assert "recurrent rows of layer 0 have rows of 8 bytes" in refusal(
        form, lie(written, f"{at}.r0.row", "Q", 8)
    )


# --- values -------------------------------------------------------------------------------------------------------

BAD_HALVES = [0x7C00, 0xFC00, 0x7E00, 0x7C01, 0xFFFF]
BAD = {
    "f32": [(0x7F800000, "I"), (0xFF800000, "I"), (0x7FC00000, "I"), (0x7F800001, "I"), (0x5F800000, "I")],
    "bf16": [(0x7F80, "H"), (0xFF80, "H"), (0x7FC0, "H"), (0xFFFF, "H"), (0x5F80, "H"), (0xDF80, "H")],
}


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("part", ["k", "v"])
def test_values_that_are_not_finite(kind, part):
    form = Form((Kv(k_type=kind, v_type=kind),))
    written = state(form, TOKENS)
    layout = learn(form)
    ses1.check(layout, as_blob(bytes(written.data)), N_VOCAB, N_CTX)
    size = TYPES[kind][1]
    n_blocks = 3 * len(TOKENS)
    reason = f"{'keys' if part == 'k' else 'values'} of layer 1 hold values that are not finite"
    for block in (0, n_blocks // 2, n_blocks - 1):
        for half in range(N_HALVES.get(kind, 1)):
            for value, code in BAD.get(kind, [(half, "H") for half in BAD_HALVES]):
                data = bytearray(written.data)
                struct.pack_into(
                    "<" + code, data, written.marks[f"s0.{part}1"] + block * size + 2 * half, value
                )
                with pytest.raises(StateError, match=reason):
                    ses1.check(layout, as_blob(bytes(data)), N_VOCAB, N_CTX)


@pytest.mark.parametrize(
    ("kind", "value", "code"),
    [
        ("f32", 0x5F7FFFFF, "I"),
        ("bf16", 0xDF7F, "H"),
        ("f16", 0x7BFF, "H"),
        ("f16", 0x8001, "H"),
        ("f32", 1, "I"),
    ],
)
def test_the_largest_and_smallest_values_pass(kind, value, code):
    form = Form((Kv(k_type=kind, v_type=kind, v_trans=True),))
    written = state(form, TOKENS)
    data = lie(written, "s0.v1", code, value)
    assert check(form, data) == (len(TOKENS), bytes(data))


@pytest.mark.parametrize("kind", [kind for kind in TYPES if kind in N_HALVES])
def test_quantized_integers_may_be_anything(kind):
    form = Form((Kv(k_type=kind, v_type=kind),))
    written = state(form, TOKENS)
    at = written.marks["s0.k0"]
    n_head = 2 * N_HALVES[kind]
    written.data[at + n_head : at + TYPES[kind][1]] = b"\xff" * (TYPES[kind][1] - n_head)
    assert check(form, written.data)[0] == len(TOKENS)


def test_recurrent_values_that_are_not_finite():
    form = FORMS["hybrid"]
    written = state(form, TOKENS)
    assert "recurrent rows of layer 3 hold values" in refusal(form, lie(written, "s1.r3", "f", float("nan")))


# --- learning -----------------------------------------------------------------------------------------------------


def test_memories_of_no_known_form_are_not_learned():
    form = FORMS["plain"]
    one, two = memory(form, [7]), memory(form, [7, 7])
    for first, second in (
        (one, one),
        (two, one),
        (b"", b""),
        (one + b"\0", two + b"\0"),
        (one[:-1], two[:-1]),
        (one, memory(FORMS["no flash attention"], [7, 7])),
        (one, memory(replace(form, n_stream=2), [7, 7])),
        (memory(form, [7], seed=3).replace(b"\1\0\0\0", b"\x63\0\0\0"), two),
    ):
        with pytest.raises(StateError, match="does not know how to check"):
            Layout(first, second)


@settings(max_examples=200)
@given(st.sampled_from(list(FORMS)), st.data())
def test_learning_from_anything_ends(name, data):
    form = FORMS[name]
    one, two = bytearray(memory(form, [7])), bytearray(memory(form, [7, 7]))
    for blob in (one, two):
        blob[data.draw(st.integers(0, len(blob) - 1))] = data.draw(st.integers(0, 255))
    try:
        layout = Layout(bytes(one), bytes(two))
    except StateError:
        return
    try:
        ses1.check(layout, as_blob(bytes(state(form, TOKENS).data)), N_VOCAB, N_CTX)
    except StateError:
        pass


# --- other numbers of slots ---------------------------------------------------------------------------------------


@forms
@pytest.mark.parametrize(("n_from", "from_slot"), [(1, 0), (2, 1), (7, 3), (4096, 4095)])
@pytest.mark.parametrize("n_to", [1, 3, 64])
def test_a_state_of_another_number_of_slots_becomes_this_ones(name, n_from, from_slot, n_to):
    form = FORMS[name]
    theirs = replace(form, n_stream=n_from, stream=from_slot)
    # As slot 0 would be written, but for the sequence's number, which is not looked at.
    ours = bytearray(state(replace(form, n_stream=n_to, stream=0), TOKENS).data)
    n_tokens, data = check(replace(form, n_stream=n_to), state(theirs, TOKENS).data)
    assert n_tokens == len(TOKENS)
    assert len(data) == len(ours)
    if n_from == n_to:
        return
    blank = blanked(ours, replace(form, n_stream=n_to, stream=0))
    assert blanked(bytearray(data), replace(form, n_stream=n_to, stream=0)) == blank


def blanked(data, form):
    """Without the numbers of the sequence."""
    written = state(form, TOKENS)
    struct.pack_into("<i", data, written.marks["seq"], 0)
    for i, section in enumerate(form.sections):
        if not isinstance(section, Kv):
            continue
        size = 24 if section.ext else 12
        n_cells = min(len(TOKENS), section.window or len(TOKENS))
        for cell in range(n_cells):
            struct.pack_into("<i", data, written.marks[f"s{i}.seq_id"] + cell * size, 0)
    return bytes(data)


@forms
def test_an_empty_state_of_another_number_of_slots(name):
    form = FORMS[name]
    for n_from, n_to in ((1, 5), (5, 1)):
        there, here = replace(form, n_stream=n_from, stream=0), replace(form, n_stream=n_to, stream=0)
        assert check(here, state(there, []).data) == (0, bytes(state(here, []).data))


@settings(max_examples=100)
@given(
    st.sampled_from(list(FORMS)),
    st.lists(st.integers(0, N_VOCAB - 1), max_size=N_CTX),
    st.integers(1, 9),
    st.integers(1, 9),
    st.integers(0, 2**32),
)
def test_there_and_back(name, tokens, n_here, n_there, seed):
    here, there = (replace(FORMS[name], n_stream=n, stream=0) for n in (n_here, n_there))
    data = bytes(state(here, tokens, seed).data)
    n_tokens, moved = check(there, data)
    assert n_tokens == len(tokens)
    assert check(here, moved) == (len(tokens), data)


@settings(max_examples=300)
@given(st.sampled_from(list(FORMS)), st.binary(max_size=400), st.integers(0, 400))
def test_any_bytes_are_answered(name, tail, n_kept):
    form = FORMS[name]
    data = bytes(state(form, TOKENS).data)[:n_kept] + tail
    assert is_answered(lambda: ses1.check(learn(form), as_blob(data), N_VOCAB, N_CTX))


def test_single_bytes_changed_at_random():
    """Each is refused, or it is a value or an ignored number that was changed: the length never is another."""
    chance = random.Random(3)
    for form in FORMS.values():
        layout = learn(form)
        data = bytes(state(form, TOKENS).data)
        for _ in range(400):
            changed = bytearray(data)
            changed[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
            try:
                n_tokens, blob = ses1.check(layout, as_blob(bytes(changed)), N_VOCAB, N_CTX)
            except StateError:
                continue
            assert (n_tokens, bytes(blob)) == (len(TOKENS), bytes(changed))
