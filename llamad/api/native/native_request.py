"""The fields that /completion and /infill share besides the options: other names of options, and the fields of chats
that they do not support.

Pure data, read on the event loop. Must not know what a response looks like.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from llamad.api.request import checks
from llamad.api.request.errors import bad
from llamad.api.request.ignored_fields import NATIVE, Hosted
from llamad.api.request.parse import GenerationRequest, StreamOptions
from llamad.options.option import INT32_MAX, LEFT_OUT
from llamad.options.ranges import LastN, Length


class NativeRequest(GenerationRequest, kw_only=True):
    LIMITS: ClassVar[tuple[str, ...]] = ("n_predict", "max_completion_tokens", "max_tokens")
    HOSTED: ClassVar[Hosted] = NATIVE

    max_completion_tokens: Length = LEFT_OUT
    logprobs: Annotated[int | float | bool, Meta(description="an integer or a boolean")] = 0
    stream_options: StreamOptions | None = None
    reasoning_budget_tokens: LastN = LEFT_OUT
    image_data: list[Any] = msgspec.field(default_factory=list)

    def take_aliases(self) -> None:
        if self.reasoning_budget_tokens >= 0:
            raise bad(
                '"reasoning_budget_tokens" needs a chat, whose template says what reasoning is; use'
                " /v1/chat/completions"
            )
        self.n_probs = self.n_probs or _many(self.logprobs)

    @property
    def include_usage(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage


def _many(logprobs: float) -> int:
    """Return for how many tokens to show logprobs: a number, as in OpenAI's completions, or 1 for true, as in its
    chats."""
    return int(logprobs) if isinstance(logprobs, bool) else checks.whole("logprobs", logprobs, 0, INT32_MAX)
