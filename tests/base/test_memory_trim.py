"""Freed memory goes back to the system, when the process is idle and not before."""

from __future__ import annotations

from llamad.base import memory_trim
from llamad.base.memory_trim import Trimmer, own_bytes

MIB = 1 << 20


def test_a_burst_is_given_back_once_it_is_quiet() -> None:
    is_idle, prepared = [False], []
    trimmer = Trimmer(lambda: is_idle[0], lambda: prepared.append(1))
    trimmer._least = before = own_bytes()
    # Blocks below the threshold of mmap, with one that stays behind them: without trimming they are kept.
    # So many that free memory of this process, which other tests have left, does not hold them.
    blocks = [bytes(bytearray(60_000)) for _ in range(6000)]
    last = bytes(bytearray(60_000))
    assert own_bytes() - before > 64 * MIB
    blocks.clear()
    assert not trimmer.look()
    is_idle[0] = True
    assert not trimmer.look()  # idle for one look only
    assert trimmer.look()
    assert prepared == [1]
    assert own_bytes() - before < 32 * MIB
    assert not trimmer.look()
    assert not trimmer.look()  # it has not grown since
    assert last


def test_large_blocks_go_back_at_once() -> None:
    memory_trim.keep_large_blocks_apart()
    before = own_bytes()
    blocks = [bytearray(b"x" * memory_trim.LARGE_BYTES * 4) for _ in range(32)]
    assert own_bytes() - before > 24 * MIB
    blocks.clear()
    assert own_bytes() - before < 20 * MIB
