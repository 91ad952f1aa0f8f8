"""`grammar_lazy`, `grammar_triggers` and `preserved_tokens`, over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from support.fake_daemon import Faked

from llamad.engine.testing.fake import Fake

TEMPLATE = "{% for m in messages %}{{ m.content }}{% endfor %}{# <think></think> #}"
LAZY: dict[str, Any] = {
    "temperature": 0,
    "n_predict": 40,
    "grammar": 'root ::= "<call>" [0-9]{2}',
    "grammar_lazy": True,
    "grammar_triggers": [{"type": 1, "value": "<call>"}],
}


@pytest.fixture(scope="module")
def server() -> Iterator[Faked]:
    with Faked(Fake(n_ctx=512), "--chat-template", TEMPLATE) as server:
        yield server


@pytest.mark.parametrize(
    ("script", "text"),
    [("free <call>12", "free <call>12"), ("<call>12345", "<call>12"), ("free text", "free text")],
)
def test_completion(server: Faked, script: str, text: str) -> None:
    server.fake.script = script.encode()
    answer = server.client.complete("x", **LAZY)
    assert (answer["content"], answer["stop_type"]) == (text, "eos")
    settings = answer["generation_settings"]
    assert settings["grammar"] == LAZY["grammar"]
    assert (settings["grammar_lazy"], settings["grammar_triggers"]) == (True, LAZY["grammar_triggers"])


def test_what_the_grammar_holds(server: Faked) -> None:
    server.fake.script = b"free <call>xy"
    assert "<call>x" not in server.client.complete("x", **LAZY)["content"]
    triggers = [{"type": 2, "value": r"e\s(<)"}, {"type": 3, "value": "[^]*<ca"}]
    text = server.client.complete("x", **{**LAZY, "grammar_triggers": triggers})["content"]
    assert text.startswith("free <call>")
    assert text.removeprefix("free <call>").isdigit()
    bare = server.client.complete(
        "x", **{**LAZY, "grammar": None, "grammar_triggers": LAZY["grammar_triggers"]}
    )
    assert bare["content"] == "free <call>xy"


def test_chat(server: Faked) -> None:
    """A trigger in a thought is none; a schema may wait, too."""
    server.fake.script = b"<think><call>no</think>free <call>12"
    body = {**LAZY, "messages": [{"role": "user", "content": "x"}]}
    message = server.client.post("/v1/chat/completions", body).json["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == ("<call>no", "free <call>12")
    body |= {"grammar": None, "grammar_triggers": [{"type": 1, "value": '{"a"'}]}
    schema = {"properties": {"a": {"const": 1}}, "required": ["a"], "additionalProperties": False}
    body["response_format"] = {"type": "json_schema", "schema": {"type": "object", **schema}}
    server.fake.script = b'So: {"a":1}'
    message = server.client.post("/v1/chat/completions", body).json["choices"][0]["message"]
    assert message["content"] == 'So: {"a":1}'


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"grammar_triggers": []}, "grammar_triggers"),
        ({"grammar_triggers": ["x"]}, "grammar_triggers[0]"),
        ({"grammar_triggers": [{"type": 4, "value": "x"}]}, "grammar_triggers[0].type"),
        ({"grammar_triggers": [{"type": 1, "value": ""}]}, "grammar_triggers[0].value"),
        ({"grammar_triggers": [{"type": 0, "value": "x"}]}, "grammar_triggers[0].token"),
        ({"grammar_triggers": [{"type": 0, "token": 1}]}, "grammar_triggers[0].token"),
        ({"grammar_triggers": [{"type": 2, "value": "(?!x)"}]}, "grammar_triggers"),
        ({"grammar_triggers": [{"type": 1, "value": "x"}] * 65}, "grammar_triggers"),
        ({"preserved_tokens": "x"}, "preserved_tokens"),
        ({"preserved_tokens": ["x"] * 257}, "preserved_tokens"),
        ({"grammar": 'root ::= "<call>" ('}, "line 1"),
    ],
)
def test_refused(server: Faked, fields: dict[str, Any], says: str) -> None:
    answer = server.client.post("/completion", {"prompt": "x", **LAZY, **fields})
    assert answer.status == 400
    assert says in answer.error["message"]
