"""With a stream for each slot, slots at work are neighbours in one graph, by place or by fillers between them."""

import pytest
from support.harness import ADMITTED, Harness

from llamad.engine.fake import Fake


def fillers(h: Harness) -> list[int]:
    return [step[13] for step in h.steps]


def test_holes_between_writers_are_filled_where_a_device_computes():
    fake = Fake(device_us=400)
    with Harness(fake, n_slots=8) as h:
        long = [h.submit(b"slot %d" % i, id_slot=i, n_predict=120) for i in (0, 3, 7)]
        h.wait(*long)
        n_filled = fillers(h).count(5)
        assert n_filled > 80  # until it is known that a device computes, nothing is filled
        assert fake.n_graphs < fake.n_decodes + 60
        alone = h.submit(b"alone", id_slot=0, n_predict=100)
        h.wait(alone)
        assert all(len(h.tokens(task)) == 120 for task in long)


def test_what_idle_slots_hold_is_as_before_the_filling():
    fake = Fake(device_us=400, script=b"once upon a time there was a slot")
    with Harness(fake, n_slots=3) as h:
        h.wait(h.submit(b"in the middle", id_slot=1))
        held = h.core.slot_tokens(1)
        h.wait(*[h.submit(b"beside it", id_slot=i, n_predict=30) for i in (0, 2)])
        assert sum(fillers(h)) > 0
        again = h.submit(b"in the middle", id_slot=1)
        h.wait(again)
        assert h.n_cached(again) > 0
        assert h.core.slot_tokens(1) == held


@pytest.mark.parametrize("options", [{"n_cells": 4096}, {"n_swa": 64}, {"can_share": False}])
def test_no_fillers_where_they_would_harm(options):
    fake = Fake(device_us=400, unified="n_cells" in options)
    with Harness(fake, n_slots=3, **options) as h:
        h.wait(*[h.submit(b"beside it", id_slot=i, n_predict=60) for i in (0, 2)])
        assert sum(fillers(h)) == 0


def test_no_fillers_where_the_processor_computes():
    with Harness(Fake(decode_us=400), n_slots=3) as h:
        h.wait(*[h.submit(b"beside it", id_slot=i, n_predict=60) for i in (0, 2)])
        assert sum(fillers(h)) == 0


def test_a_new_task_goes_beside_those_at_work():
    fake = Fake(decode_us=200)
    with Harness(fake, n_slots=6) as h:
        for i in range(6):
            h.wait(h.submit(b"use slot %d once" % i, id_slot=i, n_predict=1))
        long = h.submit(b"a long one at work", id_slot=4, n_predict=400)
        h.wait_first(long, ADMITTED)
        second = h.submit(b"quite another text", n_predict=300)
        h.wait_first(second, ADMITTED)
        third = h.submit(b"and something else again", n_predict=1)
        h.wait(third)
        assert h.slot(second) == 3  # 0 was unused for longer; of the neighbours 3 was
        assert h.slot(third) in (2, 5)


def test_an_idle_server_takes_the_least_recently_used_slot():
    with Harness(Fake(), n_slots=3) as h:
        for i in (2, 0, 1):
            h.wait(h.submit(b"use slot %d once" % i, id_slot=i, n_predict=1))
        task = h.submit(b"something else", n_predict=1)
        h.wait(task)
        assert h.slot(task) == 2
