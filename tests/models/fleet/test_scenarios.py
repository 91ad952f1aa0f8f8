"""The scheduler, one story at a time: who is loaded, who makes room, and who waits."""

from __future__ import annotations

from support.fleet import Fleet


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


def test_loads_on_different_devices_run_at_once():
    needs = {"a": {"CUDA0": 6}, "b": {"CUDA0": 6}, "c": {"CUDA1": 6}}
    fleet = Fleet(needs, capacity={"CUDA0": 10, "CUDA1": 10}, is_prompt=False)
    for ticket, name in enumerate("abc"):
        fleet.do("request", name, ticket)
    assert fleet.planned("a") == ["proceed a", "start c"]
    assert fleet.planned("b") == []
    assert fleet.planned("c") == ["proceed c"]
    assert fleet.states() == {"a": "loading", "b": "waiting", "c": "loading"}


def test_a_younger_smaller_need_does_not_delay_an_older_one():
    """4 of 10 are free, and "big" waits for 8. "small" would fit, but then "big" would wait for it too."""
    fleet = Fleet({"a": 6, "big": 8, "small": 3, "tiny": {"host": 1}}, capacity={"gpu": 10, "host": 10})
    fleet.do("request", "a", 1)
    fleet.do("request", "big", 2)
    fleet.wait(0.1)
    assert fleet.do("request", "small", 3) == ["start small"]
    assert fleet["small"] == "waiting"
    assert "admit 4" in fleet.do("request", "tiny", 4)  # on another device
    fleet.wait(10.0)
    assert fleet.do("done", "a") == ["stop a evicted", "proceed big", "admit 2"]
    fleet.wait(10.0)
    assert fleet.do("done", "big") == ["stop big evicted", "proceed small", "admit 3"]


def test_a_younger_need_goes_first_where_both_fit():
    """ "big" needs 6 of 10 once "a" has stopped, so that 4 are left for "small" at once."""
    fleet = Fleet({"a": 6, "big": 6, "small": 4}, capacity=10, is_prompt=False, residence_seconds=0.0)
    fleet.do("request", "a", 1)
    fleet.planned("a")
    fleet.loaded("a")
    fleet.do("done", "a")
    fleet.do("request", "big", 2)
    fleet.wait(0.1)
    fleet.do("request", "small", 3)
    assert fleet.planned("small") == []  # "big" has not said yet what it needs
    assert fleet.planned("big") == ["stop a evicted", "proceed small"]
    assert fleet.do("stopped", "a") == ["proceed big"]


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


def test_nothing_is_evicted_for_a_need_behind_an_older_one():
    """ "wide" waits for both devices, and one of them is busy. "w" could go for it and for "y", but then it might have
    gone for nothing: when the client of "wide" leaves, "y" fits beside "w"."""
    needs = {"x": {"D1": 6}, "w": {"D0": 6}, "wide": {"D0": 6, "D1": 6}, "y": {"D0": 3}}
    fleet = Fleet(needs, capacity={"D0": 10, "D1": 10}, residence_seconds=0.0)
    fleet.do("request", "x", 1)
    fleet.serve("w", 2)
    fleet.do("request", "wide", 3)
    fleet.wait(0.1)
    assert fleet.do("request", "y", 4) == ["start y"]
    assert fleet.do("leave", 3) == ["stop wide unneeded", "proceed y", "admit 4"]


def test_a_model_without_a_slot_does_not_keep_memory_from_the_one_that_has_it():
    """ "old" has waited longer, but "young" holds the only slot: if each waited for the other, both would for ever."""
    fleet = Fleet({"old": 6, "young": 6}, capacity=10, models_max=1, is_prompt=False, residence_seconds=0.0)
    fleet.do("request", "old", 1)
    fleet.planned("old")
    fleet.loaded("old")
    fleet.do("done", "old")
    assert fleet.do("request", "young", 2) == ["stop old count", "start young"]
    fleet.wait(0.1)
    fleet.do("request", "old", 3)
    fleet.wait(0.1)
    fleet.do("request", "young", 4)
    fleet.do("leave", 2)
    assert fleet.planned("young") == []
    assert fleet.do("stopped", "old") == ["proceed young"]


def test_nothing_is_evicted_for_a_slot_while_an_older_model_plans():
    """ "big" is about to say that it needs the memory of "b", and the slot of "b" will do for "y"."""
    fleet = Fleet({"a": 1, "b": 8, "big": 8, "y": 1}, capacity=10, models_max=3, residence_seconds=0.0)
    fleet.serve("a", 1)
    fleet.wait(60.0)
    fleet.serve("b", 2)
    fleet.is_prompt = False
    assert fleet.do("request", "big", 3) == ["start big"]
    fleet.wait(0.1)
    assert fleet.do("request", "y", 4) == []
    assert fleet.planned("big") == ["stop b evicted", "start y"]


def test_an_older_model_that_never_says_what_it_needs_holds_the_others_up_for_a_while_only():
    fleet = Fleet({"a": 5, "b": 5}, capacity=10, wait_seconds=30.0, is_prompt=False)
    fleet.do("request", "a", 1)
    fleet.wait(0.1)
    fleet.do("request", "b", 2)
    assert fleet.planned("b") == []
    assert fleet.wait(29.0) == []
    assert fleet.wait(1.0) == ["proceed b"]


def test_the_hold_ends_although_everybody_is_late_already():
    fleet = Fleet({name: 5 for name in "abcd"}, capacity=100, wait_seconds=30.0, is_prompt=False)
    for ticket, name in enumerate("abcd"):
        fleet.do("request", name, ticket)
        fleet.wait(0.1)
    fleet.wait(10.0)
    assert fleet.planned("a") == ["proceed a", "start c"]
    assert fleet.planned("b") == ["proceed b", "start d"]
    assert fleet.planned("d") == []
    assert fleet.wait(29.0) == []
    assert fleet.wait(1.0) == ["proceed d"]


def test_a_tick_that_was_due_between_two_calls_is_not_lost():
    fleet = Fleet({"a": 6, "b": 6}, capacity=10, wait_seconds=30.0)
    fleet.do("request", "a", 1)
    fleet.do("request", "b", 2)
    fleet.now += 40.0
    assert fleet.scheduler.next_tick(fleet.now) == fleet.now
    fleet.do("tick")
    assert fleet["a"] == "draining"


def test_a_load_that_nobody_waits_for_any_more_makes_room():
    fleet = Fleet({"a": 6, "b": 6}, capacity=10, is_prompt=False)
    fleet.do("request", "a", 1)
    fleet.planned("a")
    assert fleet.do("leave", 1) == []  # it goes on to load
    fleet.do("request", "b", 2)
    assert fleet.planned("b") == ["stop a evicted"]


def test_the_operators_wish_has_an_age():
    fleet = Fleet({"a": 6, "b": 6, "c": 6}, capacity=10, wait_seconds=30.0)
    fleet.do("request", "a", 1)
    fleet.do("load", "b")
    fleet.wait(0.1)
    fleet.do("request", "c", 2)
    fleet.wait(29.95)
    assert fleet["a"] == "draining"
    assert fleet.do("done", "a") == ["stop a evicted", "proceed b"]
    assert fleet.states() == {"a": "unloaded", "b": "loaded", "c": "waiting"}
