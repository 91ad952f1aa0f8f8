"""Endpoints that only count tokens, and what Claude Code's requests need for their prefix to stay cached."""

from __future__ import annotations

from typing import Any

import pytest

HELLO = [{"role": "user", "content": "Say hello."}]
COUNTED: list[tuple[str, str, dict[str, Any]]] = [
    ("/v1/chat/completions", "prompt_tokens", {"messages": HELLO, "max_tokens": 1}),
    ("/chat/completions", "prompt_tokens", {"messages": HELLO, "max_tokens": 1}),
    ("/v1/responses", "input_tokens", {"input": HELLO, "instructions": "Be brief.", "max_output_tokens": 1}),
    ("/responses", "input_tokens", {"input": "x " * 2000, "max_output_tokens": 1}),
]


@pytest.mark.parametrize(("path", "used", "body"), COUNTED)
def test_counted_as_read(client: Any, path: str, used: str, body: dict[str, Any]) -> None:
    counted = client.post(path + "/input_tokens", body)
    assert counted.status == 200, counted.body
    n_tokens = client.post(path, {**body, "cache_prompt": False}).json["usage"][used]
    assert counted.json == {"input_tokens": n_tokens, "object": "response.input_tokens"}


def test_too_long_for_the_context_is_counted(client: Any) -> None:
    long = [{"role": "user", "content": "word " * 9000}]
    assert client.post("/v1/chat/completions/input_tokens", {"messages": long}).json["input_tokens"] > 9000
    assert client.post("/v1/messages/count_tokens", {"messages": long}).json["input_tokens"] > 9000


def test_counting_names_what_was_left_out(client: Any) -> None:
    body = {"messages": HELLO, "tools": [{"type": "web_search_20250305", "name": "web_search"}]}
    answer = client.post("/v1/messages/count_tokens", body)
    assert answer.headers["x-llamad-ignored"] == "tools.web_search_20250305"
    assert client.post("/v1/responses/input_tokens", {"input": []}).status == 400


BILLING = "x-anthropic-billing-header: cc_version=1.0.0.{}; cc_entrypoint=cli; cch={};"


def billed(stamp: str) -> dict[str, Any]:
    """A request of Claude Code: marks of the session and the request are near its beginning."""
    system = [
        {"type": "text", "text": BILLING.format(stamp[:3], stamp)},
        {"type": "text", "text": "You answer questions about rivers. " * 20},
    ]
    return {"system": system, "messages": HELLO, "max_tokens": 1, "id_slot": 0}


@pytest.mark.parametrize("joined", [False, True])
def test_the_billing_stamp_does_not_break_the_cache(client: Any, joined: bool) -> None:
    usages = []
    for stamp in ("a5145", "00f1e"):
        body = billed(stamp)
        if joined:
            body["system"] = "".join(block["text"] for block in body["system"])
        answer = client.post("/v1/messages", body)
        assert answer.status == 200, answer.body
        usages.append(answer.json["usage"])
    assert usages[1]["cache_read_input_tokens"] > 100
    assert usages[1]["input_tokens"] <= 4


@pytest.mark.parametrize("end", ["", "\n", "\n\n"])
def test_the_billing_line_is_left_out(client: Any, end: str) -> None:
    line, rules = BILLING.format("c23", "a5145"), "You answer questions."
    for system in (
        line + end + rules,
        [{"type": "text", "text": line + end + rules}],
        [{"type": "text", "text": line + end}, {"type": "text", "text": rules}],
    ):
        with_line, without = (
            client.post("/v1/messages/count_tokens", {"system": one, "messages": HELLO}).json["input_tokens"]
            for one in (system, rules)
        )
        assert with_line == without


def test_other_prompts_keep_their_stamp(client: Any) -> None:
    """Only the billing line: the same words elsewhere are the user's."""
    counts = []
    for stamp in ("aaaaa", "a 5 1"):
        body = {"system": f"Notes: cch={stamp}; end", "messages": HELLO}
        counts.append(client.post("/v1/messages/count_tokens", body).json["input_tokens"])
    assert counts[0] != counts[1]


def test_max_tokens_may_be_left_out(client: Any) -> None:
    answer = client.post(
        "/v1/messages", {"messages": HELLO, "stop_sequences": [" "], "grammar": 'root ::= "ab"'}
    )
    assert answer.status == 200, answer.body
    assert answer.json["content"] == [{"type": "text", "text": "ab"}]
