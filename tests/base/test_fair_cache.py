"""What is kept for several owners: each sees its own, and the one with the most makes room."""

from hypothesis import given
from hypothesis import strategies as st

from llamad.base.fair_cache import FairCache


def test_the_one_with_the_most_makes_room():
    cache: FairCache[str] = FairCache(100)
    cache.put(1, "a", "one's", 30)
    for name in "abcdefgh":
        cache.put(2, name, "two's", 20)
    assert cache.find(1, "a") == "one's"
    assert cache.find(3, "a") is None
    assert [name for name in "abcdefgh" if cache.find(2, name)] == ["f", "g", "h"]
    assert cache.find(2, "f") is not None
    cache.put(2, "i", "two's", 20)
    assert [name for name in "fghi" if cache.find(2, name)] == ["f", "h", "i"]
    cache.put(1, "a", "again", 101)
    assert cache.find(1, "a") is None


@given(st.integers(0, 50), st.lists(st.tuples(st.integers(0, 2), st.integers(0, 4), st.integers(0, 30))))
def test_the_bytes_are_those_of_the_entries(bytes_max, puts):
    cache: FairCache[int] = FairCache(bytes_max)
    for owner, name, n_bytes in puts:
        cache.put(owner, name, n_bytes, n_bytes)
        entries = [cache.find(owner, name) for owner in range(3) for name in range(5)]
        assert sum(one for one in entries if one is not None) == cache.n_bytes <= bytes_max
