"""Owns the bodies of OpenAI's endpoints, and turns their fields for length, format and logprobs into options.

Pure functions on the event loop. chat_request.py and reasoning.py read a chat's other fields.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta, Struct, field

from llamad.api.request import constraints
from llamad.api.request.errors import bad
from llamad.api.request.hosted import CHAT, COMPLETIONS, Hosted
from llamad.api.request.parse import GenerationRequest
from llamad.api.service.service import Service
from llamad.chat.parsing import Reasoning
from llamad.options.option import LEFT_OUT
from llamad.options.table import LastN, Length

TOP_LOGPROBS_MAX = 20

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
Choice = Annotated[
    dict[str, Any] | str | None, Meta(description='"none", "auto", "required" or name a function')
]


class StreamOptions(Struct):
    include_usage: bool = False


class OpenAiRequest(GenerationRequest, kw_only=True):
    """The common fields of OpenAI's endpoints: every option of /completion, and a few of OpenAI's own."""

    LIMITS: ClassVar[tuple[str, ...]] = ("max_completion_tokens", "max_tokens", "n_predict")
    HOSTED: ClassVar[Hosted] = COMPLETIONS

    model: str | None = None
    max_completion_tokens: Length = LEFT_OUT
    response_format: Annotated[dict[str, Any] | str | None, Meta(description='an object with a "type"')] = (
        None
    )
    stream_options: StreamOptions | None = None

    @property
    def include_usage(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage


class ChatRequest(OpenAiRequest, kw_only=True):
    """A chat; messages and tools are passed to the template."""

    HOSTED: ClassVar[Hosted] = CHAT

    messages: Annotated[list[Any], Meta(description="a non-empty array")] = field(default_factory=list)
    tools: list[Any] | None = None
    functions: list[Any] | None = None  # the older form of tools
    tool_choice: Choice = None
    function_call: Choice = None  # the older form of tool_choice
    parallel_tool_calls: bool | None = None
    parse_tool_calls: bool = True
    chat_template_kwargs: dict[str, Any] | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    reasoning_format: Reasoning | None = None
    reasoning_effort: Effort | None = None
    reasoning_budget_tokens: LastN = LEFT_OUT
    thinking_budget_tokens: LastN = LEFT_OUT
    reasoning_budget_message: str | None = None
    reasoning_control: bool = False
    logprobs: bool = False
    top_logprobs: Annotated[int, Meta(ge=0, le=TOP_LOGPROBS_MAX)] = 0
    audio: Any = None
    modalities: Any = None

    def drop_documents(self) -> None:
        """Free what has been read: the options live longer."""
        self.messages = []
        self.tools = self.functions = self.chat_template_kwargs = self.response_format = None


def settle(
    request: OpenAiRequest, service: Service, n_probs: int, forced: constraints.Wanted | None = None
) -> constraints.Wanted:
    """Set the options that have another name in OpenAI's API, and find the constraint."""
    if request.n_predict < 0:
        request.n_predict = -2  # no context shift: without a limit a text ends with its context
    if n_probs > service.settings.n_probs_max:
        most = service.settings.n_probs_max
        raise bad(f'"logprobs" may be at most {most} on this server (--n-probs-max)')
    request.n_probs = max(n_probs, request.n_probs)
    wanted = _response_format(request)
    if forced is not None and wanted is not None:
        raise bad('"response_format" cannot be combined with a "tool_choice" that forces a call')
    wanted = forced or wanted
    if wanted is not None and (request.grammar or request.json_schema is not None):
        raise bad(
            '"grammar" and "json_schema" cannot be combined with "response_format" or a forced tool call'
        )
    return constraints.parse(request, wanted or service.constraint)


def _response_format(request: OpenAiRequest) -> constraints.Wanted | None:
    """The constraint of `response_format`, in any of its forms; None if there is none."""
    value, strict = request.response_format, request.strict
    if value is None or value == "auto":
        return None
    kind = value.get("type") if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(kind, str):
        raise bad('"response_format" must be an object with a "type"')
    if kind in ("text", "auto"):
        return None
    if kind == "json_object":
        schema = value.get("schema")
        return constraints.wanted_schema({"type": "object"} if schema is None else _schema(schema), strict)
    if kind != "json_schema":
        raise bad(f'"response_format": unknown type "{kind[:64]}"; use text, json_object or json_schema')
    schema = value.get("schema")
    if schema is None:
        schema = value.get("json_schema")
        if isinstance(schema, dict) and schema.get("schema") is not None:
            # OpenAI's own form; its "strict" needs no attention, as output is always constrained.
            if schema.get("strict") is False:
                strict = False
            schema = schema["schema"]
    if schema is None:
        raise bad('"response_format": "json_schema" is missing')
    return constraints.wanted_schema(_schema(schema), strict)


def _schema(value: object) -> Any:
    if not isinstance(value, dict | bool):
        raise bad('"response_format": the schema must be an object')
    return value
