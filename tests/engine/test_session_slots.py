"""A session is a hint for the choice of a slot: it decides where nothing else does, and nothing waits for it."""

from support.engine_harness import Harness
from support.fake_daemon import Faked

from llamad.engine.testing.fake import Fake
from llamad.protocol.messages import EVENT_ADMITTED

TEXT = b"a conversation that is long enough to be worth keeping, "
OTHER = b"nothing of this was ever said before, and it is long too, "


def run(h: Harness, prompt: bytes, **options) -> int:
    """The slot that a task ran in."""
    task = h.submit(prompt, n_predict=1, **options)
    h.wait(task)
    return h.slot(task)


def test_of_slots_that_hold_the_same_the_sessions_own_wins():
    with Harness(Fake(script=b"answer"), n_slots=3) as h:
        for slot, session in enumerate((5, 6, 7)):
            run(h, TEXT, id_slot=slot, session=session)
        assert [run(h, TEXT, session=session) for session in (7, 6, 5, 6)] == [2, 1, 0, 1]


def test_a_conversation_that_was_cut_replaces_its_own_text():
    with Harness(Fake(script=b"answer"), n_slots=3) as h:
        slots = [run(h, bytes([65 + i]) + TEXT, session=5 + i) for i in range(3)]
        assert sorted(slots) == [0, 1, 2]
        assert run(h, OTHER, session=7) == slots[2]
        assert [run(h, bytes([65 + i]) + TEXT) for i in range(2)] == slots[:2]


def test_without_a_session_the_least_recently_used_slot_is_replaced():
    with Harness(Fake(script=b"answer"), n_slots=3) as h:
        slots = [run(h, bytes([65 + i]) + TEXT, session=5 + i) for i in range(3)]
        assert run(h, OTHER) == slots[0]


def test_a_longer_prefix_wins_over_the_session():
    with Harness(Fake(script=b"answer"), n_slots=2) as h:
        run(h, TEXT, id_slot=0, session=5)
        run(h, TEXT + OTHER, id_slot=1, session=6)
        assert run(h, TEXT + OTHER + OTHER, session=5) == 1


def test_nothing_waits_for_the_sessions_slot():
    fake = Fake(decode_us=500)
    with Harness(fake, n_slots=2) as h:
        run(h, TEXT, id_slot=1, session=5)
        fake.block(True)
        first = h.submit(TEXT, session=5, n_predict=30)
        second = h.submit(OTHER, session=5, n_predict=1)
        fake.block(False)
        h.wait(first, second)
        assert (h.slot(first), h.slot(second)) == (1, 0)
        kinds = [(kind, task) for kind, task in h.order if task in (first, second)]
        assert kinds.index((EVENT_ADMITTED, second)) < max(
            i for i, (_, task) in enumerate(kinds) if task == first
        )


def test_a_session_belongs_to_its_key():
    def ask(key: str, prompt: bytes) -> int:
        headers = {"Authorization": f"Bearer {key}", "X-Session-Id": "one"}
        body = {"prompt": prompt.decode(), "n_predict": 1}
        return server.client.post("/completion", body, headers=headers).json["id_slot"]

    with Faked(Fake(), "-np", "3", "--api-key", "a", "--api-key", "b") as server:
        slot = ask("a", TEXT)
        other = ask("b", OTHER)
        assert other != slot
        assert ask("a", OTHER[5:]) == slot
        assert ask("b", TEXT[5:]) == other
