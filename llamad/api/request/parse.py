"""Owns reading a request's options: from JSON to a Generation.

Pure functions on the event loop or a worker. Every 400 about an option is born here; no dict goes further down. Of
more than fifty options most requests name a handful, so only those that are named are looked at: the others are the
server's, worked out once.
"""

from __future__ import annotations

import dataclasses
import math
import secrets
from array import array
from collections.abc import Callable
from typing import Any

from llamad.api.request import constraints, fields, generation, logit_bias, system_prompt
from llamad.api.request.errors import bad, not_yet
from llamad.api.request.generation import UINT32_MAX, Generation
from llamad.flags.settings import Settings
from llamad.options.samplers import BREAKER_BYTES_MAX, BREAKERS_MAX, LETTERS, SAMPLERS_MAX, present_name
from llamad.protocol.model_info import Model

INT64 = 2**63
STOP_BYTES_MAX = 4096
PENALTY_TEXT_MAX = 65536
RESPONSE_FIELDS_MAX = 256
RESPONSE_FIELD_MAX = 256

# Options of the contract that come later, each with its neutral values: those are fine.
_LATER: dict[str, tuple[object, ...]] = {"image_data": (None, []), "lora": (None, [])}
# constraints.parse() sees to these; the server's own constraint depends on the endpoint.
CONSTRAINTS = frozenset(("grammar", "json_schema", "strict"))


class Defaults:
    """What a request gets that says nothing about an option: the same for all requests to a model."""

    __slots__ = ("_values", "model", "n_predict", "settings")

    def __init__(self, settings: Settings, model: Model) -> None:
        self.settings = settings
        self.model = model
        base = generation.defaults(settings)
        base.repeat_last_n = _seen(base.repeat_last_n, model)
        base.dry_penalty_last_n = _seen(base.dry_penalty_last_n, model)
        cap = settings.n_predict_max
        if cap and not 0 <= base.n_predict <= cap:
            base.n_predict = cap
        self.n_predict = base.n_predict
        self._values = tuple(getattr(base, one.name) for one in dataclasses.fields(Generation))

    def generation(self, constraint: constraints.Wanted) -> Generation:
        """A new one. Its lists are everybody's, and nobody changes them."""
        found = Generation(*self._values)
        found.constraint = constraint
        return found


# From the body and the option's name there, which has a value, to the value.
Read = Callable[[dict[str, Any], str, Defaults], Any]


def parse(body: dict[str, Any], defaults: Defaults, constraint: constraints.Wanted) -> Generation:
    """The request's options over the server's defaults. Raises ApiError for any that cannot be honoured."""
    for name, neutral in _LATER.items():
        if name in body and body[name] not in neutral:
            raise not_yet(name)
    found = defaults.generation(constraint)
    named: dict[str, str] = {}
    for name, value in body.items():
        field = _FIELDS.get(name)
        if field is not None and value is not None:
            named[field] = name
    for field, name in named.items():
        setattr(found, field, _READERS[field](body, name, defaults))
    if not CONSTRAINTS.isdisjoint(body):
        found.constraint = constraints.parse(body, constraint)
    if found.seed < 0 or found.seed == UINT32_MAX:
        found.seed = secrets.randbelow(UINT32_MAX)
    return found


def names() -> set[str]:
    """Every option there is."""
    return {*_FIELDS, *_LATER, *CONSTRAINTS}


def _number(low: float = -math.inf, high: float = math.inf) -> Read:
    return lambda body, name, defaults: fields.number(body, name, 0.0, low, high)


def _whole(low: int = -fields.INT32_MAX, high: int = fields.INT32_MAX) -> Read:
    return lambda body, name, defaults: fields.whole(body, name, 0, low, high)


def _flag(body: dict[str, Any], name: str, defaults: Defaults) -> bool:
    return fields.flag(body, name, False)


def _seed(body: dict[str, Any], name: str, defaults: Defaults) -> int:
    seed = fields.whole(body, name, 0, -INT64, INT64 - 1)
    return seed if seed <= UINT32_MAX else seed % UINT32_MAX  # OpenAI's have 64 bits, the generator takes 32


def _seen(n: int, model: Model) -> int:
    """-1 is the context's size; more than that would only cost memory."""
    return model.n_ctx_slot if n < 0 else min(n, model.n_ctx_slot)


def _last_n(body: dict[str, Any], name: str, defaults: Defaults) -> int:
    return _seen(fields.whole(body, name, 0, -1), defaults.model)


def _above_zero(body: dict[str, Any], name: str, defaults: Defaults) -> float:
    value = fields.number(body, name, 0.0)
    if value <= 0:
        raise bad(f'"{name}" must be greater than 0, not {value:g}')
    return value


def _breakers(body: dict[str, Any], name: str, defaults: Defaults) -> list[str]:
    breakers = fields.texts(body, name)
    if len(breakers) > BREAKERS_MAX:
        raise bad(f'"dry_sequence_breakers" may have at most {BREAKERS_MAX} entries')
    if any(not one or "\0" in one for one in breakers):
        raise bad('"dry_sequence_breakers" may not hold an empty string or a NUL character')
    if any(len(one.encode("utf-8", "replace")) > BREAKER_BYTES_MAX for one in breakers):
        raise bad(f'"dry_sequence_breakers" may hold strings of at most {BREAKER_BYTES_MAX} bytes')
    return breakers


def _samplers(body: dict[str, Any], name: str, defaults: Defaults) -> list[str]:
    value = body[name]
    if isinstance(value, str):
        unknown = [letter for letter in value if letter not in LETTERS]
        if unknown:
            raise bad(f'"samplers": unknown letter "{unknown[0]}"; known are {"".join(LETTERS)}')
        names = [LETTERS[letter] for letter in value]
    else:
        names = []
        for one in fields.texts(body, name):
            known = present_name(one)
            if known is None:
                raise bad(
                    f'"samplers": unknown sampler "{one[:64]}"; known are {", ".join(generation.KINDS)}'
                )
            names.append(known)
    if len(names) > SAMPLERS_MAX:
        raise bad(f'"samplers" may have at most {SAMPLERS_MAX} entries')
    return names


def _stop(body: dict[str, Any], name: str, defaults: Defaults) -> list[str]:
    value = body[name]
    stops = [value] if isinstance(value, str) else fields.texts(body, name)
    stops = [stop for stop in stops if stop]
    most = defaults.settings.stop_max
    if len(stops) > most:
        raise bad(f'"stop" may have at most {most} strings (--stop-max)')
    if any(
        len(stop) > STOP_BYTES_MAX or len(stop.encode("utf-8", "replace")) > STOP_BYTES_MAX for stop in stops
    ):
        raise bad(f'"stop" may hold strings of at most {STOP_BYTES_MAX} bytes')
    return stops


def _response_fields(body: dict[str, Any], name: str, defaults: Defaults) -> list[str]:
    paths = fields.texts(body, name)
    if len(paths) > RESPONSE_FIELDS_MAX or any(len(path) > RESPONSE_FIELD_MAX for path in paths):
        raise bad(
            f'"response_fields" may have at most {RESPONSE_FIELDS_MAX} names of {RESPONSE_FIELD_MAX} characters'
        )
    return paths


def _n_predict(body: dict[str, Any], name: str, defaults: Defaults) -> int:
    name = "n_predict" if body.get("n_predict") is not None else "max_tokens"
    cap = defaults.settings.n_predict_max
    n = fields.capped(body, name, -2, cap or None, "--n-predict-max")
    return cap if cap and n < 0 else n


def _n(body: dict[str, Any], name: str, defaults: Defaults) -> int:
    name = "n_cmpl" if body.get("n_cmpl") is not None else "n"
    return fields.capped(body, name, 1, defaults.settings.n_max, "--n-max")


def _n_probs(body: dict[str, Any], name: str, defaults: Defaults) -> int:
    return fields.capped(body, name, 0, defaults.settings.n_probs_max, "--n-probs-max")


def _penalty_prompt(body: dict[str, Any], name: str, defaults: Defaults) -> bytes:
    """A text or token ids. No more than the context holds is ever looked at, so no more is kept."""
    value, model = body[name], defaults.model
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


def _id_slot(body: dict[str, Any], name: str, defaults: Defaults) -> int:
    name = "id_slot" if body.get("id_slot") is not None else "slot_id"
    return fields.whole(body, name, -1, -1, defaults.settings.n_parallel - 1)


def _t_max_predict_ms(body: dict[str, Any], name: str, defaults: Defaults) -> int:
    return max(0, fields.whole(body, name, 0, -1))


def _logit_bias(body: dict[str, Any], name: str, defaults: Defaults) -> list[tuple[int, float]]:
    return logit_bias.parse(body[name], defaults.model)


def _system_prompt(body: dict[str, Any], name: str, defaults: Defaults) -> system_prompt.SystemPrompt:
    return system_prompt.parse(body[name], defaults.settings)


_READERS: dict[str, Read] = {
    "seed": _seed,
    "temperature": _number(),
    "dynatemp_range": _number(0),
    "dynatemp_exponent": _number(),
    "top_k": _whole(),
    "top_p": _number(0, 1),
    "min_p": _number(0, 1),
    "top_n_sigma": _number(),
    "xtc_probability": _number(0, 1),
    "xtc_threshold": _number(0, 1),
    "typical_p": _number(0, 1),
    "tfs_z": _number(0, 1),
    "repeat_last_n": _last_n,
    "repeat_penalty": _above_zero,
    "presence_penalty": _number(),
    "frequency_penalty": _number(),
    "penalize_nl": _flag,
    "dry_multiplier": _number(0),
    "dry_base": _number(1),
    "dry_allowed_length": _whole(0),
    "dry_penalty_last_n": _last_n,
    "dry_sequence_breakers": _breakers,
    "mirostat": _whole(0, 2),
    "mirostat_tau": _number(0),
    "mirostat_eta": _number(0),
    "min_keep": _whole(0),
    "samplers": _samplers,
    "stop": _stop,
    "n_predict": _n_predict,
    "n_keep": _whole(-1),
    "n_discard": _whole(0),
    "ignore_eos": _flag,
    "stream": _flag,
    "cache_prompt": _flag,
    "return_tokens": _flag,
    "timings_per_token": _flag,
    "t_max_predict_ms": _t_max_predict_ms,
    "id_slot": _id_slot,
    "logit_bias": _logit_bias,
    "response_fields": _response_fields,
    "system_prompt": _system_prompt,
    "n": _n,
    "n_probs": _n_probs,
    "post_sampling_probs": _flag,
    "n_indent": _whole(0),
    "penalty_prompt": _penalty_prompt,
}
# Options of two names; the reader knows which of them wins.
_FIELDS = {name: name for name in _READERS} | {"max_tokens": "n_predict", "n_cmpl": "n", "slot_id": "id_slot"}
