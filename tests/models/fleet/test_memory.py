"""Who makes room for whom: memory on several devices, and the places of --models-max."""

from __future__ import annotations

from support.fleet.driver import Fleet


def test_memory_is_free_only_when_it_is_seen_free():
    fleet = Fleet({"a": 6, "b": 6}, capacity=10, is_prompt=False, residence_seconds=0.0)
    fleet.do("request", "a", 1)
    fleet.planned("a")
    fleet.loaded("a")
    fleet.do("done", "a")
    assert fleet.do("request", "b", 2) == ["start b"]
    assert fleet.planned("b") == ["stop a evicted"]
    assert fleet.scheduler.ledger.used("gpu") == 6
    assert fleet.do("stopped", "a") == ["proceed b"]


def test_the_cheapest_set_on_the_right_device_goes():
    needs = {"a": {"gpu": 4}, "b": {"gpu": 4}, "c": {"gpu": 6}, "h": {"host": 8}, "x": {"gpu": 6, "host": 1}}
    fleet = Fleet(needs, capacity={"gpu": 14, "host": 10}, residence_seconds=0.0)
    for ticket, name in enumerate("habc"):  # "h" is the oldest, but it frees nothing on the gpu
        fleet.serve(name, ticket)
    fleet.wait(60.0)
    fleet.serve("a", 8)
    fleet.serve("b", 9)
    effects = fleet.serve("x", 10)
    assert [effect for effect in effects if effect.startswith("stop")] == ["stop c evicted"]
    assert fleet.scheduler.ledger.used("gpu") == 14


def test_more_is_measured_than_was_reserved():
    fleet = Fleet({"a": 5, "b": 5}, capacity=10, residence_seconds=0.0)
    fleet.measured["a"] = {"gpu": 7}
    fleet.serve("a", 1)
    assert fleet.scheduler.ledger.of("a") == {"gpu": 7}
    assert "stop a evicted" in fleet.serve("b", 2)
    assert fleet.scheduler.ledger.used("gpu") == 5


def test_less_is_measured_than_was_reserved():
    fleet = Fleet({"a": 6, "b": 6}, capacity=10)
    fleet.measured["a"] = {"gpu": 4}
    fleet.serve("a", 1)
    assert fleet.serve("b", 2) == ["start b", "proceed b", "admit 2"]
    assert fleet.scheduler.ledger.used("gpu") == 10


def test_a_known_need_frees_slot_and_memory_with_one_victim():
    """ "a" is the cheapest for a slot, but "c" is known to need the memory of "b"."""
    fleet = Fleet({"a": 1, "b": 8, "c": 8}, capacity=10, models_max=2, residence_seconds=0.0)
    fleet.serve("c", 1)
    fleet.do("unload", "c")
    fleet.serve("a", 2)
    fleet.wait(100.0)
    fleet.serve("b", 3)
    effects = fleet.serve("c", 4)
    assert [effect for effect in effects if effect.startswith("stop")] == ["stop b evicted"]
    assert fleet["a"] == "loaded"


def test_a_small_victim_stays_if_a_larger_one_leaves_for_a_younger_waiter():
    """ "small" is the cheapest that frees enough for "old", but "young" needs "big" to go, which is enough for both."""
    needs = {
        "small": 2,
        "big": 8,
        "busy": {"host": 5},
        "old": {"gpu": 2, "host": 5},
        "young": 5,
    }
    fleet = Fleet(needs, capacity={"gpu": 10, "host": 5}, residence_seconds=0.0)
    fleet.serve("small", 1)
    fleet.wait(100.0)
    fleet.serve("big", 2)
    fleet.do("request", "busy", 3)
    fleet.do("request", "old", 4)
    fleet.do("request", "young", 5)
    assert fleet.states()["old"] == fleet.states()["young"] == "waiting"
    effects = fleet.do("done", "busy")
    assert sorted(one for one in effects if one.startswith("stop")) == [
        "stop big evicted",
        "stop busy evicted",
    ]
    assert fleet.states() == {
        "small": "loaded",
        "big": "unloaded",
        "busy": "unloaded",
        "old": "loaded",
        "young": "loaded",
    }


def test_a_drained_victim_that_can_stay_serves_again():
    fleet = Fleet(
        {"small": 2, "big": 8, "old": {"gpu": 2, "host": 5}, "busy": {"host": 5}, "young": 5},
        capacity={"gpu": 10, "host": 5},
        wait_seconds=30.0,
    )
    for ticket, name in enumerate(("small", "big", "big", "busy", "old")):
        fleet.do("request", name, ticket)
    fleet.wait(31.0)
    assert (fleet["small"], fleet["busy"], fleet["big"]) == ("draining", "draining", "loaded")
    fleet.do("done", "small")
    fleet.do("request", "young", 5)
    fleet.do("done", "big")
    fleet.do("done", "big")
    fleet.do("request", "small", 6)  # waits until "small" is loaded again
    assert fleet["small"] == "draining"
    effects = fleet.do("done", "busy")
    assert "admit 6" in effects
    assert sorted(one for one in effects if one.startswith("stop")) == [
        "stop big evicted",
        "stop busy evicted",
    ]


def test_no_more_victims_stay_than_there_are_slots():
    """ "big" leaves for "young", so there is memory for both small ones again, but "last" needs the slot of one."""
    needs = {
        "old": {"gpu": 2, "host": 5},
        "young": 5,
        "last": {"disk": 1},
        "small 1": 1,
        "small 2": 1,
        "big": 8,
        "busy": {"host": 5},
    }
    fleet = Fleet(needs, capacity={"gpu": 10, "host": 5}, models_max=4, residence_seconds=0.0)
    for ticket, name in enumerate(("old", "young", "last")):  # what they need is known from now on
        fleet.serve(name, ticket)
        fleet.do("unload", name)
    for ticket, name in enumerate(("small 1", "small 2", "big"), start=10):
        fleet.serve(name, ticket)
        fleet.wait(100.0)
    for ticket, name in enumerate(("busy", "old", "young", "last"), start=20):
        fleet.do("request", name, ticket)
        fleet.wait(0.1)
    fleet.is_prompt = False
    effects = fleet.do("done", "busy")
    stops = {one for one in effects if one.startswith("stop")}
    assert stops - {"stop small 1 evicted", "stop small 2 evicted"} == {
        "stop big evicted",
        "stop busy evicted",
    }
    assert len(stops) == 3


def test_what_the_operator_unloads_counts_until_the_waiter_is_late():
    fleet = Fleet({"a": 5, "b": 5, "c": 5}, capacity=10, wait_seconds=30.0, residence_seconds=0.0)
    fleet.do("request", "a", 1)
    fleet.serve("b", 2)
    fleet.do("unload", "a")
    fleet.do("request", "c", 3)
    assert fleet.wait(29.0) == []
    assert fleet.wait(1.0) == ["stop b evicted", "proceed c", "admit 3"]


def test_a_drain_ends_although_more_is_in_use_than_the_limit():
    fleet = Fleet({"a": 6, "b": 6}, capacity=10)
    fleet.measured["a"] = {"gpu": 12}
    fleet.do("request", "a", 1)
    fleet.do("request", "b", 2)
    fleet.wait(31.0)
    assert fleet["a"] == "draining"
    fleet.do("leave", 2)
    assert fleet["a"] == "loaded"


def test_a_load_that_nobody_waits_for_any_more_makes_room():
    fleet = Fleet({"a": 6, "b": 6}, capacity=10, is_prompt=False)
    fleet.do("request", "a", 1)
    fleet.planned("a")
    assert fleet.do("leave", 1) == []  # it goes on to load
    fleet.do("request", "b", 2)
    assert fleet.planned("b") == ["stop a evicted"]
