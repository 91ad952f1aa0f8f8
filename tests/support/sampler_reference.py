"""What each sampler must do to a distribution, written plainly from its definition: lists of (token, logit), best
first. For tests that compute their expectation."""

from __future__ import annotations

import math
from itertools import pairwise

Row = list[tuple[int, float]]


def ranked(logits: list[float]) -> Row:
    return sorted(enumerate(logits), key=lambda one: -one[1])


def probabilities(row: Row) -> dict[int, float]:
    top = max(logit for _, logit in row)
    weights = {token: math.exp(logit - top) for token, logit in row}
    total = sum(weights.values())
    return {token: weight / total for token, weight in weights.items()}


def top_k(row: Row, k: int) -> Row:
    return row[:k]


def top_p(row: Row, p: float, min_keep: int = 0) -> Row:
    total, likely = 0.0, probabilities(row)
    for i, (token, _) in enumerate(row):
        total += likely[token]
        if total >= p and i + 1 >= min_keep:
            return row[: i + 1]
    return row


def min_p(row: Row, p: float) -> Row:
    return [one for one in row if one[1] >= row[0][1] + math.log(p)]


def typical(row: Row, p: float) -> Row:
    likely = probabilities(row)
    entropy = -sum(q * math.log(q) for q in likely.values())
    order = sorted(row, key=lambda one: abs(-math.log(likely[one[0]]) - entropy))
    total = 0.0
    for i, (token, _) in enumerate(order):
        total += likely[token]
        if total > p:
            return order[: i + 1]
    return order


def tail_free(row: Row, z: float) -> Row:
    """The tail begins where the curvature of the sorted probabilities has been used up to a share of z."""
    p = list(probabilities(row).values())
    slopes = [a - b for a, b in pairwise(p)]
    bends = [abs(a - b) for a, b in pairwise(slopes)]
    total = 0.0
    for i, bend in enumerate(bends):
        total += bend / sum(bends)
        if total > z:
            return row[: max(i, 1)]
    return row


def top_n_sigma(row: Row, n: float) -> Row:
    values = [logit for _, logit in row]
    mean = sum(values) / len(values)
    sigma = math.sqrt(sum((value - mean) ** 2 for value in values) / len(values))
    return [one for one in row if one[1] >= row[0][1] - n * sigma]


def xtc(row: Row, threshold: float) -> Row:
    likely = probabilities(row)
    n_likely = sum(likely[token] >= threshold for token, _ in row)
    return row[max(0, n_likely - 1) :]


def temperature(row: Row, t: float) -> Row:
    return [(token, logit / t) for token, logit in row]


def dynamic_temperature(row: Row, t: float, spread: float, exponent: float) -> Row:
    entropy = -sum(p * math.log(p) for p in probabilities(row).values() if p > 0)
    low, high = max(0.0, t - spread), t + spread
    return temperature(row, low + (high - low) * (entropy / math.log(len(row))) ** exponent)


def mirostat_2(row: Row, mu: float) -> Row:
    likely = probabilities(row)
    return [one for one in row if -math.log2(likely[one[0]]) <= mu] or row[:1]


def mirostat_1(row: Row, mu: float, m: int = 100) -> Row:
    p = list(probabilities(row).values())
    steps = range(min(m, len(p)) - 1)
    t = [math.log((i + 2) / (i + 1)) for i in steps]
    b = [math.log(p[i] / p[i + 1]) for i in steps]
    s = sum(x * y for x, y in zip(t, b, strict=True)) / sum(x * x for x in t)
    epsilon = s - 1
    k = (epsilon * 2**mu / (1 - len(row) ** -epsilon)) ** (1 / s)
    return row[: max(1, int(k))]


def penalized(
    logits: list[float],
    history: list[int],
    *,
    repeat: float = 1.0,
    presence: float = 0.0,
    frequency: float = 0.0,
    last_n: int = 64,
    spared: int = -1,
) -> list[float]:
    out = list(logits)
    recent = history[-last_n:] if last_n else []
    for token in set(recent) - {spared}:
        out[token] = out[token] * repeat if out[token] <= 0 else out[token] / repeat
        out[token] -= recent.count(token) * frequency + presence
    return out
