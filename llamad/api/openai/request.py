"""The bodies of OpenAI's endpoints. Turns their fields for length, format and logprobs into options.

Pure functions on the event loop. chat_request.py and reasoning.py read the other fields of a chat.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

from llamad.api.openai import guided
from llamad.api.request import cache_hints, constraints
from llamad.api.request.cache_hints import CacheHint
from llamad.api.request.errors import bad
from llamad.api.request.ignored_fields import CHAT, COMPLETIONS, Hosted
from llamad.api.request.parse import GenerationRequest, StreamOptions
from llamad.api.service.served_model import ServedModel
from llamad.chat.parsing import Reasoning
from llamad.options.option import LEFT_OUT
from llamad.options.ranges import LastN, Length

TOP_LOGPROBS_MAX = 20

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
Choice = Annotated[
    dict[str, Any] | str | None, Meta(description='"none", "auto", "required" or name a function')
]


class OpenAiRequest(GenerationRequest, kw_only=True):
    """The common fields of OpenAI's endpoints: every option of /completion, and a few of OpenAI's own."""

    LIMITS: ClassVar[tuple[str, ...]] = ("max_completion_tokens", "max_tokens", "n_predict")
    HOSTED: ClassVar[Hosted] = COMPLETIONS
    # The name of response_format in errors.
    FORMAT: ClassVar[str] = "response_format"

    user: Annotated[str | dict[str, Any] | None, Meta(description="a string or an object")] = None
    max_completion_tokens: Length = LEFT_OUT
    response_format: Annotated[dict[str, Any] | str | None, Meta(description='an object with a "type"')] = (
        None
    )
    stream_options: StreamOptions | None = None
    structured_outputs: guided.StructuredOutputs | None = None
    guided_json: guided.Schema = None
    guided_regex: str | None = None
    guided_choice: tuple[str, ...] = ()
    guided_grammar: str | None = None
    guided_json_object: bool = False
    guided_whitespace_pattern: str | None = None
    prompt_cache_key: Any = None
    prompt_cache_retention: Any = None

    def take_aliases(self) -> None:
        self.cache_hint = CacheHint(max(cache_hints.of_fields(self), self.hint_of_blocks()))

    def hint_of_blocks(self) -> int:
        """Return the hint that the blocks of the prompt carry (cache_hints.py)."""
        return cache_hints.UNKNOWN

    @property
    def whole_text(self) -> str | None:
        """Return the text that constrains the whole output, including reasoning: `grammar`, or what vLLM's clients send
        instead. It is empty for a lazy grammar, which does not."""
        if self.waits is not None and self.waits.lazy is not None:
            return ""
        more = self.structured_outputs or guided.StructuredOutputs()
        other = self.guided_grammar or self.guided_regex or more.grammar or more.regex
        return self.grammar or other or "".join(self.guided_choice or more.choice) or self.grammar

    @property
    def include_usage(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage


class ChatRequest(OpenAiRequest, kw_only=True):
    """A chat; messages and tools are passed to the template."""

    GUARDED: ClassVar[bool] = True
    HOSTED: ClassVar[Hosted] = CHAT

    messages: Annotated[list[Any], Meta(description="a non-empty array")] = msgspec.field(
        default_factory=list
    )
    tools: list[Any] | None = None
    functions: list[Any] | None = None  # the older form of tools
    tool_choice: Choice = None
    function_call: Choice = None  # the older form of tool_choice
    parallel_tool_calls: bool | None = None
    parse_tool_calls: bool = True
    chat_template_kwargs: dict[str, Any] | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: Annotated[
        bool | str | None, Meta(description='a boolean, "content" or "reasoning_content"')
    ] = None
    echo: bool = False  # returns the message that is continued before the new text
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

    def hint_of_blocks(self) -> int:
        return cache_hints.of_blocks(self.messages, self.tools)

    def drop_documents(self) -> None:
        """Free what has been read, because the options live longer."""
        self.messages = []
        self.tools = self.functions = self.chat_template_kwargs = self.response_format = None
        self.structured_outputs = self.guided_json = self.guided_grammar = None
        self.guided_choice = ()


def settle(
    request: OpenAiRequest,
    served: ServedModel,
    n_probs: int,
    calls: constraints.ConstraintSource | None = None,
) -> constraints.ConstraintSource:
    """Set the options that have another name in OpenAI's API, and return the constraint. In decreasing precedence it is
    that of forced calls, the request's, the server's, or that of calls that may come."""
    if request.n_predict < 0:
        request.n_predict = -2  # no context shift: a text without a limit ends when its context is full
    if n_probs > served.settings.n_probs_max:
        most = served.settings.n_probs_max
        raise bad(f'"logprobs" may be at most {most} on this server (--n-probs-max)')
    request.n_probs = max(n_probs, request.n_probs)
    sent = [one for one in (_response_format(request), *_guided(request)) if one is not None]
    if request.grammar or request.json_schema is not None:
        own = "grammar" if request.grammar else "json_schema"
        sent.append(constraints.ConstraintSource(named=own))
    if len(sent) > 1:
        raise bad(" and ".join(f'"{one.named}"' for one in sent) + " cannot be combined: send one of them")
    if calls is not None and not calls.may_call:
        # A format applies to the content, of which a forced call leaves none. A grammar would apply to the whole text.
        if sent and sent[0].named != request.FORMAT:
            older = isinstance(request, ChatRequest) and request.tool_choice is None
            choice = "function_call" if older else "tool_choice"
            raise bad(f'"{sent[0].named}" cannot be combined with a "{choice}" that forces a call')
        return calls
    source = sent[0] if sent else constraints.NOTHING
    if source.is_none:
        source = constraints.parse(request, served.constraint)
    else:
        source = constraints.waiting(request, source)
    if calls is None or (not source.is_none and source.schema is None) or source.lazy is not None:
        return source
    # The output is a value of the schema, if there is one, or a call.
    return msgspec.structs.replace(calls, schema=source.schema, strict=source.strict, named=source.named)


def _guided(request: OpenAiRequest) -> tuple[constraints.ConstraintSource | None, ...]:
    """Return the constraints of vLLM's fields."""
    older = guided.StructuredOutputs(
        json=request.guided_json,
        regex=request.guided_regex,
        choice=request.guided_choice,
        grammar=request.guided_grammar,
        json_object=request.guided_json_object,
        whitespace_pattern=request.guided_whitespace_pattern,
    )
    newer = request.structured_outputs
    return (
        guided.source(newer, "structured_outputs.", request.strict) if newer is not None else None,
        guided.source(older, "guided_", request.strict),
    )


def _response_format(request: OpenAiRequest) -> constraints.ConstraintSource | None:
    """Return the constraint of `response_format`, in any of its forms, or None if there is none."""
    value, strict, name = request.response_format, request.strict, request.FORMAT
    if value is None or value == "auto":
        return None
    kind = value.get("type") if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(kind, str):
        raise bad(f'"{name}" must be an object with a "type"')
    if kind in ("text", "auto"):
        return None
    if kind == "json_object":
        schema = value.get("schema", {"type": "object"})
    elif kind == "json_schema":
        schema = value.get("schema")
        if schema is None:
            schema = value.get("json_schema")
            if isinstance(schema, dict) and schema.get("schema") is not None:
                # OpenAI's own form; its "strict" has no effect, because output is always constrained.
                if schema.get("strict") is False:
                    strict = False
                schema = schema["schema"]
        if schema is None:
            raise bad(f'"{name}": "json_schema" is missing')
    else:
        raise bad(f'"{name}": unknown type "{kind[:64]}"; use text, json_object or json_schema')
    if schema is None:
        schema = {"type": "object"}
    if not isinstance(schema, dict | bool):
        raise bad(f'"{name}": the schema must be an object')
    return msgspec.structs.replace(constraints.schema_source(schema, strict), named=name)
