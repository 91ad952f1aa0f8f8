"""Bodies become structs: what msgspec takes at once, and what it refuses is read again and either taken or named."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Annotated, Any, ClassVar, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta, Struct, field

from llamad.api.native.completion import CompletionRequest
from llamad.api.openai.request import ChatRequest
from llamad.api.request import body as bodies
from llamad.api.request.body import Body
from llamad.api.request.errors import ApiError
from llamad.api.request.parse import Defaults, GenerationRequest
from llamad.flags.parse import parse
from llamad.options.option import FLOAT_MAX, INT32_MAX
from llamad.options.ranges import Many, Share
from llamad.options.table import FIELDS, Options


class Inner(Struct):
    text: str
    n: Many = 1


class Outer(Struct):
    share: Share = 0.5
    n: Annotated[int, Meta(ge=0, le=10)] = 3
    on: bool = False
    name: str | None = None
    names: tuple[str, ...] = ()
    word: Literal["a", "b"] = "a"
    any: Any = None
    document: dict[str, Any] | None = None
    either: Annotated[str | list[Any] | None, Meta(description="a string or an array")] = None
    inner: Inner | None = None
    inners: Annotated[list[Inner], Meta(description="an array of texts")] = field(default_factory=list)


OUTER = Body(Outer)


def refusal(body: object, of: Body[Any] = OUTER) -> str:
    with pytest.raises(ApiError) as caught:
        of.decode(body if isinstance(body, bytes) else msgspec.json.encode(body))
    assert caught.value.status == 400
    return caught.value.message


def test_null_is_left_out_and_an_integral_float_is_whole() -> None:
    nothing = dict.fromkeys(Outer.__struct_fields__)
    assert OUTER.decode(msgspec.json.encode(nothing)) == Outer()
    assert OUTER.decode(b'{"n": 7.0, "share": 1, "more": [null]}') == Outer(n=7, share=1.0)
    assert OUTER.decode(b'{"inner": {"text": "x", "n": null}}').inner == Inner("x")
    assert OUTER.decode(b'{"inners": [{"text": "x"}], "n": null}').inners == [Inner("x")]


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"share": 5}, '"share" must be between 0 and 1, not 5'),
        ({"share": "x"}, '"share" must be a number'),
        ({"share": True}, '"share" must be a number'),
        ({"n": 1.5}, '"n" must be an integer'),
        ({"n": 11}, '"n" must be between 0 and 10, not 11'),
        ({"n": 10**30}, '"n" must be between 0 and 10, not a number of more than 20 digits'),
        ({"on": 1}, '"on" must be true or false'),
        ({"name": 1}, '"name" must be a string'),
        ({"names": "x"}, '"names" must be an array of strings'),
        ({"names": ["x", 1]}, '"names" must be an array of strings'),
        ({"word": "c"}, '"word" must be one of a, b'),
        ({"word": ["c"]}, '"word" must be one of a, b'),
        ({"document": []}, '"document" must be an object'),
        ({"either": 5}, '"either" must be a string or an array'),
        ({"inner": 5}, '"inner" must be an object'),
        ({"inner": {}}, '"inner": "text" is required'),
        ({"inner": {"text": "x", "n": 0}}, '"inner": "n" must be at least 1, not 0'),
        ({"inners": [{"text": "x"}, {"text": 5}]}, '"inners" must be an array of texts'),
        ([1], "The body must be a JSON object"),
        (b"{", "The body is not valid JSON: Input data was truncated"),
        (b'{"name": "\xff"}', "The body is not valid JSON: "),
        (b'{"any": ' + b"[" * 100_000, "The body is nested too deeply; at most 128 levels are allowed"),
        (b'{"any": ' + b"[" * 128, "The body is nested too deeply"),
        (b'{"any": ' + b"[" * 127, "The body is not valid JSON: "),
        (b'{"any": [' + b"[]," * 100_000 + b"1]}", "The body has too many values"),
        (b'{"share": 1e400}', "The body is not valid JSON: "),
    ],
)
def test_what_is_wrong_is_named(body: object, says: str) -> None:
    assert refusal(body).startswith(says)


class Strange(GenerationRequest, kw_only=True):
    REFUSED: ClassVar[dict[str, str]] = {"n": "no n here", "other": "no other here"}
    LIMITS: ClassVar[tuple[str, ...]] = ("most", "n_predict")

    most: Many = -(2**31)


def defaults(line: str = "") -> Defaults:
    info = SimpleNamespace(sampling={})
    model: Any = SimpleNamespace(n_ctx_slot=256, vocab=SimpleNamespace(n_vocab=300), info=info)
    return Defaults(parse(["-m", "x.gguf", *line.split()], {}).settings.model, model)


def test_the_servers_options_are_the_defaults() -> None:
    own = defaults("--top-k 7 --seed 5 -n 9 --samplers top_k --no-cache-prompt")
    request = own.decode(CompletionRequest, b"{}")
    assert (request.top_k, request.seed, request.n_predict, request.cache_prompt) == (7, 5, 9, False)
    assert request.samplers == ("top_k",)
    assert (request.repeat_last_n, request.dry_penalty_last_n) == (64, 256)
    request = own.decode(CompletionRequest, b'{"top_k": 3, "n_predict": -2, "repeat_last_n": 1000}')
    assert (request.top_k, request.n_predict, request.repeat_last_n) == (3, -2, 256)
    assert own.decode(CompletionRequest, b'{"n_predict": -1}').n_predict == 9
    assert own.options.top_k == 7


def test_options_of_two_names() -> None:
    own = defaults("-np 4")
    for body, expected in (
        ({"max_tokens": 3}, (3, 1, -1)),
        ({"n_predict": -1, "max_tokens": 3}, (-1, 1, -1)),
        ({"n": 2, "n_cmpl": 3}, (-1, 3, -1)),
        ({"id_slot": -1, "slot_id": 3}, (-1, 1, -1)),
        ({"id_slot": None, "slot_id": 3}, (-1, 1, 3)),
    ):
        request = own.decode(CompletionRequest, msgspec.json.encode({"seed": 1, **body}))
        assert (request.n_predict, request.n, request.id_slot) == expected


def test_an_endpoint_may_refuse_options_and_name_the_limit_otherwise() -> None:
    own = defaults("--n-predict-max 50")
    assert own.decode(Strange, b'{"most": 9, "n_predict": 5, "n": null}').n_predict == 9
    assert own.decode(Strange, b'{"n_predict": -1}').n_predict == 50
    for body, says in (
        (b'{"n": 1}', "no n here"),
        (b'{"other": []}', "no other here"),
        (b'{"most": 51}', '"most" may be at most 50 on this server (--n-predict-max)'),
    ):
        with pytest.raises(ApiError) as caught:
            own.decode(Strange, body)
        assert caught.value.message == says


def test_no_default_is_shared_by_two_requests() -> None:
    own = defaults()
    first, second = (own.decode(ChatRequest, b"{}") for _ in range(2))
    first.messages.append({})
    assert second.messages == []


NUMBERS = [name for name, one in FIELDS.items() if one.type in (int, float, bool)]
VALUES = st.one_of(
    st.booleans(),
    st.integers(-3, 3),
    st.sampled_from([INT32_MAX, -INT32_MAX, INT32_MAX + 1, 2**63, FLOAT_MAX, -1.1 * FLOAT_MAX, 0.5, 2.0]),
    st.floats(-2, 2),
)


@given(st.dictionaries(st.sampled_from(NUMBERS), VALUES, max_size=4))
def test_both_readings_agree(body: dict[str, Any]) -> None:
    """What the decoder takes, the second reading takes for the same; what it refuses that one refuses, but for a
    whole number that is written as a float."""
    of = Body(Options)
    data = msgspec.json.encode(body)
    try:
        fast = msgspec.json.decode(data, type=Options)
    except msgspec.ValidationError:
        fast = None
    try:
        slow = bodies._read(Options, of._fields, msgspec.json.decode(data), bodies.no_hook)
    except ApiError:
        slow = None
    integral = any(isinstance(value, float) and FIELDS[name].type is int for name, value in body.items())
    assert fast == slow or (integral and fast is None)
