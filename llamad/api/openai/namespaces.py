"""The tools of /v1/responses, which may be grouped in namespaces. Chat templates know no groups, so a function of a
namespace is offered under both names, and its calls get their namespace back.

Pure functions, any thread. Raises every 400 about the tools themselves and about `tool_choice`.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

from llamad.api.request.errors import bad
from llamad.api.request.ignored_fields import CHAT, RESPONSES, LeftOut

_SEPARATOR = "__"


class Member(NamedTuple):
    """A function as the client names it."""

    namespace: str
    name: str


class Offer(NamedTuple):
    """The functions that may be called, as tools of a chat; the choice among them; and which of their names stand for
    members of namespaces."""

    tools: list[dict[str, Any]]
    choice: Any
    members: dict[str, Member]


def full_name(namespace: str, name: str) -> str:
    """Return the name under which the model knows a function. Namespaces of MCP servers end with the separator."""
    return namespace.removesuffix(_SEPARATOR) + _SEPARATOR + name if namespace else name


def read_offer(tools: list[Any], choice: Any, left_out: LeftOut) -> Offer:
    """Return the functions of these tools. Raises ApiError."""
    known = _Functions(tools, left_out)
    functions = known.functions
    if isinstance(choice, dict) and choice.get("type") == "allowed_tools":
        allowed = choice.get("tools")
        if not isinstance(allowed, list):
            raise bad('"tool_choice": "tools" must be an array')
        names = {name for one in allowed if isinstance(one, dict) for name in known.chosen(one)}
        functions = [one for one in functions if one[0] in names]
        choice = choice.get("mode", "auto")
    elif isinstance(choice, dict):
        if choice.get("type") != "function":
            raise bad(
                '"tool_choice" must be "none", "auto", "required", name a function or list allowed_tools'
                + left_out.no_tools
            )
        chosen = known.chosen(choice)
        if len(set(chosen)) > 1:
            raise bad('"tool_choice" names a function of several namespaces: add the "namespace"')
        choice = {"type": "function", "name": chosen[0] if chosen else choice.get("name")}
    return Offer(known.shown(functions), choice, known.members)


class _Functions:
    """All functions of a request by their full names, in the order of the request."""

    def __init__(self, tools: list[Any], left_out: LeftOut) -> None:
        self.functions: list[tuple[str, dict[str, Any]]] = []
        self.members: dict[str, Member] = {}
        self._abouts: dict[str, str] = {}  # the descriptions of namespaces
        for i, tool in RESPONSES.tools(tools, left_out):
            _check(tool, f'"tools[{i}]"')
            if tool["type"] == "namespace":
                self._take_namespace(tool, f'"tools[{i}]', left_out)
            else:
                self.functions.append((tool["name"], tool))
        for name, n in Counter(name for name, _ in self.functions).items():
            if n > 1 and name in self.members:
                raise bad(f'"tools": the model would know two functions as "{name[:64]}"')

    def _take_namespace(self, tool: dict[str, Any], where: str, left_out: LeftOut) -> None:
        inner, about = tool.get("tools"), tool.get("description")
        if not isinstance(inner, list):
            raise bad(f'{where}" is a namespace and must have "tools": an array')
        if not isinstance(about, str | None):
            raise bad(f'{where}.description" must be a string')
        if about:
            self._abouts[tool["name"]] = about
        for k, one in CHAT.tools(inner, left_out):
            _check(one, f'{where}.tools[{k}]"')
            name = full_name(tool["name"], one["name"])
            self.members[name] = Member(tool["name"], one["name"])
            self.functions.append((name, one))

    def chosen(self, choice: dict[str, Any]) -> list[str]:
        """Return the full names of the functions that an element of `tool_choice` names. It may leave out the
        namespace, or name nothing but a namespace."""
        name, namespace = choice.get("name"), choice.get("namespace")
        if not isinstance(name, str):
            return []
        if isinstance(namespace, str):
            return [full_name(namespace, name)]
        if choice.get("type") == "namespace":
            return [full for full, member in self.members.items() if member.namespace == name]
        if any(name == full for full, _ in self.functions):
            return [name]
        return [full for full, member in self.members.items() if member.name == name]

    def shown(self, functions: list[tuple[str, dict[str, Any]]]) -> list[dict[str, Any]]:
        """Return these functions as tools of a chat. The first of a namespace also has the namespace's description."""
        out, abouts = [], dict(self._abouts)
        for name, tool in functions:
            more = {key: tool[key] for key in ("description", "parameters") if tool.get(key) is not None}
            about = abouts.pop(self.members[name].namespace, "") if name in self.members else ""
            if about and isinstance(more.get("description", ""), str):
                more["description"] = "\n\n".join(filter(None, [about, more.get("description")]))
            out.append({"type": "function", "function": {"name": name, **more}})
        return out


def _check(tool: Any, where: str) -> None:
    if not isinstance(tool, dict) or not isinstance(tool.get("type"), str):
        raise bad(f'{where} must be an object with a "type"')
    if not isinstance(tool.get("name"), str) or not tool["name"]:
        raise bad(f'{where} must have a "name"')
