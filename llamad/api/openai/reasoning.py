"""Reads what a chat request says about reasoning: whether, how much, and where it goes.

Pure functions, on the event loop or in a worker. Raises every 400 about these fields.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple, cast, get_args

from llamad.api.openai.request import ChatRequest, Effort
from llamad.api.request.errors import bad
from llamad.chat.host import ChatHost
from llamad.flags.settings import ModelSettings
from llamad.options.option import LEFT_OUT

_NEAREST = {"minimal": "low", "xhigh": "high", "max": "high"}


class Thinking(NamedTuple):
    """`on`: None if the template decides. `last`: the last text of reasoning that is cut off, or all of it for a budget
    of 0."""

    on: bool | None
    n_tokens: int  # reasoning budget; -1: no limit
    last: str
    kwargs: dict[str, Any]  # template variables of the request


def effort(value: object, field: str) -> Effort | None:
    """OpenAI's reasoning effort; None if not given."""
    efforts = get_args(Effort)
    if value is not None and value not in efforts:
        raise bad(f"{field} must be one of {', '.join(efforts)}")
    return cast("Effort | None", value)


def thinking(request: ChatRequest, settings: ModelSettings, host: ChatHost) -> Thinking:
    """In increasing precedence: the flags (with the template variables for every chat), `reasoning_effort`, the
    request's own template variables, the budget."""
    own = request.chat_template_kwargs or {}
    on: bool | None = {"on": True, "off": False}.get(settings.reasoning)
    on = _switch(host.kwargs, on)
    wanted = request.reasoning_effort
    if wanted is not None:
        on = wanted != "none"
    on = _switch(own, on)
    kwargs = {"reasoning_effort": _known(wanted, host), **own} if wanted and wanted != "none" else own
    last = request.reasoning_budget_message
    if last is None:
        last = settings.reasoning_budget_message or ""
    n_tokens = _budget(request, settings)
    if n_tokens == 0:
        on = False
    return Thinking(on, n_tokens, last, kwargs)


def _switch(kwargs: dict[str, Any], on: bool | None) -> bool | None:
    value = kwargs.get("enable_thinking")
    if not isinstance(value, bool | None):
        raise bad('"chat_template_kwargs": "enable_thinking" must be true or false')
    return on if value is None else value


def _known(wanted: str, host: ChatHost) -> str:
    """Few templates know the extreme efforts, and others may fail: they get the nearest one that all know."""
    if wanted in _NEAREST and not re.search(f"""['"]{wanted}['"]""", host.source):
        return _NEAREST[wanted]
    return wanted


def _budget(request: ChatRequest, settings: ModelSettings) -> int:
    budget = request.reasoning_budget_tokens
    if budget == LEFT_OUT:
        budget = request.thinking_budget_tokens
    return settings.reasoning_budget if budget < 0 else budget


def has_budget(request: ChatRequest) -> bool:
    """Whether the request itself has a reasoning budget."""
    given = (request.reasoning_budget_tokens, request.thinking_budget_tokens)
    return any(budget not in (LEFT_OUT, 0) for budget in given)
