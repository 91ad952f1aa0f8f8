"""vLLM's structured outputs, in both forms, and what they and a response_format can be combined with."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from llamad.chat.schema import text_grammars
from llamad.chat.schema.text_grammars import of_regex, of_texts

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
SAY = [{"role": "user", "content": "Judge."}]
SCHEMA = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}},
    "required": ["ok"],
    "additionalProperties": False,
}
CALL = {"type": "function", "function": {"name": "judge", "parameters": SCHEMA}}


def ask(client: Any, path: str, **more: Any) -> Any:
    body = {"messages": SAY} if path == CHAT else {"prompt": "Judge:"}
    return client.post(path, {**body, "max_tokens": 64, "seed": 1, **more})


def text_of(answer: Any) -> str:
    assert answer.status == 200, answer.body
    choice = answer.json["choices"][0]
    return choice["message"]["content"] if "message" in choice else choice["text"]


FORMS = [
    ("json", SCHEMA, lambda text: isinstance(json.loads(text)["ok"], bool)),
    ("json", json.dumps(SCHEMA), lambda text: isinstance(json.loads(text)["ok"], bool)),
    ("regex", r"^[a-c]{3}-\d+x$", lambda text: re.fullmatch(r"[a-c]{3}-\d+x?", text)),
    ("choice", ["positive", 'the "other"\n'], lambda text: text in ("positive", 'the "other"\n')),
    ("grammar", 'root ::= "yes" | "no"', lambda text: text in ("yes", "no")),
]


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize(("kind", "value", "fits"), FORMS)
def test_both_forms(client: Any, path: str, kind: str, value: Any, fits: Any) -> None:
    assert fits(text_of(ask(client, path, structured_outputs={kind: value})))
    assert fits(text_of(ask(client, path, **{f"guided_{kind}": value})))


def test_json_object(client: Any) -> None:
    assert text_of(ask(client, CHAT, structured_outputs={"json_object": True})).startswith("{")


def test_reasoning_is_closed_first(thinker: Any) -> None:
    """A grammar covers the whole text, so a template that opens a thought must not."""
    assert text_of(ask(thinker, CHAT, guided_choice=["red"])) == "red"


WRONG: list[tuple[dict[str, Any], int, str]] = [
    ({"guided_regex": "(a"}, 400, '"guided_regex" is not a regular expression'),
    ({"guided_regex": "(a*)*"}, 400, '"guided_regex" cannot be honoured'),
    ({"guided_regex": "a" * 2000}, 400, '"guided_regex" may have at most'),
    ({"structured_outputs": {"regex": r"(?=a)b"}}, 400, '"structured_outputs.regex"'),
    ({"structured_outputs": {"grammar": "root ::= ("}}, 400, "structured_outputs.grammar"),
    ({"structured_outputs": {"regex": "a", "choice": ["a"]}}, 400, '"structured_outputs.choice"'),
    ({"structured_outputs": {"structural_tag": "{}"}}, 501, '"structured_outputs.structural_tag"'),
    ({"guided_whitespace_pattern": " "}, 501, '"guided_whitespace_pattern"'),
    ({"structured_outputs": {"chioce": ["a"]}}, 400, '"structured_outputs": "chioce" is not known'),
    ({"guided_json": "{"}, 400, '"guided_json" is not valid JSON'),
    ({"guided_json": {"type": "object", "not": 1}}, 400, '"guided_json"'),
    ({"response_format": {"type": "json_schema", "schema": {"type": "no"}}}, 400, '"response_format": '),
    ({"guided_choice": ["a"], "grammar": 'root ::= "a"'}, 400, '"guided_choice" and "grammar" cannot'),
    (
        {"response_format": {"type": "json_object"}, "json_schema": {}},
        400,
        '"response_format" and "json_schema"',
    ),
]


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize(("more", "status", "named"), WRONG)
def test_errors_name_the_field_that_was_sent(
    client: Any, path: str, more: dict[str, Any], status: int, named: str
) -> None:
    answer = ask(client, path, **more)
    assert answer.status == status, answer.body
    assert named in answer.error["message"]


def test_other_dialects_name_their_own_field(client: Any) -> None:
    schema = {"type": "no"}
    form = {"type": "json_schema", "name": "a", "schema": schema}
    answer = client.post("/v1/responses", {"input": "Hi", "text": {"format": form}})
    assert '"text.format"' in answer.error["message"]
    body = {
        "messages": SAY,
        "max_tokens": 4,
        "output_config": {"format": {"type": "json_schema", "schema": schema}},
    }
    assert '"output_config.format"' in client.post("/v1/messages", body).json["error"]["message"]


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "judge"}}])
def test_a_forced_call_beside_a_format(client: Any, choice: Any) -> None:
    """The format is the content's, and there is none beside a forced call; a grammar would be of the whole text."""
    form = {"type": "json_schema", "json_schema": {"schema": {"type": "array"}}}
    answer = ask(
        client, CHAT, tools=[CALL], tool_choice=choice, parallel_tool_calls=False, response_format=form
    )
    message = answer.json["choices"][0]["message"]
    assert message["content"] is None
    assert isinstance(json.loads(message["tool_calls"][0]["function"]["arguments"])["ok"], bool)
    for more in ({"guided_choice": ["a"]}, {"grammar": 'root ::= "a"'}, {"json_schema": {}}):
        refused = ask(client, CHAT, tools=[CALL], tool_choice=choice, **more)
        assert f'"{next(iter(more))}" cannot be combined' in refused.error["message"]


def test_plain_grammars() -> None:
    assert of_texts(["a", "b", "a"], 100) == 'root ::= "a" | "b"\n'
    special = ['"\\\n\0\x7f\u00e9\u4e2d\U0001f600']
    assert of_texts(special, 100) == 'root ::= "\\"\\\\\\n\\x00\\x7f\\xe9\\u4e2d\\U0001f600"\n'
    assert of_texts(special, 38) is None
    assert of_texts(["a"] * 10 + ["b" * 30], 30) is None
    n_chars = 2 * text_grammars.PIECE_CHARS + 1  # they are escaped in pieces
    assert of_texts(["\n" * n_chars], 4 * n_chars) == 'root ::= "' + r"\n" * n_chars + '"\n'
    assert of_regex(r"^(yes|no)\.$") == 'root ::= ("yes" | "no") "."\n'
    assert of_regex("a|") == 'root ::= "a"?\n'
    assert of_regex("") == 'root ::= ""\n'
    with pytest.raises(text_grammars.Unsupported):
        of_regex("a^b")
