"""States cut and joined, for memories of any form: what is put together again is what was cut, each lie is refused with
its reason, and no bytes at all make it hang or read beyond them. test_pieces_exact.py asks llama.cpp."""

import random
import struct
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.states.ses1_layouts import FORMS, TYPES, Kv, Recurrent, is_answered, learn, memory

from llamad.protocol.blobs import Blob
from llamad.ses1 import ses1
from llamad.ses1.ses1 import StateError

TOKENS = [5, 17, 999, 0, 17, 3, 44, 45]
N = len(TOKENS)
forms = pytest.mark.parametrize("name", FORMS)
cell_forms = pytest.mark.parametrize("name", [name for name in FORMS if name != "recurrent"])


def end_of(layout, state):
    return ses1.cut_end(layout, state) if layout.has_end() else None


def cut_at(layout, state, cuts):
    return [ses1.cut(layout, state, a, b) for a, b in pairwise(cuts)]


def refusal(call, *arguments, **options):
    with pytest.raises(StateError) as caught:
        call(*arguments, **options)
    assert str(caught.value)
    return str(caught.value)


def reordered(form, state, order):
    """Return a state of one section with its cells in another order."""
    (kv,) = form.sections
    cell = 24 if kv.ext else 12
    at = 12 + 4 * (form.stream + 1)  # behind the head and the counts up to the stream's own
    out = bytearray(state)

    def move(begin, size):
        out[begin : begin + N * size] = b"".join(
            state[begin + i * size : begin + (i + 1) * size] for i in order
        )
        return begin + N * size

    at = move(at, cell) + 8
    for i in range(2 * kv.n_layer):
        size = TYPES[kv.k_type if i < kv.n_layer else kv.v_type][1]
        is_transposed = kv.v_trans and i >= kv.n_layer
        at += 12
        for _ in range(kv.n_blocks if is_transposed else 1):
            at = move(at, size if is_transposed else size * kv.n_blocks)
    return bytes(out)


# --- there and back -----------------------------------------------------------------------------------------------


@forms
def test_pieces_and_the_end_are_the_whole(name):
    form = FORMS[name]
    layout, state = learn(form), memory(form, TOKENS)
    end = end_of(layout, state)
    if not layout.has_cells():
        assert ses1.join(layout, [], end) == state
        return
    for cuts in ([0, N], [0, 1, N], [0, 3, 4, N], list(range(N + 1))):
        pieces = cut_at(layout, state, cuts)
        assert [len(piece) for piece in pieces] == [layout.piece_bytes(b - a) for a, b in pairwise(cuts)]
        assert ses1.join(layout, pieces, end, seq=form.stream) == state
        # Pieces join to pieces, and these to the whole.
        larger = [ses1.join(layout, pieces[i : i + 2]) for i in range(0, len(pieces), 2)]
        assert ses1.join(layout, larger, end, seq=form.stream) == state
        assert ses1.cut(layout, ses1.join(layout, pieces), 0, 1) == ses1.cut(layout, state, 0, 1)


@cell_forms
@settings(max_examples=25)
@given(cuts=st.sets(st.integers(1, N - 1)), chance=st.randoms(use_true_random=False))
def test_pieces_placed_in_any_order_are_the_same_as_joined(name, cuts, chance):
    form = FORMS[name]
    layout, state = learn(form), memory(form, TOKENS)
    ends, end = [0, *sorted(cuts), N], end_of(layout, state)
    pieces = list(zip(pairwise(ends), cut_at(layout, state, ends), strict=True))
    expected = ses1.join(layout, [piece for _, piece in pieces], end)
    blob = Blob(3 + len(expected) + 2)
    blob.size = blob.capacity
    with memoryview(blob) as view:
        view[:] = bytes([0x5A]) * len(view)
        chance.shuffle(pieces)
        for (p0, p1), piece in pieces:
            assert ses1.place(layout, piece, p0, p1, N, end, blob, 3) == len(expected)
        assert bytes(view) == b"ZZZ" + expected + b"ZZ"


@cell_forms
def test_a_piece_in_the_wrong_place_is_refused(name):
    form = FORMS[name]
    layout, state = learn(form), memory(form, TOKENS)
    end, piece = end_of(layout, state), ses1.cut(layout, state, 2, 4)
    blob = Blob(len(state) + 1000)
    for p0, p1, n_cells in ((0, 2, N), (1, 3, N), (2, 3, N), (2, 5, N), (2, 4, 3), (-1, 4, N), (4, 2, N)):
        assert refusal(ses1.place, layout, piece, p0, p1, n_cells, end, blob, 0)
    assert "there is room for" in refusal(ses1.place, layout, piece, 2, 4, N, end, Blob(20), 0)


@forms
def test_what_an_end_is(name):
    form = FORMS[name]
    layout, state = learn(form), memory(form, TOKENS)
    is_plain = len(form.sections) == 1 and isinstance(form.sections[0], Kv)
    assert layout.has_end() is not is_plain
    assert layout.has_cells() is isinstance(form.sections[0], Kv)
    if is_plain:
        assert "have no end" in refusal(ses1.cut_end, layout, state)
        assert "have no end" in refusal(ses1.join, layout, [state], state)
        return
    # It has the sections behind the cells, unchanged but for the sequence.
    end = ses1.cut_end(layout, state)
    last = form.sections[-1]
    if isinstance(last, Recurrent):
        n = 20 + sum(12 + TYPES[kind][1] * n_blocks for kind, n_blocks in last.rows)
        assert end[-n:] == state[-n:]


@pytest.mark.parametrize("name", ["plain", "streams", "no flash attention", "mixed types", "m-rope"])
@settings(max_examples=25)
@given(order=st.permutations(range(N)), cuts=st.sets(st.integers(1, N - 1)))
def test_cells_in_any_order(name, order, cuts):
    form = FORMS[name]
    layout, state = learn(form), memory(form, TOKENS)
    pieces = cut_at(layout, reordered(form, state, order), [0, *sorted(cuts), N])
    assert pieces == cut_at(layout, state, [0, *sorted(cuts), N])
    assert ses1.join(layout, pieces, seq=form.stream) == state
    assert ses1.join(layout, [reordered(form, state, order)], seq=form.stream) == state


@cell_forms
@pytest.mark.parametrize(("n_from", "from_slot"), [(1, 0), (7, 3), (4096, 4095)])
@pytest.mark.parametrize("n_to", [1, 3])
def test_pieces_of_another_number_of_slots_become_this_ones(name, n_from, from_slot, n_to):
    theirs = replace(FORMS[name], n_stream=n_from, stream=from_slot)
    ours = replace(FORMS[name], n_stream=n_to, stream=n_to - 1)
    there, here = learn(theirs), learn(ours)
    state = memory(theirs, TOKENS)
    pieces = cut_at(there, state, [0, 2, N])
    assert ses1.join(here, pieces, end_of(there, state), seq=n_to - 1) == memory(ours, TOKENS)
    assert cut_at(here, state, [0, 2, N]) == cut_at(here, memory(ours, TOKENS), [0, 2, N])


def test_images_share_a_position_and_leave_others_out():
    """As with M-RoPE: three cells at position 2, then text from position 5 on. A cut never goes through an image."""
    form = FORMS["m-rope"]
    layout, data = learn(form), bytearray(memory(form, TOKENS))
    for i, pos in enumerate((0, 1, 2, 2, 2, 5, 6, 7)):
        struct.pack_into("<i", data, 16 + 24 * i, pos)
    state = bytes(data)
    for cuts in ([0, 2, 3, 8], [0, 1, 4, 8], [0, 5, 8]):
        assert ses1.join(layout, cut_at(layout, state, cuts)) == state
    assert len(ses1.cut(layout, state, 2, 5)) == layout.piece_bytes(3)
    assert "no cells at these positions" in refusal(ses1.cut, layout, state, 3, 5)
    image = ses1.cut(layout, state, 2, 3)
    assert "begins at position 2, but the one before it ends at 2" in refusal(
        ses1.join, layout, [image, image]
    )


# --- lies ---------------------------------------------------------------------------------------------------------


@cell_forms
def test_positions(name):
    form = FORMS[name]
    layout, state = learn(form), memory(form, TOKENS)
    for p0, p1 in ((-1, 3), (3, 3), (4, 3), (-5, -3)):
        assert "there are no positions from" in refusal(ses1.cut, layout, state, p0, p1)
    assert "no cells at these positions" in refusal(ses1.cut, layout, state, N, N + 1)
    pieces = cut_at(layout, state, [0, 2, 4, N])
    assert "there are no pieces" in refusal(ses1.join, layout, [])
    assert "piece 1 begins at position 0" in refusal(ses1.join, layout, [pieces[1], pieces[0]])
    assert "piece 2 begins at position 2" in refusal(ses1.join, layout, [pieces[0], pieces[1], pieces[1]])
    if form.sections[0].ext != "position":
        assert f"of positions 3 to {N} it has only 3 to {N - 1}" in refusal(ses1.cut, layout, state, 3, N + 1)
        assert "piece 1 begins at position 4, but the one before it ends at 1" in refusal(
            ses1.join, layout, [pieces[0], pieces[2]]
        )
    if layout.has_end():
        end = ses1.cut_end(layout, state)
        assert f"the end: its end is of position {N - 1} instead of 3" in refusal(
            ses1.join, layout, pieces[:2], end
        )
        assert "the end: " in refusal(ses1.join, layout, pieces, state)
        assert "it has no end" in refusal(ses1.cut_end, layout, pieces[0])


@forms
def test_sequences(name):
    form = FORMS[name]
    layout, state = learn(form), memory(form, TOKENS)
    pieces = [state] if layout.has_cells() else []
    n_seqs = form.n_stream if form.n_stream > 1 else 4096
    for seq in (-1, n_seqs, 2**31 - 1):
        assert f"there is no sequence {seq}" in refusal(
            ses1.join, layout, pieces, end_of(layout, state), seq=seq
        )
    assert ses1.join(layout, pieces, end_of(layout, state), seq=n_seqs - 1)


def test_cells_that_cannot_be():
    form = FORMS["plain"]
    layout, state = learn(form), memory(form, TOKENS)

    def lie(at, code, value):
        data = bytearray(state)
        struct.pack_into("<" + code, data, at, value)
        return bytes(data)

    for pos in (-1, -(2**31), 2**31 - 1):
        assert f"cell 2 has position {pos}" in refusal(ses1.cut, layout, lie(16 + 24, "i", pos), 0, N)
    for n in (0, 2, 2**32 - 1):
        assert f"cell 1 belongs to {n} sequences" in refusal(ses1.cut, layout, lie(16 + 12 + 4, "I", n), 0, N)
    assert "position 0 is there twice" in refusal(ses1.cut, layout, lie(16 + 12, "i", 0), 0, N)
    assert "position 2 is missing" in refusal(ses1.cut, layout, lie(16 + 24, "i", 77), 0, N)
    assert "no state of llama.cpp" in refusal(ses1.cut, layout, lie(0, "I", 1), 0, N)
    assert "it has 4097 streams" in refusal(ses1.cut, layout, lie(8, "I", 4097), 0, N)
    for n in (1, N - 1, N + 1, 2**31, 2**32 - 1):
        assert refusal(ses1.cut, layout, lie(12, "I", n), 0, N)
    assert "1 bytes too many" in refusal(ses1.cut, layout, state + b"\0", 0, N)
    assert "piece 1: it ends within" in refusal(ses1.join, layout, [state, state[:-1]])
    # An empty state has no cells.
    assert "no cells at these positions" in refusal(ses1.cut, layout, memory(form, []), 0, N)


@forms
def test_any_byte_less_is_refused(name):
    form = FORMS[name]
    layout, state = learn(form), memory(form, TOKENS[:3])
    end = end_of(layout, state)
    for n in range(len(state)):
        if layout.has_cells():
            assert refusal(ses1.cut, layout, state[:n], 0, 3)
            assert refusal(ses1.join, layout, [state[:n]], end)
        if end is not None:
            assert refusal(ses1.cut_end, layout, state[:n])
    for n in range(len(end or b"")):
        assert refusal(ses1.join, layout, [state] if layout.has_cells() else [], end[:n])


# --- any bytes ----------------------------------------------------------------------------------------------------


@settings(max_examples=300)
@given(st.sampled_from(list(FORMS)), st.binary(max_size=400), st.integers(0, 400))
def test_any_bytes_are_answered(name, tail, n_kept):
    form = FORMS[name]
    layout, state = learn(form), memory(form, TOKENS)
    data = state[:n_kept] + tail
    assert is_answered(lambda: ses1.cut(layout, data, 1, 4))
    assert is_answered(lambda: ses1.cut_end(layout, data))
    assert is_answered(lambda: ses1.join(layout, [data], data))


def test_single_bytes_changed_at_random():
    """Each is refused, or the pieces still join to a state of the same size. Only with M-RoPE a cell may be missing."""
    chance = random.Random(3)
    for form in FORMS.values():
        layout, state = learn(form), memory(form, TOKENS)
        for _ in range(200):
            changed = bytearray(state)
            changed[chance.randrange(len(state))] ^= 1 << chance.randrange(8)
            data = bytes(changed)
            try:
                pieces = cut_at(layout, data, [0, 3, N]) if layout.has_cells() else []
                joined = ses1.join(layout, pieces, end_of(layout, data), seq=form.stream)
            except StateError:
                continue
            has_gaps = getattr(form.sections[0], "ext", "") == "position"
            assert len(joined) == len(state) or (has_gaps and len(joined) < len(state))
