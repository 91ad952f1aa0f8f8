"""Owns the options of a generation: from JSON to typed parameters, and back into `generation_settings`.

Pure functions on the event loop or a worker. Every 400 about an option is born here; no dict goes further down.
"""

from __future__ import annotations

import math
import secrets
from array import array
from dataclasses import dataclass
from typing import Any

import msgspec

from llamad.api import bias, fields, grammars, system
from llamad.api.errors import bad, not_yet
from llamad.engine.model import Model
from llamad.engine.sampling import Sampling
from llamad.flags.samplers import BREAKER_BYTES_MAX, BREAKERS_MAX, LETTERS, SAMPLERS_MAX, present_name
from llamad.flags.settings import Settings

UINT32_MAX = 2**32 - 1
INT64 = 2**63
STOP_BYTES_MAX = 4096
PENALTY_TEXT_MAX = 65536
RESPONSE_FIELDS_MAX = 256
RESPONSE_FIELD_MAX = 256
ECHO_BYTES_MAX = 64 << 20

# Numbers of ext/llama/table.h.
_KINDS = {
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

# Options of the contract that come later, each with its neutral values: those are fine.
_LATER: dict[str, tuple[str, tuple[object, ...]]] = {
    "image_data": ("image_data", (None, [])),
    "lora": ("lora", (None, [])),
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
    constraint: grammars.Wanted


def defaults(settings: Settings, constraint: grammars.Wanted = grammars.NOTHING) -> Generation:
    """What a request gets that says nothing; the server's flags decide."""
    return Generation(
        seed=settings.seed,
        temperature=settings.temperature,
        dynatemp_range=settings.dynatemp_range,
        dynatemp_exponent=settings.dynatemp_exponent,
        top_k=settings.top_k,
        top_p=settings.top_p,
        min_p=settings.min_p,
        top_n_sigma=settings.top_n_sigma,
        xtc_probability=settings.xtc_probability,
        xtc_threshold=settings.xtc_threshold,
        typical_p=settings.typical_p,
        tfs_z=settings.tfs_z,
        repeat_last_n=settings.repeat_last_n,
        repeat_penalty=settings.repeat_penalty,
        presence_penalty=settings.presence_penalty,
        frequency_penalty=settings.frequency_penalty,
        penalize_nl=settings.penalize_nl,
        dry_multiplier=settings.dry_multiplier,
        dry_base=settings.dry_base,
        dry_allowed_length=settings.dry_allowed_length,
        dry_penalty_last_n=settings.dry_penalty_last_n,
        dry_sequence_breakers=list(settings.dry_sequence_breakers),
        mirostat=settings.mirostat,
        mirostat_tau=settings.mirostat_tau,
        mirostat_eta=settings.mirostat_eta,
        min_keep=settings.min_keep,
        samplers=list(settings.samplers),
        stop=[],
        n_predict=settings.n_predict,
        n_keep=settings.n_keep,
        n_discard=0,
        ignore_eos=settings.ignore_eos,
        stream=False,
        cache_prompt=settings.cache_prompt,
        return_tokens=False,
        timings_per_token=False,
        t_max_predict_ms=0,
        id_slot=-1,
        logit_bias=[(bias.token, bias.bias) for bias in settings.logit_bias],
        response_fields=[],
        system_prompt=None,
        n=1,
        n_probs=0,
        post_sampling_probs=False,
        n_indent=0,
        penalty_prompt=None,
        constraint=constraint,
    )


def parse(body: dict[str, Any], settings: Settings, model: Model, constraint: grammars.Wanted) -> Generation:
    """The request's options over the server's defaults. Raises ApiError for any that cannot be honoured."""
    _refuse_later(body)
    base = defaults(settings, constraint)
    seed = fields.whole(body, "seed", base.seed, -INT64, INT64 - 1)
    if seed > UINT32_MAX:
        seed %= UINT32_MAX  # OpenAI's have 64 bits, the generator takes 32
    return Generation(
        seed=secrets.randbelow(UINT32_MAX) if seed < 0 or seed == UINT32_MAX else seed,
        temperature=fields.number(body, "temperature", base.temperature),
        dynatemp_range=fields.number(body, "dynatemp_range", base.dynatemp_range, 0),
        dynatemp_exponent=fields.number(body, "dynatemp_exponent", base.dynatemp_exponent),
        top_k=fields.whole(body, "top_k", base.top_k),
        top_p=fields.number(body, "top_p", base.top_p, 0, 1),
        min_p=fields.number(body, "min_p", base.min_p, 0, 1),
        top_n_sigma=fields.number(body, "top_n_sigma", base.top_n_sigma),
        xtc_probability=fields.number(body, "xtc_probability", base.xtc_probability, 0, 1),
        xtc_threshold=fields.number(body, "xtc_threshold", base.xtc_threshold, 0, 1),
        typical_p=fields.number(body, "typical_p", base.typical_p, 0, 1),
        tfs_z=fields.number(body, "tfs_z", base.tfs_z, 0, 1),
        repeat_last_n=_last_n(body, "repeat_last_n", base.repeat_last_n, model),
        repeat_penalty=_above_zero(body, "repeat_penalty", base.repeat_penalty),
        presence_penalty=fields.number(body, "presence_penalty", base.presence_penalty),
        frequency_penalty=fields.number(body, "frequency_penalty", base.frequency_penalty),
        penalize_nl=fields.flag(body, "penalize_nl", base.penalize_nl),
        dry_multiplier=fields.number(body, "dry_multiplier", base.dry_multiplier, 0),
        dry_base=fields.number(body, "dry_base", base.dry_base, 1),
        dry_allowed_length=fields.whole(body, "dry_allowed_length", base.dry_allowed_length, 0),
        dry_penalty_last_n=_last_n(body, "dry_penalty_last_n", base.dry_penalty_last_n, model),
        dry_sequence_breakers=_breakers(body, base),
        mirostat=fields.whole(body, "mirostat", base.mirostat, 0, 2),
        mirostat_tau=fields.number(body, "mirostat_tau", base.mirostat_tau, 0),
        mirostat_eta=fields.number(body, "mirostat_eta", base.mirostat_eta, 0),
        min_keep=fields.whole(body, "min_keep", base.min_keep, 0),
        samplers=_samplers(body, base),
        stop=_stop(body, settings),
        n_predict=_n_predict(body, base, settings),
        n_keep=fields.whole(body, "n_keep", base.n_keep, -1),
        n_discard=fields.whole(body, "n_discard", 0, 0),
        ignore_eos=fields.flag(body, "ignore_eos", base.ignore_eos),
        stream=fields.flag(body, "stream", False),
        cache_prompt=fields.flag(body, "cache_prompt", base.cache_prompt),
        return_tokens=fields.flag(body, "return_tokens", False),
        timings_per_token=fields.flag(body, "timings_per_token", False),
        t_max_predict_ms=max(0, fields.whole(body, "t_max_predict_ms", 0, -1)),
        id_slot=_id_slot(body, settings),
        logit_bias=bias.parse(body, base.logit_bias, model),
        response_fields=_response_fields(body),
        system_prompt=system.parse(body, settings),
        n=_n(body, settings),
        n_probs=_n_probs(body, settings),
        post_sampling_probs=fields.flag(body, "post_sampling_probs", False),
        n_indent=fields.whole(body, "n_indent", 0, 0),
        penalty_prompt=_penalty_prompt(body, model),
        constraint=grammars.parse(body, base.constraint),
    )


def _refuse_later(body: dict[str, Any]) -> None:
    for name, (what, neutral) in _LATER.items():
        if name in body and body[name] not in neutral:
            raise not_yet(what)


def _last_n(body: dict[str, Any], name: str, default: int, model: Model) -> int:
    """-1 is the context's size; more than that would only cost memory."""
    n = fields.whole(body, name, default, -1)
    return model.n_ctx_slot if n < 0 else min(n, model.n_ctx_slot)


def _above_zero(body: dict[str, Any], name: str, default: float) -> float:
    value = fields.number(body, name, default)
    if value <= 0:
        raise bad(f'"{name}" must be greater than 0, not {value:g}')
    return value


def _breakers(body: dict[str, Any], base: Generation) -> list[str]:
    breakers = fields.texts(body, "dry_sequence_breakers", tuple(base.dry_sequence_breakers))
    if len(breakers) > BREAKERS_MAX:
        raise bad(f'"dry_sequence_breakers" may have at most {BREAKERS_MAX} entries')
    if any(not one or "\0" in one for one in breakers):
        raise bad('"dry_sequence_breakers" may not hold an empty string or a NUL character')
    if any(len(one.encode("utf-8", "replace")) > BREAKER_BYTES_MAX for one in breakers):
        raise bad(f'"dry_sequence_breakers" may hold strings of at most {BREAKER_BYTES_MAX} bytes')
    return breakers


def _samplers(body: dict[str, Any], base: Generation) -> list[str]:
    value = body.get("samplers")
    if value is None:
        return base.samplers
    if isinstance(value, str):
        unknown = [letter for letter in value if letter not in LETTERS]
        if unknown:
            raise bad(f'"samplers": unknown letter "{unknown[0]}"; known are {"".join(LETTERS)}')
        names = [LETTERS[letter] for letter in value]
    else:
        names = []
        for one in fields.texts(body, "samplers"):
            name = present_name(one)
            if name is None:
                raise bad(f'"samplers": unknown sampler "{one[:64]}"; known are {", ".join(_KINDS)}')
            names.append(name)
    if len(names) > SAMPLERS_MAX:
        raise bad(f'"samplers" may have at most {SAMPLERS_MAX} entries')
    return names


def _stop(body: dict[str, Any], settings: Settings) -> list[str]:
    value = body.get("stop")
    stops = [value] if isinstance(value, str) else fields.texts(body, "stop")
    stops = [stop for stop in stops if stop]
    if len(stops) > settings.stop_max:
        raise bad(f'"stop" may have at most {settings.stop_max} strings (--stop-max)')
    if any(
        len(stop) > STOP_BYTES_MAX or len(stop.encode("utf-8", "replace")) > STOP_BYTES_MAX for stop in stops
    ):
        raise bad(f'"stop" may hold strings of at most {STOP_BYTES_MAX} bytes')
    return stops


def _response_fields(body: dict[str, Any]) -> list[str]:
    paths = fields.texts(body, "response_fields")
    if len(paths) > RESPONSE_FIELDS_MAX or any(len(path) > RESPONSE_FIELD_MAX for path in paths):
        raise bad(
            f'"response_fields" may have at most {RESPONSE_FIELDS_MAX} names of {RESPONSE_FIELD_MAX} characters'
        )
    return paths


def _n_predict(body: dict[str, Any], base: Generation, settings: Settings) -> int:
    name = "n_predict" if body.get("n_predict") is not None else "max_tokens"
    n = fields.whole(body, name, base.n_predict, -2)
    cap = settings.n_predict_max
    if cap and n > cap:
        raise bad(f'"{name}" may be at most {cap} on this server (--n-predict-max)')
    return cap if cap and n < 0 else n


def _n(body: dict[str, Any], settings: Settings) -> int:
    name = "n_cmpl" if body.get("n_cmpl") is not None else "n"
    n = fields.whole(body, name, 1, 1)
    if n > settings.n_max:
        raise bad(f'"{name}" may be at most {settings.n_max} on this server (--n-max)')
    return n


def _n_probs(body: dict[str, Any], settings: Settings) -> int:
    n = fields.whole(body, "n_probs", 0, 0)
    if n > settings.n_probs_max:
        raise bad(f'"n_probs" may be at most {settings.n_probs_max} on this server (--n-probs-max)')
    return n


def _penalty_prompt(body: dict[str, Any], model: Model) -> bytes | None:
    """A text or token ids. No more than the context holds is ever looked at, so no more is kept."""
    value = body.get("penalty_prompt")
    if value is None:
        return None
    if isinstance(value, str):
        if len(value) > PENALTY_TEXT_MAX:
            raise bad(
                f'"penalty_prompt" may have at most {PENALTY_TEXT_MAX} characters; send token ids instead'
            )
        tokens = model.vocab.tokenize(value.encode("utf-8", "replace"), False, False)
    elif isinstance(value, list):
        n_vocab = model.vocab.n_vocab
        value = value[-model.n_ctx_slot :]
        for one in value:
            if type(one) is not int or not 0 <= one < n_vocab:
                raise bad(f'"penalty_prompt" must hold token ids below {n_vocab}')
        tokens = array("i", value).tobytes()
    else:
        raise bad('"penalty_prompt" must be null, a string or an array of token ids')
    return tokens[-4 * model.n_ctx_slot :]


def seed_of(generation: Generation, i: int) -> int:
    """The seed of the i-th of n completions: llama-server counts upwards, too. The largest would mean a random one."""
    return (generation.seed + i) % UINT32_MAX if i else generation.seed


def _id_slot(body: dict[str, Any], settings: Settings) -> int:
    name = "id_slot" if body.get("id_slot") is not None else "slot_id"
    return fields.whole(body, name, -1, -1, settings.n_parallel - 1)


def sampler_kinds(generation: Generation) -> bytes:
    """The chain's order. Penalties come first whenever they are not neutral, unless the list places them."""
    g = generation
    names = list(g.samplers)
    neutral = g.repeat_penalty == 1 and g.presence_penalty == 0 and g.frequency_penalty == 0
    if "penalties" not in names and not neutral:
        names.insert(0, "penalties")
    return bytes(_KINDS[name] for name in names)


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
