"""States of the real model: what follows a restore is what follows without it, and no wrong blob changes anything."""

import struct
import threading

import pytest
from support.live_daemon import Live

PROMPT = "Once upon a time there was a small village by the sea, and in it lived"
MORE = " an old fisherman. Every morning he"
OCTETS = {"Content-Type": "application/octet-stream"}


def act(client, action, body=None, slot=0, headers=None):
    return client.post(f"/slots/{slot}?action={action}", body, headers=headers)


def tokens(client, slot=0):
    return act(client, "tokens", slot=slot).json["tokens"]


def get_state(client, slot=0):
    answer = act(client, "save-state", slot=slot, headers={"Accept": "application/octet-stream"})
    assert answer.status == 200, answer.body
    return answer.body


def put_state(client, data, slot=0):
    return act(client, "restore-state", data, slot, headers=OCTETS)


def begin(client, slot=0):
    """The slot holds the prompt and nothing else."""
    act(client, "erase", slot=slot)
    client.complete(PROMPT, n_predict=1, id_slot=slot, temperature=0)
    return tokens(client, slot)


def go_on(client, slot=0):
    answer = client.complete(PROMPT + MORE, n_predict=12, id_slot=slot, temperature=0, n_probs=3)
    return answer["timings"]["cache_n"], answer["content"], answer["completion_probabilities"]


@pytest.fixture
def detour(smol):
    """The state of a slot, and what followed it without a detour."""
    held = begin(smol)
    state = get_state(smol)
    return held, state, go_on(smol)


def test_what_follows_a_restore_is_what_follows_without(smol, detour):
    held, state, expected = detour
    assert expected[0] >= len(held) - 2
    for slot in (0, 1):
        act(smol, "erase", slot=slot)
        assert put_state(smol, state, slot).json["n_bytes_read"] == len(state)
        assert tokens(smol, slot) == held
        assert go_on(smol, slot) == expected  # bit for bit: the batches have the same shapes


def test_files_and_sessions_carry_the_same_state(smol, detour, live_folder):
    held, state, expected = detour
    put_state(smol, state)
    saved = act(smol, "save", {"filename": "village"}).json
    data = (live_folder / "village").read_bytes()
    assert (saved["n_saved"], saved["n_written"]) == (len(held), len(data))
    assert struct.unpack_from(f"<3I{len(held)}i", data) == (0x67677371, 3, len(held), *held)
    smol.post("/sessions/3?action=save&slot=0")
    for restore in (
        lambda: act(smol, "restore", {"filename": "village"}, slot=1),
        lambda: smol.post("/sessions/3?action=restore&slot=1"),
        lambda: smol.post("/sessions/3?action=restore&slot=1", {"file": "village"}),
    ):
        act(smol, "erase", slot=1)
        assert restore().status == 200
        assert go_on(smol, 1) == expected
    assert smol.post("/sessions/3?action=remove").status == 200


def test_another_process_with_other_slots_goes_on(smol, detour, live_folder):
    held, state, expected = detour
    put_state(smol, state)
    smol.post("/sessions/4?action=save&slot=0")
    assert smol.post("/sessions/4?action=remove", {"file": "archive"}).status == 200
    with Live(
        "-np", "1", "-c", "1024", "--kv-unified", "--slots", "--slot-save-path", str(live_folder)
    ) as other:
        restored = other.client.post("/sessions/4?action=restore&slot=0", {"file": "archive"})
        assert restored.json["n_bytes_read"] == len(state)
        assert tokens(other.client) == held
        n_cached, content, _ = go_on(other.client)
        assert (n_cached, content) == expected[:2]
        # And a blob of its unified cache back.
        act(other.client, "erase")
        begin(other.client)
        back = get_state(other.client)
    assert put_state(smol, back, slot=1).status == 200
    assert go_on(smol, 1)[:2] == expected[:2]


ALICE = [{"role": "user", "content": "My name is Alice."}]
MORE_OF_ALICE = [
    *ALICE,
    {"role": "assistant", "content": "Hello Alice!"},
    {"role": "user", "content": "What is my name?"},
]


def chat(client, messages):
    body = {"messages": messages, "id_slot": 0, "max_tokens": 12, "temperature": 0}
    answer = client.post("/v1/chat/completions", body).json
    return answer["timings"]["cache_n"], answer["choices"][0]["message"]["content"]


def test_a_conversation_goes_on_after_others_and_after_a_restart(smol, live_folder):
    act(smol, "erase")
    chat(smol, ALICE)
    assert smol.post("/sessions/5?action=save&slot=0").status == 200
    expected = chat(smol, MORE_OF_ALICE)
    assert expected[0] > 0
    for _ in range(2):
        chat(smol, [{"role": "user", "content": "Somebody else asks about the weather."}])
        assert smol.post("/sessions/5?action=restore&slot=0").status == 200
        assert chat(smol, MORE_OF_ALICE) == expected
    assert smol.post("/sessions/5?action=remove", {"file": "alice"}).json["removed"] is True
    flags = ("-np", "2", "-c", "2048", "--no-warmup", "--slots", "--slot-save-path", str(live_folder))
    with Live(*flags) as later:
        assert later.client.post("/sessions/5?action=restore&slot=0").status == 404
        assert later.client.post("/sessions/5?action=restore&slot=0", {"file": "alice"}).status == 200
        assert chat(later.client, MORE_OF_ALICE) == expected


def test_the_metrics_tell_what_the_streams_stood_still(smol, detour):
    def read():
        text = smol.get("/metrics").body.decode()
        lines = (line.split(" ") for line in text.splitlines() if line.startswith("llamad:state_"))
        return {name.removeprefix("llamad:state_"): float(value) for name, value in lines}

    before = read()
    stall_ms = put_state(smol, detour[1]).json["stall_ms"] + act(smol, "save-state").json["stall_ms"]
    after = read()
    assert stall_ms > 0
    assert after["saves_total"] == before["saves_total"] + 1
    assert after["restores_total"] == before["restores_total"] + 1
    total = after["stall_seconds_total"] - before["stall_seconds_total"]
    assert total == pytest.approx(stall_ms / 1e3, abs=1e-5)
    assert 0 < after["stall_seconds_max"] <= after["stall_seconds_total"]


def wrong(state, held):
    """Blobs that are not quite one."""
    n = len(held)
    kv = 8 + 4 * n
    yield "empty", b""
    yield "cut", state[:-1]
    yield "half", state[: len(state) // 2]
    yield "longer", state + b"\0"
    yield "magic", b"SES2" + state[4:]
    yield "inner magic", state[:kv] + b"\0\0\0\0" + state[kv + 4 :]
    for count in (0, n - 1, n + 1, 2**31, 2**32 - 1):
        yield f"{count} tokens", state[:4] + struct.pack("<I", count) + state[8:]
    for token in (-1, 2**31 - 1):
        yield f"token {token}", state[:8] + struct.pack("<i", token) + state[12:]
    for at in range(kv + 8, kv + 8 + 16, 4):  # streams, cells, a cell's position and count of sequences
        yield f"header at {at - kv}", state[:at] + b"\xff\xff\xff\x7f" + state[at + 4 :]
    yield "not finite", state[:-2] + struct.pack("<H", 0x7E00)


def test_wrong_blobs_change_nothing(smol, detour):
    held, state, expected = detour
    put_state(smol, state)
    for name, blob in wrong(state, held):
        answer = put_state(smol, blob)
        assert answer.status == 400, name
        assert answer.error["type"] == "invalid_request_error"
    assert tokens(smol) == held
    assert go_on(smol) == expected


def test_an_empty_slot_has_a_state_too(smol, detour):
    held, state, _ = detour
    act(smol, "erase")
    empty = get_state(smol)
    assert empty[:8] == b"SES1\0\0\0\0"
    put_state(smol, state)
    assert tokens(smol) == held
    assert put_state(smol, empty).status == 200
    assert tokens(smol) == []
    assert smol.get("/v1/slots/0/info").json["messages"] == []


def test_a_slot_that_works_is_waited_for_or_409(smol):
    stream = smol.open_stream({"prompt": PROMPT, "n_predict": 200, "id_slot": 0, "ignore_eos": True})
    try:
        stream.recv(1)
        answer = smol.post("/slots/0?action=save-state&nowait=1")
        assert answer.status == 409
        assert smol.get("/v1/slots/0/info").status == 200  # looks between two steps
        assert act(smol, "tokens", slot=1).status == 200
        answers = []
        waiting = threading.Thread(target=lambda: answers.append(act(smol, "save-state")))
        waiting.start()
        waiting.join(0.05)
        assert waiting.is_alive()
    finally:
        stream.close()
    waiting.join(60)
    saved = answers[0].json
    assert saved["n_tokens"] == len(tokens(smol))


def test_a_shifted_slot_goes_on_from_what_is_left(smol):
    held = begin(smol)
    assert act(smol, "context-shift", {"n_keep": 2, "n_discard": 5}).json["new_n_tokens"] == len(held) - 5
    left = held[:2] + held[7:]
    assert tokens(smol) == left
    answer = smol.complete([*left, 5, 6], n_predict=2, id_slot=0)
    assert answer["timings"]["cache_n"] == len(left)
    for body in ({"n_keep": 0, "n_discard": 10**6}, {"n_keep": 10**6, "n_discard": 1}):
        assert act(smol, "context-shift", body).status == 400
