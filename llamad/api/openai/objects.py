"""Owns the JSON that OpenAI's endpoints share: ids, usage, finish reasons, logprobs.

Pure functions on the event loop. Must not know how an answer is sent.
"""

from __future__ import annotations

import codecs
import math
import secrets
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from llamad.api.generate import completion_json
from llamad.api.generate.completion_result import final_json
from llamad.api.generate.job import CompletionPart, Job
from llamad.api.generate.stream_event import write_event
from llamad.client.events import TokenProbs
from llamad.client.text_event import TextEvent
from llamad.protocol.messages import STOP_LIMIT
from llamad.tokenizer.vocab import Vocab

LOGPROB_MIN = -9999.0
# llama-server's: --verbose is above, every level of its log is not.
VERBOSE_ABOVE = 9

_encode = msgspec.json.Encoder().encode


def new_id(prefix: str) -> str:
    """The prefix and 24 random hex digits."""
    return prefix + secrets.token_hex(12)


def finish_reason(part: CompletionPart) -> str:
    return "length" if part.ended.stop_type == STOP_LIMIT else "stop"


def usage(job: Job) -> dict[str, Any]:
    return completion_json.usage([part.ended for part in job.parts], job.generation.n)


def event(job: Job, value: dict[str, Any]) -> bytes:
    """An event of a stream, reduced to `response_fields`; b"" if none of them is in it."""
    chosen = completion_json.select(value, job.generation.response_fields)
    return write_event(chosen) if chosen else b""


def verbose(part: CompletionPart) -> dict[str, Any]:
    """With `verbose` or --verbose, the result as /completion gives it, for debugging."""
    job = part.job
    is_wanted = job.generation.verbose or job.served.service.settings.verbosity > VERBOSE_ABOVE
    return {"__verbose": final_json(part)} if is_wanted else {}


def warnings(job: Job) -> dict[str, Any]:
    """`warnings`: what the grammar drops of a schema; no field if nothing."""
    constraint = job.ready.constraint if job.ready is not None else None
    return {"warnings": list(constraint.warnings)} if constraint is not None and constraint.warnings else {}


def ended_timings(part: CompletionPart) -> dict[str, Any]:
    done = part.ended
    return completion_json.timings(
        done.n_prompt, done.n_cached, done.prompt_us, done.n_decoded, done.predict_us
    )


def piece_timings(part: CompletionPart, piece: TextEvent) -> dict[str, Any]:
    """`timings` of an event in a stream; no field unless they are wanted."""
    if not part.job.generation.timings_per_token:
        return {}
    return {
        "timings": completion_json.timings(
            part.n_prompt, part.n_cached, piece.prompt_us, part.n_decoded, piece.predict_us
        )
    }


def chat_logprobs(vocab: Vocab, piece: TextEvent, n_top: int, is_post: bool) -> Iterator[dict[str, Any]]:
    """The entries of `logprobs.content` for the tokens of a piece; with `post_sampling_probs`, probabilities, as in
    /completion."""
    name, name_top = ("prob", "top_probs") if is_post else ("logprob", "top_logprobs")

    def entry(token: int, value: float) -> dict[str, Any]:
        data = vocab.output(token)
        return {"id": token, "token": data.decode("utf-8", "replace"), "bytes": list(data), name: value}

    for token, (own, top) in zip(piece.tokens, piece.probs, strict=False):
        item = entry(token, own)
        item[name_top] = [entry(*one) for one in top[:n_top]]
        yield item


class Offsets:
    """Offsets of tokens in a text, in characters. A character split over tokens counts with the last of them."""

    def __init__(self, start: int = 0) -> None:
        self._next = start
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def take(self, data: bytes) -> int:
        """The offset of the next token, which has these bytes."""
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
    """Adds tokens to the older `logprobs` of /v1/completions. Probabilities after sampling become logarithms, as this
    form has no field for them. The top ones are encoded at once, which takes a fraction of the memory."""

    def log(value: float) -> float:
        if not is_post:
            return value
        return math.log(value) if value > 0 else LOGPROB_MIN

    for token, (own, top) in zip(tokens, probs, strict=False):
        data = piece_of(token)
        shown: dict[str, float] = {}
        for one, value in top[:n_top]:
            shown.setdefault(
                piece_of(one).decode("utf-8", "replace"), log(value)
            )  # of equal texts, the most likely
        out["tokens"].append(data.decode("utf-8", "replace"))
        out["token_logprobs"].append(log(own))
        out["top_logprobs"].append(msgspec.Raw(_encode(shown)))
        out["text_offset"].append(offsets.take(data))
