"""Copies within a device over real memories, with the CPU as the device: after a parked prompt has returned the next
token's logits are, bit for bit, those without the detour. Tiny models of every kind of memory with cells."""

import pytest
from support.hosted_model import Hosted
from support.models.tiny_kv_models import KINDS, SINKS, write_model

from llamad.engine.loading import memory

COPIED = (*(kind for kind in KINDS if kind != "mamba"), SINKS)
FIRST = [1, *(3 + i * i % 97 for i in range(599))]
OTHER = [1, *(3 + i * 7 % 89 for i in range(599))]
N = len(FIRST)
FLAGS = ("-c", "4096", "-np", "3", "--kv-unified", "-fitt", "0")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    return {kind: write_model(folder / f"{kind}.gguf", kind) for kind in COPIED}


@pytest.fixture
def device(monkeypatch):
    monkeypatch.setattr(memory, "computes", lambda *_: True)


def hits(h: Hosted) -> tuple[int, int]:
    stats = h.engine.stats()
    return stats["cache_hits"], stats["device_hits"]


def straight(model: str, *flags: str):
    with Hosted(model, *FLAGS, *flags, "--no-cache-idle-slots") as h:
        h.read(0, FIRST)
        return h.next(0, [*FIRST, 70], N)


@pytest.mark.parametrize("kind", COPIED)
def test_what_follows_a_prompt_that_returned_is_what_follows_without(tiny, kind, device):
    expected = straight(tiny[kind], "-fa", "on")
    with Hosted(tiny[kind], *FLAGS, "-fa", "on") as h:
        for i in range(3):  # later copies replace earlier ones of the same size, in other cells
            h.read(0, FIRST)
            h.read(1, OTHER)
            h.read(2, FIRST[:50])
            n_hits = hits(h)[1]
            assert h.next(0, [*FIRST, 70], N) == expected
            assert h.next(1, [*OTHER, 70], N) != expected
            assert hits(h)[1] == n_hits + 2
            h.read(0, OTHER[: 100 + i])
        assert h.engine.stats()["device_bytes"] > 0


@pytest.mark.parametrize(
    "flags",
    [
        ("-fa", "off"),
        ("-fa", "on", "-nkvo"),
        ("-fa", "on", "-ctk", "q8_0", "-ctv", "q8_0"),
        ("-fa", "on", "-fitt", "100000000"),
    ],
    ids=["transposed", "in host memory", "quantized", "no room"],
)
def test_where_llama_cpp_cannot_copy_prompts_return_from_the_host(tiny, flags, device):
    with Hosted(tiny["llama"], *FLAGS, *flags) as h:
        h.read(0, FIRST)
        h.read(1, OTHER)
        assert h.next(0, [*FIRST, 70], N) == straight(tiny["llama"], *flags)
        assert hits(h) == (1, 0)
        assert h.engine.stats()["device_bytes"] == 0
