"""The memory that requests hold: who pays, who gives way, and that nothing is counted twice or for ever."""

from __future__ import annotations

import pytest

from llamad.base.memory_budget import Budget, BudgetFull, Claim, Shared


def evictable(budget: Budget, client: str, n_bytes: int, *, is_incomplete: bool = False) -> Claim:
    claim = budget.claim(client)
    claim.give_way = claim.release
    claim.is_incomplete = is_incomplete
    claim.add(n_bytes)
    return claim


def test_bytes_count_until_the_last_holder_releases_them() -> None:
    budget = Budget(1000)
    claim = budget.claim("a")
    claim.add(100)
    claim.add(50)
    assert (budget.n_bytes, budget.held_by("a"), claim.n_bytes) == (150, 150, 150)
    claim.set(80)
    assert claim.hold() is claim
    claim.release()
    assert budget.n_bytes == 80
    claim.release()
    claim.release()
    claim.add(500)
    assert (budget.n_bytes, budget.held_by("a"), claim.n_bytes, budget.n_peak) == (0, 0, 0, 150)


def test_a_full_budget_refuses_and_counts_as_before() -> None:
    budget = Budget(1000)
    first, second = budget.claim("a"), budget.claim("a")
    first.add(900)
    second.add(50)
    with pytest.raises(BudgetFull, match="1000 bytes"):
        second.add(100)
    assert (budget.n_bytes, second.n_bytes, budget.n_refused) == (950, 50, 1)
    second.add(50)


def test_the_heaviest_client_gives_way_and_its_largest_request_first() -> None:
    budget = Budget(1000)
    large = [evictable(budget, "heavy", n) for n in (200, 300, 100)]
    other = evictable(budget, "other", 350)
    small = budget.claim("small")
    small.add(80)
    assert [one.n_bytes for one in large] == [200, 0, 100]
    assert (other.n_bytes, small.n_bytes, budget.n_bytes) == (350, 80, 730)


def test_nobody_gives_way_to_a_heavier_client_or_in_vain() -> None:
    budget = Budget(1000)
    fixed = budget.claim("fixed")
    fixed.add(950)
    light = evictable(budget, "light", 50)
    with pytest.raises(BudgetFull):
        budget.claim("light").add(10)  # its own complete requests stay
    with pytest.raises(BudgetFull):
        budget.claim("new").add(60)  # what could go is not enough
    assert light.n_bytes == 50


def test_an_incomplete_body_gives_way_to_a_smaller_one_of_its_client() -> None:
    budget = Budget(1000)
    body = evictable(budget, "a", 900, is_incomplete=True)
    claim = budget.claim("a")
    claim.add(200)
    assert (body.n_bytes, claim.n_bytes) == (0, 200)


def test_who_gives_way_later_is_not_asked_again_and_makes_room_at_once() -> None:
    budget = Budget(1000)
    heavy = budget.claim("heavy")
    heavy.add(900)
    asked = []
    heavy.give_way = lambda: asked.append(1)
    claims = [budget.claim("light") for _ in range(3)]
    for claim in claims:
        claim.add(200)
    assert (len(asked), budget.n_bytes) == (1, 1500)
    heavy.release()
    assert budget.n_bytes == 600
    with pytest.raises(BudgetFull):
        claims[0].add(500)


def test_shared_memory_counts_once_and_the_next_user_pays_on() -> None:
    budget, grammar = Budget(1000), Shared(300)
    first, second = budget.claim("a"), budget.claim("b")
    first.use(grammar)
    first.use(grammar)
    second.use(grammar)
    assert (budget.held_by("a"), budget.held_by("b"), grammar.n_users) == (300, 0, 2)
    first.release()
    assert (budget.held_by("a"), budget.held_by("b"), budget.n_bytes) == (0, 300, 300)
    second.release()
    assert (budget.n_bytes, grammar.n_users) == (0, 0)
    large, other = budget.claim("a"), budget.claim("b")
    other.add(1)
    with pytest.raises(BudgetFull):
        large.use(Shared(1000))
    large.release()
    assert budget.n_bytes == 1


def test_a_request_that_is_alone_always_has_room() -> None:
    budget = Budget(1000)
    large, small = budget.claim("a"), budget.claim("b")
    large.add(5000)
    with pytest.raises(BudgetFull):
        small.add(1)
    large.give_way = large.release
    small.add(3000)  # the heavier one gives way
    assert (large.n_bytes, small.n_bytes) == (0, 3000)
