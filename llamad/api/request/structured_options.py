"""Parses the options that are more than a number, a string or a switch.

Pure functions on the event loop. This module, logit_bias.py and system_prompt.py raise every 400 about these options.
"""

from __future__ import annotations

from array import array
from typing import Any

from llamad.api.request import checks
from llamad.api.request.errors import bad
from llamad.api.request.text_limits import TEXT_INLINE_MAX
from llamad.options.option import INT32_MAX
from llamad.options.ranges import RESPONSE_FIELD_MAX, RESPONSE_FIELDS_MAX, STOP_BYTES_MAX
from llamad.options.sampler_names import BREAKER_BYTES_MAX, BREAKERS_MAX, LETTERS, SAMPLERS_MAX, present_name
from llamad.options.values import (
    AdapterScales,
    ResponseFields,
    Samplers,
    SequenceBreakers,
    Stops,
    TokenIds,
    UntokenizedText,
)
from llamad.protocol.model_info import Model

PENALTY_TEXT_MAX = 65536
ADAPTERS_MAX = 1024
SCALE_MAX = 1e6


def breakers(value: Any) -> SequenceBreakers:
    texts = checks.texts("dry_sequence_breakers", value)
    if len(texts) > BREAKERS_MAX:
        raise bad(f'"dry_sequence_breakers" may have at most {BREAKERS_MAX} entries')
    if any(not one or "\0" in one for one in texts):
        raise bad('"dry_sequence_breakers" may not hold an empty string or a NUL character')
    if any(len(one.encode("utf-8", "replace")) > BREAKER_BYTES_MAX for one in texts):
        raise bad(f'"dry_sequence_breakers" may hold strings of at most {BREAKER_BYTES_MAX} bytes')
    return SequenceBreakers(texts)


def samplers(value: Any) -> Samplers:
    """Return the samplers of an array of names, or of a string of letters."""
    if isinstance(value, str):
        unknown = [letter for letter in value if letter not in LETTERS]
        if unknown:
            raise bad(f'"samplers": unknown letter "{unknown[0]}"; use {"".join(LETTERS)}')
        names = [LETTERS[letter] for letter in value]
    else:
        names = [_sampler(one) for one in checks.texts("samplers", value)]
    if len(names) > SAMPLERS_MAX:
        raise bad(f'"samplers" may have at most {SAMPLERS_MAX} entries')
    return Samplers(names)


def _sampler(name: str) -> str:
    known = present_name(name)
    if known is None:
        raise bad(f'"samplers": unknown sampler "{name[:64]}"; use {", ".join(LETTERS.values())}')
    return known


def stops(value: Any, stop_max: int) -> Stops:
    texts = [one for one in ([value] if isinstance(value, str) else checks.texts("stop", value)) if one]
    if len(texts) > stop_max:
        raise bad(f'"stop" may have at most {stop_max} strings (--stop-max)')
    if any(
        len(one) > STOP_BYTES_MAX or len(one.encode("utf-8", "replace")) > STOP_BYTES_MAX for one in texts
    ):
        raise bad(f'"stop" may hold strings of at most {STOP_BYTES_MAX} bytes')
    return Stops(texts)


def response_fields(value: Any) -> ResponseFields:
    paths = checks.texts("response_fields", value)
    if len(paths) > RESPONSE_FIELDS_MAX or any(len(path) > RESPONSE_FIELD_MAX for path in paths):
        raise bad(
            f'"response_fields" may have at most {RESPONSE_FIELDS_MAX} names of {RESPONSE_FIELD_MAX} characters'
        )
    return ResponseFields(paths)


def adapter_scales(value: Any) -> AdapterScales:
    """Return the scales of `lora`, an array of objects. If a number comes twice, the last one counts, as in
    llama-server."""
    scales: dict[int, float] = {}
    if not isinstance(value, list) or len(value) > ADAPTERS_MAX:
        raise bad(f'"lora" must be an array of at most {ADAPTERS_MAX} objects with "id" and "scale"')
    for i, one in enumerate(value):
        if not isinstance(one, dict) or "id" not in one or "scale" not in one:
            raise bad(f'"lora[{i}]" must be an object with "id" and "scale"')
        number = checks.whole(f"lora[{i}].id", one["id"], 0, INT32_MAX)
        scales[number] = checks.number(f"lora[{i}].scale", one["scale"], -SCALE_MAX, SCALE_MAX)
    return AdapterScales(scales.items())


def penalty_prompt(value: Any, model: Model) -> TokenIds:
    """Return the tokens of a text or of token ids; a long text is left to a worker (penalty_tokens).

    Only as many tokens as the context holds are ever used, so only those are kept.
    """
    if isinstance(value, str):
        if len(value) > PENALTY_TEXT_MAX:
            raise bad(
                f'"penalty_prompt" may have at most {PENALTY_TEXT_MAX} characters; send token ids instead'
            )
        if len(value) > TEXT_INLINE_MAX:
            return UntokenizedText(value)
        return penalty_tokens(value, model)
    if isinstance(value, list):
        n_vocab = model.vocab.n_vocab
        value = value[-model.n_ctx_slot :]
        for one in value:
            if type(one) is not int or not 0 <= one < n_vocab:
                raise bad(f'"penalty_prompt" must hold token ids below {n_vocab}')
        tokens = array("i", value).tobytes()
        return TokenIds(tokens)
    raise bad('"penalty_prompt" must be null, a string or an array of token ids')


def penalty_tokens(text: str, model: Model) -> TokenIds:
    """Return the tokens of a text, as many as the context has room for. Releases the GIL; any thread."""
    tokens = model.vocab.tokenize(text.encode("utf-8", "replace"), False, False)
    return TokenIds(tokens[-4 * model.n_ctx_slot :])
