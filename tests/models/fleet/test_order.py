"""Who is next: the age of the oldest waiter decides, and a younger need delays no older one."""

from __future__ import annotations

from support.fleet.driver import Fleet


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


def test_few_engines_plan_or_wait_for_memory_at_once():
    """Each of them is a process. Those that wait for memory do not keep the oldest waiter from its start."""
    needs = {"x": 6, **dict.fromkeys("abcdef", 6)}
    fleet = Fleet(needs, capacity=10, n_planning_max=2, n_planned_max=4, is_prompt=False)
    fleet.do("request", "x", 0)
    fleet.planned("x")
    fleet.loaded("x")
    effects = []
    for ticket, name in enumerate("abcdef", start=1):
        fleet.wait(0.1)
        effects += fleet.do("request", name, ticket)
    assert effects == ["start a", "start b"]
    assert fleet.planned("a") == ["start c"]
    assert fleet.planned("b") == ["start d"]
    assert fleet.planned("c") + fleet.planned("d") == []
    assert fleet.do("leave", 2) == ["stop b unneeded", "start e"]
    assert fleet["f"] == "unloaded"


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


def test_nobody_waits_for_a_model_that_is_downloaded_first():
    """It has no place among --models-max until it loads, and then it is the oldest waiter."""
    fleet = Fleet({"a": 6, "b": 6}, capacity=10, models_max=1, wait_seconds=30.0, is_prompt=False)
    assert fleet.do("request", "a", 1) == ["start a"]
    fleet.do("request", "b", 2)
    assert fleet.do("delayed", "a") == ["start b"]
    assert fleet.planned("b") == ["proceed b"]
    assert fleet.loaded("b") == ["admit 2"]
    fleet.wait(3600.0)
    assert fleet.planned("a") == []
    assert fleet.states() == {"a": "waiting", "b": "draining"}
    assert fleet.do("done", "b") == ["stop b evicted"]
    assert fleet.do("stopped", "b") == ["proceed a"]


def test_a_model_that_is_downloaded_evicts_nobody_meanwhile():
    """What it needed before its file was removed is known, but it does not need it yet."""
    fleet = Fleet({"a": 6, "b": 6}, capacity=10, is_prompt=False, residence_seconds=0.0)
    fleet.do("request", "a", 1)
    fleet.planned("a")
    fleet.loaded("a")
    fleet.do("done", "a")
    fleet.do("unload", "a")
    fleet.do("stopped", "a")
    fleet.do("request", "a", 2)
    fleet.do("delayed", "a")
    fleet.do("request", "b", 3)
    assert fleet.planned("b") == ["proceed b"]
    fleet.loaded("b")
    fleet.do("done", "b")
    assert fleet.wait(100.0) == []
    assert fleet.planned("a") == ["stop b evicted"]


def test_a_model_that_was_downloaded_keeps_no_memory_from_one_that_has_the_only_place():
    """ "b" started meanwhile and has the place; "a" is older. If "a" kept the memory, both would wait for ever."""
    fleet = Fleet({"a": 6, "b": 6}, capacity=10, models_max=1, is_prompt=False)
    fleet.do("request", "a", 1)
    fleet.do("delayed", "a")
    assert fleet.do("request", "b", 2) == ["start b"]
    assert fleet.planned("a") == []
    assert fleet.planned("b") == ["proceed b"]
    fleet.loaded("b")
    fleet.do("done", "b")
    assert fleet.wait(5.0) == ["stop b evicted"]
    assert fleet.do("stopped", "b") == ["proceed a"]


def test_a_model_that_was_downloaded_learns_that_pinned_ones_have_all_places():
    fleet = Fleet({"a": 1, "b": 1}, models_max=1, pinned="b", is_prompt=False)
    fleet.do("request", "a", 1)
    fleet.do("delayed", "a")
    fleet.do("load", "b")
    fleet.planned("b")
    fleet.loaded("b")
    assert fleet.planned("a") == ["refuse 1 500", "stop a failed"]
    assert "these are pinned: 'b'" in fleet.scheduler.reason("a")


def test_a_pinned_model_that_is_downloaded_takes_no_place_yet():
    fleet = Fleet({"a": 1, "b": 1}, models_max=1, pinned="b", is_prompt=False)
    fleet.do("load", "b")
    fleet.do("delayed", "b")
    assert fleet.do("request", "a", 1) == ["start a"]
    assert fleet.planned("a") == ["proceed a"]
