"""The scheduler, one story at a time: who is loaded, who makes room, and who waits."""

from __future__ import annotations

from support.fleet.driver import Fleet


def test_a_request_loads_its_model_and_a_second_one_goes_in_at_once():
    fleet = Fleet({"a": 5}, is_prompt=False)
    assert fleet.do("request", "a", 1) == ["start a"]
    assert fleet["a"] == "planning"
    assert fleet.planned("a") == ["proceed a"]
    assert fleet["a"] == "loading"
    assert fleet.scheduler.ledger.of("a") == {"gpu": 5}
    assert fleet.do("request", "a", 2) == []
    assert fleet.scheduler.waiting("a") == 2
    assert fleet.loaded("a") == ["admit 1", "admit 2"]
    assert fleet.do("request", "a", 3) == ["admit 3"]
    assert (fleet["a"], fleet.scheduler.active("a"), fleet.scheduler.waiting("a")) == ("loaded", 3, 0)


def test_the_least_recently_used_of_two_leaves_for_a_third():
    fleet = Fleet({"a": 1, "b": 1, "c": 1}, models_max=2, residence_seconds=0.0)
    fleet.serve("a", 1)
    fleet.serve("b", 2)
    fleet.serve("a", 3)
    assert "stop b count" in fleet.serve("c", 4)
    assert fleet.states() == {"a": "loaded", "b": "unloaded", "c": "loaded"}


def test_a_busy_model_survives():
    fleet = Fleet({"a": 1, "b": 1}, models_max=1, wait_seconds=30.0)
    fleet.do("request", "a", 1)
    assert fleet.do("request", "b", 2) == []
    assert fleet.wait(29.0) == []
    assert fleet.do("done", "a") == ["stop a count", "start b", "proceed b", "admit 2"]


def test_three_waiters_cost_one_eviction():
    fleet = Fleet({"a": 1, "b": 1}, models_max=1, residence_seconds=0.0)
    fleet.do("request", "a", 1)
    for ticket in (2, 3, 4):
        assert fleet.do("request", "b", ticket) == []
    assert fleet.do("done", "a") == ["stop a count", "start b", "proceed b", "admit 2", "admit 3", "admit 4"]
    assert sum(fleet.scheduler.counters.stops.values()) == 1


def test_a_waiter_that_leaves_costs_nothing():
    fleet = Fleet({"a": 1, "b": 1}, models_max=1, residence_seconds=0.0)
    fleet.do("request", "a", 1)
    fleet.do("request", "b", 2)
    assert fleet.do("leave", 2) == []
    assert fleet.do("done", "a") == []
    assert fleet.states() == {"a": "loaded", "b": "unloaded"}


def test_an_engine_that_plans_is_stopped_when_its_last_waiter_leaves():
    fleet = Fleet({"a": 1}, is_prompt=False)
    fleet.do("request", "a", 1)
    fleet.do("request", "a", 2)
    assert fleet.do("leave", 1) == []
    assert fleet.do("leave", 2) == ["stop a unneeded"]
    assert fleet.do("request", "a", 3) == []  # it stops, and starts again afterwards
    assert fleet.planned("a") == []
    assert fleet.do("stopped", "a") == ["start a"]


def test_an_engine_that_the_operator_asked_for_is_not_stopped_with_its_last_waiter():
    fleet = Fleet({"a": 1}, is_prompt=False)
    fleet.do("load", "a")
    fleet.do("request", "a", 1)
    assert fleet.do("leave", 1) == []
    assert fleet["a"] == "planning"


def test_models_are_served_in_the_order_of_their_oldest_waiters():
    fleet = Fleet({name: 1 for name in "abcd"}, models_max=1, residence_seconds=0.0)
    fleet.do("request", "a", 1)
    for ticket, name in enumerate("cbd", start=2):
        fleet.wait(0.1)
        fleet.do("request", name, ticket)
    fleet.do("leave", 2)
    fleet.wait(0.1)
    fleet.do("request", "c", 5)  # now it is the youngest
    loads = []
    for name in ("a", "b", "d", "c"):
        fleet.wait(0.1)
        loads += [effect for effect in fleet.do("done", name) if effect.startswith("proceed")]
    assert loads == ["proceed b", "proceed d", "proceed c"]


def test_two_waiters_for_two_models_are_both_served():
    fleet = Fleet({"a": 1, "b": 1, "c": 1}, models_max=1, residence_seconds=0.0)
    fleet.do("request", "a", 1)
    fleet.do("request", "b", 2)
    fleet.do("request", "c", 3)
    assert "admit 2" in fleet.do("done", "a")
    assert "admit 3" in fleet.do("done", "b")


def test_a_model_that_was_just_loaded_stays_for_its_residence():
    fleet = Fleet({"a": 6, "b": 6}, capacity=10, residence_seconds=5.0)
    fleet.serve("a", 1)
    assert fleet.do("request", "b", 2) == ["start b"]
    assert fleet["b"] == "waiting"
    assert fleet.wait(4.4) == []
    assert fleet.wait(0.2) == ["stop a evicted", "proceed b", "admit 2"]


def test_two_models_in_turn_do_not_thrash():
    """Without requests that run, each of two models that exclude each other stays for its residence."""
    fleet = Fleet({"a": 6, "b": 6}, capacity=10, residence_seconds=5.0)
    for ticket in range(0, 240, 2):
        for name in "ab":
            fleet.do("request", name, ticket + (name == "b"))
            while fleet.scheduler.active(name):
                fleet.do("done", name)
        fleet.wait(0.5)
    n_loads = sum(fleet.scheduler.counters.loads.values())
    assert 4 <= n_loads <= 60.0 / 5.0 + 2


def test_busy_models_make_room_once_the_oldest_waiter_has_waited_too_long():
    fleet = Fleet({"a": 6, "b": 6}, capacity=10, wait_seconds=30.0)
    fleet.do("request", "a", 1)
    fleet.do("request", "b", 2)
    fleet.wait(20.0)
    assert fleet.do("request", "a", 3) == ["admit 3"]
    assert fleet["a"] == "loaded"
    fleet.wait(10.0)
    assert fleet["a"] == "draining"
    assert fleet.do("request", "a", 4) == []  # it queues behind
    assert fleet.do("done", "a") == []
    assert fleet.do("done", "a") == ["stop a evicted", "proceed b", "start a", "admit 2"]
    assert fleet["a"] == "waiting"


def test_a_drain_ends_when_nobody_needs_it_any_more():
    fleet = Fleet({"a": 6, "b": 6}, capacity=10, wait_seconds=30.0)
    fleet.do("request", "a", 1)
    fleet.do("request", "b", 2)
    fleet.wait(31.0)
    fleet.do("request", "a", 3)
    assert fleet["a"] == "draining"
    assert fleet.do("leave", 2) == ["stop b unneeded", "admit 3"]
    assert fleet.states() == {"a": "loaded", "b": "unloaded"}
    assert fleet.scheduler.counters.n_drains_cancelled == 1


def test_a_victim_that_is_idle_already_stays_until_the_others_are_idle():
    """Both must leave for "c". When its client leaves before "b" is idle, "a" has not been lost."""
    fleet = Fleet({"a": 5, "b": 5, "c": 10}, capacity=10, wait_seconds=30.0)
    fleet.serve("a", 1)
    fleet.do("request", "b", 2)
    fleet.do("request", "c", 3)
    fleet.wait(31.0)
    assert fleet.states() == {"a": "draining", "b": "draining", "c": "waiting"}
    fleet.do("leave", 3)
    assert fleet.states() == {"a": "loaded", "b": "loaded", "c": "unloaded"}
    fleet.do("request", "c", 4)
    fleet.wait(31.0)
    assert fleet.do("done", "b") == ["stop a evicted", "stop b evicted", "proceed c", "admit 4"]


def test_an_idle_model_goes_instead_of_one_that_drains():
    fleet = Fleet({"a": 5, "b": 5, "c": 5}, capacity=10, wait_seconds=30.0)
    fleet.do("request", "a", 1)
    fleet.do("request", "b", 2)
    fleet.do("request", "b", 3)
    fleet.do("request", "c", 4)
    fleet.wait(31.0)
    assert fleet.states() == {"a": "draining", "b": "loaded", "c": "waiting"}
    fleet.do("done", "b")
    fleet.do("tick")
    assert fleet.states() == {"a": "draining", "b": "loaded", "c": "waiting"}
    assert fleet.scheduler.counters.n_drains_cancelled == 0
    assert fleet.do("done", "b") == ["stop b evicted", "proceed c", "admit 4"]
    assert fleet["a"] == "loaded"
    assert fleet.scheduler.counters.n_drains_cancelled == 1


def test_the_model_with_fewer_requests_drains():
    fleet = Fleet({"a": 5, "b": 5, "c": 5}, capacity=10)
    for ticket, name in enumerate("aab"):
        fleet.do("request", name, ticket)
    fleet.do("request", "c", 3)
    fleet.wait(31.0)
    assert fleet.states() == {"a": "loaded", "b": "draining", "c": "waiting"}


def test_a_victim_that_has_drained_goes_rather_than_another_one():
    """ "d" is cheaper than "a" when "b" is idle at last, but "a" has made its clients wait already."""
    fleet = Fleet({"a": 2, "b": 8, "d": 2, "big": 10}, capacity=12)
    for ticket, name in enumerate("abdd"):
        fleet.do("request", name, ticket)
    fleet.do("request", "big", 4)
    fleet.wait(31.0)
    assert fleet.states() == {"a": "draining", "b": "draining", "d": "loaded", "big": "waiting"}
    fleet.do("done", "d")
    fleet.do("done", "d")
    fleet.wait(60.0)
    fleet.do("done", "a")
    assert fleet.do("done", "b") == ["stop a evicted", "stop b evicted", "proceed big", "admit 4"]
    assert fleet["d"] == "loaded"


def test_what_leaves_anyway_counts():
    fleet = Fleet({"a": 5, "b": 5, "c": 5}, capacity=10, is_prompt=False, residence_seconds=0.0)
    for ticket, name in enumerate("ab"):
        fleet.do("request", name, ticket)
        fleet.planned(name)
        fleet.loaded(name)
        fleet.do("done", name)
    assert fleet.do("unload", "a") == ["stop a unloaded"]
    fleet.do("request", "c", 3)
    assert fleet.planned("c") == []
    assert fleet["b"] == "loaded"
    assert fleet.do("stopped", "a") == ["proceed c"]
