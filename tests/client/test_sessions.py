"""The store of sessions: its limit holds whatever happens at the same time, and nothing in use is torn or lost."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.states.fake_slot_states import blob_of

from llamad.client import sessions as module
from llamad.client.sessions import Sessions, StoreFull
from llamad.client.state_bytes import NoRoom, Room


class Clock:
    def __init__(self):
        self.now = 1000.5

    def __call__(self):
        return self.now


def put(store, key, id, n_bytes, n_tokens=1):
    return store.reserve((key, id), n_bytes).put(blob_of(bytes([id % 256]) * n_bytes), n_tokens)


def ids(store, key=""):
    return [one.id for one in store.of_key(key)]


def test_a_replaced_session_keeps_when_it_was_made():
    clock = Clock()
    store = Sessions(100, clock=clock)
    put(store, "", 7, 10)
    clock.now = 1010.9
    again = put(store, "", 7, 20, n_tokens=3)
    assert store.of_key("") == [again]
    assert (again.created_at, again.updated_at, again.size, again.n_tokens) == (1000, 1010, 20, 3)
    assert store.n_bytes == 20
    store.remove(("", 7))
    clock.now = 1020
    assert put(store, "", 7, 5).created_at == 1020


def test_keys_see_their_own():
    store = Sessions(100)
    for id in (9, 2, 5):
        put(store, "key-a", id, 1)
    put(store, "key-b", 2, 2)
    assert ids(store, "key-a") == [2, 5, 9]
    assert ids(store, "key-b") == [2]
    assert ids(store) == []
    assert store.find(("key-a", 2)) is not store.find(("key-b", 2))
    assert store.remove(("key-b", 5)) is None
    assert store.remove(("key-b", 2)).size == 2
    assert ids(store, "key-a") == [2, 5, 9]


def test_a_full_store_refuses_and_keeps_what_it_has():
    store = Sessions(100)
    put(store, "", 1, 60)
    with pytest.raises(StoreFull, match=r"needs 41 bytes.*60 of 100.*--sessions-evict"):
        store.reserve(("", 2), 41)
    with pytest.raises(StoreFull, match="needs 101 bytes"):
        store.reserve(("", 2), 101)
    # Also in place of the one that is there: until the new one is whole, the old one stays.
    with pytest.raises(StoreFull):
        store.reserve(("", 1), 41)
    assert (ids(store), store.n_bytes, store.n_refused) == ([1], 60, 3)
    put(store, "", 2, 40)
    assert store.n_bytes == 100


def test_two_saves_at_once_cannot_exceed_the_limit():
    store = Sessions(100)
    first = store.reserve(("", 1), 60)
    with pytest.raises(StoreFull):
        store.reserve(("", 2), 60)
    first.drop()
    first.drop()
    assert store.n_bytes == 0
    store.reserve(("", 2), 60).put(blob_of(b"x" * 50), 1)
    assert store.n_bytes == 50


def test_a_state_that_grew_beyond_its_room_is_judged_again():
    store = Sessions(100)
    place = store.reserve(("", 1), 10)
    put(store, "", 2, 80)
    with pytest.raises(StoreFull):
        place.put(blob_of(b"x" * 30), 1)
    place.drop()
    assert (ids(store), store.n_bytes) == ([2], 80)
    store.reserve(("", 1), 10).put(blob_of(b"x" * 20), 1)
    assert store.n_bytes == 100


def test_the_least_recently_used_goes():
    store = Sessions(100, evict=True)
    for id in range(4):
        put(store, "", id, 25)
    store.restored(("", 0), store.find(("", 0)))
    put(store, "", 1, 25)  # replaced: room for the new one before the old one goes
    assert ids(store) == [0, 1, 3]
    put(store, "other", 9, 50)
    assert (ids(store), ids(store, "other")) == ([0, 1], [9])
    assert store.n_evicted == 2
    with pytest.raises(StoreFull, match="larger --sessions-max-bytes"):
        store.reserve(("", 5), 101)
    assert (ids(store), ids(store, "other")) == ([0, 1], [9])


def test_its_own_old_state_goes_last_and_leaves_its_date():
    clock = Clock()
    store = Sessions(100, evict=True, clock=clock)
    put(store, "", 1, 60)
    put(store, "", 2, 30)
    clock.now = 2000
    assert put(store, "", 1, 90).created_at == 1000
    assert ids(store) == [1]


def test_what_is_in_use_stays_whole_and_counts():
    store = Sessions(100, evict=True)
    session = put(store, "", 1, 60)
    with store.pinned(session) as blob:
        with pytest.raises(StoreFull, match="try again"):
            store.reserve(("", 2), 60)
        put(store, "", 1, 30)
        assert bytes(memoryview(blob)) == b"\x01" * 60
        assert store.n_bytes == 90
        store.remove(("", 1))
        assert store.n_bytes == 60
    assert store.n_bytes == 0
    store.restored(("", 1), session)  # gone meanwhile: it does not come back
    assert ids(store) == []


def test_there_are_only_so_many(monkeypatch):
    monkeypatch.setattr(module, "SESSIONS_MAX", 3)
    store = Sessions(1000)
    for id in range(3):
        put(store, "", id, 1)
    put(store, "", 2, 2)
    with pytest.raises(StoreFull, match="already 3 sessions"):
        put(store, "", 3, 1)
    store.evict = True
    put(store, "", 3, 1)
    assert ids(store) == [1, 2, 3]


def test_turns_come_one_after_the_other_and_leave_nothing():
    store = Sessions(100)
    log = []

    async def use(name, what):
        async with store.turn(name):
            log.append(f"{what} in")
            await asyncio.sleep(0.001)
            log.append(f"{what} out")

    async def main():
        tasks = [asyncio.ensure_future(use(("", 1), what)) for what in "abc"]
        await asyncio.sleep(0)
        tasks[1].cancel()
        await asyncio.gather(*tasks, use(("", 2), "d"), return_exceptions=True)

    asyncio.run(main())
    assert [line for line in log if line[0] != "d"] == ["a in", "a out", "c in", "c out"]
    assert store._turns == {}


@given(
    evict=st.booleans(),
    steps=st.lists(
        st.tuples(
            st.sampled_from(["reserve", "put", "drop", "remove", "pin", "unpin", "used"]),
            st.integers(0, 4),
            st.integers(0, 60),
        )
    ),
)
def test_the_count_is_exact_and_never_above_the_limit(evict, steps):
    store = Sessions(100, evict=evict)
    places, pins = [], []
    for what, id, n in steps:
        name = ("", id)
        try:
            if what == "reserve":
                places.append((store.reserve(name, n), n))
            elif what == "put" and places:
                places.pop(id % len(places))[0].put(blob_of(b"x" * n), 1)
        except StoreFull:
            pass
        if what == "drop" and places:
            places.pop(id % len(places))[0].drop()
        elif what == "remove":
            store.remove(name)
        elif what == "pin" and store.find(name):
            pin = store.pinned(store.find(name))
            pins.append((store.find(name), pin))
            pin.__enter__()
        elif what == "unpin" and pins:
            pins.pop(0)[1].__exit__(None, None, None)
        elif what == "used" and store.find(name):
            store.restored(name, store.find(name))
        leaving = {one: one.size for one, _ in pins if one.gone}
        held = sum(one.size for one in store.of_key("")) + sum(n for _, n in places)
        assert store.n_bytes == held + sum(leaving.values()) <= 100


def test_room_is_given_back_whatever_was_taken():
    room = Room(100)
    alone, one, two = room.hold(), room.hold(), room.hold()
    alone.grow(500)
    with pytest.raises(NoRoom):
        two.grow(1)
    alone.end()
    alone.grow(5)  # late: counts no more
    two.grow(60)
    one.grow(40)
    with pytest.raises(NoRoom):
        one.grow(1)
    assert (room.n_bytes, one.n_bytes, room.n_refused) == (100, 40, 2)
    one.end()
    one.end()
    two.end()
    assert room.n_bytes == 0
