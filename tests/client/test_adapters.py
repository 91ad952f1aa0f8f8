"""Sets of adapters: their numbers, and where an activated one begins."""

from __future__ import annotations

import struct

import pytest

from llamad.client.adapters import Adapters, TwoInvocations, UnknownAdapter
from llamad.flags.types.values import AdapterFile
from llamad.protocol.model_info import AdapterInfo

FILES = [
    AdapterFile("a", 1.0, ""),
    AdapterFile("b", 0.5, ""),
    AdapterFile("c", 2.0, "style"),
    AdapterFile("d", 1.0, ""),
]


def info(number: int, *invocation: int) -> AdapterInfo:
    return AdapterInfo(number, bytes([number]) * 32, 4, "", "", invocation)


def of(*infos: AdapterInfo, apply: bool = True) -> Adapters:
    adapters = Adapters(FILES, apply)
    adapters.opened(infos)
    return adapters


def ids(*tokens: int) -> bytes:
    return struct.pack(f"<{len(tokens)}i", *tokens)


def test_those_without_a_name_act_for_all() -> None:
    adapters = of(info(0), info(1), info(2))
    uses = adapters.chosen(adapters.uses(None), b"").uses
    assert uses == ((0, 1.0), (1, 0.5))
    named = adapters.chosen(adapters.uses(None, adapters.named("style")), b"").uses
    assert named == ((0, 1.0), (1, 0.5), (2, 2.0))
    own = adapters.chosen(adapters.uses([(1, 3.0)], adapters.named("style")), b"").uses
    assert own == ((1, 3.0), (2, 2.0))
    assert adapters.uses(()) == ()  # none at all
    assert of(info(0), info(1), apply=False).uses(None) == ()


def test_a_sets_number_is_its_adapters_and_scales() -> None:
    adapters = of(info(0), info(1), info(2))

    def number(*scales: tuple[int, float]) -> int:
        return adapters.chosen(adapters.uses(scales), b"").number

    assert number((0, 1.0), (1, 2.0)) == number((1, 2.0), (0, 1.0)) == number((0, 1.0), (1, 2.0), (2, 0.0))
    assert len({number((0, 1.0)), number((0, 0.5)), number((1, 1.0)), number((0, 1.0), (1, 1.0))}) == 4
    assert number((0, 0.0)) == 0
    digest = adapters.digest_of(number((0, 1.0)))
    assert digest is not None
    assert adapters.number_for(digest) == number((0, 1.0))


def test_a_digest_is_known_after_a_restart_if_it_may_be_asked_for() -> None:
    before, after = of(info(0), info(1), info(2)), of(info(0), info(1), info(2))
    for wanted in (before.uses(None), before.uses(None, before.named("style")), before.uses([(1, 0.5)])):
        digest = before.digest_of(before.chosen(wanted, b"").number)
        assert digest is not None
        assert after.number_for(digest) == before.chosen(wanted, b"").number
    with pytest.raises(UnknownAdapter):
        after.number_for(bytes(32))


def test_chosen_scales_outlive_an_engine_and_replace_the_servers_own() -> None:
    adapters = of(info(0), info(1))
    own = adapters.scales(None)
    chosen = adapters.choose([(1, 0.25)])
    adapters.opened([info(0), info(1)])
    assert adapters.scales(chosen) == {0: 0.0, 1: 0.25} != own == adapters.scales(None)
    assert [(use.info.id, use.scale) for use in adapters.uses(None, None, chosen)] == [(1, 0.25)]
    with pytest.raises(UnknownAdapter):
        adapters.choose([(7, 1.0)])


def test_a_state_of_chosen_scales_is_known_before_they_were_used() -> None:
    before, after = of(info(0), info(1), info(2)), of(info(0), info(1), info(2))
    number = before.chosen(before.uses([(1, 0.25)]), b"").number
    digest = before.digest_of(number)
    assert digest is not None
    after.choose([(1, 0.25)])
    assert after.number_for(digest) == number


@pytest.mark.parametrize(
    ("prompt", "at"),
    [
        ((9, 5, 6, 9), 1),
        ((5, 6, 5, 6), 2),
        ((5, 6), 0),
        ((5, 5, 6), 1),
        ((1 << 8, 5 << 8, 6 << 8, 9), None),  # its bytes are there, between two ids
        ((9, 5), None),
        ((), None),
    ],
)
def test_an_activated_adapter_begins_at_its_last_invocation(prompt: tuple[int, ...], at: int | None) -> None:
    adapters = of(info(0), info(3, 5, 6))
    chosen = adapters.chosen(adapters.uses([(0, 1.0), (3, 1.0)]), ids(*prompt))
    plain = adapters.chosen(adapters.uses([(0, 1.0)]), b"")
    if at is None:
        assert chosen == plain
    else:
        assert (chosen.base, chosen.n_base, chosen.n_base_uses) == (plain.number, at, 1)
        assert chosen.uses == ((0, 1.0), (3, 1.0))


def test_only_one_is_activated() -> None:
    adapters = of(info(0, 1), info(1, 2))
    with pytest.raises(TwoInvocations):
        adapters.chosen(adapters.uses([(0, 1.0), (1, 1.0)]), ids(1, 2))
