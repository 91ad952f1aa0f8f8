"""The ledger: what is reserved, settled and released adds up."""

from __future__ import annotations

from llamad.models.fleet.ledger import Ledger


def test_reserve_settle_release():
    ledger = Ledger()
    ledger.observe({"CUDA0": 10, "host": 100})
    ledger.reserve("a", {"CUDA0": 6, "host": 0})
    assert ledger.of("a") == {"CUDA0": 6}
    ledger.reserve("b", {"CUDA0": 4})
    assert ledger.used("CUDA0") == 10
    ledger.settle("a", {"CUDA0": 11, "host": 2})  # more than there is: it is in use nevertheless
    assert (ledger.used("CUDA0"), ledger.used("host")) == (15, 2)
    assert ledger.models() == {"a": {"CUDA0": 11, "host": 2}, "b": {"CUDA0": 4}}
    ledger.release("a")
    ledger.release("a")
    assert (ledger.used("CUDA0"), ledger.used("host")) == (4, 0)
    ledger.release("b")
    assert (ledger.used("CUDA0"), ledger.used("host"), ledger.models()) == (0, 0, {})
    assert ledger.devices() == ["CUDA0", "host"]


def test_the_smaller_limit_counts():
    ledger = Ledger(memory_max=8)
    assert ledger.limit("CUDA0") == 8
    ledger.observe({"CUDA0": 10, "CUDA1": 5})
    assert (ledger.limit("CUDA0"), ledger.limit("CUDA1")) == (8, 5)
    ledger.observe({"CUDA0": 7})
    assert (ledger.limit("CUDA0"), ledger.limit("CUDA1")) == (7, 5)
