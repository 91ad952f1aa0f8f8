"""/sessions over a fake of the engine's part: the store behind HTTP, keys, archives, what happens at the same time."""

import os
import threading
import time

import pytest
from support.http_client import Client
from support.states.fake_slot_states import ses1_of

from llamad.api.service.auth import Keys
from llamad.daemon import Daemon, StartError
from llamad.flags.parse import parse

ID_MAX = 2**63 - 1


def act(client, id, action, body=None, slot=None):
    where = "" if slot is None else f"&slot={slot}"
    return client.post(f"/sessions/{id}?action={action}{where}", b"" if body is None else body)


def ids(client):
    return [one["id"] for one in client.get("/sessions").json]


def test_save_list_restore_remove(faked):
    client, slots = faked.client, faked.states.slots
    assert client.get("/sessions").json == []
    slots[0] = [1, 2, 3]
    size = len(ses1_of([1, 2, 3]))
    before = int(time.time())
    saved = act(client, 42, "save", slot=0).json
    assert saved.pop("t_ms") >= 0
    assert saved == {"id_session": 42, "id_slot": 0, "n_tokens": 3, "n_bytes": size, "stall_ms": 1.5}
    act(client, 7, "save", slot=1)
    first, second = client.get("/sessions").json
    assert (first["id"], second["id"]) == (7, 42)
    assert second.keys() == {"id", "size", "created_at", "updated_at"}
    assert before <= second["created_at"] == second["updated_at"] <= time.time()
    assert second["size"] == size
    slots[0] = []
    restored = act(client, 42, "restore", slot=1).json
    assert restored.pop("t_ms") >= 0
    assert restored == {
        "id_session": 42,
        "id_slot": 1,
        "n_bytes_read": size,
        "success": True,
        "stall_ms": 2.5,
    }
    assert slots == [[], [1, 2, 3]]
    assert act(client, 42, "remove").json == {"id_session": 42, "removed": True}
    assert ids(client) == [7]


def test_an_archive_outlives_its_session(faked, folder):
    client, slots = faked.client, faked.states.slots
    slots[0] = [4, 5]
    data = ses1_of([4, 5])
    act(client, 1, "save", slot=0)
    removed = act(client, 1, "remove", {"file": "one.bin"}).json
    assert removed == {"id_session": 1, "removed": True, "file": "one.bin", "n_bytes": len(data)}
    assert (folder / "one.bin").read_bytes() == data
    assert ids(client) == []
    restored = act(client, 99, "restore", {"file": "one.bin"}, slot=1).json
    assert (restored["id_session"], restored["n_bytes_read"]) == (99, len(data))
    assert slots[1] == [4, 5]
    assert ids(client) == []  # it went into the slot, not into the store
    # A slot's own file is one as well.
    client.post("/slots/0?action=save", {"filename": "slot.bin"})
    slots[1] = []
    assert act(client, 5, "restore", {"file": "slot.bin"}, slot=1).status == 200
    assert slots[1] == [4, 5]


def test_a_session_stays_when_its_archive_fails(faked, folder):
    faked.states.slots[0] = [4]
    act(faked.client, 1, "save", slot=0)
    (folder / "folder").mkdir()
    for file in ("folder", "", "..", "a/b", 5):
        answer = act(faked.client, 1, "remove", {"file": file})
        assert answer.status == 400, file
    assert ids(faked.client) == [1]
    assert os.listdir(folder) == ["folder"]
    assert act(faked.client, 1, "remove", {"file": None}).json == {"id_session": 1, "removed": True}


def test_wrong_requests(faked):
    client = faked.client
    for id in ("-1", "x", "1.0", str(ID_MAX + 1), "9" * 30, "%EF%BC%91"):
        answer = act(client, id, "remove")
        assert answer.status == 400, id
        assert "id_session" in answer.error["message"]
    assert act(client, ID_MAX, "save", slot=0).json["id_session"] == ID_MAX
    assert act(client, "007", "save", slot=0).json["id_session"] == 7
    assert ids(client) == [7, ID_MAX]
    for action in ("", "fly", "erase"):
        assert "save, restore, remove" in act(client, 1, action, slot=0).error["message"]
    for slot in ("", "x", "2", "-1"):
        assert "slot" in act(client, 1, "save", slot=slot).error["message"]
    assert act(client, 1, "restore").status == 400
    for action in ("restore", "remove"):
        answer = act(client, 1, action, slot=0)
        assert (answer.status, answer.error["type"]) == (404, "not_found_error")
        assert act(client, 1, action, b"[]", slot=0).status == 400
        assert act(client, 1, action, b"{", slot=0).status == 400
    assert act(client, 1, "restore", {"file": "nothing"}, slot=0).status == 404


def test_gates(started):
    bare = started().client
    for answer in (bare.get("/sessions"), act(bare, 1, "save", slot=0), act(bare, 1, "remove")):
        assert (answer.status, answer.error["type"]) == (501, "not_supported_error")
        assert "--slots" in answer.error["message"]
    slots = started("--slots", "--sessions-max-bytes", "0").client
    none = act(slots, 1, "save", slot=0)
    assert none.status == 501
    assert "--sessions-max-bytes" in none.error["message"]
    for action in ("restore", "remove"):
        answer = act(slots, 1, action, {"file": "a"}, slot=0)
        assert answer.status == 501
        assert "--slot-save-path" in answer.error["message"]


def test_past_the_limit_507_or_the_oldest_goes(started):
    size = len(ses1_of(list(range(10))))
    for flags in ((), ("--sessions-evict",)):
        server = started("--slots", "--sessions-max-bytes", str(2 * size), *flags)
        server.states.slots[0] = list(range(10))
        for id in (1, 2):
            assert act(server.client, id, "save", slot=0).status == 200
        assert act(server.client, 1, "restore", slot=1).status == 200
        third = act(server.client, 3, "save", slot=0)
        if flags:
            assert third.status == 200
            assert ids(server.client) == [1, 3]
        else:
            assert (third.status, third.error["type"]) == (507, "insufficient_storage_error")
            assert ids(server.client) == [1, 2]
        server.states.slots[0] = list(range(30))
        assert act(server.client, 4, "save", slot=0).status == 507
        assert 4 not in ids(server.client)
        assert server.served.sessions.n_bytes <= 2 * size


def test_sessions_and_files_belong_to_their_key(started, folder):
    server = started("--slots", "--slot-save-path", str(folder), "--api-key", "alpha,beta")
    host, port = server.client.host, server.client.port
    alpha, beta = (
        Client(host, port, {"Authorization": "Bearer alpha"}),
        Client(host, port, {"X-Api-Key": "beta"}),
    )
    assert server.client.get("/sessions").status == 401
    assert act(server.client, 1, "save", slot=0).status == 401
    slots = server.states.slots
    slots[0] = [1]
    act(alpha, 1, "save", slot=0)
    alpha.post("/slots/0?action=save", {"filename": "mine"})
    assert (ids(alpha), ids(beta)) == ([1], [])
    assert act(beta, 1, "restore", slot=1).status == 404
    assert act(beta, 1, "remove").status == 404
    assert beta.post("/slots/1?action=restore", {"filename": "mine"}).status == 404
    slots[0] = [2, 2]
    act(beta, 1, "save", slot=0)
    beta.post("/slots/0?action=save", {"filename": "mine"})
    for client, tokens in ((alpha, [1]), (beta, [2, 2])):
        act(client, 1, "restore", slot=1)
        assert slots[1] == tokens
        slots[1] = []
        client.post("/slots/1?action=restore", {"filename": "mine"})
        assert slots[1] == tokens
    assert act(alpha, 1, "remove", {"file": "archive"}).status == 200
    assert (ids(alpha), ids(beta)) == ([], [1])
    assert act(beta, 1, "restore", {"file": "archive"}, slot=0).status == 404
    folders = [path for path in folder.iterdir() if path.name.startswith("key-") and path.is_dir()]
    assert len(folders) == 2 == len(os.listdir(folder))


def later(work):
    """Run it in a thread; the result is in the list when the thread has ended."""
    answers = []
    thread = threading.Thread(target=lambda: answers.append(work()))
    thread.start()
    return thread, answers


def test_a_restore_is_not_torn_by_a_replacement_or_a_removal(faked):
    client, states = faked.client, faked.states
    states.slots[0] = [1, 1, 1]
    act(client, 1, "save", slot=0)
    states.busy.add(1)
    thread, answers = later(lambda: act(client, 1, "restore", slot=1))
    faked.until(lambda: states.n_waiting == 1)
    states.slots[0] = [2, 2]
    assert act(client, 1, "save", slot=0).json["n_tokens"] == 2
    assert act(client, 1, "remove").status == 200
    assert faked.served.sessions.n_bytes == len(ses1_of([1, 1, 1]))  # still in use
    states.busy.clear()
    thread.join(30)
    assert answers[0].status == 200
    assert states.slots[1] == [1, 1, 1]
    assert faked.served.sessions.n_bytes == 0


def test_a_removal_during_an_archive_waits_and_loses_nothing(faked, folder, monkeypatch):
    client, states = faked.client, faked.states
    states.slots[0] = [1, 2]
    act(client, 1, "save", slot=0)
    writing, may_write = threading.Event(), threading.Event()
    write = faked.served.files.write

    def slow_write(*args):
        writing.set()
        assert may_write.wait(30)
        return write(*args)

    monkeypatch.setattr(faked.served.files, "write", slow_write, raising=False)
    archive, archived = later(lambda: act(client, 1, "remove", {"file": "a"}))
    assert writing.wait(30)
    removal, removed = later(lambda: act(client, 1, "remove"))
    states.slots[0] = [3, 3, 3]
    save, saved = later(lambda: act(client, 1, "save", slot=0))
    faked.until(lambda: len(faked.served.state_actions) == 3)
    may_write.set()
    for thread in (archive, removal, save):
        thread.join(30)
    assert archived[0].json["n_bytes"] == len(ses1_of([1, 2]))
    assert (folder / "a").read_bytes() == ses1_of([1, 2])
    # The two others came behind it in some order: the new session is there, or the removal was told that it was.
    assert saved[0].status == 200
    assert ids(client) == ([1] if removed[0].status == 404 else [])


def test_a_busy_slot_with_nowait(faked):
    faked.states.busy.add(0)
    answer = faked.client.post("/sessions/1?action=save&slot=0&nowait=1")
    assert answer.status == 409
    assert faked.served.sessions.n_bytes == 0
    assert ids(faked.client) == []


def test_metrics_count_sessions(faked):
    faked.states.slots[0] = [1]
    act(faked.client, 1, "save", slot=0)
    act(faked.client, 1, "restore", slot=1)
    text = faked.client.get("/metrics").body.decode()
    size = len(ses1_of([1]))
    for line in (
        "llamad:sessions 1",
        f"llamad:session_bytes {size}",
        "llamad:session_saves_total 1",
        "llamad:session_restores_total 1",
    ):
        assert f"\n{line}\n" in text


def test_a_folder_that_cannot_be_used_stops_the_start(tmp_path):
    for path in (tmp_path / "none", __file__):
        settings = parse(["-m", "x.gguf", "--slot-save-path", str(path)], {}).settings
        with pytest.raises(StartError, match=r"--slot-save-path .*directory"):
            Daemon(settings)


def test_two_keys_of_one_name_are_refused(monkeypatch):
    monkeypatch.setattr("llamad.api.service.auth._name", lambda key: "key-00")
    Keys(["a", "a"])
    with pytest.raises(ValueError, match="same short hash"):
        Keys(["a", "b"])
