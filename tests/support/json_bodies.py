"""Request bodies of every endpoint, from the structs that they are decoded into: mostly sensible, partly absurd.
Shared by a short test and the fuzz target."""

from __future__ import annotations

import json
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import msgspec
import numpy as np
from hypothesis import strategies as st

from llamad.api.anthropic.request import MessagesRequest
from llamad.api.native.completion import CompletionRequest
from llamad.api.native.infill import InfillRequest
from llamad.api.native.tokenize import DetokenizeRequest, TokenizeRequest
from llamad.api.openai.completions import TextRequest
from llamad.api.openai.request import ChatRequest
from llamad.api.openai.responses_request import ResponseRequest
from llamad.api.state.sessions import ArchiveRequest
from llamad.api.state.slots import FileRequest, ShiftRequest
from llamad.api.vectors.classify import ClassifyRequest
from llamad.api.vectors.embeddings import EmbeddingRequest
from llamad.api.vectors.rerank import RerankRequest
from llamad.options.option import fields_of
from llamad.protocol.model_info import VectorInfo
from support.completion_bodies import GRAMMARS, SAMPLERS, SCHEMAS, anything, prompts

GENERATING: dict[str, type[msgspec.Struct]] = {
    "/completion": CompletionRequest,
    "/infill": InfillRequest,
    "/tokenize": TokenizeRequest,
    "/detokenize": DetokenizeRequest,
    "/apply-template": ChatRequest,
    "/v1/completions": TextRequest,
    "/v1/chat/completions": ChatRequest,
    "/v1/responses": ResponseRequest,
    "/v1/messages": MessagesRequest,
    "/v1/messages/count_tokens": MessagesRequest,
    "/slots/0?action=save": FileRequest,
    "/slots/0?action=restore": FileRequest,
    "/slots/0?action=erase": FileRequest,
    "/slots/0?action=restore-state": FileRequest,
    "/slots/0?action=context-shift": ShiftRequest,
    "/sessions/1?action=save&slot=0": ArchiveRequest,
    "/sessions/1?action=restore&slot=0": ArchiveRequest,
    "/sessions/1?action=remove": ArchiveRequest,
    "/props": FileRequest,
}
EMBEDDING: dict[str, type[msgspec.Struct]] = {
    "/embedding": EmbeddingRequest,
    "/v1/embeddings": EmbeddingRequest,
}
RANKING: dict[str, type[msgspec.Struct]] = {"/rerank": RerankRequest, "/classify": ClassifyRequest}

texts = st.text(max_size=12)
parts = st.lists(
    st.fixed_dictionaries(
        {"type": st.sampled_from(["text", "input_text", "output_text", "tool_result"])}
    ).flatmap(
        lambda part: st.fixed_dictionaries(
            {}, optional={"text": texts, "content": texts, "tool_use_id": texts}
        ).map(lambda more: part | more)
    )
    | anything,
    max_size=3,
)
calls = st.lists(
    st.fixed_dictionaries(
        {"function": st.fixed_dictionaries({"name": texts}, optional={"arguments": texts | anything})},
        optional={"id": texts | anything, "type": texts},
    )
    | anything,
    max_size=2,
)
messages = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "assistant", "system", "developer", "tool", "function"])},
        optional={
            "content": texts | parts | anything,
            "tool_calls": calls,
            "tool_call_id": texts,
            "name": texts,
            "reasoning_content": texts,
            "function_call": anything,
        },
    )
    | anything,
    max_size=4,
)
schemas = st.sampled_from(SCHEMAS) | anything
tools = st.lists(
    st.fixed_dictionaries(
        {"type": st.sampled_from(["function", "custom"]), "name": texts},
        optional={
            "function": st.fixed_dictionaries(
                {"name": texts}, optional={"parameters": schemas, "description": texts}
            ),
            "parameters": schemas,
            "input_schema": schemas,
        },
    )
    | anything,
    max_size=3,
)
ids = st.lists(st.integers(-1, 300), max_size=12)
formats = st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "json_object", "json_schema"])},
    optional={"schema": schemas, "json_schema": st.fixed_dictionaries({"schema": schemas}) | anything},
)
choices = st.sampled_from(["none", "auto", "required", "any", {"type": "auto"}, {"type": "any"}]) | anything

# What is known of a field by its name; the others follow from their types.
NAMED: dict[str, st.SearchStrategy[Any]] = {
    "prompt": prompts,
    "messages": messages,
    "input": texts | messages | st.lists(texts, max_size=4) | ids | anything,
    "content": texts | st.lists(texts, max_size=4) | ids,
    "documents": st.lists(texts, max_size=4) | anything,
    "texts": st.lists(texts, max_size=4) | anything,
    "inputs": st.lists(texts, max_size=4) | texts,
    "tokens": ids | anything,
    "tools": tools,
    "tool_choice": choices,
    "response_format": formats | anything,
    "json_schema": schemas,
    "grammar": st.sampled_from(GRAMMARS) | st.text('root:=|"ab[]()*{}1, \n<>!', max_size=20),
    "samplers": st.lists(st.sampled_from(SAMPLERS), max_size=5) | anything,
    "logit_bias": st.lists(st.tuples(st.integers(0, 258), st.floats(-9, 9)).map(list), max_size=4) | anything,
    "stop": texts | st.lists(texts, max_size=4) | anything,
    "n_predict": st.integers(-1, 9),
    "max_tokens": st.integers(0, 9),
    "filename": st.sampled_from(["a", "b.bin", "../a", "", "\0"]) | texts,
    "file": st.sampled_from(["a", "../a"]) | texts,
}


# The same without what is refused.
talk = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "assistant"]), "content": st.text(min_size=1, max_size=12)}
    ),
    min_size=1,
    max_size=4,
)
functions = st.lists(
    st.builds(
        lambda name, schema: {
            "type": "function",
            "name": name,
            "parameters": schema,
            "function": {"name": name, "parameters": schema},
        },
        st.text(min_size=1, max_size=8),
        st.sampled_from([one for one in SCHEMAS if isinstance(one, dict)]),
    ),
    max_size=3,
)
SANE: dict[str, st.SearchStrategy[Any]] = {
    "prompt": texts,
    "messages": talk,
    "input": st.text(min_size=1, max_size=12) | talk,
    "content": texts,
    "query": st.text(min_size=1),
    "documents": st.lists(st.text(min_size=1), min_size=1, max_size=4),
    "texts": st.lists(st.text(min_size=1), min_size=1, max_size=4),
    "inputs": st.lists(st.text(min_size=1), min_size=1, max_size=4),
    "tokens": st.lists(st.integers(0, 258), max_size=12),
    "tools": functions,
    "tool_choice": st.sampled_from(["none", "auto", "required"]),
    "response_format": formats,
    "max_tokens": st.integers(1, 9),
    "stop": st.lists(st.text(min_size=1, max_size=4), max_size=4),
    "id_slot": st.integers(-1, 1),
}


def _of_type(field: Any, kind: Any, is_sane: bool) -> st.SearchStrategy[Any]:
    if get_origin(kind) in (Union, UnionType):
        return st.one_of([_of_type(field, one, is_sane) for one in get_args(kind)])
    if get_origin(kind) is Literal:
        return st.sampled_from(get_args(kind)) if is_sane else texts
    if isinstance(kind, msgspec.StructMeta):
        return _fields(kind, (), is_sane)
    beyond = 0 if is_sane else 1
    low = -2 if field.low is None else max(-2, int(field.low))
    high = 40 if field.high is None else min(40, int(field.high))
    least = low if field.above is None else field.above + 0.01
    return {
        NoneType: st.none(),
        bool: st.booleans(),
        int: st.integers(low - beyond, max(low, high) + beyond),
        float: st.floats(float(least - beyond), float(max(least, high) + beyond)),
        str: texts,
        tuple[str, ...]: st.lists(texts, max_size=4),
        list[Any]: st.lists(anything, max_size=4),
        dict[str, Any]: st.dictionaries(texts, anything, max_size=4),
    }.get(kind, st.none() if is_sane else anything)


def _fields(
    struct: type[msgspec.Struct], given: tuple[str, ...], is_sane: bool
) -> st.SearchStrategy[dict[str, Any]]:
    """Some fields of the struct, always those that are `given`."""
    named = NAMED | SANE if is_sane else NAMED
    refused = getattr(struct, "REFUSED", ()) if is_sane else ()
    by_name = {
        name: named[name] if name in named else _of_type(field, field.type, is_sane)
        for name, field in fields_of(struct).items()
        if name not in refused
    }
    wanted = {name: by_name.pop(name) for name in given if name in by_name}
    few = st.lists(st.sampled_from(sorted(by_name)), max_size=4, unique=True) if by_name else st.just([])
    return few.flatmap(lambda names: st.fixed_dictionaries(wanted | {name: by_name[name] for name in names}))


HOSTILE = [
    b"[" * 200 + b"]" * 200,
    b"[" * 120 + b"]" * 120,
    b'{"a":' * 990 + b"1" + b"}" * 990,
    b"[" + b"[]," * 30_000 + b"1]",
    b"[" + b"7," * 30_000 + b"1]",
    b'"' + b"\\ud800" * 5_000 + b'"',
    b'"\xff"',
    b"9" * 5_000,
    b"1e400",
    b"-0",
    b"NaN",
    b'"' + b"x" * 30_000 + b'"',
]
SPACE = b" " * 20_000  # makes a body large enough to be read off the event loop

_TEXTS = (
    "prompt",
    "messages",
    "input",
    "max_tokens",
    "n_predict",
    "max_output_tokens",
    "query",
    "content",
    "inputs",
)


@st.composite
def _bodies(draw: Any, struct: type[msgspec.Struct]) -> bytes:
    kind = draw(st.sampled_from(["sane"] * 5 + ["wild"] * 3 + ["hostile", "cut", "noisy", "any"]))
    body = draw(_fields(struct, _TEXTS, kind != "wild"))
    names = sorted(fields_of(struct))
    if kind == "wild":
        body |= draw(st.dictionaries(st.sampled_from(names) | texts, anything, max_size=2))
    data = json.dumps(body, ensure_ascii=draw(st.booleans())).encode("utf-8", "surrogatepass")
    if (
        kind == "hostile"
    ):  # a field, perhaps for the second time, with a value that JSON libraries stumble over
        name = json.dumps(draw(st.sampled_from(names))).encode()
        separator = b"," if body else b""
        data = data[:-1] + separator + name + b":" + draw(st.sampled_from(HOSTILE)) + b"}"
    elif kind == "cut":
        data = data[: draw(st.integers(0, len(data)))]
    elif kind == "noisy":
        at = draw(st.integers(0, len(data) - 1))
        data = data[:at] + draw(st.binary(min_size=1, max_size=3)) + data[at + 1 :]
    elif kind == "any":
        data = json.dumps(draw(anything)).encode()
    return data + SPACE if draw(st.booleans()) else data


def requests(structs: dict[str, type[msgspec.Struct]]) -> st.SearchStrategy[tuple[str, bytes]]:
    """A path and a body for it."""
    return st.sampled_from(sorted(structs)).flatmap(
        lambda path: st.tuples(st.just(path), _bodies(structs[path]))
    )


def check_answer(server: Any, path: str, body: bytes) -> None:
    """Invariant: a 2xx that is complete, or a 4xx or 501 that says what is wrong in the dialect's form."""
    answer = server.client.request("POST", path, body)
    if answer.status == 200:
        assert answer.body
        if not answer.headers["content-type"].startswith("text/event-stream"):
            assert answer.json is not None
        elif b'"error"' not in answer.body:
            last = (b"[DONE]", b'"stop":true', b"message_stop", b"response.completed", b"response.incomplete")
            assert any(one in answer.body for one in last), (path, body, answer.body[-500:])
        return
    assert 400 <= answer.status < 500 or answer.status == 501, (path, body, answer.status, answer.body)
    error = answer.json["error"]
    assert error["message"], (path, body, answer.body)
    assert error["type"], (path, body, answer.body)
    assert path.startswith("/v1/messages") or error["code"] == answer.status


class Vectors:
    """Computes ones at once."""

    n_seq_max = n_pack = 4

    def __init__(self, pooling: str) -> None:
        labels = ("yes", "no") if pooling == "rank" else ()
        self.info = VectorInfo(pooling, 2, labels, bool(labels), 64, False)

    def use(self, adapters: list[tuple[int, float]]) -> int:
        return 0

    def compute(self, memory: memoryview, lengths: list[int]) -> int:
        memory[4 * sum(lengths) :] = np.ones((len(lengths), 2), np.float32).tobytes()
        return 0

    def close(self) -> None: ...
