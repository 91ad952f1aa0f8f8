"""The prompt cache over real memories: after a prompt has come back from host memory the next token's logits are, bit
for bit, those without the detour. Tiny models of every kind of memory."""

import asyncio

import numpy as np
import pytest
from support.hosted_model import Hosted
from support.models.tiny_adapters import shapes, write_lora
from support.models.tiny_kv_models import KINDS, WINDOW, write_models
from support.states.adopting_engine import until

from llamad.client.adapters import AdapterSet
from llamad.engine.loading import memory

FIRST = [1, *(3 + i * i % 97 for i in range(99))]
OTHER = [1, *(3 + i * 7 % 89 for i in range(99))]
N = len(FIRST)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return write_models(tmp_path_factory.mktemp("models"), KINDS, np.float16)


def straight(model, *flags):
    with Hosted(model, "-c", "512", "--cache-ram", "0", *flags) as h:
        h.read(0, FIRST)
        return h.next(0, [*FIRST, 70], N)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("flags", [(), ("--kv-unified",)], ids=["streams", "unified"])
def test_what_follows_a_prompt_that_came_back_is_what_follows_without(tiny, kind, flags):
    with Hosted(tiny[kind], "-c", "512", *flags) as h:
        h.read(0, FIRST)
        h.read(0, OTHER)
        assert h.next(0, [*FIRST, 70], N) == straight(tiny[kind], *flags)
        stats = h.engine.stats()
        assert (stats["cache_hits"], stats["cache_restored"]) == (1, N)


@pytest.mark.parametrize("kind", KINDS)
def test_a_part_comes_back_where_a_memory_can_be_cut(tiny, kind):
    assert N > WINDOW
    can_cut = kind in ("llama", "qwen2vl")
    with Hosted(tiny[kind], "-c", "512") as h:
        h.read(0, FIRST)
        h.read(0, OTHER)
        _, done = h.run(h.write(0, [*FIRST[:80], 70, 71], 1))
        assert (done.n_cached == 80) is can_cut
        assert h.engine.stats()["cache_hits"] == can_cut


ADAPTED = AdapterSet(1, ((0, 1.0),))
LONG = [1, *(3 + (i * i + i // 97) % 97 for i in range(1299))]


LAYOUTS = {
    "plain": (),
    "transposed": ("-fa", "off"),
    "q8_0": ("-ctk", "q8_0", "-ctv", "q8_0"),
    "full window": ("--swa-full",),
}


@pytest.mark.parametrize("flags", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("sharing", [(), ("--kv-unified",)], ids=["streams", "unified"])
@pytest.mark.parametrize("kind", ["llama", "qwen2vl", "gemma3", "jamba"])
def test_a_long_prompt_comes_back_from_its_parts(tiny, kind, sharing, flags):
    """And from the end of its state, where that cannot be cut."""
    if "--swa-full" in flags and kind != "gemma3":
        pytest.skip("it has no window")
    flags = ("-c", "4096", *sharing, *flags)
    n_entries = 4 if kind in ("gemma3", "jamba") else 3
    with Hosted(tiny[kind], "--cache-ram", "0", *flags) as h:
        h.read(0, LONG)
        expected = h.next(0, [*LONG, 70], len(LONG))
    with Hosted(tiny[kind], *flags) as h:
        h.read(0, LONG)
        h.read(0, OTHER)
        assert h.engine.stats()["cache_entries"] == n_entries
        assert h.next(0, [*LONG, 70], len(LONG)) == expected
        assert h.engine.stats()["cache_restored"] == len(LONG)
        h.read(0, OTHER)
        assert h.next(0, [*LONG, 70], len(LONG)) == expected


@pytest.mark.parametrize("flags", [(), ("--no-kv-offload",)], ids=["offloaded", "on the host"])
@pytest.mark.parametrize("sharing", [(), ("--kv-unified",)], ids=["streams", "unified"])
def test_a_long_prompt_comes_back_as_from_a_device(tiny, monkeypatch, sharing, flags):
    """The engine takes this machine's processor for a GPU. It finds none that has memory to copy through."""
    monkeypatch.setattr(memory, "computes", lambda *_: True)
    flags = ("-c", "4096", *sharing, *flags)
    with Hosted(tiny["llama"], "--cache-ram", "0", *flags) as h:
        h.read(0, LONG)
        expected = h.next(0, [*LONG, 70], len(LONG))
    with Hosted(tiny["llama"], *flags) as h:
        h.read(0, LONG)
        until(lambda: h.engine.stats()["cache_entries"] == 3)
        h.read(0, OTHER)
        assert h.next(0, [*LONG, 70], len(LONG)) == expected


@pytest.mark.parametrize("sharing", [(), ("--kv-unified",)], ids=["streams", "unified"])
@pytest.mark.parametrize("kind", ["llama", "qwen2vl", "gemma3", "jamba"])
def test_a_long_prompt_of_an_adapter_comes_back_for_that_adapter(tiny, tmp_path, kind, sharing):
    """And the same tokens without it are those of another prompt."""
    names = [name for name in shapes(tiny[kind]) if name.endswith(("attn_q.weight", "ffn_down.weight"))]
    lora = write_lora(tmp_path / "lora.gguf", tiny[kind], 1, names=names, arch=kind)
    flags = ("-c", "4096", "--lora", lora, *sharing)
    with Hosted(tiny[kind], "--cache-ram", "0", *flags) as h:
        h.read(0, LONG, ADAPTED)
        adapted = h.next(0, [*LONG, 70], len(LONG), ADAPTED)
        h.read(0, LONG)
        plain = h.next(0, [*LONG, 70], len(LONG))
    assert adapted != plain
    with Hosted(tiny[kind], *flags) as h:
        h.read(0, LONG, ADAPTED)
        h.read(0, LONG)
        for _ in range(2):
            assert h.next(0, [*LONG, 70], len(LONG), ADAPTED) == adapted
            assert h.next(0, [*LONG, 70], len(LONG)) == plain
        assert h.engine.stats()["cache_restored"] == 4 * len(LONG)


def test_a_long_prompt_comes_back_beside_another_task(tiny):
    """Part by part, while the other one is prefilled and writes."""
    flags = ("-c", "4096", "-np", "2", "--kv-unified", "-ctk", "f32", "-ctv", "f32")

    def together(h):
        async def both():
            return await asyncio.gather(h.write(1, OTHER[:60], 60), h.write(0, [*LONG, 70], 40))

        (first, _), (second, done) = h.run(both())
        return first.tokens, second.tokens, done.n_cached

    with Hosted(tiny["llama"], "--cache-ram", "0", *flags) as h:
        *expected, _ = together(h)
    with Hosted(tiny["llama"], *flags) as h:
        h.read(0, LONG)
        h.read(0, [50, *LONG[:100]])
        *tokens, n_cached = together(h)
        assert tokens == expected
        assert n_cached == len(LONG) == h.engine.stats()["cache_restored"]
