"""The express lane's threads alone, over socket pairs: what they answer is what the endpoints answer, and what they do
not know comes back byte for byte."""

import json
import os
import socket
import threading
import time

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from support.harness import Harness
from support.hosted import Hosted
from support.lanes import Alone
from support.live import model_path
from support.tiny import write_tiny

from llamad.api import tokens
from llamad.api.errors import ApiError
from llamad.api.fields import flag, json_object
from llamad.engine import ids
from llamad.engine.fake import Fake
from llamad.express.lane import DETOKENIZE, HEALTH, TOKENIZE, Lane

EXAMPLES = settings(
    max_examples=250, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
FLAGS = ("add_special", "parse_special", "with_pieces")


@pytest.fixture(scope="module")
def hosted(tmp_path_factory):
    path = write_tiny(tmp_path_factory.mktemp("tiny") / "tiny.gguf", model_path())
    with Hosted(path, "-c", "512", "-np", "2") as h:
        yield h


def open_lane(hosted, **options):
    given = {"n_slots": 2, "n_threads": 2, "spin_us": 0, "idle_seconds": 30.0, "body_max": 1 << 20}
    return Lane(
        hosted.host.model.vocab,
        hosted.engine.core,
        **{**given, "logging": False, "bounds": (0.5, 1.0), **options},
    )


@pytest.fixture(scope="module")
def alone(hosted):
    lane = open_lane(hosted)
    yield Alone(lane)
    lane.stop()


def loop_answer(model, kind: int, body: bytes) -> bytes | None:
    """The 200 of the endpoints' own code, or None for their error."""
    try:
        value = json_object(body)
        if kind == TOKENIZE:
            content = value.get("content")
            if content is not None and not isinstance(content, str):
                return None
            flags = [flag(value, name, name == "parse_special") for name in FLAGS]
            return tokens._tokens_json(model, content or "", *flags)
        packed = ids.pack(value["tokens"], model.vocab.n_vocab)
        return None if packed is None else tokens._text_json(model, packed)
    except (ApiError, KeyError, TypeError):
        return None


def same(alone, hosted, kind: int, body: bytes) -> bool:
    """Whether the lane answered; then it answered what the event loop would have."""
    kept = alone.lend(kind)
    answer = alone.outcome(kept, body)
    kept.close()
    if answer is None:
        return False
    assert answer == loop_answer(hosted.host.model, kind, body)
    alone.wait_back()  # its end
    return True


STYLES = st.tuples(st.booleans(), st.sampled_from([None, (",", ":"), (" ,\n", "\t: \r")]))


@EXAMPLES
@given(
    text=st.text(st.characters(exclude_categories=["Cs"]), max_size=60),
    flags=st.dictionaries(st.sampled_from(FLAGS[:2]), st.booleans()),
    style=STYLES,
)
@example(text='\x00\x1f"\\/\x7f\u2028😀<|im_end|>', flags={"add_special": True}, style=(True, None))
def test_any_text_is_tokenized_as_by_the_loop(alone, hosted, text, flags, style):
    body = json.dumps({"content": text, **flags}, ensure_ascii=style[0], separators=style[1]).encode()
    assert same(alone, hosted, TOKENIZE, body)


@EXAMPLES
@given(found=st.lists(st.integers(0, 49151) | st.integers(0, 400), min_size=1, max_size=30), style=STYLES)
def test_any_tokens_give_the_loops_text(alone, hosted, found, style):
    """Single tokens of this vocabulary are often parts of characters, so much of this is no UTF-8."""
    body = json.dumps({"tokens": found}, separators=style[1]).encode()
    assert same(alone, hosted, DETOKENIZE, body)


SCRAPS = [
    *(
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        '"',
        "\\",
        "\\u",
        "\\ud83d",
        "\\ude00",
        "\\n",
        " ",
        "\n",
        "true",
        "false",
    ),
    *("null", "0", "1", "-1", "00", "1.0", "1e2", "49152", "99999999999999999999", '"content"', '"tokens"'),
    *(
        '"add_special"',
        '"with_pieces"',
        '"content":"a"',
        '{"content":"',
        '"}',
        '{"tokens":[',
        "]}",
        "é",
        "\ufeff",
    ),
]
BROKEN = [b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xc0\xaf", b"\x00", b"\x1f", b"\x7f"]


@EXAMPLES
@given(parts=st.lists(st.sampled_from([s.encode() for s in SCRAPS] + BROKEN), min_size=1, max_size=9))
@example(parts=[b'{"content":"a","content":"b"}'])
@example(parts=[b'{"content":"\\ud83d"}'])
@example(parts=[b'{"content":"a","with_pieces":true}'])
@example(parts=[b'{"content":null}'])
@example(parts=[b'{"tokens":[1,]}'])
@example(parts=[b'{"tokens":[01]}'])
@example(parts=[b'{"tokens":[49152]}'])
@example(parts=[b'{"tokens":[4294967296]}'])
def test_scraps_are_answered_alike_or_come_back(alone, hosted, parts):
    for kind in (TOKENIZE, DETOKENIZE):
        same(alone, hosted, kind, b"".join(parts))


def test_a_request_in_single_bytes_is_one_request(alone):
    kept = alone.lend(TOKENIZE)
    for byte in alone.request(b'{"content":"Hello"}'):
        kept.socket.sendall(bytes([byte]))
    assert kept.answer()[1] == b'{"tokens":[19556]}'
    kept.close()
    assert alone.wait_back()[0][0] == -1


@pytest.mark.parametrize(
    "sent",
    [
        b"GET /health HTTP/1.1\r\n",
        Alone.FRONT + b"0" + Alone.BACK,
        Alone.FRONT + b"007",
        Alone.FRONT + b"99999",
        Alone.FRONT + b"1234567",
        Alone.FRONT + b"+5",
        Alone.FRONT + b"5 \r\n",
        Alone.FRONT + b"2\r\nHost: other",
        Alone.FRONT + b"2" + Alone.BACK + b"{}POST",
        (Alone.FRONT + b"15" + Alone.BACK + b'{"content":"a"}') * 2,
    ],
)
def test_other_bytes_come_back_as_they_were(alone, sent):
    kept = alone.lend(TOKENIZE, tag=7)
    kept.socket.sendall(sent)
    [(fd, tag, data, unsent, t_used)] = alone.wait_back()
    assert (tag, data, unsent) == (7, sent, b"")
    assert 0 <= time.monotonic() - t_used < 60
    os.close(fd)
    assert kept.is_closed()


def test_a_client_that_ends_in_the_middle_is_the_loops(alone):
    kept = alone.lend(TOKENIZE)
    kept.socket.sendall(alone.request(b'{"content":"a"}')[:-3])
    kept.socket.shutdown(socket.SHUT_WR)
    [(fd, _, data, _, _)] = alone.wait_back()
    assert data == alone.request(b'{"content":"a"}')[:-3]
    os.close(fd)


def test_an_answer_that_does_not_fit_comes_back_with_its_rest(alone, hosted):
    kept = alone.lend(DETOKENIZE, send_buffer=4096)
    body = json.dumps({"tokens": [1] * 5000}, separators=(",", ":")).encode()
    kept.socket.sendall(alone.request(body))
    [(fd, _, data, unsent, _)] = alone.wait_back()
    assert data == b""
    assert unsent
    with socket.socket(fileno=fd) as rest:
        rest.setblocking(True)
        writer = threading.Thread(target=rest.sendall, args=(unsent,))
        writer.start()
        assert kept.answer()[1] == loop_answer(hosted.host.model, DETOKENIZE, body)
        writer.join()


def test_who_rests_comes_back(hosted):
    alone = Alone(open_lane(hosted, idle_seconds=0.05))
    kept = alone.lend(HEALTH, tag=5, body=False)
    [(fd, tag, data, unsent, _)] = alone.wait_back()
    assert (tag, data, unsent) == (5, b"", b"")
    assert not kept.has_bytes()
    os.close(fd)
    alone.lane.stop()


def test_recalled_connections_serve_no_further_request(hosted):
    alone = Alone(open_lane(hosted))
    kept = [alone.lend(TOKENIZE, tag=i) for i in range(20)]
    for one in kept:
        one.socket.sendall(alone.request(b'{"content":"a"}'))
        one.answer()
    alone.lane.recall()
    back = []
    while len(back) < len(kept):
        back += alone.wait_back()
    assert sorted(tag for _, tag, _, _, _ in back) == list(range(20))
    assert not alone.lane.lend(back[0][0], 0, TOKENIZE, 0, b"x", b"", b"", b"", b"", b"", b"")
    for fd, *_ in back:
        os.close(fd)
    alone.lane.stop()


def test_counts_and_lines_tell_every_answer(hosted):
    alone = Alone(open_lane(hosted, logging=True))
    kept = [alone.lend(HEALTH, route=i % 2, body=False) for i in range(4)]
    for _ in range(50):
        for one in kept:
            one.socket.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert one.answer()[1] == b'{"status":"ok","slots_idle":2,"slots_processing":0}'
    routes, buckets, seconds = alone.lane.take_counts()
    assert routes[:3] == [100, 100, 0]
    assert sum(buckets) == 200
    assert seconds > 0
    assert alone.lane.take_counts() == ([0] * 8, [0] * 3, 0.0)
    lines = alone.lane.take_log()
    assert len(lines) == len({line.split()[1] for line in lines}) == 200
    assert all(line.startswith("unix ") and '"POST /" 200 51 ' in line for line in lines)
    alone.lane.stop()


def test_a_full_log_sends_connections_back(hosted):
    """512 KiB of lines a thread; nobody takes them here."""
    alone = Alone(open_lane(hosted, logging=True, n_threads=1))
    kept = alone.lend(HEALTH, body=False)
    n, back = 0, []
    while not back:
        kept.socket.sendall(b"GET / HTTP/1.1\r\n\r\n")
        while not (back or kept.has_bytes()):
            back = alone.lane.take_back()
        if not back:
            kept.answer()
            n += 1
    assert back[0][2] == b"GET / HTTP/1.1\r\n\r\n"
    assert len(alone.lane.take_log()) == n > 5000
    os.close(back[0][0])
    alone.lane.stop()


def test_the_sampler_leaves_cores_to_a_lane_that_is_busy(hosted):
    """Its threads wait for logits with their cores kept, and an answer would wait for one."""
    with Harness(Fake(device_us=300), has_device=True, n_sampler_threads=6) as h:
        lane = Lane(
            hosted.host.model.vocab,
            h.core,
            n_slots=h.n_slots,
            n_threads=2,
            spin_us=0,
            idle_seconds=30.0,
            body_max=1 << 20,
            logging=False,
            bounds=(0.5, 1.0),
        )
        try:
            alone = Alone(lane)
            kept = alone.lend(TOKENIZE)

            def sampling(n_answers: int) -> int:
                for _ in range(n_answers):
                    assert alone.outcome(kept, b'{"content": "a"}')
                h.wait(*[h.submit(b"%d" % i, n_predict=8) for i in range(2)])
                return h.core.n_sampling

            assert sampling(1) == 6
            t_end = time.monotonic() + 20
            while sampling(50) != 2:
                assert time.monotonic() < t_end
            time.sleep(0.05)
            assert sampling(0) == 6
        finally:
            lane.stop()
