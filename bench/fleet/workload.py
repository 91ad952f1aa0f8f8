"""Draws the conversations: when they begin, how they continue, how long everything is. Everything comes from one seed
before the simulation, so that every policy gets the same conversations."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
NOMINAL_SECONDS = 4.0  # the time of an answer, for conversations that began before the simulation
PAST_SECONDS = 600.0  # how long before the simulation these began at most


@dataclass(frozen=True, slots=True)
class Shape:
    """The distributions. Lengths are in tokens and log-normal, limited by `context`: a median and the sigma of the
    logarithm."""

    turns_mean: float = 5.0  # geometric
    think_median_s: float = 25.0
    think_sigma: float = 1.0
    user_median: float = 60.0
    user_sigma: float = 1.2
    answer_median: float = 250.0
    answer_sigma: float = 0.8
    n_systems: int = 2000  # system prompts, their popularity by Zipf's law: 1, 1/2, 1/3, ...
    system_median: float = 600.0
    system_sigma: float = 0.8
    context: int = 16384  # of a slot; a conversation that outgrows it ends


@dataclass(frozen=True, slots=True)
class Workload:
    """Conversation i has the turns first[i] up to end[i]; `history[i]` of its tokens are from before the simulation.
    These are lists, because single numbers of NumPy are slow."""

    starts: list[float]  # in order
    first: list[int]
    end: list[int]
    system: list[int]
    history: list[int]
    system_tokens: list[int]
    user: list[int]
    answer: list[int]
    think: list[float]  # the time between the end of the last turn and this one


def lengths(random: np.random.Generator, n: int, median: float, sigma: float, most: int) -> NDArray[np.int64]:
    drawn = np.exp(random.normal(np.log(median), sigma, n))
    return np.clip(np.rint(drawn), 1, most).astype(np.int64)


def draw(shape: Shape, rate: float, seconds: float, seed: int) -> Workload:
    """Draw a workload. `rate` is the requests per second of all conversations together."""
    random = np.random.default_rng(seed)
    n = int(random.poisson(rate / shape.turns_mean * (seconds + PAST_SECONDS)))
    starts = np.sort(random.uniform(-PAST_SECONDS, seconds, n))
    n_turns = random.geometric(1 / shape.turns_mean, n)
    end = np.cumsum(n_turns)
    first = end - n_turns
    n_all = int(end[-1]) if n else 0
    user = lengths(random, n_all, shape.user_median, shape.user_sigma, shape.context // 4)
    answer = lengths(random, n_all, shape.answer_median, shape.answer_sigma, shape.context // 4)
    think = np.exp(random.normal(np.log(shape.think_median_s), shape.think_sigma, n_all))
    think[first] = 0.0
    system_tokens = lengths(
        random, shape.n_systems, shape.system_median, shape.system_sigma, shape.context // 4
    )
    popularity = 1 / np.arange(1, shape.n_systems + 1)
    system = random.choice(shape.n_systems, n, p=popularity / popularity.sum())

    # Conversations of the past are somewhere in the middle; only their next turns are simulated.
    waits = np.cumsum(think + NOMINAL_SECONDS)
    before = waits[first] - NOMINAL_SECONDS  # think is 0 there
    times = np.repeat(starts, n_turns) + waits - NOMINAL_SECONDS - np.repeat(before, n_turns)
    is_past = times < 0
    sums = np.concatenate(([0], np.cumsum(np.where(is_past, user + answer, 0))))
    n_past = np.add.reduceat(is_past.astype(np.int64), first) if n else np.zeros(0, np.int64)
    said = sums[end] - sums[first]
    history = np.where(n_past > 0, system_tokens[system] + said, 0)
    first = first + n_past
    left = np.flatnonzero((first < end) & (history < shape.context // 2))
    begins = times[first[left]]
    order = left[np.argsort(begins, kind="stable")]
    return Workload(
        starts=np.sort(begins, kind="stable").tolist(),
        first=first[order].tolist(),
        end=end[order].tolist(),
        system=system[order].tolist(),
        history=history[order].tolist(),
        system_tokens=system_tokens.tolist(),
        user=user.tolist(),
        answer=answer.tolist(),
        think=think.tolist(),
    )
