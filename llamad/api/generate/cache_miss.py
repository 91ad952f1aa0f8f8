"""Why a request has computed tokens again that its key knows: for `timings.cache_miss`, the log and the metrics.

Runs on the event loop when a completion has ended. The log shows no text.
"""

from __future__ import annotations

import logging
from array import array
from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from llamad.api.request.media import MARKER
from llamad.api.service.known_prompts import TOKENS_MIN
from llamad.api.service.known_prompts import Sequence as Known
from llamad.client.events import Done
from llamad.protocol.row_ids import without_rows

log = logging.getLogger("llamad.api")

TEXT_MAX = 80
_TOKENS = 80  # they have at least as many characters, unless many of them have none


class EndedPart(Protocol):
    """A completion that has ended; it is job.CompletionPart."""

    job: Any
    index: int
    slot: int
    n_prompt: int
    tokens_prompt: bytes
    drawn: array[int]
    miss: dict[str, Any]

    @property
    def ended(self) -> Done: ...


class Outline(msgspec.Struct, frozen=True):
    """Where the parts of a rendered chat begin, in characters, and their names; and where the markers of its files end.
    `spans` are the tokens of the files, known once they are encoded."""

    parts: Sequence[tuple[int, str]] = ()
    ends: Sequence[int] = ()
    spans: Sequence[tuple[int, int]] = ()


def outline(
    prompt: str,
    messages: Sequence[dict[str, Any]],
    tools: Sequence[dict[str, Any]],
    ends: Sequence[int] = (),
) -> Outline:
    """Return the parts of a rendered chat: "system", "tools", and "message N", in their order. Parts that the template
    has changed are left out. `ends` says where the markers of its files end."""
    marks, end = [], 0
    for i, message in enumerate(messages):
        content = message.get("content")
        parts = content if isinstance(content, list) else [{"text": content}]
        texts = [str(one["text"]).strip() for one in parts if isinstance(one.get("text"), str)]
        text = next(filter(None, texts), "")
        at = prompt.find(text, end) if text else -1
        if at < 0:
            continue
        is_system = i == 0 and message.get("role") in ("system", "developer")
        marks.append((at, "system" if is_system else f"message {i}"))
        end = at + len(text)
    if tools:
        name = tools[0].get("function", {}).get("name")
        at = prompt.find(f'"{name}"') if name else -1
        marks += [(at, "tools")] if at >= 0 else []
    return Outline(sorted(marks), ends)


def note(part: EndedPart) -> None:
    """Set the cache miss of a part that has ended, if it has one, count and log it; and remember its tokens."""
    job, done = part.job, part.ended
    served, key = job.served, job.key
    if part.n_prompt < TOKENS_MIN or part.index % job.generation.n:
        return
    adapters = tuple(job.adapter_uses)
    uses_cache = job.generation.cache_prompt and job.on_prompt is None
    prompt = Known(part.tokens_prompt, adapters)
    repeated = served.known.repeated(key, prompt, done.n_cached, uses_cache=uses_cache)
    served.known.keep(key, Known(part.tokens_prompt + part.drawn.tobytes(), adapters))
    served.known.misses.pop(part.slot, None)
    if repeated is None:
        return
    was, now = (
        _text(part, tokens[4 * repeated.at : 4 * (repeated.at + _TOKENS)])
        for tokens in (repeated.known.tokens, prompt.tokens)
    )
    place = _place(part, repeated.at)
    part.miss = {
        "n": repeated.n,
        "at": repeated.at,
        "part": place,
        "reason": repeated.reason,
        "was": was,
        "is": now,
    }
    served.known.misses[part.slot] = (key, part.miss)
    served.metrics.count_miss(repeated.reason, repeated.n)
    log.info(
        "request %s: %d known tokens were computed again, from token %d on (%s): %s",
        job.request_id,
        repeated.n,
        repeated.at,
        place,
        repeated.reason,
    )


def _text(part: EndedPart, tokens: bytes) -> str:
    """Return the text of tokens that may have rows of images and sound, and begin with one."""
    begins_with_file = bool(tokens) and tokens[3] >= 0x80
    text: str = part.job.model.vocab.detokenize(without_rows(tokens), True).decode("utf-8", "replace")
    return ((MARKER if begins_with_file else "") + text)[:TEXT_MAX]


def _place(part: EndedPart, at: int) -> str:
    """Return the name of the part of the prompt that has this token."""
    job = part.job
    if job.ready is not None and at < job.ready.system.n_tokens:
        return "system"
    outline: Outline = job.outline
    if not outline.parts:
        return "prompt"
    n_before, offset = job.ready.system.n_tokens if job.ready is not None else 0, 0
    for (begin, end), mark in zip(outline.spans, outline.ends, strict=False):
        if begin <= at:
            n_before, offset = end, mark
    if n_before <= at:
        text = job.model.vocab.detokenize(part.tokens_prompt[4 * n_before : 4 * at], True)
        offset += len(text.decode("utf-8", "replace"))
    else:
        offset -= 1  # within the file
    names = (name for start, name in reversed(outline.parts) if start <= offset)
    return next(names, outline.parts[0][1])
