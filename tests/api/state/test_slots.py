"""POST /slots/{id_slot} over a fake of the engine's part: gates, bodies, limits, busy slots, clients that leave."""

import base64
import json
import os
import socket
import struct
import threading
from array import array
from types import SimpleNamespace

import pytest
from support.fake_daemon import Faked
from support.states.fake_slot_states import ses1_of

from llamad.api.service.chat_template import turn_end
from llamad.api.state.slots import wants_octets
from llamad.chat.template import TemplateError
from llamad.client.slot_states import StateRefused
from llamad.engine.testing.fake import Fake

ACTIONS = ("save", "restore", "erase", "save-state", "restore-state", "tokens", "context-shift")
OCTETS = "application/octet-stream"
FILE = {"filename": "a.bin"}


def act(client, action, body=None, slot=0, **options):
    return client.post(f"/slots/{slot}?action={action}", body, **options)


def put_state(client, data, slot=0, kind=OCTETS):
    return act(client, "restore-state", data, slot, headers={"Content-Type": kind})


# What the head alone decides.


def test_actions_are_gated_one_by_one(started, folder):
    bare = started().client
    for action in ACTIONS:
        answer = act(bare, action)
        assert (answer.status, answer.error["type"]) == (501, "not_supported_error")
        wanted = "--slot-save-path" if action in ("save", "restore") else "--slots"
        assert wanted in answer.error["message"]
    assert bare.get("/v1/slots/0/info").status == 501
    slots = started("--slots").client
    assert [act(slots, action, FILE).status for action in ACTIONS] == [501, 501, 200, 200, 400, 200, 400]
    files = started("--slot-save-path", str(folder)).client
    assert [act(files, action, FILE).status for action in ACTIONS] == [200, 200, 200, 501, 501, 501, 501]


def test_an_unknown_action_names_those_there_are(faked):
    for query in ("", "?action=", "?action=fly", "?action=SAVE"):
        answer = faked.client.post(f"/slots/0{query}")
        assert answer.status == 400
        assert all(action in answer.error["message"] for action in ACTIONS)


@pytest.mark.parametrize("slot", ["2", "-1", "x", "1e0", "0x1", "%EF%BC%91", "99999999999999999999", "0%20"])
def test_a_slot_that_does_not_exist(faked, slot):
    for answer in (
        faked.client.post(f"/slots/{slot}?action=tokens"),
        faked.client.get(f"/v1/slots/{slot}/info"),
    ):
        assert answer.status == 400
        assert "0 to 1" in answer.error["message"]


def test_methods_and_a_server_that_loads(started):
    server = started("--slots", load=False)
    client = server.client
    assert client.get("/slots/0?action=tokens").headers["allow"] == "OPTIONS, POST"
    assert act(client, "tokens").status == 503
    head = (
        "POST /slots/0?action=restore-state HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9000000000\r\n\r\n"
    )
    with socket.create_connection((client.host, client.port)) as sock:
        sock.sendall(head.encode())
        assert b" 503 " in sock.recv(1000)  # before the nine gigabytes


# Files.


def test_save_restore_and_erase(faked, folder):
    faked.states.slots[0] = [1, 2, 3]
    saved = act(faked.client, "save", FILE).json
    data = (folder / "a.bin").read_bytes()
    assert saved.pop("timings").keys() == {"save_ms"}
    assert saved == {
        "id_slot": 0,
        "filename": "a.bin",
        "n_saved": 3,
        "n_written": len(data),
        "stall_ms": 1.5,
    }
    # llama.cpp's own format: no header of its sequence state between the tokens and the cells.
    assert struct.unpack_from("<III3i", data) == (0x67677371, 3, 3, 1, 2, 3)
    assert data[24:] == ses1_of([1, 2, 3])[8 + 12 + 8 :]
    erased = act(faked.client, "erase").json
    assert erased == {"id_slot": 0, "n_erased": 3}
    restored = act(faked.client, "restore", FILE, slot=1).json
    assert restored.pop("timings").keys() == {"restore_ms"}
    assert restored == {
        "id_slot": 1,
        "filename": "a.bin",
        "n_restored": 3,
        "n_read": len(data),
        "stall_ms": 2.5,
    }
    assert faked.states.slots == [[], [1, 2, 3]]


def test_a_file_of_either_kind_restores_a_slot(faked, folder):
    (folder / "b").write_bytes(ses1_of([7, 8]))
    assert act(faked.client, "restore", {"filename": "b"}).json["n_restored"] == 2
    assert faked.states.slots[0] == [7, 8]


@pytest.mark.parametrize("is_packed", [False, True])
def test_a_file_of_an_older_or_newer_llama_server_restores_a_slot(faked, folder, is_packed):
    """Older servers write a plain list of tokens, newer ones pack it."""
    state = ses1_of([7, 8])[8 + 8 + 8 :]
    words = (0xFFFFFFFF, 1, 2, 7, 8, 0) if is_packed else (7, 8)
    (folder / "c").write_bytes(struct.pack(f"<III{len(words)}I", 0x67677371, 3, len(words), *words) + state)
    assert act(faked.client, "restore", {"filename": "c"}).json["n_restored"] == 2
    assert faked.states.slots[0] == [7, 8]


def test_names_and_files_that_are_refused(faked, folder):
    faked.states.slots[0] = [1]
    for name in ("", "..", "../x", "/etc/passwd", "a/b", "a\0", 5, None, ["a"]):
        for action in ("save", "restore"):
            answer = act(faked.client, action, {"filename": name})
            assert answer.status == 400, name
            assert "name" in answer.error["message"]
    assert act(faked.client, "save", b"").status == 400
    assert act(faked.client, "save", b"[1]").status == 400
    assert os.listdir(folder) == []
    missing = act(faked.client, "restore", FILE)
    assert (missing.status, missing.error["type"]) == (404, "not_found_error")
    assert str(folder) not in missing.error["message"]
    (folder / "a.bin").symlink_to("/etc/hostname")
    assert [act(faked.client, action, FILE).status for action in ("save", "restore")] == [400, 400]
    for junk in (b"", b"x", b"SES1", b"qsgg\x03\0\0\0\xff\xff\xff\xff"):
        (folder / "junk").write_bytes(junk)
        assert act(faked.client, "restore", {"filename": "junk"}).status == 400
    with open(folder / "huge", "wb") as file:
        file.truncate(faked.states.bytes_max + 1000)
    assert str(faked.states.bytes_max) not in str(folder)
    assert "huge has" in act(faked.client, "restore", {"filename": "huge"}).error["message"]
    assert faked.states.slots[0] == [1]


# States to the client and back.


def test_a_state_as_json_and_as_octets(faked):
    tokens = list(range(5000))  # more than a megabyte
    faked.states.slots[0] = tokens
    data = ses1_of(tokens)
    answer = act(faked.client, "save-state").json
    state = answer.pop("state")
    assert base64.b64decode(state, validate=True) == data
    assert answer.pop("t_ms") >= 0
    assert answer == {"id_slot": 0, "n_tokens": 5000, "n_bytes": len(data), "stall_ms": 1.5}
    raw = act(faked.client, "save-state", headers={"Accept": OCTETS})
    assert (raw.body, raw.headers["content-type"]) == (data, OCTETS)
    assert raw.headers["x-stall-ms"] == "1.5"
    assert put_state(faked.client, data, slot=1).json["n_bytes_read"] == len(data)
    assert faked.states.slots[1] == tokens
    faked.states.slots[1] = []
    restored = act(faked.client, "restore-state", {"state": state}, slot=1).json
    assert restored.pop("t_ms") >= 0
    assert restored == {
        "id_slot": 1,
        "n_bytes_read": len(data),
        "success": True,
        "stall_ms": 2.5,
    }
    assert faked.states.slots[1] == tokens


@pytest.mark.parametrize(
    "kind", ["application/x-www-form-urlencoded", "text/plain", "Application/Octet-Stream; x=1"]
)
def test_a_blob_is_known_by_its_beginning(faked, kind):
    assert put_state(faked.client, ses1_of([1, 2]), kind=kind).status == 200
    assert faked.states.slots[0] == [1, 2]


def test_a_chunked_state(faked):
    data = ses1_of(list(range(3000)))
    head = f"POST /slots/0?action=restore-state HTTP/1.1\r\nHost: localhost\r\nContent-Type: {OCTETS}\r\n"
    pieces = [data[i : i + 50_000] for i in range(0, len(data), 50_000)]
    body = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
    with socket.create_connection((faked.client.host, faked.client.port)) as sock:
        sock.sendall(head.encode() + b"Transfer-Encoding: chunked\r\n\r\n" + body)
        assert sock.recv(100).startswith(b"HTTP/1.1 200")
    assert faked.states.slots[0] == list(range(3000))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"[]",
        b'{"state": 1}',
        b'{"state": "***"}',
        b'{"state": ""}',
        b'{"state": "U0VTMQ=="}',
        b"\xff",
    ],
)
def test_bodies_that_are_no_state(faked, body):
    faked.states.slots[0] = [4]
    for kind in ("application/json", OCTETS):
        answer = put_state(faked.client, body, kind=kind)
        assert (answer.status, answer.error["type"]) == (400, "invalid_request_error")
    assert faked.states.slots[0] == [4]


def test_a_body_larger_than_any_state_is_refused_at_once(faked):
    limit = faked.states.bytes_max
    for kind, size in ((OCTETS, limit), ("application/json", limit * 4 // 3 + 66_000)):
        head = f"POST /slots/0?action=restore-state HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\n"
        with socket.create_connection((faked.client.host, faked.client.port)) as sock:
            sock.sendall(f"{head}Content-Length: {size + 1}\r\n\r\n".encode())
            answer = sock.recv(1000)
            assert answer.startswith(b"HTTP/1.1 413")
    # Other actions have the usual limit.
    assert act(faked.client, "tokens", b"x" * 1000).status == 200


@pytest.mark.parametrize(
    ("accept", "octets"),
    [
        ("", False),
        ("*/*", False),
        ("application/json", False),
        ("application/octet-stream", True),
        ("APPLICATION/Octet-Stream;q=0.5", True),
        ("application/octet-stream, */*", True),
        ("application/json, application/octet-stream", False),
        ("application/json;q=0.5, application/octet-stream;q=0.9", True),
        ("application/json, application/octet-stream;q=0.9", False),
        ("application/octet-stream;q=0, */*", False),
        ("application/octet-stream;q=0", False),
        ("application/octet-stream;q=nan", False),
        ("application/*, application/json;q=0.1", True),
        ("text/html, ;;,=,q=", False),
    ],
)
def test_which_form_a_client_wants(accept, octets):
    assert wants_octets(accept) is octets


# Room for states on their way.


def half_a_body(client, length):
    sock = socket.create_connection((client.host, client.port))
    head = f"POST /slots/0?action=restore-state HTTP/1.1\r\nHost: localhost\r\nContent-Type: {OCTETS}\r\n"
    sock.sendall(f"{head}Content-Length: {length}\r\n\r\n".encode() + b"SES1")
    return sock


def test_bodies_at_once_have_so_much_room_and_no_more(faked):
    room = faked.served.room
    room.bytes_max = 2_000_000
    with half_a_body(faked.client, 1_500_000) as sock:
        faked.until(lambda: room.n_bytes == 1_500_000)
        answer = put_state(faked.client, ses1_of(list(range(3000))))
        assert (answer.status, answer.error["type"]) == (503, "unavailable_error")
        assert answer.headers["retry-after"] == "1"
        assert put_state(faked.client, ses1_of([1])).status == 200
        faked.states.slots[1] = list(range(3000))
        assert act(faked.client, "save-state", slot=1).status == 503
        sock.close()
    faked.quiet()
    assert put_state(faked.client, ses1_of(list(range(3000)))).status == 200
    faked.quiet()
    assert room.n_refused == 2


# Slots that work, clients that leave, engines that refuse.


def test_a_busy_slot_is_waited_for_or_409(faked):
    states = faked.states
    states.slots[0] = [1, 2]
    states.busy.add(0)
    for action, body in (
        ("save", FILE),
        ("erase", {}),
        ("save-state", {}),
        ("tokens", {}),
        ("context-shift", {"n_keep": 0, "n_discard": 1}),
    ):
        answer = faked.client.post(f"/slots/0?action={action}&nowait=1", body)
        assert (answer.status, answer.error["type"]) == (409, "invalid_request_error"), action
    assert act(faked.client, "tokens", slot=1).status == 200
    assert faked.client.get("/v1/slots/0/info").json["n_tokens"] == 2  # looks, and does not wait
    answers = []
    waiting = threading.Thread(target=lambda: answers.append(act(faked.client, "tokens")))
    waiting.start()
    faked.until(lambda: states.n_waiting == 1)
    states.busy.clear()
    waiting.join(30)
    assert answers[0].json["tokens"] == [1, 2]


def test_a_client_that_goes_withdraws_its_action(faked):
    faked.states.busy.add(0)
    data = ses1_of([1])
    sock = half_a_body(faked.client, len(data))
    sock.sendall(data[4:])
    faked.until(lambda: faked.states.n_waiting == 1)
    sock.close()
    faked.until(lambda: faked.states.n_waiting == 0)
    faked.quiet()
    assert faked.states.slots[0] == []


def test_a_deadline_and_a_full_queue(started):
    server = started("--slots", "--request-timeout", "0.05", "--queue-max", "1")
    server.states.busy.add(0)
    assert act(server.client, "tokens").status == 408
    for client in (1, 2, 3):
        server.served.state_actions.add(client)
    refused = act(server.client, "tokens", slot=1)
    for client in (1, 2, 3):
        server.served.state_actions.remove(client)
    assert (refused.status, refused.error["type"]) == (429, "rate_limit_error")


@pytest.mark.parametrize("status", [400, 501, 503, 507])
def test_what_the_engine_refuses_is_the_answer(faked, status):
    faked.states.fail = StateRefused(status, "for a reason")
    answer = act(faked.client, "save-state")
    assert (answer.status, answer.error["message"]) == (status, "for a reason")


def test_no_memory_is_507(faked):
    faked.states.fail = MemoryError()
    assert act(faked.client, "save-state").status == 507


def test_a_model_whose_states_cannot_be_saved(faked):
    faked.states.layout = None
    faked.states.slots[0] = [1, 2]
    for action in ("save", "restore", "save-state", "restore-state"):
        answer = act(faked.client, action, FILE)
        expected = f"The slots of this model cannot be saved: {faked.states.refusal}"
        assert (answer.status, answer.error["message"]) == (501, expected), action
    assert act(faked.client, "tokens").json["tokens"] == [1, 2]


# Tokens, shift, info.


def test_tokens(faked):
    faked.states.slots[1] = [5, 6, 7]
    assert act(faked.client, "tokens", slot=1).json == {
        "id_slot": 1,
        "n_tokens": 3,
        "tokens": [5, 6, 7],
        "n_prompt_tokens_processed": 3,
    }


def test_context_shift(faked):
    faked.states.slots[0] = list(range(10))
    shifted = act(faked.client, "context-shift", {"n_keep": 2, "n_discard": 3})
    assert shifted.json == {"success": True, "new_n_tokens": 7}
    assert faked.states.slots[0] == [0, 1, 5, 6, 7, 8, 9]
    for body, field in (
        ({"n_keep": -1, "n_discard": 1}, "n_keep"),
        ({"n_keep": 0, "n_discard": 0}, "n_discard"),
        ({"n_keep": 0}, "n_discard"),
        ({"n_discard": 1}, "n_keep"),
        ({"n_keep": "1", "n_discard": 1}, "n_keep"),
        ({"n_keep": 5, "n_discard": 3}, "n_keep"),
        ({"n_keep": 2**40, "n_discard": 3}, "n_keep"),
    ):
        answer = act(faked.client, "context-shift", body)
        assert answer.status == 400, body
        assert field in answer.error["message"]
    assert len(faked.states.slots[0]) == 7


def info(server, slot=0):
    return server.client.get(f"/v1/slots/{slot}/info").json


def test_info_finds_messages_by_their_end(faked):
    # The fake model has no end of turn; token 1 ends a sequence.
    assert info(faked) == {"n_tokens": 0, "boundary_eot": 1, "n_messages": 0, "messages": []}
    faked.states.slots[0] = [9, 9, 1, 9, 1, 1, 9, 9]
    assert info(faked) == {
        "n_tokens": 8,
        "boundary_eot": 1,
        "n_messages": 4,
        "messages": [
            {"index": 0, "start": 0, "end": 2},
            {"index": 1, "start": 3, "end": 4},
            {"index": 2, "start": 5, "end": 5},
            {"index": 3, "start": 6, "end": 7},
        ],
    }
    faked.states.slots[0] = [9, 9, 1]
    assert info(faked)["messages"] == [{"index": 0, "start": 0, "end": 2}]


def test_metrics_tell_of_states(faked):
    text = faked.client.get("/metrics").body.decode()
    for name in ("sessions", "session_bytes", "session_saves_total", "state_bytes", "state_actions"):
        assert f"\nllamad:{name} 0\n" in text, json.dumps(text)


def test_what_ends_a_turn():
    """By the template, then as llama.cpp names it."""

    def found(prompt, *, eot=-1, eos=-1, eog=()):
        vocab = SimpleNamespace(
            tokenize=lambda text, *_: array("i", list(text)).tobytes(), is_eog=lambda token: token in eog
        )
        model = SimpleNamespace(info=SimpleNamespace(eot=eot, eos=eos), vocab=vocab)

        def render(messages, **_):
            if prompt is None:
                raise TemplateError("no")
            return prompt

        return turn_end(SimpleNamespace(prompt=render), model)

    both = {"eot": 1, "eos": 2, "eog": (1, 2, 3)}
    assert found("x\1y\2z", **both) == 1
    assert found("x\2y\3z", **both) == 2
    assert found("x\3y", **both) == 3
    assert found("x", **both) == found(None, **both) == 1
    assert found("x", eos=2) == 2
    assert found("x") == -1


def test_a_long_prompt_of_ends_of_turns_is_looked_through():
    """Each token ends a message. So many are counted in a worker."""
    n = 40_000
    with Faked(Fake(n_ctx=n + 64, n_batch=2048), "--slots", n_ctx=n + 64, n_batch=2048) as server:
        end = server.served.turn_end
        token = end if end >= 0 else 97
        assert server.client.complete([token] * n, n_predict=1)["tokens_evaluated"] == n
        info = server.client.get("/v1/slots/0/info").json
        assert info["n_tokens"] >= n
        assert info["n_messages"] == (n if end >= 0 else 1) + (info["n_tokens"] > n and end >= 0)
        assert info["messages"][-1]["end"] == info["n_tokens"] - 1
