"""Owns the options of a generation: their types, what the engine gets of them, and `generation_settings`.

Pure functions on the event loop or a worker. How a request's JSON becomes one is parse.py's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import msgspec

from llamad.api.request import constraints
from llamad.api.request import system_prompt as system
from llamad.api.request.errors import bad
from llamad.flags.settings import Settings
from llamad.protocol.sampling_params import Sampling

UINT32_MAX = 2**32 - 1
ECHO_BYTES_MAX = 64 << 20

# Numbers of ext/llama/table.h.
KINDS = {
    "penalties": 1,
    "dry": 2,
    "top_n_sigma": 3,
    "top_k": 4,
    "typ_p": 5,
    "top_p": 6,
    "min_p": 7,
    "xtc": 8,
    "temperature": 9,
    "tfs_z": 10,
}


@dataclass(slots=True)
class Generation:
    """All that a request decides about its generation. Field names are the wire's."""

    seed: int
    temperature: float
    dynatemp_range: float
    dynatemp_exponent: float
    top_k: int
    top_p: float
    min_p: float
    top_n_sigma: float
    xtc_probability: float
    xtc_threshold: float
    typical_p: float
    tfs_z: float
    repeat_last_n: int
    repeat_penalty: float
    presence_penalty: float
    frequency_penalty: float
    penalize_nl: bool
    dry_multiplier: float
    dry_base: float
    dry_allowed_length: int
    dry_penalty_last_n: int
    dry_sequence_breakers: list[str]
    mirostat: int
    mirostat_tau: float
    mirostat_eta: float
    min_keep: int
    samplers: list[str]
    stop: list[str]
    n_predict: int
    n_keep: int
    n_discard: int
    ignore_eos: bool
    stream: bool
    cache_prompt: bool
    return_tokens: bool
    timings_per_token: bool
    t_max_predict_ms: int
    id_slot: int
    logit_bias: list[tuple[int, float]]
    response_fields: list[str]
    system_prompt: system.SystemPrompt | None  # as sent; None: not sent
    n: int
    n_probs: int
    post_sampling_probs: bool
    n_indent: int
    penalty_prompt: bytes | None  # token ids that the penalties see; None: the prompt's
    constraint: constraints.Wanted


def defaults(settings: Settings) -> Generation:
    """What a request gets that says nothing; the server's flags decide."""
    return Generation(
        seed=settings.options.seed,
        temperature=settings.options.temperature,
        dynatemp_range=settings.options.dynatemp_range,
        dynatemp_exponent=settings.options.dynatemp_exponent,
        top_k=settings.options.top_k,
        top_p=settings.options.top_p,
        min_p=settings.options.min_p,
        top_n_sigma=settings.options.top_n_sigma,
        xtc_probability=settings.options.xtc_probability,
        xtc_threshold=settings.options.xtc_threshold,
        typical_p=settings.options.typical_p,
        tfs_z=settings.options.tfs_z,
        repeat_last_n=settings.options.repeat_last_n,
        repeat_penalty=settings.options.repeat_penalty,
        presence_penalty=settings.options.presence_penalty,
        frequency_penalty=settings.options.frequency_penalty,
        penalize_nl=settings.options.penalize_nl,
        dry_multiplier=settings.options.dry_multiplier,
        dry_base=settings.options.dry_base,
        dry_allowed_length=settings.options.dry_allowed_length,
        dry_penalty_last_n=settings.options.dry_penalty_last_n,
        dry_sequence_breakers=list(settings.options.dry_sequence_breakers),
        mirostat=settings.options.mirostat,
        mirostat_tau=settings.options.mirostat_tau,
        mirostat_eta=settings.options.mirostat_eta,
        min_keep=settings.options.min_keep,
        samplers=list(settings.options.samplers),
        stop=[],
        n_predict=settings.options.n_predict,
        n_keep=settings.options.n_keep,
        n_discard=0,
        ignore_eos=settings.options.ignore_eos,
        stream=False,
        cache_prompt=settings.options.cache_prompt,
        return_tokens=False,
        timings_per_token=False,
        t_max_predict_ms=0,
        id_slot=-1,
        logit_bias=[(bias.token, bias.bias) for bias in settings.options.logit_bias],
        response_fields=[],
        system_prompt=None,
        n=1,
        n_probs=0,
        post_sampling_probs=False,
        n_indent=0,
        penalty_prompt=None,
        constraint=constraints.NOTHING,
    )


def seed_of(generation: Generation, i: int) -> int:
    """The seed of the i-th of n completions: llama-server counts upwards, too. The largest would mean a random one."""
    return (generation.seed + i) % UINT32_MAX if i else generation.seed


def sampler_kinds(generation: Generation) -> bytes:
    """The chain's order. Penalties come first whenever they are not neutral, unless the list places them."""
    g = generation
    names = list(g.samplers)
    neutral = g.repeat_penalty == 1 and g.presence_penalty == 0 and g.frequency_penalty == 0
    if "penalties" not in names and not neutral:
        names.insert(0, "penalties")
    return bytes([KINDS[name] for name in names])


def needs_breakers(generation: Generation) -> bool:
    """Whether DRY is on and has breakers to look for."""
    g = generation
    return bool(
        g.dry_multiplier > 0
        and g.dry_penalty_last_n
        and g.dry_sequence_breakers
        and not g.mirostat
        and "dry" in g.samplers
    )


def sampling(generation: Generation, newline_token: int = -1, seed: int | None = None) -> Sampling:
    """What crosses to the engine. `newline_token` is the one that `penalize_nl` is about; -1: none."""
    g = generation
    return Sampling(
        sampler_kinds(g),
        seed=g.seed if seed is None else seed,
        top_k=g.top_k,
        top_p=g.top_p,
        min_p=g.min_p,
        typical_p=g.typical_p,
        tfs_z=g.tfs_z,
        top_n_sigma=g.top_n_sigma,
        temperature=g.temperature,
        dynatemp_range=g.dynatemp_range,
        dynatemp_exponent=g.dynatemp_exponent,
        xtc_probability=g.xtc_probability,
        xtc_threshold=g.xtc_threshold,
        repeat_last_n=g.repeat_last_n,
        repeat_penalty=g.repeat_penalty,
        presence_penalty=g.presence_penalty,
        frequency_penalty=g.frequency_penalty,
        dry_multiplier=g.dry_multiplier,
        dry_base=g.dry_base,
        dry_allowed_length=g.dry_allowed_length,
        dry_penalty_last_n=g.dry_penalty_last_n,
        mirostat=g.mirostat,
        mirostat_tau=g.mirostat_tau,
        mirostat_eta=g.mirostat_eta,
        min_keep=g.min_keep,
        penalize_nl=g.penalize_nl,
        newline_token=newline_token,
    )


def check_echo(generation: Generation, n_parts: int, grammar: str) -> None:
    """Every completion's result repeats the options: many completions with large options would be an answer, and
    a burden on everybody else, far larger than the request."""
    g = generation
    n_bytes = 24 * len(g.logit_bias) + 2 * len(g.penalty_prompt or b"") + len(grammar)
    n_bytes += (
        len(g.constraint.schema or b"") + sum(map(len, g.dry_sequence_breakers)) + sum(map(len, g.stop))
    )
    if n_parts * n_bytes > ECHO_BYTES_MAX:
        raise bad(
            f"{n_parts} completions with options as large as these are too much for one request;"
            ' send fewer prompts, a smaller "n", or a smaller "logit_bias", grammar or schema'
        )


def biases(generation: Generation, eog_tokens: list[int], suppressed: list[int]) -> list[tuple[int, float]]:
    """The request's biases, then what must never come."""
    never = [*(eog_tokens if generation.ignore_eos else ()), *suppressed]
    return [*generation.logit_bias, *((token, -math.inf) for token in never)]


def settings_json(
    generation: Generation, n_ctx: int, name: str, seed: int | None = None, grammar: str = ""
) -> dict[str, Any]:
    """`generation_settings`: every option as it was understood, in the old and the new spelling. Of n completions
    each has a seed of its own."""
    g = generation
    penalty = None if g.penalty_prompt is None else list(memoryview(g.penalty_prompt).cast("i"))
    return {
        "n_ctx": n_ctx,
        "model": name,
        "n_predict": g.n_predict,
        "seed": g.seed if seed is None else seed,
        "temperature": g.temperature,
        "dynatemp_range": g.dynatemp_range,
        "dynatemp_exponent": g.dynatemp_exponent,
        "top_k": g.top_k,
        "top_p": g.top_p,
        "min_p": g.min_p,
        "top_n_sigma": g.top_n_sigma,
        "xtc_probability": g.xtc_probability,
        "xtc_threshold": g.xtc_threshold,
        "tfs_z": g.tfs_z,
        "typical_p": g.typical_p,
        "repeat_last_n": g.repeat_last_n,
        "repeat_penalty": g.repeat_penalty,
        "presence_penalty": g.presence_penalty,
        "frequency_penalty": g.frequency_penalty,
        "penalize_nl": g.penalize_nl,
        "penalty_prompt_tokens": penalty or [],
        "use_penalty_prompt_tokens": penalty is not None,
        "dry_multiplier": g.dry_multiplier,
        "dry_base": g.dry_base,
        "dry_allowed_length": g.dry_allowed_length,
        "dry_penalty_last_n": g.dry_penalty_last_n,
        "dry_sequence_breakers": g.dry_sequence_breakers,
        "mirostat": g.mirostat,
        "mirostat_tau": g.mirostat_tau,
        "mirostat_eta": g.mirostat_eta,
        "stop": g.stop,
        "max_tokens": g.n_predict,
        "n_keep": g.n_keep,
        "n_discard": g.n_discard,
        "ignore_eos": g.ignore_eos,
        "stream": g.stream,
        "logit_bias": [
            {"token": token, "bias": False if value == -math.inf else value} for token, value in g.logit_bias
        ],
        "n": g.n,
        "n_cmpl": g.n,
        "n_indent": g.n_indent,
        "n_probs": g.n_probs,
        "min_keep": g.min_keep,
        "grammar": grammar,
        "json_schema": msgspec.Raw(g.constraint.schema) if g.constraint.schema is not None else None,
        "samplers": g.samplers,
        "speculative.n_max": 0,
        "speculative.n_min": 0,
        "speculative.p_min": 0.0,
        "timings_per_token": g.timings_per_token,
        "post_sampling_probs": g.post_sampling_probs,
        "t_max_predict_ms": g.t_max_predict_ms,
        "cache_prompt": g.cache_prompt,
        "return_tokens": g.return_tokens,
        "id_slot": g.id_slot,
        "lora": [],
        "system_prompt": None if g.system_prompt is None else g.system_prompt.json(),
    }
