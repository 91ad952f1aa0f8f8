"""llama.cpp's n-gram cache (common/ngram-cache.cpp) in Python: its files, what it learns, and what it drafts."""

from __future__ import annotations

from array import array

from hypothesis import strategies as st

Ngram = tuple[int, int, int, int]
Cache = dict[Ngram, dict[int, int]]

N_MAX = 4
N_STATIC = 2
LAX = ((2, 2, 1, 1), (66, 50, 50, 50))
STRICT = ((4, 3, 2, 2), (75, 66, 66, 66))

N_VOCAB = 12
TOKENS = st.integers(0, N_VOCAB - 1)
NGRAMS = st.lists(TOKENS, min_size=1, max_size=N_MAX).map(lambda tokens: padded(tokens))
PARTS = st.dictionaries(TOKENS, st.integers(1, 9) | st.integers(1, 2**31 - 1), min_size=1, max_size=6)
CACHES = st.dictionaries(NGRAMS, PARTS, max_size=12)


def padded(tokens: list[int]) -> Ngram:
    a, b, c, d = [*tokens, -1, -1, -1, -1][:N_MAX]
    return a, b, c, d


def written(cache: Cache) -> bytes:
    """Return the bytes of a file."""
    numbers = array("i")
    for ngram, part in cache.items():
        numbers.extend([*ngram, len(part), *(number for pair in part.items() for number in pair)])
    return numbers.tobytes()


def parsed(data: bytes, n_vocab: int) -> Cache | None:
    """Return what a file has, or None if llamad must refuse it."""
    if len(data) % 4:
        return None
    numbers = array("i", data)
    cache: Cache = {}
    at = 0
    while at < len(numbers):
        head, at = numbers[at : at + N_MAX + 1].tolist(), at + N_MAX + 1
        if len(head) <= N_MAX:
            return None
        *tokens, n = head
        size = sum(token >= 0 for token in tokens)
        if size == 0 or any(not 0 <= token < n_vocab for token in tokens[:size]):
            return None
        if set(tokens[size:]) - {-1} or not 0 < n <= n_vocab or len(numbers) - at < 2 * n:
            return None
        pairs = list(zip(numbers[at : at + 2 * n : 2], numbers[at + 1 : at + 2 * n : 2], strict=True))
        if any(not 0 <= token < n_vocab or count <= 0 for token, count in pairs):
            return None
        part: dict[int, int] = {}
        for token, count in pairs:
            part.setdefault(token, count)
        cache.setdefault(padded(tokens[:size]), part)
        at += 2 * n
    return cache


def update(cache: Cache, text: list[int], n_new: int) -> None:
    """Learn the last n_new tokens; rows of embeddings are no part of an n-gram."""
    for i in range(len(text) - n_new, len(text)):
        for size in range(1, N_MAX + 1):
            before = text[max(0, i - size) : i]
            if len(before) == size and min([*before, text[i]]) >= 0:
                part = cache.setdefault(padded(before), {})
                part[text[i]] = part.get(text[i], 0) + 1


def _from_static(static: Cache, tail: list[int]) -> int | None:
    part = static.get(padded(tail[-N_STATIC:]), {})
    if len(tail) < N_STATIC or sum(part.values()) < LAX[0][N_STATIC - 1]:
        return None
    token = max(part, key=lambda token: part[token])  # the first, if there are several
    return token if 100 * part[token] >= LAX[1][N_STATIC - 1] * sum(part.values()) else None


def _from_primary(
    primary: Cache, static: Cache, tail: list[int], thresholds: tuple[tuple[int, ...], tuple[int, ...]]
) -> int | None:
    weights = static.get(padded(tail[-N_STATIC:]), {}) if len(tail) >= N_STATIC else {}
    for size in range(len(tail), 0, -1):
        part = primary.get(padded(tail[-size:]), {})
        best, best_product = None, 0
        for token, count in part.items():
            product = count * (100 * min(weights[token], 1 << 24) if token in weights else 1)
            if product > best_product:
                best, best_product = token, product
        if best is None or sum(part.values()) < thresholds[0][size - 1]:
            continue
        if 100 * part[best] >= thresholds[1][size - 1] * sum(part.values()):
            return best
    return None


def drafted(context: Cache, dynamic: Cache, static: Cache, text: list[int], n_max: int) -> list[int]:
    """Return the draft of common_ngram_cache_draft()."""
    draft: list[int] = []
    if len(text) < N_STATIC:
        return draft
    while len(draft) < n_max:
        tail: list[int] = []
        for last in reversed([*text, *draft][-N_MAX:]):
            if last < 0:
                break
            tail.insert(0, last)
        token = _from_primary(context, static, tail, LAX)
        if token is None:
            token = _from_primary(dynamic, static, tail, STRICT)
        if token is None:
            token = _from_static(static, tail)
        if token is None:
            break
        draft.append(token)
    return draft
