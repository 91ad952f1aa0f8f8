"""Parses `logit_bias`, which has three forms, into packed tokens and biases.

Pure functions on the event loop or a worker. Raises every 400 about a bias.
"""

from __future__ import annotations

import math
from array import array
from typing import Any

from llamad.api.request import checks
from llamad.api.request.errors import bad
from llamad.options.values import Biases
from llamad.protocol.model_info import Model

BIAS_MAX = 65536
BIAS_TEXTS_MAX = 1024
BIAS_TEXT_MAX = 256
INLINE_MAX = 1024  # at most this many biases are encoded on the event loop


def parse(value: Any, model: Model) -> Biases:
    """Return the biases of [[token or text, bias or false], ...], or of OpenAI's {"token": bias}."""
    if isinstance(value, dict):
        value = [[int(key) if _is_id(key) else key, bias] for key, bias in value.items()]
    if not isinstance(value, list):
        raise bad('"logit_bias" must be an array of [token, bias] pairs or an object')
    n_texts = sum(isinstance(pair, list) and len(pair) > 0 and isinstance(pair[0], str) for pair in value)
    if len(value) > BIAS_MAX or n_texts > BIAS_TEXTS_MAX:
        raise bad(f'"logit_bias" may have at most {BIAS_MAX} entries, {BIAS_TEXTS_MAX} of them strings')
    ids, biases = array("i"), array("d")
    for pair in value:
        if not isinstance(pair, list) or len(pair) != 2:
            raise bad('"logit_bias": each entry must be a pair of a token and a bias')
        tokens, bias = _bias_tokens(pair[0], model), _bias(pair[1])
        ids.extend(tokens)
        biases.extend([bias] * len(tokens))
        if len(ids) > BIAS_MAX:
            raise bad(f'"logit_bias" may name at most {BIAS_MAX} tokens')
    packed = Biases.packed(ids, biases)
    if len(packed) > INLINE_MAX:
        packed.json  # noqa: B018 - encode them here, because a worker reads a body with so many biases
    return packed


def _bias(value: object) -> float:
    if value is False:
        return -math.inf
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        number = checks.finite(value)
        if number is not None:
            return number
    raise bad('"logit_bias": a bias must be a finite number or false')


def _is_id(key: str) -> bool:
    return key.isascii() and key.isdigit() and len(key) <= 10


def _bias_tokens(value: object, model: Model) -> list[int]:
    if isinstance(value, str):
        if len(value) > BIAS_TEXT_MAX:
            raise bad(f'"logit_bias" may name texts of at most {BIAS_TEXT_MAX} characters')
        tokens = model.vocab.tokenize(value.encode("utf-8", "replace"), False, False)
        return list(memoryview(tokens).cast("i"))
    if not isinstance(value, int) or isinstance(value, bool):
        raise bad('"logit_bias": a token must be an id or a string')
    if not 0 <= value < model.vocab.n_vocab:
        raise bad(f'"logit_bias": token id {value} is outside the vocabulary of {model.vocab.n_vocab}')
    return [value]
