"""Turns `options`, Ollama's object of parameters, into generation options.

Pure functions, any thread. Sizes and settings of a load are hints: they are left out and named. Raises a 400 for a
value that cannot be applied.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from llamad.api.request.errors import ApiError
from llamad.api.request.ignored_fields import LeftOut
from llamad.api.request.parse import Defaults, GenerationRequest
from llamad.options.sampling_table import SamplingOptions

G = TypeVar("G", bound=GenerationRequest)

NAME = "options"
# Ollama's names that differ from those of /completion.
_RENAMED = {"num_predict": "n_predict", "num_keep": "n_keep", "penalize_newline": "penalize_nl"}
# The options of /completion that are options here, too: all of sampling, and what else applies to one text.
_MORE = (
    "cache_prompt",
    "grammar",
    "id_slot",
    "ignore_eos",
    "loop_guard",
    "lora",
    "n_keep",
    "n_predict",
    "stop",
    "t_max_predict_ms",
)
_KNOWN = frozenset((*SamplingOptions.__struct_encode_fields__, *_MORE))
_ASKED_SIZE = "num_ctx"

_encode = msgspec.json.Encoder().encode


def read(kind: type[G], options: dict[str, Any], defaults: Defaults) -> G:
    """Return a request of this kind that has the options, and the server's where there are none. Raises ApiError."""
    left_out, fields = LeftOut(), dict[str, Any]()
    for name, value in options.items():
        own = _RENAMED.get(name, name)
        if own in _KNOWN:
            fields[own] = value
        elif value is not None and not _is_given(name, value, defaults):
            left_out.add(name, NAME)
    if fields.get("n_predict") == 0 and "num_predict" in options:
        fields["n_predict"] = -1  # no limit
    try:
        request = defaults.decode(kind, _encode(fields))
    except ApiError as error:
        raise ApiError(error.status, _in_their_words(error.message, fields), type=error.type) from None
    request.left_out = left_out
    return request


def _is_given(name: str, value: Any, defaults: Defaults) -> bool:
    """Return whether the server gives what a hint asks for: a context of at least this size."""
    return name == _ASKED_SIZE and isinstance(value, int) and value <= defaults.model.n_ctx_slot


def _in_their_words(message: str, fields: dict[str, Any]) -> str:
    """Return the message of an error with the names that the client has used."""
    theirs = {own: name for name, own in _RENAMED.items()}
    for own in fields:
        message = message.replace(f'"{own}', f'"{NAME}.{theirs.get(own, own)}')
    return message
