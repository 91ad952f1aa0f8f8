"""Why a request has computed tokens again that its key knows: for `timings.cache_miss`, the log and the metrics.

Runs on the event loop when a completion has ended. The log shows no text.
"""

from __future__ import annotations

import logging
from array import array
from collections.abc import Sequence
from typing import Any, Protocol

from llamad.api.service.known_prompts import TOKENS_MIN
from llamad.api.service.known_prompts import Sequence as Known
from llamad.client.events import Done

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


Outline = Sequence[
    tuple[int, str]
]  # where the parts of a rendered chat begin, in characters, and their names


def outline(prompt: str, messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]]) -> Outline:
    """Return the parts of a rendered chat: "system", "tools", and "message N", in their order. Parts that the template
    has changed are left out."""
    marks, end = [], 0
    for i, message in enumerate(messages):
        content = message.get("content")
        parts = content if isinstance(content, list) else [{"text": content}]
        texts = [str(one["text"]) for one in parts if isinstance(one.get("text"), str)]
        text = texts[0].strip() if texts else ""
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
    return sorted(marks)


def note(part: EndedPart) -> None:
    """Set the cache miss of a part that has ended, if it has one, count and log it; and remember its tokens."""
    job, done = part.job, part.ended
    served, key = job.served, job.key
    has_rows = job.ready is not None and job.ready.rows and any(job.ready.rows)
    if part.n_prompt < TOKENS_MIN or part.index % job.generation.n or has_rows:
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
    text: str = part.job.model.vocab.detokenize(tokens, True).decode("utf-8", "replace")
    return text[:TEXT_MAX]


def _place(part: EndedPart, at: int) -> str:
    """Return the name of the part of the prompt that has this token."""
    job = part.job
    if job.ready is not None and at < job.ready.system.n_tokens:
        return "system"
    if not job.outline:
        return "prompt"
    first = job.ready.system.n_tokens if job.ready is not None else 0
    before = job.model.vocab.detokenize(part.tokens_prompt[4 * first : 4 * at], True)
    offset = len(before.decode("utf-8", "replace"))
    parts: Outline = job.outline
    return next((name for start, name in reversed(parts) if start <= offset), parts[0][1])
