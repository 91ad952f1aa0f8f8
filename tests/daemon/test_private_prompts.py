"""No log has a prompt unless it is asked for: every dialect, valid and invalid, with everything logged."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from support.live_daemon import Live

SECRET = "xyzzy-plugh"
TEMPLATE = (
    "{% for m in messages %}{% if m.content == 'raise ' ~ secret %}{{ raise_exception(m.content) }}{% endif %}"
    "{% if m.content == 'fail ' ~ secret %}{{ {}[m.content].x }}{{ m.content + 1 }}{% endif %}"
    "{{ m.role }}: {{ m.content }}\n{% endfor %}"
).replace("secret", f"'{SECRET}'")
MESSAGE = {"role": "user", "content": SECRET}
PART = {"type": "text", "text": SECRET}
TOOL = {"name": "f", "description": SECRET, "parameters": {"type": "object", "description": SECRET}}
CHATS = ("/v1/chat/completions", "/v1/chat/completions/input_tokens", "/apply-template")
TEXTS: list[Any] = [
    SECRET,
    [SECRET, SECRET],
    [SECRET, 1],
    [SECRET, {"text": SECRET}],
    {"prompt_string": SECRET},
    {"prompt_string": SECRET, "multimodal_data": [SECRET]},
    {SECRET: SECRET},
    [[SECRET]],
    SECRET * 2000,
    [-1, SECRET],
]
MESSAGES: list[Any] = [
    [MESSAGE],
    [MESSAGE, {"role": "assistant", "content": SECRET}],
    [{"role": "user", "content": [PART, PART]}],
    [{"role": "user", "content": [{"type": SECRET, "text": SECRET}]}],
    [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": SECRET}}]}],
    [{"role": "user", "content": {"text": SECRET}}],
    [{"role": "user", "content": 1, "name": SECRET}],
    [{"content": SECRET}],
    [{"role": "assistant", "tool_calls": [{"function": {"name": SECRET, "arguments": 1}}]}],
    [{"role": "tool", "content": SECRET, "tool_call_id": 1}],
    [SECRET],
    SECRET,
    {"role": SECRET},
    [{"role": "user", "content": f"raise {SECRET}"}],
    [{"role": "user", "content": f"fail {SECRET}"}],
    [{"role": "user", "content": SECRET * 2000}],
    [],
]


def bodies() -> Iterator[tuple[str, dict[str, Any]]]:
    for text in TEXTS:
        for path in ("/completion", "/v1/completions"):
            yield path, {"prompt": text, "n_predict": 1}
            yield path, {"prompt": text, "max_tokens": 1, "stream": True, "suffix": 1}
        yield "/infill", {"input_prefix": text, "input_suffix": text, "prompt": text, "n_predict": 1}
        yield "/infill", {"input_prefix": SECRET, "input_suffix": "", "input_extra": text}
        yield "/tokenize", {"content": text}
        yield "/v1/embeddings", {"input": text}
        yield "/embedding", {"content": text}
        yield "/rerank", {"query": text, "documents": [SECRET]}
        yield "/v1/responses", {"input": text, "instructions": text, "max_output_tokens": 1}
        yield "/v1/messages", {"messages": [MESSAGE], "system": text, "max_tokens": 1}
        yield "/completion", {"prompt": "x", "system_prompt": text, "n_predict": 1}
        yield "/completion", {"prompt": "x", "n_predict": 1, "penalty_prompt": text, "stop": text}
    for messages in MESSAGES:
        for path in CHATS:
            yield path, {"messages": messages, "max_tokens": 1}
        yield "/v1/chat/completions", {"messages": messages, "max_tokens": 1, "stream": True, "tools": [TOOL]}
        yield "/v1/messages", {"messages": messages, "max_tokens": 1}
        yield "/v1/messages/count_tokens", {"messages": messages, "tools": [TOOL]}
        yield "/v1/responses", {"input": messages, "max_output_tokens": 1, "stream": True}
    for text in TEXTS:
        yield "/v1/chat/completions", {"messages": [{"role": "user", "content": text}], "max_tokens": 1}


@pytest.fixture(scope="module")
def server(tiny: str) -> Iterator[Live]:
    flags = ("-c", "512", "-v", "--embeddings", "--pooling", "mean", "--chat-template", TEMPLATE)
    with Live(*flags, model=tiny) as server:
        yield server


def test_no_dialect_puts_a_prompt_into_the_log(server: Live) -> None:
    statuses = [server.client.post(path, body).status for path, body in bodies()]
    assert {200, 400, 501} <= set(statuses)
    assert 500 not in statuses
    for data in (f'{{"prompt": "{SECRET}', f'{{"prompt": {SECRET}}}', f"{SECRET}", f'["{SECRET}"]'):
        assert server.client.request("POST", "/completion", data.encode()).status == 400
    server.client.get(f"/props?{SECRET}={SECRET}")
    server.wait_line('"GET /props" 200')
    assert [line for line in server.lines if SECRET in line or SECRET[:5] in line] == []


def test_the_client_still_hears_what_the_template_said(server: Live) -> None:
    answer = server.client.post("/v1/chat/completions", {"messages": MESSAGES[13]})
    assert SECRET in answer.error["message"]
    server.wait_line(r'"POST /v1/chat/completions" 400 .* error="The chat template rejected the messages"$')


def test_a_prompt_that_is_asked_for_is_cut_and_escaped(tiny: str) -> None:
    with Live("-c", "8192", "--log-prompts", model=tiny) as server:
        server.client.complete(f"{SECRET}\n2026-01-01 \x1b[2J", n_predict=1)
        server.wait_line(rf"request \S+: prompt of \d+ tokens: '{SECRET}\\n2026-01-01 \\x1b\[2J'$")
        server.client.complete("word " * 3000, n_predict=1)
        line = server.wait_line(r"prompt of 300\d tokens: '((?:word )+w?o?r?d?)'\.\.\.$")
        assert len(line[1]) == 4096
