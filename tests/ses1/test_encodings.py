"""The other clothes of a saved state, compiled: llama.cpp's slot files, and base64 in JSON. Any bytes are answered."""

import base64
import json
import struct
from functools import partial

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.states.ses1_layouts import (
    FILE_MAGIC,
    FORMS,
    N_CTX,
    N_VOCAB,
    as_blob,
    is_answered,
    learn,
    memory,
    state,
)

from llamad.ses1 import ses1
from llamad.ses1.ses1 import StateError

TOKENS = [5, 17, 999, 0, 17, 3, 44, 45]


# --- llama.cpp's files --------------------------------------------------------------------------------------------


def file_of(form, tokens, words=None):
    """Plain, as llama.cpp writes it, or with llama-server's packed list of tokens."""
    words = tokens if words is None else words
    head = struct.pack(f"<III{len(words)}i", FILE_MAGIC, 3, len(words), *words)
    return head + memory(form, tokens)[8:]


def from_file(data, n_ctx=N_CTX):
    """The state in a file, read as the server reads it."""
    front = data[: ses1.file_front(data[:12], len(data), n_ctx)]
    blob, at = ses1.from_front(front, len(data))
    memoryview(blob)[at:] = data[len(front) :]
    return blob


def packed(tokens, n_media=0, version=1, more=()):
    return [-1, version, len(tokens), *tokens, n_media, *more]


@pytest.mark.parametrize("tokens", [TOKENS, []])
@pytest.mark.parametrize("pack", [False, True])
def test_files_of_llama_cpp(tokens, pack):
    form = FORMS["plain"]
    blob = from_file(file_of(form, tokens, packed(tokens) if pack else None))
    assert bytes(blob) == bytes(state(form, tokens).data)
    assert ses1.check(learn(form), blob, N_VOCAB, N_CTX)[0] == len(tokens)
    assert ses1.n_tokens(blob) == len(tokens)
    plain = ses1.file_head(blob) + bytes(memoryview(blob)[ses1.kv_offset(blob) :])
    assert plain == file_of(form, tokens)


def test_files_that_are_wrong():
    form = FORMS["plain"]

    def reason(data):
        with pytest.raises(StateError) as caught:
            from_file(data)
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
    data = bytes(state(FORMS["plain"], TOKENS).data)
    assert bytes(from_file(data)) == data
    assert bytes(from_file(b"SES1")) == b"SES1"  # whether it is one is for the check to say


def test_a_list_of_tokens_longer_than_any_slot_is_not_read():
    data = file_of(FORMS["plain"], TOKENS, packed(TOKENS))
    assert len(from_file(data, n_ctx=len(TOKENS)))
    with pytest.raises(StateError, match="has 12 words, but a slot's context holds 7 tokens"):
        from_file(data, n_ctx=len(TOKENS) - 1)
    with pytest.raises(ValueError, match="shorter than its front"):
        ses1.from_front(data[:40], 39)


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
    assert is_answered(lambda: from_file(head + tail))


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
    with pytest.raises(StateError, match=r"goes wrong at byte|is missing"):
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
    with pytest.raises(StateError, match=r"not base64|goes wrong"):
        ses1.decode_json(b'{"state":"' + text.encode() + b'"}', MAX)


@settings(max_examples=500)
@given(st.binary(max_size=60), st.sampled_from([b"", b"{", b'{"state":"', b'{"a":[', b'{"state":"A\\']))
@example(b"\0" * 40, b'{"state":"')
@example(b'\\"' * 20, b'{"state":"')
def test_any_body_is_answered(tail, head):
    for body in (head + tail, head + tail + b'"}'):
        assert is_answered(partial(ses1.decode_json, body, MAX))


def test_a_large_nesting_is_no_trouble():
    body = b'{"a":' + b"[" * 300_000 + b"]" * 300_000 + b',"state":"AAAA"}'
    assert bytes(ses1.decode_json(body, MAX)) == b"\0\0\0"
