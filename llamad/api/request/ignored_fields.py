"""The parts of a request that are ignored: fields, tools, items and blocks that only a hosted service has, and fields
that only llama-server has.

There is one table for each dialect. Pure functions, any thread. Nothing is dropped silently: a header of the response
and one log line name what was ignored. Must not list a constraint (a schema, a grammar, a stop, a limit).
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
_STRANGE = re.compile(r"[^A-Za-z0-9_.-]")  # names come from the client, and go into a header and a log line


class Hosted(msgspec.Struct, frozen=True):
    """What one dialect ignores. A field is not reported if its value, or the type of its value, is one of those listed
    for it, which ask for nothing, or if it is empty and not in `even_empty`. Tools of a type that is not in `served`,
    including future types, belong to a hosted service."""

    fields: Mapping[str, tuple[object, ...]] = msgspec.field(default_factory=dict)
    even_empty: tuple[str, ...] = ()
    served: tuple[str, ...] = ("function",)

    def take_fields(self, request: Any, left_out: LeftOut) -> None:
        """Remove the ignored fields from the request, and report them to `left_out`."""
        for name, neutral in self.fields.items():
            value = getattr(request, name)
            if value or (value is not None and name in self.even_empty):
                setattr(request, name, None)
                if value not in neutral and type(value) not in neutral:
                    left_out.add(name)

    def tools(self, tools: list[Any], left_out: LeftOut) -> Iterator[tuple[int, Any]]:
        """Yield the tools that can be offered, with their positions."""
        for i, tool in enumerate(tools):
            kind = tool.get("type") if isinstance(tool, dict) else None
            if isinstance(kind, str) and kind not in self.served:
                left_out.add(kind, "tools")
            else:
                yield i, tool


class LeftOut:
    """The names of what was ignored in one request."""

    __slots__ = ("_names",)

    def __init__(self) -> None:
        self._names: dict[str, None] | None = None  # None for most requests, which need no dict

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
        """Return the end of an error about a tool that does not exist: the tools that were ignored."""
        tools = [name for name in self._names or () if name.startswith("tools.")]
        return f"; left out, because only a hosted service has them: {', '.join(tools)}" if tools else ""

    def headers(self, request_id: str) -> tuple[tuple[str, str], ...]:
        """Return the headers of the response, and write the log line. Called once."""
        if not self._names:
            return ()
        log.info("request %s: ignored what this server does not support: %s", request_id, self)
        return ((HEADER, str(self)),)


# Fields that expose llama-server's implementation. They change nothing here: llamad finds calls and reasoning in the
# form in which the chat template writes them.
_LLAMA_SERVER: dict[str, tuple[object, ...]] = {
    "backend_sampling": (),
    "chat_format": (),
    "chat_parser": (),
    "generation_prompt": (),
    "reasoning_in_content": (),
}
# Fields of OpenAI's chats; a client may send them with any text.
_GENERATING: dict[str, tuple[object, ...]] = {
    "prediction": (),
    "verbosity": ("medium",),
    "web_search_options": (),
}
_EVEN_EMPTY = ("web_search_options",)  # {} asks for a web search
NATIVE = Hosted(
    {**_LLAMA_SERVER, **_GENERATING, "reasoning_control": (), "reasoning_format": ("none",)},
    even_empty=_EVEN_EMPTY,
)
# Fields of all of OpenAI's endpoints. What a client says about its user changes nothing here.
_OPENAI: dict[str, tuple[object, ...]] = {
    **_LLAMA_SERVER,
    "metadata": (),
    "prompt_cache_options": (),
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
    },
    served=("function", "namespace"),
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
