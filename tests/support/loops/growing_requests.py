"""Valid requests of any size to every endpoint, made from the table of routes and the structs of bodies, so that a new
endpoint, option or field is sent without a line here. What is known of a field by its name makes its value valid."""

from __future__ import annotations

import base64
import json
import random
import string
import struct
import sys
from collections.abc import Callable
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import msgspec

from llamad.http.router import Route
from llamad.options.option import Field, fields_of
from support.loops.routes import routes

HEAD_MAX = 8_000  # of a query
ALPHABETS = (
    string.ascii_lowercase + " ",
    "word and another ",
    '\n\t"\\',
    "\x01\x02\x1f",
    "中文字",
    "\U0001f600é",
    "0123456789 ",
    '{}[](),:"',
    "<|im_start|>",
    "a",
)
# A system prompt is for every request of a key, so that a long one would make the next requests invalid.
LEFT_OUT = {"system_prompt"}
ACTIONS = {
    "/slots/{id_slot}": ["save", "restore", "erase", "restore-state", "save-state", "context-shift"],
    "/sessions/{id_session}": ["save&slot=0", "restore&slot=0", "remove"],
}
SMALL = {
    "prompt": "x",
    "messages": [{"role": "user", "content": "x"}],
    "input": "x",
    "content": "x",
    "tokens": [1],
    "query": "x",
    "documents": ["x"],
    "texts": ["x"],
    "inputs": "x",
    "input_prefix": "x",
    "input_suffix": "x",
    "n_predict": 2,
    "max_tokens": 2,
    "max_completion_tokens": 2,
    "max_output_tokens": 16,
    "filename": "a.bin",
}


def structs_of(route: Route) -> list[type[msgspec.Struct]]:
    """Returns the structs of bodies that the handler's module and its neighbours know."""
    handler = getattr(route.handler, "func", route.handler)
    module = sys.modules[handler.__module__]
    package = module.__name__.rpartition(".")[0]
    names = {module.__name__}
    for value in vars(module).values():
        owner = getattr(value, "__module__", None) or ""
        if owner.startswith(package):
            names.add(owner)
    found = []
    for name in sorted(names):
        for value in vars(sys.modules[name]).values():
            if (
                isinstance(value, type)
                and issubclass(value, msgspec.Struct)
                and value.__name__.endswith("Request")
            ):
                found.append(value)
    return list(dict.fromkeys(found))


class Request(msgspec.Struct):
    """Bytes for a connection, and a name that says what they are."""

    name: str
    data: bytes
    n_answers: int = 1


class GrowingRequests:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.routes = routes()
        self.structs = {route.pattern: structs_of(route) for route in self.routes}
        every = {one for structs in self.structs.values() for one in structs}
        self.fields: dict[str, Field] = {}
        for kind in sorted(every, key=lambda one: one.__name__):
            self.fields |= fields_of(kind)

    def next(self, n_bytes: int) -> Request:
        """Returns a request of some n_bytes to a random endpoint."""
        return self.to(self.random.choice(self.routes), n_bytes)

    def to(self, route: Route, n_bytes: int) -> Request:
        """Returns a request to this endpoint."""
        if route.method in ("GET", "DELETE"):
            return self._heads(route, n_bytes)
        if "transcriptions" in route.pattern:
            return self._form(route, n_bytes)
        if route.intake is not None and self.random.random() < 0.3:
            return self._state(route, n_bytes)
        return self._json(route, n_bytes)

    # --- heads ----------------------------------------------------------------------------------------------------

    def _target(self, route: Route, n_bytes: int = 0) -> str:
        pick = self.random
        long = "a" * min(n_bytes, HEAD_MAX) if n_bytes and pick.random() < 0.3 else "0"
        path = "/".join(long if one.startswith("{") else one for one in route.pattern.split("/"))
        if route.pattern in ACTIONS:
            path += "?action=" + pick.choice(ACTIONS[route.pattern])
        elif n_bytes:
            n = min(n_bytes, HEAD_MAX) - len(path)
            query = pick.choice(
                [
                    "&".join(["a"] * (n // 2)),
                    "conv_id=" + "a" * n,
                    "conv_id=" + "%41" * (n // 3),
                    "&".join(f"k{i}=1" for i in range(n // 8)),
                    "",
                ]
            )
            path += "?" + query[: max(0, n)]
        return path

    def _heads(self, route: Route, n_bytes: int) -> Request:
        """Many heads in one go, the last of which ends the connection."""
        more = "".join(f"X-{i}: {'b' * 40}\r\n" for i in range(self.random.choice([0, 1, 240])))
        head = f"{route.method} {self._target(route, n_bytes)} HTTP/1.1\r\nHost: localhost\r\n{more}"
        n = max(0, min(n_bytes // (len(head) + 2), 2000))
        data = (head + "\r\n").encode() * n + (head + "Connection: close\r\n\r\n").encode()
        return Request(f"{n + 1} x {head[:120]!r}", data, n + 1)

    @staticmethod
    def _post(target: str, content_type: str, body: bytes, name: str) -> Request:
        head = (
            f"POST {target} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {content_type}\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        return Request(f"POST {target} {len(body)} bytes: {name}", head.encode() + body)

    # --- bodies ---------------------------------------------------------------------------------------------------

    def _form(self, route: Route, n_bytes: int) -> Request:
        kind = self.random.choice(["file", "prompt", "fields", "end"])
        line = b"--b\r\nContent-Disposition: form-data; name="
        parts = [line + b'"model"\r\n\r\nx\r\n']
        if kind == "fields":
            parts += [line + b'"f%d"\r\n\r\nx\r\n' % i for i in range(n_bytes // 60)]
        content = {"file": b"RIFF\0\0\0\0WAVE" + bytes(n_bytes), "end": b"--" * (n_bytes // 2)}.get(
            kind, b"RIFF"
        )
        if kind == "prompt":
            parts.append(line + b'"prompt"\r\n\r\n' + b"x" * n_bytes + b"\r\n")
        parts.append(line + b'"file"; filename="a.wav"\r\n\r\n' + content + b"\r\n--b--\r\n")
        return self._post(
            route.pattern, "multipart/form-data; boundary=b", b"".join(parts), f"a form, {kind}"
        )

    def _state(self, route: Route, n_bytes: int) -> Request:
        target = route.pattern.split("{")[0] + "0?action=restore-state"
        raw = b"SES1" + (n_bytes // 8).to_bytes(4, "little") + bytes(n_bytes)
        if self.random.random() < 0.5:
            return self._post(target, "application/octet-stream", raw, "a state")
        body = b'{"state":"' + base64.b64encode(raw) + b'"}'
        return self._post(target, "application/json", body, "a state in base64")

    def _json(self, route: Route, n_bytes: int) -> Request:
        structs = self.structs[route.pattern]
        fields = dict(fields_of(self.random.choice(structs))) if structs else self.fields
        names = sorted(set(fields) - LEFT_OUT)
        body: dict[str, Any] = {name: value for name, value in SMALL.items() if name in fields}
        grown = self.random.sample(names, k=min(len(names), self.random.choice([1, 1, 2, 8])))
        if self.random.random() < 0.4:  # what a request is about
            grown[:1] = [one for one in SMALL if one in fields and not isinstance(SMALL[one], int)][
                :1
            ] or grown[:1]
        if route.body_max and n_bytes > route.body_max:
            n_bytes = route.body_max - 200
        told = []
        for name in grown:
            value, shape = self.large(fields[name], n_bytes // len(grown))
            body[name] = value
            told.append(f"{name}: {shape}")
        if "stream" in fields and self.random.random() < 0.5:
            body["stream"] = True
        data = json.dumps(body, ensure_ascii=self.random.random() < 0.3, separators=(",", ":")).encode()
        target = route.pattern if "{" not in route.pattern else self._target(route)
        return self._post(target, "application/json", data, ", ".join(told))

    # --- values: of some n bytes each -----------------------------------------------------------------------------

    def text(self, n: int) -> str:
        alphabet = self.random.choice(ALPHABETS)
        return (alphabet * (n // len(alphabet.encode()) + 1))[:n]

    def large(self, field: Field, n: int) -> tuple[Any, str]:
        """Returns a value that the field may have, and what it is called."""
        choices = self._shapes(field)
        if not choices:
            return self._small(field), "small"
        make = self.random.choice(choices)
        return make(n), make.__name__.strip("_")

    def _shapes(self, field: Field) -> list[Callable[[int], Any]]:
        named = BY_NAME.get(field.name)
        if named is not None:
            return [getattr(self, name) for name in named]
        is_union = get_origin(field.type) in (Union, UnionType)
        kinds = get_args(field.type) if is_union else (field.type,)
        found: list[Callable[[int], Any]] = []
        for kind in kinds:
            plain = get_origin(kind) or kind
            if plain is str:
                found.append(self.text)
            elif plain in (list, tuple):
                found += [self.texts, self.numbers, self.objects, self.arrays]
            elif plain is dict:
                found += [self.keys, self.schema]
            elif plain is Any or (isinstance(plain, type) and plain not in (int, float, bool, NoneType)):
                found += [self.text, self.texts, self.numbers, self.objects, self.keys]
        return found

    def _small(self, field: Field) -> Any:
        if get_origin(field.type) is Literal:
            return self.random.choice(get_args(field.type))
        if field.type is bool:
            return self.random.random() < 0.5
        low = 0 if field.low is None else field.low
        return max(low, 1) if field.high is None else min(max(low, 1), field.high)

    def texts(self, n: int) -> list[str]:
        size = self.random.choice([1, 8, 100, 5000])
        return [self.text(size)] * max(1, n // (size + 3))

    def different_texts(self, n: int) -> list[str]:
        return [f"k{i}" for i in range(max(1, n // 9))]

    def numbers(self, n: int) -> list[float]:
        value = self.random.choice([1, 131071, 0.1, 1e300, -1])
        return [value] * max(1, n // (len(str(value)) + 1))

    def ids(self, n: int) -> list[int]:
        return [self.random.choice([1, 1000, 49151])] * max(1, n // 5)

    def objects(self, n: int) -> list[Any]:
        one: Any = self.random.choice([{}, {"a": 1}, {"type": "text", "text": "x"}])
        return [one] * max(1, n // (len(json.dumps(one)) + 1))

    def arrays(self, n: int) -> list[Any]:
        return [[1, 1]] * max(1, n // 6)

    def keys(self, n: int) -> dict[str, Any]:
        return {f"k{i}": 1 for i in range(max(1, n // 11))}

    def pairs(self, n: int) -> Any:
        count = max(1, n // 8)
        return self.random.choice(
            [
                [[i % 49152, 1] for i in range(count)],
                {str(i): 1 for i in range(min(count, 49152))},
                [[f"w{i}", 1] for i in range(count)],
            ]
        )

    def messages(self, n: int) -> list[Any]:
        parts = [{"type": "text", "text": "word"}] * (n // 31 + 1)
        arguments = json.dumps({"a": self.text(n // 2)})
        call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": arguments}}
        return self.random.choice(
            [
                [{"role": "user", "content": self.text(n)}],
                [{"role": "user", "content": "word"}] * (n // 32 + 1),
                [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}] * (n // 70 + 1),
                [{"role": "user", "content": parts}],
                [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": self.image(n)}}]}],
                [{"role": "user", "content": f"![]({self.image(n)})"}],
                [
                    {"role": "user", "content": "x"},
                    {"role": "assistant", "content": "", "tool_calls": [call]},
                    {"role": "tool", "tool_call_id": "1", "content": self.text(n // 2)},
                ],
            ]
        )

    def image(self, n: int) -> str:
        """Returns an image of noise, or a file that is none, as a data: URI."""
        side = min(int((n / 4) ** 0.5) + 1, 1000)
        data = self.random.randbytes(side * side * 3)
        if self.random.random() < 0.5:
            head = struct.pack("<2sIHHI", b"BM", 54 + len(data), 0, 0, 54)
            data = head + struct.pack("<IiiHHIIiiII", 40, side, side, 1, 24, 0, 0, 0, 0, 0, 0) + data
        return "data:image/bmp;base64," + base64.b64encode(data).decode()

    def items(self, n: int) -> list[Any]:
        return self.random.choice(
            [
                [{"type": "item_reference", "id": f"msg_{i}"} for i in range(n // 45 + 1)],
                [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "x"}]}]
                * (n // 80 + 1),
                [{"type": "function_call_output", "call_id": "a", "output": self.text(n)}],
            ]
        )

    def tools(self, n: int) -> list[Any]:
        def tool(name: str, schema: Any, description: str = "") -> dict[str, Any]:
            function = {"name": name, "parameters": schema, "description": description}
            return {"type": "function", "function": function, **function, "input_schema": schema}

        few = {"type": "object", "properties": {"a": {"type": "string"}}}
        return self.random.choice(
            [
                [tool(f"f{i}", few) for i in range(n // 300 + 1)],
                [tool("f", self.schema(n // 3))],
                [tool("f", few, self.text(n // 2))],
            ]
        )

    def schema(self, n: int) -> dict[str, Any]:
        deep: Any = {"type": "integer"}
        for _ in range(min(n // 45, 50)):
            deep = {"type": "object", "properties": {"a": deep}}
        return self.random.choice(
            [
                {"enum": self.different_texts(n)},
                {"enum": self.texts(n)},
                {"type": "object", "properties": {f"k{i}": {"type": "integer"} for i in range(n // 28 + 1)}},
                {"anyOf": [{"const": f"v{i}"} for i in range(n // 18 + 1)]},
                {"type": "string", "pattern": "^" + "[a-z]" * (n // 5 + 1) + "$"},
                {"type": "string", "const": self.text(n)},
                {"type": "object", "required": self.different_texts(n)},
                deep,
            ]
        )

    def schema_text(self, n: int) -> str:
        return json.dumps(self.schema(n))

    def format(self, n: int) -> dict[str, Any]:
        schema = self.schema(n)
        return {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}

    def outputs(self, n: int) -> dict[str, Any]:
        return self.random.choice(
            [
                {"choice": self.different_texts(n)},
                {"choice": [self.text(n)]},
                {"json": self.schema(n)},
                {"regex": "[a-z]" * (n // 5 + 1)},
                {"grammar": self.grammar(n)},
            ]
        )

    def grammar(self, n: int) -> str:
        return self.random.choice(
            [
                "root ::= " + " | ".join(f'"k{i}"' for i in range(n // 10 + 1)),
                'root ::= "' + "a" * n + '"',
                "root ::= r0\n"
                + "".join(f'r{i} ::= "a" | r{i + 1}\n' for i in range(n // 22))
                + f'r{n // 22} ::= "b"',
                "root ::= " + "[a-z]" * (n // 5 + 1),
                "# " + "a" * n + '\nroot ::= "a"',
            ]
        )

    def extra(self, n: int) -> list[Any]:
        return self.random.choice(
            [
                [{"filename": "a", "text": self.text(n)}],
                [{"filename": f"f{i}", "text": "x"} for i in range(n // 35 + 1)],
            ]
        )

    def adapters(self, n: int) -> list[Any]:
        return [{"id": i, "scale": 1.0} for i in range(n // 22 + 1)]

    def triggers(self, n: int) -> list[Any]:
        return [{"type": "word", "value": f"w{i}"} for i in range(n // 32 + 1)]


# What a field by this name may be: methods of GrowingRequests.
BY_NAME: dict[str, tuple[str, ...]] = {
    "prompt": ("text", "ids", "texts"),
    "messages": ("messages",),
    "input": ("text", "texts", "ids", "messages", "items"),
    "content": ("text", "texts", "ids"),
    "tokens": ("ids",),
    "documents": ("texts", "different_texts"),
    "texts": ("texts", "different_texts"),
    "inputs": ("texts", "text"),
    "tools": ("tools",),
    "response_format": ("format",),
    "text": ("format", "text"),
    "json_schema": ("schema",),
    "guided_json": ("schema", "schema_text"),
    "guided_choice": ("different_texts", "texts"),
    "guided_regex": ("text",),
    "guided_grammar": ("grammar",),
    "structured_outputs": ("outputs",),
    "grammar": ("grammar",),
    "grammar_triggers": ("triggers",),
    "logit_bias": ("pairs",),
    "stop": ("texts", "different_texts"),
    "stop_sequences": ("texts", "different_texts"),
    "samplers": ("texts",),
    "input_extra": ("extra",),
    "lora": ("adapters",),
    "metadata": ("keys",),
    "chat_template_kwargs": ("keys",),
    "conv_ids": ("different_texts", "texts"),
}
