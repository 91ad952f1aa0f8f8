"""`json_schema`: what is written fits it; what cannot be promised is refused or told; nobody else waits."""

import contextlib
import enum
import json
import os
import signal
import threading
import time
from pathlib import Path
from typing import Annotated, Literal

import pytest
from jsonschema import Draft202012Validator, FormatChecker
from pydantic import BaseModel, Field, TypeAdapter
from support.live_daemon import Live
from support.models.bigram_model import EOS

from llamad.api.request.constraints import SCHEMA_BYTES_MAX

WORD = {"type": "string", "pattern": "^[a-z]{2,8}$"}
SMALL = {"type": "integer", "minimum": -5, "maximum": 120}

SCHEMAS = {
    "scalars": {
        "type": "object",
        "properties": {"name": WORD, "age": SMALL, "ok": {"type": "boolean"}, "none": {"type": "null"}},
        "required": ["name", "age", "ok", "none"],
    },
    "optional": {"type": "object", "properties": {"a": SMALL, "b": WORD, "c": SMALL}, "required": ["b"]},
    "enum": {"enum": ["red", "green", 3, None, {"deep": ["é", "🦙"]}]},
    "const": {"const": {"text": 'quote " and \\ and \n', "n": 1.5}},
    "array": {"type": "array", "items": SMALL, "minItems": 2, "maxItems": 4},
    "tuple": {"type": "array", "prefixItems": [WORD, SMALL], "items": False, "minItems": 2},
    "string": {"type": "string", "minLength": 3, "maxLength": 12},
    "formats": {
        "type": "array",
        "prefixItems": [{"type": "string", "format": one} for one in ("date", "time", "date-time", "uuid")],
        "minItems": 4,
        "items": False,
    },
    "union": {"anyOf": [SMALL, WORD, {"type": "array", "items": {"type": "boolean"}, "maxItems": 3}]},
    "types": {"type": ["integer", "null"], "minimum": 10, "exclusiveMaximum": 13},
    "allOf": {
        "allOf": [
            {"properties": {"a": SMALL}, "required": ["a"]},
            {"properties": {"b": WORD}, "required": ["b"]},
        ]
    },
    "additional": {"type": "object", "additionalProperties": {"type": "boolean"}, "maxProperties": 3},
    "tree": {
        "$ref": "#/$defs/node",
        "$defs": {
            "node": {
                "type": "object",
                "properties": {
                    "v": {"type": "integer", "minimum": 0, "maximum": 9},
                    "kids": {"type": "array", "items": {"$ref": "#/$defs/node"}, "maxItems": 2},
                },
                "required": ["v"],
            }
        },
    },
}


def parsed(answer):
    assert answer["stop_type"] == "eos", answer["content"]
    return json.loads(answer["content"])


@pytest.mark.parametrize(
    "name",
    # Random weights seldom end what may be long.
    [pytest.param(n, marks=pytest.mark.real_model) if n in ("additional", "tree") else n for n in SCHEMAS],
)
def test_what_is_written_fits(client, name):
    """Two answers at once, at a temperature at which the model alone would write anything."""
    schema = SCHEMAS[name]
    judge = Draft202012Validator(schema, format_checker=FormatChecker(["date", "uuid"]))
    answers = client.complete(
        "A JSON value:\n", json_schema=schema, temperature=1.0, seed=14, n=2, n_predict=150
    )
    for answer in answers:
        if name == "tree" and answer["stop_type"] == "limit":
            continue  # a tree may grow for ever
        judge.validate(parsed(answer))
        assert answer["generation_settings"]["json_schema"] == schema
        assert answer["generation_settings"]["grammar"].startswith("root ::= ")
        assert "warnings" not in answer


class Colour(enum.Enum):
    RED = "red"
    GREEN = "green"


class Address(BaseModel):
    street: Annotated[str, Field(max_length=20)]
    number: Annotated[int, Field(ge=1, le=9999)]


class Person(BaseModel):
    """Somebody."""

    name: Annotated[str, Field(min_length=1, max_length=20, description="in full")]
    age: int | None = None
    colour: Colour
    kind: Literal["human", "llama"]
    address: Address
    tags: Annotated[list[Annotated[str, Field(max_length=8)]], Field(max_length=2)] = []


@pytest.mark.parametrize("kind", [Person, Address, list[Colour], dict[Colour, bool]], ids=str)
def test_pydantic_reads_it_back(client, kind):
    adapter = TypeAdapter(kind)
    schema = adapter.json_schema()
    if kind == list[Colour]:
        schema["maxItems"] = 5
    for seed in (1, 2):
        answer = client.complete(
            "A person in JSON:\n", json_schema=schema, temperature=1.0, seed=seed, n_predict=300
        )
        if answer["stop_type"] == "eos":
            adapter.validate_json(answer["content"])
        else:  # an age may have any number of digits
            assert kind is Person, answer["content"]


def test_the_schema_alone_changes_the_outcome(client):
    body = {"prompt": "The number of legs of a spider:", "temperature": 0, "n_predict": 12}
    free = client.complete(**body)
    held = client.complete(**body, json_schema={"type": "integer", "maximum": 99, "minimum": 0})
    assert 0 <= parsed(held) <= 99
    assert free["content"] != held["content"]
    events = list(
        client.events(
            "/completion",
            {**body, "stream": True, "json_schema": {"type": "integer", "maximum": 99, "minimum": 0}},
        )
    )
    assert "".join(event["content"] for event in events) == held["content"]


def test_true_and_false(bigram):
    answer = bigram.ask("a", json_schema=True, n_predict=40, temperature=0)
    assert answer["generation_settings"]["json_schema"] is True
    assert answer["generation_settings"]["grammar"]
    if answer["stop_type"] == "eos":
        json.loads(answer["content"])
    bigram.refused({"prompt": "a", "json_schema": False}, '"json_schema"', "no JSON value can satisfy")


@pytest.mark.parametrize("value", ["x", 5, [], 1.5], ids=str)
def test_a_schema_is_an_object_or_a_boolean(bigram, value):
    bigram.refused({"prompt": "a", "json_schema": value}, '"json_schema" must be an object, true or false')


LOOSE = {
    "type": "object",
    "properties": {
        "n": {"type": "array", "items": {"type": "integer"}, "uniqueItems": True},
        "list/of": {"type": "array", "items": {"enum": [7]}, "uniqueItems": True, "maxItems": 1},
    },
    "required": ["list/of"],
}


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        (LOOSE, ["uniqueItems at #/properties/n: "]),
        ({"properties": LOOSE["properties"], "required": ["list/of"], "not": {"const": 1}}, ["not at #: "]),
        ({"type": "array", "items": {"multipleOf": 1009, "type": "integer"}}, ["multipleOf at #/items: "]),
        ({"anyOf": [{"type": "string", "format": "idn-email"}]}, ["format at #/anyOf/0: "]),
        ({"type": "string", "pattern": "(?=a)b"}, ["pattern at #: "]),
        ({"if": {"const": 1}, "then": {"const": 2}}, ["if at #: "]),
    ],
    ids=["uniqueItems", "not", "multipleOf", "format", "look-ahead", "if"],
)
def test_what_cannot_be_honoured_is_refused_or_told(bigram, schema, words):
    bigram.refused({"prompt": "a", "json_schema": schema}, '"json_schema": ', *words)
    bigram.refused({"prompt": "a", "json_schema": schema, "strict": True}, '"json_schema": ', *words)
    body = {"prompt": "a", "json_schema": schema, "strict": False, "n_predict": 2}
    answer = bigram.ask(**body)
    assert any(warning.startswith(words[0]) and "ignored" in warning for warning in answer["warnings"])
    *pieces, last = bigram.client.events("/completion", {**body, "stream": True})
    assert last["warnings"] == answer["warnings"]
    assert not any("warnings" in piece for piece in pieces)
    chosen = bigram.client.complete(**body, response_fields=["warnings"])
    assert chosen == {"warnings": answer["warnings"]}


def test_what_is_malformed_is_refused_either_way(bigram):
    for strict in (True, False):
        bigram.refused(
            {"prompt": "a", "json_schema": {"items": {"type": "text"}}, "strict": strict},
            '"json_schema": type at #/items: ',
        )
    bigram.refused({"prompt": "a", "json_schema": {}, "strict": "no"}, '"strict" must be true or false')


def test_strict_is_part_of_what_is_kept(bigram):
    """A grammar that was made with something left out must not serve who wants it all."""
    assert bigram.ask("a", json_schema=LOOSE, strict=False, n_predict=1)["warnings"]
    bigram.refused({"prompt": "a", "json_schema": LOOSE}, "uniqueItems at #/properties/n")
    assert "warnings" not in bigram.ask("a", json_schema={"const": 1}, strict=False)


def test_the_order_of_properties_is_the_schemas(bigram):
    for names in ("ab", "ba"):
        schema = {"type": "object", "properties": {name: {"const": 1} for name in names}}
        schema["required"] = list(names)
        answer = bigram.ask("a", json_schema=schema, logit_bias=[[" ", False], ["\n", False]], n_predict=60)
        assert list(parsed(answer)) == list(names)
        assert list(answer["generation_settings"]["json_schema"]["properties"]) == list(names)


# Who pays.

ENDLESS = {"prompt": "a", "n_predict": -1, "stream": True, "id_slot": 0, "logit_bias": [[EOS, False]]}


HOSTILE = {
    "a product of choices": {
        "type": "object",
        "allOf": [{"anyOf": [{"properties": {f"p{i}": {"const": j}}} for j in range(9)]} for i in range(9)],
    },
    "many patterns": {"type": "string", "allOf": [{"pattern": f"{c}.{{5}}{c}"} for c in "abcdefgh"]},
    "long": {"enum": ["x" * SCHEMA_BYTES_MAX]},
}


@pytest.mark.parametrize("name", HOSTILE)
def test_no_schema_stops_the_others(bigram, name):
    """Refused in good time, while a stream goes on and every request about health is answered before."""
    answers = []
    body = {"prompt": "a", "json_schema": HOSTILE[name], "n_predict": 2, "id_slot": 1}
    asking = threading.Thread(target=lambda: answers.append(bigram.client.post("/completion", body)))
    with contextlib.closing(bigram.client.events("/completion", ENDLESS)) as stream:
        next(stream)
        asking.start()
        while asking.is_alive():
            assert bigram.client.get("/health").status == 200
            assert next(stream)["stop"] is False
            time.sleep(0.01)  # else this loop takes the core that the others need
    (answer,) = answers
    assert answer.status == 400, answer.body
    assert answer.error["message"].startswith('"json_schema"')
    assert len(answer.error["message"]) < 300


@pytest.mark.parametrize("n_levels", [450, 100_000])
def test_a_body_that_nests_too_deep_is_refused(bigram, n_levels):
    deep = b'{"items":' * n_levels + b"{}" + b"}" * n_levels
    answer = bigram.client.post("/completion", b'{"prompt": "a", "json_schema": ' + deep + b"}")
    assert (answer.status, answer.error["type"]) == (400, "invalid_request_error")


def children(server):
    """The daemon's child processes beside its engine, whichever of its threads started them."""
    listings = Path(f"/proc/{server.process.pid}/task").glob("*/children")
    pids = [int(pid) for one in listings for pid in one.read_text().split()]
    return [pid for pid in pids if b"llamad.engine" not in Path(f"/proc/{pid}/cmdline").read_bytes()]


def wait_dead(pid):
    """Until the process has ended, whether or not its parent has looked."""
    t_end = time.monotonic() + 30
    while time.monotonic() < t_end:
        try:
            if ") Z " in Path(f"/proc/{pid}/stat").read_text():
                return
        except FileNotFoundError:
            return
        time.sleep(0.005)
    raise AssertionError(f"process {pid} lives on")


def test_the_converter_may_die_and_ends_with_the_daemon(bigram_path):
    with Live("-np", "1", "-c", "256", model=bigram_path) as server:
        assert children(server) == []
        assert server.client.complete("a", json_schema={"const": 1})["content"] == "1"
        (first,) = children(server)
        os.kill(first, signal.SIGKILL)
        wait_dead(first)
        assert server.client.complete("a", json_schema={"const": 2})["content"] == "2"
        (second,) = children(server)
        server.process.kill()  # without a farewell
        server.process.wait()
        wait_dead(second)


# The server's own.


def test_the_schema_of_a_flag(started, tmp_path):
    path = tmp_path / "own.json"
    path.write_text('{"type": "integer", "minimum": 10, "maximum": 12}')
    server = started("-jf", str(path))
    own = server.ask("a")
    assert own["content"] in ("10", "11", "12")
    assert own["generation_settings"]["json_schema"] == {"type": "integer", "minimum": 10, "maximum": 12}
    assert own["generation_settings"]["grammar"].startswith("root ::= ")
    assert server.ask("a", json_schema={"const": 7})["content"] == "7"
    assert server.ask("a", grammar='root ::= "b"')["content"] == "b"
    assert server.greedy("a", grammar="", n_predict=3) == "aaa"
    shown = server.client.get("/props").json["default_generation_settings"]["params"]
    assert shown["json_schema"] == {"type": "integer", "minimum": 10, "maximum": 12}


def test_an_empty_schema_means_any_object(bigram, started):
    """As in llama-server; in JSON Schema it would mean any value, and the model wrote `true`."""

    def begins(answer):
        assert answer["content"].strip()
        return answer["content"].strip()[0]

    short = {"temperature": 0, "n_predict": 12}
    own = started("-j", "{}").ask("a", **short)
    assert begins(own) == "{"
    assert own["generation_settings"]["json_schema"] == {"type": "object"}
    assert begins(bigram.ask("a", **short, json_schema={})) == "{"
    assert begins(bigram.ask("a", **short, json_schema=True)) != "{"
    for more, is_object in (
        ({"response_format": {"type": "json_schema", "json_schema": {"schema": {}}}}, True),
        ({"response_format": {"type": "json_object", "schema": {}}}, True),
        ({"guided_json": {}}, False),  # vLLM's
        ({"guided_json": "{}"}, False),
    ):
        answer = bigram.client.post(
            "/v1/completions", {"prompt": "a", "max_tokens": 12, "temperature": 0, **more}
        )
        assert (begins({"content": answer.json["choices"][0]["text"]}) == "{") is is_object, more
