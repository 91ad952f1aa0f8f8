"""How models leave, fail and come back, and how requests are refused."""

from __future__ import annotations

import pytest
from support.fleet.driver import Fleet


def test_a_full_queue_refuses():
    fleet = Fleet({"a": 1}, is_prompt=False, queue_max=2)
    fleet.do("request", "a", 1)
    assert fleet.do("request", "a", 2) == []
    assert fleet.do("request", "a", 3) == ["refuse 3 429"]
    assert fleet.refusals[-1].retry_after == 5
    fleet.do("leave", 1)
    assert fleet.do("request", "a", 4) == []


def test_a_deadline_refuses_and_costs_no_eviction():
    fleet = Fleet({"a": 6, "b": 6}, capacity=10)
    fleet.do("request", "a", 1)
    fleet.do("request", "b", 2, deadline=fleet.now + 10.0)
    assert fleet.wait(9.9) == []
    assert fleet.wait(0.2) == ["refuse 2 503", "stop b unneeded"]
    assert fleet.refusals[-1].retry_after == 35
    assert fleet.do("done", "a") == []
    assert fleet.do("request", "b", 3, deadline=fleet.now) == ["refuse 3 503"]


def test_a_request_is_not_admitted_after_its_deadline():
    fleet = Fleet({"a": 6}, is_prompt=False)
    fleet.do("request", "a", 1, deadline=fleet.now + 10.0)
    fleet.do("request", "a", 2)
    fleet.planned("a")
    fleet.now += 11.0  # the tick is late
    assert fleet.loaded("a") == ["refuse 1 503", "admit 2"]


def test_an_unload_lets_requests_finish_and_refuses_those_that_wait():
    fleet = Fleet({"a": 1})
    fleet.do("request", "a", 1)
    assert fleet.do("unload", "a") == []
    assert fleet["a"] == "draining"
    assert fleet.do("request", "a", 2) == []
    assert fleet.do("unload", "a") == ["refuse 2 503"]
    assert fleet.do("request", "a", 3) == []  # it came after the unload: the model is loaded again
    assert fleet.do("done", "a") == ["stop a unloaded", "start a", "proceed a", "admit 3"]


def test_a_load_after_an_unload_keeps_the_model():
    fleet = Fleet({"a": 1})
    fleet.do("request", "a", 1)
    fleet.do("unload", "a")
    fleet.do("request", "a", 2)
    assert fleet.do("load", "a") == ["admit 2"]
    assert fleet["a"] == "loaded"


def test_an_unload_is_final_for_requests_that_must_not_load_a_model():
    fleet = Fleet({"a": 1})
    fleet.do("request", "a", 1)
    fleet.do("unload", "a")
    assert fleet.do("request", "a", 2, loads=False) == []  # it may still be kept
    assert fleet.scheduler.is_unloading("a")
    assert fleet.do("done", "a") == ["refuse 2 400", "stop a unloaded"]
    assert fleet.refusals[-1].reason.startswith("model is not loaded")
    assert (fleet["a"], fleet.scheduler.waiting("a")) == ("unloaded", 0)


def test_an_eviction_is_final_for_requests_that_must_not_load_a_model():
    fleet = Fleet({"a": 6, "b": 6}, capacity=10, wait_seconds=30.0, residence_seconds=0.0)
    fleet.do("request", "a", 1)
    fleet.do("request", "b", 2)
    fleet.wait(31.0)
    assert fleet["a"] == "draining"
    fleet.do("request", "a", 3, loads=False)
    fleet.do("request", "a", 4)
    effects = fleet.do("done", "a")
    assert effects[:2] == ["refuse 3 400", "stop a evicted"]
    assert "admit 2" in effects
    assert fleet.scheduler.waiting("a") == 1  # the other one waits for the next load


def test_a_drain_that_is_cancelled_admits_requests_that_must_not_load_a_model():
    fleet = Fleet({"a": 6, "b": 6}, capacity=10, wait_seconds=30.0)
    fleet.do("request", "a", 1)
    fleet.do("request", "b", 2)
    fleet.wait(31.0)
    fleet.do("request", "a", 3, loads=False)
    assert "admit 3" in fleet.do("leave", 2)


def test_a_crash_during_an_unload_refuses_requests_that_must_not_load_a_model():
    fleet = Fleet({"a": 1})
    fleet.do("request", "a", 1)
    fleet.do("unload", "a")
    fleet.do("request", "a", 2, loads=False)
    assert fleet.do("failed", "a", "it crashed") == ["refuse 2 400"]
    assert fleet["a"] == "unloaded"


def test_an_unload_stops_a_model_that_loads():
    fleet = Fleet({"a": 1}, is_prompt=False)
    fleet.do("request", "a", 1)
    fleet.planned("a")
    assert fleet.do("unload", "a") == ["refuse 1 503", "stop a unloaded"]
    assert fleet.loaded("a") == []  # it came to late
    assert fleet.scheduler.ledger.of("a") == {"gpu": 1}
    fleet.do("stopped", "a")
    assert (fleet["a"], fleet.scheduler.ledger.of("a")) == ("unloaded", {})


def test_an_unload_of_a_crashed_model_lets_its_requests_go_on():
    fleet = Fleet({"a": 1})
    fleet.do("request", "a", 1)
    fleet.do("crashed", "a")
    assert fleet["a"] == "loading"
    assert fleet.do("request", "a", 2) == []
    assert fleet.do("unload", "a") == ["refuse 2 503"]
    assert fleet.loaded("a") == []
    assert fleet["a"] == "draining"
    assert fleet.do("done", "a") == ["stop a unloaded"]


def test_a_crash_keeps_the_reservation_and_admits_nothing():
    fleet = Fleet({"a": 6, "b": 6}, capacity=10)
    fleet.serve("a", 1)
    fleet.do("crashed", "a")
    assert fleet.scheduler.ledger.of("a") == {"gpu": 6}
    assert fleet.do("request", "a", 2) == []
    fleet.do("request", "b", 3)
    assert fleet.wait(60.0) == []
    assert fleet["b"] == "waiting"
    assert fleet.loaded("a") == ["admit 2"]


def test_sleep_and_wake():
    fleet = Fleet({"a": 1}, sleep=10.0)
    fleet.serve("a", 1)
    assert fleet.wait(9.0) == []
    fleet.serve("a", 2)
    assert fleet.wait(9.9) == []
    assert fleet.wait(0.2) == ["stop a slept"]
    assert fleet["a"] == "sleeping"
    assert fleet.do("request", "a", 3) == ["start a", "proceed a", "admit 3"]
    assert fleet.wait(1000.0) == []  # it is busy


def test_a_sleeping_model_whose_waiter_left_sleeps_on():
    fleet = Fleet({"a": 1}, sleep=10.0)
    fleet.serve("a", 1)
    fleet.wait(11.0)
    fleet.is_prompt = False
    fleet.do("request", "a", 2)
    assert fleet.do("leave", 2) == ["stop a unneeded"]
    fleet.do("stopped", "a")
    assert fleet["a"] == "sleeping"


def test_an_unload_of_a_model_that_goes_to_sleep_wins():
    fleet = Fleet({"a": 1}, sleep=10.0)
    fleet.serve("a", 1)
    fleet.is_prompt = False
    assert fleet.wait(11.0) == ["stop a slept"]
    assert fleet.do("unload", "a") == []
    fleet.do("stopped", "a")
    assert fleet["a"] == "unloaded"


def test_a_failure_refuses_until_its_back_off_has_passed():
    fleet = Fleet({"a": 1}, is_prompt=False)
    fleet.do("request", "a", 1)
    assert fleet.do("failed", "a", "no such tensor") == ["refuse 1 500"]
    assert (fleet["a"], fleet.scheduler.reason("a")) == ("failed", "no such tensor")
    assert fleet.do("request", "a", 2) == ["refuse 2 500"]
    assert (fleet.refusals[-1].reason, fleet.refusals[-1].retry_after) == ("no such tensor", 5)
    fleet.wait(5.0)
    assert fleet.do("request", "a", 3) == ["start a"]
    fleet.do("failed", "a", "no such tensor")
    fleet.wait(5.0)
    assert fleet.do("request", "a", 4) == ["refuse 4 500"]  # the back-off has doubled
    assert fleet.do("load", "a") == ["start a"]
    fleet.planned("a")
    fleet.loaded("a")
    assert (fleet["a"], fleet.scheduler.reason("a")) == ("loaded", "")


def test_a_request_during_the_operators_load_of_a_failed_model_waits_for_it():
    fleet = Fleet({"a": 1}, is_prompt=False)
    fleet.do("request", "a", 1)
    fleet.do("failed", "a", "no such tensor")
    assert fleet.do("load", "a") == ["start a"]
    assert fleet.do("request", "a", 2) == []
    fleet.planned("a")
    assert fleet.loaded("a") == ["admit 2"]


def test_a_model_that_has_served_for_long_is_forgiven_its_failures():
    fleet = Fleet({"a": 1})
    delays = []
    for seconds in (1.0, 1.0, 61.0, 1.0):
        fleet.do("load", "a")
        fleet.wait(seconds)
        fleet.do("failed", "a", "it ended 10 times")
        fleet.do("request", "a", 1)
        delays.append(fleet.refusals[-1].retry_after)
    assert delays == [5, 10, 5, 10]


def test_a_victim_that_crashes_and_is_needed_no_more_admits_once_it_serves():
    fleet = Fleet({"a": 6, "b": 6}, capacity=10)
    fleet.do("request", "a", 1)
    fleet.do("request", "b", 2)
    fleet.wait(31.0)
    fleet.do("request", "a", 3)
    fleet.do("crashed", "a")
    assert fleet["a"] == "draining"
    assert fleet.do("leave", 2) == ["stop b unneeded"]
    assert fleet["a"] == "loading"
    assert fleet.loaded("a") == ["admit 3"]


def test_an_unload_forgets_a_failure():
    fleet = Fleet({"a": 1}, is_prompt=False)
    fleet.do("request", "a", 1)
    fleet.do("failed", "a", "no such tensor")
    fleet.do("unload", "a")
    assert (fleet["a"], fleet.scheduler.reason("a")) == ("unloaded", "")
    assert fleet.do("request", "a", 2) == ["start a"]


def test_a_load_that_runs_out_of_memory_evicts_once_refits_once_and_fails():
    fleet = Fleet({"a": 2, "b": 2, "c": 5}, capacity=10, residence_seconds=0.0)
    fleet.serve("a", 1)
    fleet.serve("b", 2)
    fleet.is_prompt = False
    fleet.do("request", "c", 3)
    assert fleet.planned("c") == ["proceed c"]
    assert fleet.do("failed", "c", "out of memory", is_memory=True) == ["stop a evicted"]
    assert fleet.do("stopped", "a") == ["refit c"]
    assert fleet.planned("c", {"gpu": 4}) == ["proceed c"]
    assert fleet.do("failed", "c", "out of memory", is_memory=True) == ["refuse 3 500"]
    assert fleet.states() == {"a": "unloaded", "b": "loaded", "c": "failed"}


def test_a_plan_for_too_little_memory_is_not_made_again():
    """No eviction would help, because a plan does not depend on what is loaded."""
    fleet = Fleet({"a": 2, "b": 2}, capacity=10, residence_seconds=0.0)
    fleet.serve("a", 1)
    fleet.is_prompt = False
    fleet.do("request", "b", 2)
    assert fleet.do("failed", "b", "too large", is_memory=True) == ["refuse 2 500"]
    assert fleet.states() == {"a": "loaded", "b": "failed"}


def test_a_model_larger_than_the_limit_fails_with_a_sentence():
    fleet = Fleet({"a": 12 << 20}, memory_max=10 << 20)
    assert fleet.do("request", "a", 1) == ["start a", "refuse 1 500", "stop a failed"]
    assert "12 MiB on gpu" in fleet.refusals[0].reason
    assert "10 MiB" in fleet.refusals[0].reason
    assert fleet["a"] == "failed"


def test_pinned_models_stay_and_are_named():
    fleet = Fleet({"a": 6, "b": 6, "c": 4}, capacity=10, pinned="a", residence_seconds=0.0)
    fleet.serve("a", 1)
    fleet.wait(100.0)
    assert fleet.do("request", "b", 2) == ["start b", "refuse 2 500", "stop b failed"]
    assert "'a'" in fleet.refusals[0].reason
    assert "admit 3" in fleet.serve("c", 3)
    assert fleet["a"] == "loaded"


def test_pinned_models_fill_the_count():
    fleet = Fleet({"a": 1, "b": 1}, models_max=1, pinned="a")
    fleet.serve("a", 1)
    assert fleet.do("request", "b", 2) == ["refuse 2 500"]
    assert "'a'" in fleet.refusals[0].reason
    fleet.do("unload", "a")
    fleet.wait(5.0)
    assert "admit 3" in fleet.do("request", "b", 3)


def test_a_model_that_is_pinned_while_it_drains_serves_again():
    fleet = Fleet({"a": 6, "b": 6}, capacity=10)
    fleet.do("request", "a", 1)
    fleet.do("request", "b", 2)
    fleet.wait(31.0)
    assert fleet["a"] == "draining"
    fleet.scheduler.add("a", is_pinned=True)
    fleet.do("tick")
    assert fleet["a"] == "loaded"
    assert fleet["b"] == "failed"


def test_a_removed_model_finishes_and_is_forgotten():
    fleet = Fleet({"a": 6, "b": 6}, capacity=10)
    fleet.do("request", "a", 1)
    fleet.do("request", "b", 2)
    assert fleet.do("remove", "b") == ["refuse 2 404", "stop b removed"]
    assert fleet.do("remove", "a") == []
    assert fleet.do("request", "a", 3) == ["refuse 3 404"]
    assert fleet.do("done", "a") == ["stop a removed"]
    with pytest.raises(KeyError):
        fleet.scheduler.state("a")
    assert fleet.do("request", "a", 4) == ["refuse 4 404"]
    fleet.scheduler.add("a")
    assert "admit 5" in fleet.do("request", "a", 5)


def test_the_counters():
    fleet = Fleet({"a": 6, "b": 6}, capacity=10, residence_seconds=0.0, queue_max=1)
    fleet.serve("a", 1)
    fleet.serve("b", 2)
    counters = fleet.scheduler.counters
    assert counters.loads == {"a": 1, "b": 1}
    assert counters.stops == {("a", "evicted"): 1}
    fleet.is_prompt = False
    fleet.do("request", "a", 3)
    fleet.do("request", "a", 4)
    assert counters.refusals == {("a", 429): 1}
    assert counters.waits.samples()[-1][2] == "2"
    assert fleet.scheduler.ledger.models() == {"b": {"gpu": 6}}
