"""Owns what a request is served without: fields, tools, items and blocks that only a hosted service has, and fields
that are llama-server's alone.

One table for each dialect; pure functions, any thread. Nothing is dropped in silence: what was left out is named in a
header of the response and in one log line. Must not list a constraint (a schema, a grammar, a stop, a limit).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

log = logging.getLogger("llamad.api")

HEADER = "X-Llamad-Ignored"
NAME_MAX = 64
NAMES_MAX = 32
_STRANGE = re.compile(
    r"[^A-Za-z0-9_.-]"
)  # a name comes from the client, and goes into a header and a log line


class Hosted(msgspec.Struct, frozen=True):
    """What one dialect leaves out. A field's values, or types of values, that ask for nothing are not named; neither
    is an empty one, but of those in `even_empty`. A type of tools that is not `served`, new ones too, is some service's
    own."""

    fields: Mapping[str, tuple[object, ...]] = msgspec.field(default_factory=dict)
    even_empty: tuple[str, ...] = ()
    served: tuple[str, ...] = ("function",)

    def take_fields(self, request: Any, left_out: LeftOut) -> None:
        """Take the fields out of the request."""
        for name, neutral in self.fields.items():
            value = getattr(request, name)
            if value or (value is not None and name in self.even_empty):
                setattr(request, name, None)
                if value not in neutral and type(value) not in neutral:
                    left_out.add(name)

    def tools(self, tools: list[Any], left_out: LeftOut) -> Iterator[tuple[int, Any]]:
        """The tools that can be offered, with their positions."""
        for i, tool in enumerate(tools):
            kind = tool.get("type") if isinstance(tool, dict) else None
            if isinstance(kind, str) and kind not in self.served:
                left_out.add(kind, "tools")
            else:
                yield i, tool


class LeftOut:
    """The names of what was left out of one request."""

    __slots__ = ("_names",)

    def __init__(self) -> None:
        self._names: dict[str, None] | None = None  # few requests need one

    def add(self, name: str, of: str = "") -> None:
        if self._names is None:
            self._names = {}
        if len(self._names) < NAMES_MAX:
            shown = _STRANGE.sub("?", name[:NAME_MAX])
            self._names[f"{of}.{shown}" if of else shown] = None

    def __bool__(self) -> bool:
        return bool(self._names)

    def __str__(self) -> str:
        return ", ".join(self._names or ())

    @property
    def no_tools(self) -> str:
        """The end of an error about a tool that is not there: which ones were left out."""
        tools = [name for name in self._names or () if name.startswith("tools.")]
        return f"; left out, as only a hosted service has them: {', '.join(tools)}" if tools else ""

    def headers(self, request_id: str) -> tuple[tuple[str, str], ...]:
        """Of the response. Called once: also writes the log line."""
        if not self._names:
            return ()
        log.info("request %s: served without what this server does not have: %s", request_id, self)
        return ((HEADER, str(self)),)


# llama-server's own: how it is built shows through them. They change nothing here: calls and reasoning are found as the
# chat template writes them.
_LLAMA_SERVER: dict[str, tuple[object, ...]] = {
    "backend_sampling": (),
    "chat_format": (),
    "chat_parser": (),
    "generation_prompt": (),
    "reasoning_in_content": (),
}
# OpenAI's, of chats; a client may send them with any text.
_GENERATING: dict[str, tuple[object, ...]] = {
    "prediction": (),
    "verbosity": ("medium",),
    "web_search_options": (),
}
_EVEN_EMPTY = ("web_search_options",)  # {} asks for a search
NATIVE = Hosted(
    {**_LLAMA_SERVER, **_GENERATING, "reasoning_control": (), "reasoning_format": ("none",)},
    even_empty=_EVEN_EMPTY,
)
# Fields of all of OpenAI's endpoints. What a client tells about its user changes nothing here.
_OPENAI: dict[str, tuple[object, ...]] = {
    **_LLAMA_SERVER,
    "metadata": (),
    "prompt_cache_key": (),
    "prompt_cache_options": (),
    "prompt_cache_retention": (),
    "safety_identifier": (),
    "service_tier": ("auto", "default"),
    "user": (str,),
}
COMPLETIONS = Hosted({**_OPENAI, **_GENERATING, "store": ()}, even_empty=_EVEN_EMPTY)
CHAT = Hosted({**_OPENAI, **_GENERATING, "moderation": (), "store": ()}, even_empty=_EVEN_EMPTY)
TRANSCRIPTIONS = Hosted({**CHAT.fields, "chunking_strategy": ()}, even_empty=_EVEN_EMPTY)
RESPONSES = Hosted(
    {
        **{name: neutral for name, neutral in _OPENAI.items() if name not in ("metadata", "user")},
        "background": (),
        "client_metadata": (),
        "context_management": (),
        "moderation": (),
        "truncation": ("disabled",),
    }
)
MESSAGES = Hosted(
    {
        **_LLAMA_SERVER,
        "betas": (),
        "container": (),
        "context_management": (),
        "diagnostics": (),
        "fallbacks": (),
        "inference_geo": (),
        "mcp_servers": (),
        "metadata": (),
        "service_tier": ("auto", "standard_only"),
        "speed": ("standard",),
        "user": (str,),
    },
    served=("custom",),
)
