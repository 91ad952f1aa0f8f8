"""Every documented example of states and sessions, run in a shell against a live server."""

import base64
import struct
import time
from pathlib import Path

import pytest
from support.shell_examples import run, values

TEXT = (Path(__file__).parent / "documented_examples.sh").read_text(encoding="utf-8")
BLOCKS = dict(block.split("\n", 1) for block in TEXT.split("\n## ")[1:])
QUESTIONS = ("Hello! Who are you?", "Name a colour.", "And an animal, please.")


@pytest.fixture
def shell(random_model, tmp_path):
    """shell(name): the values that an example prints."""

    def one(name):
        return values(run(BLOCKS[name], tmp_path, f"http://{random_model.host}:{random_model.port}"))

    return one


def chat(client, slot=0):
    """A conversation that leaves its messages in the slot."""
    messages = []
    for question in QUESTIONS:
        messages.append({"role": "user", "content": question})
        body = {"messages": messages, "id_slot": slot, "max_tokens": 24, "temperature": 0}
        answer = client.post("/v1/chat/completions", body).json
        messages.append({"role": "assistant", "content": answer["choices"][0]["message"]["content"]})


def tokens(client, slot=0):
    return client.post(f"/slots/{slot}?action=tokens").json["tokens"]


def test_the_states_of_a_slot(random_model, shell, tmp_path):
    chat(random_model)
    held = tokens(random_model)
    (saved,) = shell("save as json")
    assert {"id_slot", "n_tokens", "n_bytes", "t_ms", "state"} <= saved.keys()
    assert (saved["id_slot"], saved["n_tokens"]) == (0, len(held))
    state = base64.b64decode(saved["state"], validate=True)
    assert len(state) == saved["n_bytes"]
    assert struct.unpack_from(f"<4sI{len(held)}i", state) == (b"SES1", len(held), *held)
    assert shell("save as binary") == []
    assert (tmp_path / "slot0.ses1").read_bytes() == state
    random_model.post("/slots/0?action=erase")
    assert tokens(random_model) == []
    (restored,) = shell("restore from binary")
    assert {"id_slot", "n_bytes_read", "success", "t_ms"} <= restored.keys()
    assert (restored["id_slot"], restored["n_bytes_read"], restored["success"]) == (0, len(state), True)
    (told,) = shell("tokens")
    assert told.keys() == {"id_slot", "n_tokens", "tokens", "n_prompt_tokens_processed"}
    assert (told["id_slot"], told["n_tokens"], told["tokens"]) == (0, len(held), held)


def test_a_state_on_the_command_line(random_model, shell):
    random_model.post("/slots/0?action=erase")
    random_model.complete("Hi", n_predict=1, id_slot=0)  # a shell takes no argument longer than 128 KB
    held = tokens(random_model)
    (restored,) = shell("restore from json")
    assert (restored["id_slot"], restored["success"]) == (1, True)
    assert tokens(random_model, 1) == held


def test_messages_and_the_context_shift(random_model, shell):
    chat(random_model)
    held = tokens(random_model)
    (info,) = shell("info")
    assert info.keys() == {"n_tokens", "boundary_eot", "n_messages", "messages"}
    assert info["n_tokens"] == len(held)
    ends = [i for i, token in enumerate(held) if token == info["boundary_eot"]]
    assert (
        random_model.post("/detokenize", {"tokens": [info["boundary_eot"]]}).json["content"] == "<|im_end|>"
    )
    if not ends or ends[-1] != len(held) - 1:
        ends.append(len(held) - 1)  # the answer was cut off
    starts = [0, *(end + 1 for end in ends[:-1])]
    expected = [
        {"index": i, "start": start, "end": end}
        for i, (start, end) in enumerate(zip(starts, ends, strict=True))
    ]
    assert info["messages"] == expected
    assert info["n_messages"] == len(expected) >= 6
    before, shifted, after = shell("inspect then shift")
    assert before == {"n_tokens": len(held), "n_messages": len(expected)}
    assert shifted == {"success": True, "new_n_tokens": after["n_tokens"]}
    end = expected[2]["end"]
    assert tokens(random_model) == held[:14] + held[end + 1 :]
    assert after["n_tokens"] == len(held) - (end - 13)


def test_the_plain_context_shift(random_model, shell):
    chat(random_model)
    held = tokens(random_model)
    assert len(held) >= 60
    assert shell("context shift") == [{"success": True, "new_n_tokens": len(held) - 50}]
    assert tokens(random_model) == held[:10] + held[60:]


def test_sessions(random_model, shell, live_folder):
    chat(random_model)
    held = tokens(random_model)
    (saved,) = shell("save session")
    assert {"id_session", "id_slot", "n_tokens", "n_bytes", "t_ms"} <= saved.keys()
    assert (saved["id_session"], saved["id_slot"], saved["n_tokens"]) == (42, 0, len(held))
    (listed,) = shell("list sessions")
    (one,) = listed
    assert one.keys() == {"id", "size", "created_at", "updated_at"}
    assert (one["id"], one["size"]) == (42, saved["n_bytes"])
    assert one["created_at"] <= one["updated_at"] <= time.time()
    (restored,) = shell("restore session")
    assert {"id_session", "id_slot", "n_bytes_read", "success", "t_ms"} <= restored.keys()
    assert (restored["id_session"], restored["id_slot"], restored["success"]) == (42, 1, True)
    assert restored["n_bytes_read"] == saved["n_bytes"]
    assert tokens(random_model, 1) == held
    (removed,) = shell("remove session to file")
    assert removed == {
        "id_session": 42,
        "removed": True,
        "file": "session_42.bin",
        "n_bytes": saved["n_bytes"],
    }
    assert (live_folder / "session_42.bin").stat().st_size == saved["n_bytes"]
    random_model.post("/slots/1?action=erase")
    (again,) = shell("restore session from file")
    assert again["n_bytes_read"] == saved["n_bytes"]
    assert tokens(random_model, 1) == held
    shell("save session")
    assert shell("remove session") == [{"id_session": 42, "removed": True}]
    assert shell("list sessions") == [[]]


def test_the_conversation(random_model, shell):
    first, saved, restored, second, again, removed = shell("conversation")
    assert (saved["id_session"], restored["success"]) == (1, True)
    assert restored["n_bytes_read"] == saved["n_bytes"]
    # The second prompt has the first one and the template's way to the answer in common with what was restored.
    cached = second["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert first["usage"]["prompt_tokens"] <= cached < second["usage"]["prompt_tokens"]
    assert again["n_tokens"] > saved["n_tokens"] or again["n_tokens"] >= second["usage"]["prompt_tokens"]
    assert removed == {"id_session": 1, "removed": True}
