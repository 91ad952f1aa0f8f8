"""The JSON that OpenAI's endpoints share: ids, usage, finish reasons, logprobs.

Pure functions on the event loop. Must not know how a response is sent.
"""

from __future__ import annotations

import codecs
import math
import secrets
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from llamad.api.generate import completion_json
from llamad.api.generate.completion_json import token_json
from llamad.api.generate.completion_result import final_json
from llamad.api.generate.job import CompletionPart, Job
from llamad.api.generate.stream_event import write_event
from llamad.client.events import TokenProbs
from llamad.client.text_event import TextEvent
from llamad.protocol.messages import STOP_LIMIT
from llamad.tokenizer.vocab import Vocab

LOGPROB_MIN = -9999.0
# The same threshold as in llama-server: --verbose is above it, the levels of its log are not.
VERBOSE_ABOVE = 9

_encode = msgspec.json.Encoder().encode
_arguments = msgspec.json.Decoder(dict[str, msgspec.Raw])


def new_id(prefix: str) -> str:
    """Return the prefix and 24 random hex digits."""
    return prefix + secrets.token_hex(12)


def finish_reason(part: CompletionPart) -> str:
    return "length" if part.ended.stop_type == STOP_LIMIT else "stop"


def is_whole(arguments: str) -> bool:
    """Return whether the arguments of a call are a JSON object. Those of a call that was cut off are not."""
    try:
        _arguments.decode(arguments)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


def usage(job: Job) -> dict[str, Any]:
    return completion_json.usage([part.ended for part in job.parts], job.generation.n)


def usage_ending(job: Job) -> dict[str, Any]:
    """Return the fields of the last event of a stream, which has no choices: the usage and, as in llama-server, the
    timings."""
    part = job.parts[0]
    return {"usage": usage(job), "timings": completion_json.ended_timings(part.ended, part.miss)}


def event(job: Job, value: dict[str, Any]) -> bytes:
    """Return an event of a stream with only the `response_fields`; b"" if it has none of them."""
    chosen = completion_json.select(value, job.generation.response_fields)
    return write_event(chosen) if chosen else b""


def _verbose(part: CompletionPart) -> dict[str, Any]:
    """Return the result in the format of /completion, for debugging, if `verbose` or --verbose is set."""
    job = part.job
    is_wanted = job.generation.verbose or job.served.service.settings.verbosity > VERBOSE_ABOVE
    return {"__verbose": final_json(part)} if is_wanted else {}


def _warnings(job: Job) -> dict[str, Any]:
    """Return the field `warnings` with the parts of a schema that the grammar ignores, or no field if there are
    none."""
    constraint = job.ready.constraint if job.ready is not None else None
    return {"warnings": list(constraint.warnings)} if constraint is not None and constraint.warnings else {}


def ending(part: CompletionPart) -> dict[str, Any]:
    """Return the fields that a response, or the last event of a part, has besides its choices."""
    return {
        "timings": completion_json.ended_timings(part.ended, part.miss),
        **_warnings(part.job),
        **_verbose(part),
    }


def chat_logprobs(vocab: Vocab, piece: TextEvent, n_top: int, is_post: bool) -> Iterator[dict[str, Any]]:
    """Yield the entries of `logprobs.content` for the tokens of a piece. With `post_sampling_probs` they have
    probabilities, as in /completion."""
    name, name_top = ("prob", "top_probs") if is_post else ("logprob", "top_logprobs")
    for token, (own, top) in zip(piece.tokens, piece.probs, strict=False):
        item = token_json(vocab, token, name, own)
        item[name_top] = [token_json(vocab, one, name, value) for one, value in top[:n_top]]
        yield item


class Offsets:
    """Counts the offsets of tokens in a text, in characters. A character that is split over tokens counts with the last
    of them."""

    def __init__(self, start: int = 0) -> None:
        self._next = start
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def take(self, data: bytes) -> int:
        """Return the offset of the next token, which has these bytes."""
        offset = self._next
        self._next += len(self._decoder.decode(data))
        return offset


def no_text_logprobs() -> dict[str, list[Any]]:
    return {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}


def text_logprobs(
    out: dict[str, list[Any]],
    offsets: Offsets,
    piece_of: Callable[[int], bytes],
    tokens: list[int],
    probs: list[TokenProbs],
    n_top: int,
    is_post: bool,
) -> None:
    """Add tokens to the older `logprobs` of /v1/completions. Probabilities after sampling become logarithms, because
    this format has no field for them. The top tokens are encoded immediately, which takes a fraction of the memory."""

    def log(value: float) -> float:
        if not is_post:
            return value
        return math.log(value) if value > 0 else LOGPROB_MIN

    for token, (own, top) in zip(tokens, probs, strict=False):
        data = piece_of(token)
        shown: dict[str, float] = {}
        for one, value in top[:n_top]:
            # If texts are equal, the most likely one counts.
            shown.setdefault(piece_of(one).decode("utf-8", "replace"), log(value))
        out["tokens"].append(data.decode("utf-8", "replace"))
        out["token_logprobs"].append(log(own))
        out["top_logprobs"].append(msgspec.Raw(_encode(shown)))
        out["text_offset"].append(offsets.take(data))
