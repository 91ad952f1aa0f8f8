"""The compiled checker of saved states: what llama.cpp would write passes, each single lie is refused with its reason,
and no bytes at all make it hang or read beyond them."""

import base64
import json
import random
import struct
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.states import (
    FILE_MAGIC,
    FORMS,
    N_CTX,
    N_HALVES,
    N_VOCAB,
    TYPES,
    Form,
    Kv,
    as_blob,
    learn,
    memory,
    state,
)

from llamad.engine import ses1
from llamad.engine.ses1 import Layout, StateError

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
    try:
        ses1.check(learn(form), as_blob(data), N_VOCAB, N_CTX)
    except StateError as error:
        assert str(error)


# --- llama.cpp's files --------------------------------------------------------------------------------------------


def file_of(form, tokens, words=None):
    """Plain, as llama.cpp writes it, or with llama-server's packed list of tokens."""
    words = tokens if words is None else words
    head = struct.pack(f"<III{len(words)}i", FILE_MAGIC, 3, len(words), *words)
    return head + memory(form, tokens)[8:]


def packed(tokens, n_media=0, version=1, more=()):
    return [-1, version, len(tokens), *tokens, n_media, *more]


@pytest.mark.parametrize("tokens", [TOKENS, []])
@pytest.mark.parametrize("pack", [False, True])
def test_files_of_llama_cpp(tokens, pack):
    form = FORMS["plain"]
    blob = ses1.from_file(as_blob(file_of(form, tokens, packed(tokens) if pack else None)))
    assert bytes(blob) == bytes(state(form, tokens).data)
    assert ses1.check(learn(form), blob, N_VOCAB, N_CTX)[0] == len(tokens)
    assert ses1.n_tokens(blob) == len(tokens)
    plain = ses1.file_head(blob) + bytes(memoryview(blob)[ses1.kv_offset(blob) :])
    assert plain == file_of(form, tokens)


def test_files_that_are_wrong():
    form = FORMS["plain"]

    def reason(data):
        with pytest.raises(StateError) as caught:
            ses1.from_file(as_blob(data))
        return str(caught.value)

    plain = file_of(form, TOKENS)
    assert "neither SES1 nor llama.cpp's" in reason(b"")
    assert "neither SES1 nor llama.cpp's" in reason(plain[:11])
    assert "neither SES1 nor llama.cpp's" in reason(b"gguf" + plain[4:])
    assert "version 2" in reason(plain[:4] + struct.pack("<I", 2) + plain[8:])
    assert "ends within its 4294967295 tokens" in reason(plain[:8] + b"\xff" * 4 + plain[12:])
    assert "ends within its 8 tokens" in reason(plain[: 12 + 31])
    assert "images or sounds" in reason(file_of(form, TOKENS, packed(TOKENS, n_media=1, more=[3, 4])))
    assert "unknown version" in reason(file_of(form, TOKENS, packed(TOKENS, version=2)))
    assert "unknown version" in reason(file_of(form, TOKENS, [-1, 1, 0]))
    assert "longer than their count" in reason(file_of(form, TOKENS, packed(TOKENS, more=[0])))
    for n in (len(TOKENS) + 1, 2**31 - 1, -1):
        words = packed(TOKENS)
        words[2] = n
        assert "cut off" in reason(file_of(form, TOKENS, words))


def test_a_file_may_hold_ses1_as_well():
    blob = as_blob(bytes(state(FORMS["plain"], TOKENS).data))
    assert ses1.from_file(blob) is blob


def test_the_head_of_what_was_not_checked():
    for data in (b"", b"SES1\1\0\0", b"SES1\2\0\0\0\1\1\1\1", b"SES1\xff\xff\xff\xff"):
        with pytest.raises(StateError):
            ses1.n_tokens(as_blob(data))
        with pytest.raises(StateError):
            ses1.file_head(as_blob(data))


@settings(max_examples=300)
@given(st.binary(max_size=100), st.booleans())
def test_any_file_is_answered(tail, is_head):
    head = struct.pack("<II", FILE_MAGIC, 3) if is_head else b""
    try:
        ses1.from_file(as_blob(head + tail))
    except StateError as error:
        assert str(error)


# --- base64 and JSON ----------------------------------------------------------------------------------------------

MAX = 1 << 20


@given(st.binary(max_size=200))
def test_json_there_and_back(data):
    text = bytes(ses1.encode_json(as_blob(data), b'{"n_tokens":3,"state":"', b'"}'))
    assert json.loads(text)["state"] == base64.b64encode(data).decode()
    assert bytes(ses1.decode_json(text, MAX)) == data


@given(st.binary(max_size=100), st.booleans(), st.booleans(), st.booleans())
def test_any_way_to_write_base64(data, is_url, is_padded, is_escaped):
    text = (base64.urlsafe_b64encode if is_url else base64.b64encode)(data)
    if not is_padded:
        text = text.rstrip(b"=")
    if is_escaped:
        text = text.replace(b"/", b"\\/")
    assert bytes(ses1.decode_json(b'{"state": "' + text + b'"}', MAX)) == data


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.binary(max_size=30),
    st.dictionaries(st.text(max_size=6), json_values, max_size=3),
    st.dictionaries(st.text(max_size=6), json_values, max_size=3),
    st.sampled_from([None, 1, "\t"]),
    st.booleans(),
)
def test_other_members_are_passed_over(data, before, after, indent, ascii_only):
    members = before | {"state": "x"} | after | {"state": base64.b64encode(data).decode()}
    text = json.dumps(members, indent=indent, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    assert bytes(ses1.decode_json(text, MAX)) == data


def test_a_name_within_a_value_is_not_found():
    state_text = base64.b64encode(b"right").decode()
    text = '{"a": {"state": "d3Jvbmc="}, "b": "\\"state\\": \\"d3Jvbmc=\\"", "state": "%s", "c": [[{}], "]"]}'
    assert bytes(ses1.decode_json((text % state_text).encode(), MAX)) == b"right"


def test_the_last_of_two_counts():
    assert bytes(ses1.decode_json(b'{"state":"AAAA","state":"/+8="}', MAX)) == b"\xff\xef"


@pytest.mark.parametrize(
    "body", ["", " ", "null", "[]", '"state"', "{", '{"state"', '{"state":', '{"state":"']
)
@pytest.mark.parametrize("tail", ["", "\\", "\0", "}"])
def test_broken_json(body, tail):
    with pytest.raises(StateError, match="goes wrong at byte|is missing"):
        ses1.decode_json((body + tail).encode(), MAX)


@pytest.mark.parametrize(
    "body",
    [
        '{"state":null}',
        '{"state":1}',
        '{"state":["AAAA"]}',
        '{"state":"AAAA"',
        '{"state":"AAAA"}}',
        '{"state":"AAAA"} x',
        '{"state":"AAAA",}',
        '{"state" "AAAA"}',
        '{state:"AAAA"}',
        '{"state":"AA\nAA"}',
        '{"a":]}',
        '{"a":,"state":""}',
        '{"a":[1,"state":"AAAA"}',
    ],
)
def test_what_is_no_object_with_a_state(body):
    with pytest.raises(StateError, match="goes wrong at byte"):
        ses1.decode_json(body.encode(), MAX)


def test_a_missing_state_and_one_too_large():
    with pytest.raises(StateError, match='"state" is missing'):
        ses1.decode_json(b'{"stat":"AAAA"}', MAX)
    with pytest.raises(StateError, match="it has 6 bytes, but the largest state of a slot has 5"):
        ses1.decode_json(b'{"state":"AAAAAAAA"}', 5)


@pytest.mark.parametrize(
    "text",
    [
        "A",
        "AAAAA",
        "AA=",
        "AAA==",
        "=",
        "==",
        "====",
        "AA===",
        "AA=A",
        "A=AA",
        "AA A",
        "AA\\nAA",
        "\\",
        "é",
        "AAA\\\\",
    ],
)
def test_what_is_not_base64(text):
    with pytest.raises(StateError, match="not base64|goes wrong"):
        ses1.decode_json(b'{"state":"' + text.encode() + b'"}', MAX)


@settings(max_examples=500)
@given(st.binary(max_size=60), st.sampled_from([b"", b"{", b'{"state":"', b'{"a":[', b'{"state":"A\\']))
@example(b"\0" * 40, b'{"state":"')
@example(b'\\"' * 20, b'{"state":"')
def test_any_body_is_answered(tail, head):
    for body in (head + tail, head + tail + b'"}'):
        try:
            ses1.decode_json(body, MAX)
        except StateError as error:
            assert str(error)


def test_a_large_nesting_is_no_trouble():
    body = b'{"a":' + b"[" * 300_000 + b"]" * 300_000 + b',"state":"AAAA"}'
    assert bytes(ses1.decode_json(body, MAX)) == b"\0\0\0"


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
