"""Reads the tools of a chat request and which of them are to be called.

Runs where the request is parsed: on the event loop, or in a worker. Raises every 400 about these fields.
"""

from __future__ import annotations

from typing import Any

import msgspec

from llamad.api.openai.request import ChatRequest
from llamad.api.request.constraints import ConstraintSource, tools_source
from llamad.api.request.errors import bad
from llamad.api.request.ignored_fields import CHAT
from llamad.chat.host import ChatHost
from llamad.chat.parsing import Format


class ToolChoice(msgspec.Struct, frozen=True):
    """The tools of a request, and which of them the model has to call."""

    offered: list[dict[str, Any]]
    mode: str  # "none", "auto", "required" or "named"
    named: list[dict[str, Any]]  # the tool that has to be called, if the mode is "named"

    @property
    def shown(self) -> list[dict[str, Any]]:
        """Return the tools that may be called."""
        return self.offered if self.mode != "none" else []

    @property
    def is_forced(self) -> bool:
        return self.mode in ("required", "named")

    @property
    def _name(self) -> str:
        """Return the mode, or the name of the tool that has to be called."""
        return self.named[0]["function"]["name"] if self.named else self.mode

    @property
    def _is_like_a_mode(self) -> bool:
        """Whether the function that has to be called has the name of a mode."""
        return bool(self.named) and self._name in ("auto", "required")

    def is_parallel(self, requested: bool | None, host: ChatHost) -> bool:
        """Whether the output may have several calls."""
        if self._is_like_a_mode:
            return False
        if requested is not None:
            return requested
        # A forced call ends the output, because many models would call functions for ever.
        return host.has_parallel_calls and not self.is_forced

    def constraint(self, format: Format, parallel: bool, starts_in_reasoning: bool) -> ConstraintSource:
        tools, name = (self.named, "required") if self._is_like_a_mode else (self.offered, self._name)
        return tools_source(format, tools, name, parallel, starts_in_reasoning)


def read_tools(request: ChatRequest) -> ToolChoice:
    tools, choice = _allowed(request, _tools(request))
    return ToolChoice(tools, *_choice(request, choice, tools))


def _tools(request: ChatRequest) -> list[dict[str, Any]]:
    """Return the tools of the request; `functions` is the older form of `tools`."""
    tools = request.tools
    if tools is None:
        tools = [{"type": "function", "function": one} for one in request.functions or ()]
    kept = []
    for i, tool in CHAT.tools(tools, request.left_out):
        kept.append(tool)
        function = tool.get("function") if isinstance(tool, dict) else None
        if (
            not isinstance(function, dict)
            or not isinstance(function.get("name"), str)
            or not function["name"]
        ):
            raise bad(f'"tools[{i}]" must be an object with a "function" that has a "name"')
        if not isinstance(function.get("description"), str | None):
            raise bad(f'"tools[{i}].function.description" must be a string')
        if not isinstance(function.get("parameters"), dict | None):
            raise bad(f'"tools[{i}].function.parameters" must be a JSON schema object')
    return kept


def _allowed(request: ChatRequest, tools: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], Any]:
    """Return the tools and the choice among them. A choice that lists tools keeps only those, and is replaced by its
    mode."""
    choice = request.tool_choice
    if not isinstance(choice, dict) or choice.get("type") != "allowed_tools":
        return tools, choice
    allowed = choice.get("allowed_tools")
    listed = allowed.get("tools") if isinstance(allowed, dict) else None
    if not isinstance(allowed, dict) or not isinstance(listed, list):
        raise bad('"tool_choice": "allowed_tools" must be an object with a "mode" and "tools"')
    functions = [one.get("function") for one in listed if isinstance(one, dict)]
    listed_names = [one.get("name") for one in functions if isinstance(one, dict)]
    names = {name for name in listed_names if isinstance(name, str)}
    return [tool for tool in tools if tool["function"]["name"] in names], allowed.get("mode", "auto")


def _choice(
    request: ChatRequest, tool_choice: Any, tools: list[dict[str, Any]]
) -> tuple[str, list[dict[str, Any]]]:
    """Return the mode "none", "auto" or "required", or "named" with the tool itself."""
    field, choice = "tool_choice", tool_choice
    if choice is None:
        field, choice = "function_call", request.function_call
    if choice is None:
        return "auto", []
    if isinstance(choice, dict):
        function = choice.get("function", choice)
        name = function.get("name") if isinstance(function, dict) else None
        named = [tool for tool in tools if tool["function"]["name"] == name][:1]
        if not named:
            raise bad(f'"{field}" names a function that is not among the tools{request.left_out.no_tools}')
        return "named", named
    if choice not in ("none", "auto", "required"):
        raise bad(f'"{field}" must be "none", "auto", "required" or name a function')
    if choice == "required" and not tools:
        raise bad(f'"{field}" is "required", but there are no tools{request.left_out.no_tools}')
    return choice, []
