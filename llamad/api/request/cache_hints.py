"""What a client says about how soon it will use its prompt again: hints for what stays in the prompt cache.

Pure functions on the event loop. A hint never fails a request; one that says nothing known is reported as ignored.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

import msgspec

from llamad.api.request.ignored_fields import LeftOut

ONCE = -1  # the prompt will not be used again
UNKNOWN = 0
# For how many seconds the client means to use the prompt again.
KEY_SECONDS = 600  # it has a "prompt_cache_key": OpenAI keeps such prompts for 5 to 10 minutes
RETENTIONS = {"in_memory": 3600, "in-memory": 3600, "24h": 86400}  # values of "prompt_cache_retention"
LIFETIMES = {"5m": 300, "1h": 3600}  # values of "ttl" in "cache_control"


class CacheHint(msgspec.Struct, frozen=True):
    """For how many seconds the client means to use its prompt again."""

    seconds: int = UNKNOWN


class Hinted(Protocol):
    """The fields of a request to one of OpenAI's endpoints."""

    left_out: LeftOut
    prompt_cache_key: Any
    prompt_cache_retention: Any


def of_fields(request: Hinted) -> int:
    """Return the hint of OpenAI's fields."""
    key, kept = request.prompt_cache_key, request.prompt_cache_retention
    seconds = RETENTIONS.get(kept, UNKNOWN) if isinstance(kept, str) else UNKNOWN
    if kept is not None and not seconds:
        request.left_out.add("prompt_cache_retention")
    if key is not None and not isinstance(key, str):
        request.left_out.add("prompt_cache_key")
    elif key:
        seconds = max(seconds, KEY_SECONDS)
    return seconds


def of_blocks(*lists: Any) -> int:
    """Return the hint of the longest `cache_control` in these lists of blocks, or of messages and results that have
    blocks. Everything else in them is left to those who read them."""
    return max((_seconds(block) for blocks in lists for block in _blocks(blocks)), default=UNKNOWN)


def _blocks(values: Any) -> Iterable[dict[str, Any]]:
    if isinstance(values, dict):
        values = [values]
    for value in values if isinstance(values, list) else ():
        if isinstance(value, dict):
            yield value
            content = value.get("content")
            for block in content if isinstance(content, list) else ():
                if isinstance(block, dict):
                    yield block


def _seconds(block: dict[str, Any]) -> int:
    control = block.get("cache_control")
    if not isinstance(control, dict) or control.get("type") != "ephemeral":
        return UNKNOWN
    ttl = control.get("ttl")
    return LIFETIMES.get(ttl, LIFETIMES["5m"]) if isinstance(ttl, str) else LIFETIMES["5m"]
