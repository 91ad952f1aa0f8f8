"""What flags and requests say about thinking and parsing, over HTTP: the prompt that comes of it, and the answer."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from support.fake_daemon import Faked

from llamad.api.service.chat_template import make_host
from llamad.engine.testing.fake import Fake
from llamad.flags.parse import parse

PATH = "/v1/chat/completions"
SAY = [{"role": "user", "content": "x"}]
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
CALL = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'
# With a switch, with an effort, with thoughts of the past; and one that always opens a thought.
SWITCHED = (
    "{% for m in messages %}{{ m.content }}{% endfor %}{{ tools }}|{{ reasoning_effort }}|{{ preserve_thinking }}"
    "{{ clear_thinking }}|{% if enable_thinking is defined %}{{ enable_thinking }}{% endif %}"
    "{% if enable_thinking is defined and enable_thinking is false %}<think></think>{% endif %}{# <tool_call> #}"
)
OPENED = "{% for m in messages %}{{ m.content }}{% endfor %}<think>{{ '\\n' }}"


@pytest.fixture(scope="module")
def switched() -> Iterator[Faked]:
    with Faked(Fake(n_ctx=2048), "--chat-template", SWITCHED, n_ctx=2048) as server:
        yield server


def prompt(server: Faked, **fields: Any) -> str:
    answer = server.client.post("/apply-template", {"messages": SAY, **fields})
    assert answer.status == 200, answer.body
    text: str = answer.json["prompt"]
    return text


def test_request(switched: Faked) -> None:
    assert prompt(switched) == "xNone||TrueFalse|True"
    off = "xNone||TrueFalse|False<think></think>"
    assert prompt(switched, chat_template_kwargs={"enable_thinking": False}) == off
    assert prompt(switched, reasoning_effort="none") == off
    assert prompt(switched, reasoning_budget_tokens=0) == off
    assert prompt(switched, thinking_budget_tokens=0) == off
    assert prompt(switched, reasoning_effort="low") == "xNone|low|TrueFalse|True"
    assert prompt(switched, reasoning_budget_tokens=-1) == prompt(switched)
    said = prompt(switched, reasoning_budget_tokens=0, reasoning_budget_message="No time.")
    assert said == "xNone||TrueFalse|True<think>\nNo time.\n</think>\n\n"


def test_what_stands_above_what() -> None:
    """Flags, effort, the request's own variables; the same on every chat endpoint."""
    with Faked(Fake(n_ctx=2048), "--chat-template", SWITCHED, "-rea", "off", n_ctx=2048) as server:

        def is_on(**fields: Any) -> bool:
            return prompt(server, **fields).endswith("|True")

        assert not is_on()
        assert is_on(reasoning_effort="low")
        assert not is_on(reasoning_effort="low", chat_template_kwargs={"enable_thinking": False})
        assert is_on(reasoning_effort="none", chat_template_kwargs={"enable_thinking": True})
        assert not is_on(reasoning_effort="low", reasoning_budget_tokens=0)

        def n_prompt(path: str, **fields: Any) -> int:
            body = {"temperature": 0, "max_tokens": 1, "cache_prompt": False, **fields}
            answer = server.client.post(path, body)
            assert answer.status == 200, answer.body
            usage: dict[str, int] = answer.json["usage"]
            return usage["prompt_tokens"] if "prompt_tokens" in usage else usage["input_tokens"]

        wanted = [n_prompt(PATH, messages=SAY, reasoning_effort=effort) for effort in ("none", "max")]
        assert wanted[0] != wanted[1]
        asked = {"input": "x", "max_tokens": None}
        assert [
            n_prompt("/v1/responses", **asked, reasoning={"effort": effort}) for effort in ("none", "max")
        ] == wanted
        assert n_prompt("/v1/messages", messages=SAY, thinking={"type": "disabled"}) == wanted[0]
        assert n_prompt("/v1/messages", messages=SAY, output_config={"effort": "max"}) == wanted[1]


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("{{ reasoning_effort }}", "high"),
        ("{{ reasoning_effort }}{{ '' if reasoning_effort == 'max' }}", "max"),
    ],
)
def test_efforts_that_the_template_does_not_know(source: str, told: str) -> None:
    with Faked(Fake(), "--chat-template", source) as server:
        assert prompt(server, reasoning_effort="max") == told
        assert prompt(server, chat_template_kwargs={"reasoning_effort": "max"}) == "max"


def test_a_thought_that_the_template_opens_is_closed() -> None:
    with Faked(Fake(), "--chat-template", OPENED) as server:
        assert prompt(server) == "x<think>\n"
        assert prompt(server, reasoning_effort="none") == "x<think>\n\n</think>\n\n"
        begun = [*SAY, {"role": "assistant", "content": "a"}]
        assert prompt(server, messages=begun, reasoning_effort="none").endswith("a")
        server.fake.script = b"Hm.</think>Yes."
        message = server.client.post(PATH, {"messages": SAY, "temperature": 0}).json["choices"][0]["message"]
        assert (message["reasoning_content"], message["content"]) == ("Hm.", "Yes.")
        server.fake.script = b"Yes."
        body = {"messages": SAY, "temperature": 0, "reasoning_effort": "none"}
        message = server.client.post(PATH, body).json["choices"][0]["message"]
        assert message == {"role": "assistant", "content": "Yes."}


@pytest.mark.parametrize(
    ("fields", "status", "says"),
    [
        ({"chat_template_kwargs": {"enable_thinking": "no"}}, 400, "enable_thinking"),
        ({"chat_template_kwargs": []}, 400, "chat_template_kwargs"),
        ({"reasoning_effort": 3}, 400, "reasoning_effort"),
        ({"reasoning_format": "other"}, 400, "reasoning_format"),
        ({"reasoning_budget_tokens": 9, "grammar": 'root ::= "</think>"'}, 400, "budget"),
        ({"reasoning_budget_tokens": -2}, 400, "reasoning_budget_tokens"),
        ({"reasoning_budget_tokens": "1"}, 400, "reasoning_budget_tokens"),
        ({"reasoning_budget_tokens": 0, "reasoning_budget_message": 1}, 400, "reasoning_budget_message"),
        ({"parse_tool_calls": "no"}, 400, "parse_tool_calls"),
        ({"continue_final_message": True}, 400, "continue_final_message"),
        ({"continue_final_message": "all"}, 400, "continue_final_message"),
        ({"continue_final_message": True, "add_generation_prompt": True}, 400, "add_generation_prompt"),
    ],
)
def test_refused(switched: Faked, fields: dict[str, Any], status: int, says: str) -> None:
    answer = switched.client.post(PATH, {"messages": SAY, **fields})
    assert answer.status == status
    assert says in answer.error["message"]


def test_parse_tool_calls(switched: Faked) -> None:
    switched.fake.script = CALL.encode()
    body = {"messages": SAY, "temperature": 0, "tools": [TOOL]}
    assert switched.client.post(PATH, body).json["choices"][0]["message"]["tool_calls"]
    choice = switched.client.post(PATH, {**body, "parse_tool_calls": False}).json["choices"][0]
    assert choice["message"] == {"role": "assistant", "content": CALL}
    assert choice["finish_reason"] == "stop"


def test_continue_final_message(switched: Faked) -> None:
    messages = [*SAY, {"role": "assistant", "content": "a"}]
    assert prompt(switched, messages=messages).endswith("|Truea")
    assert prompt(switched, messages=messages, continue_final_message=True) == prompt(
        switched, messages=messages
    )
    assert prompt(switched, messages=messages, continue_final_message=False).startswith("xa")


@pytest.mark.parametrize(
    ("sent", "how", "end"),
    [
        ({"content": "a"}, "content", "|Truea"),
        ({"content": "a", "reasoning_content": "hm"}, True, "|True<think>hm</think>a"),
        ({"content": "", "reasoning_content": "hm"}, True, "|True<think>hm"),
        ({"content": "a", "reasoning_content": "hm"}, "reasoning_content", "|True<think>hm"),
        ({"content": "", "reasoning": "hm"}, "content", "|True<think>hm</think>"),
    ],
)
def test_which_part_of_a_message_is_continued(switched: Faked, sent: Any, how: Any, end: str) -> None:
    messages = [*SAY, {"role": "assistant", **sent}]
    assert prompt(switched, messages=messages, continue_final_message=how).endswith(end)


def test_an_answer_that_continues_a_thought(switched: Faked) -> None:
    switched.fake.script = b" more</think>done"
    messages = [*SAY, {"role": "assistant", "content": "", "reasoning_content": "hm"}]
    body = {"messages": messages, "temperature": 0, "continue_final_message": "reasoning_content"}
    message = switched.client.post(PATH, body).json["choices"][0]["message"]
    assert (message["reasoning_content"].strip(), message["content"]) == ("more", "done")


def host_prompt(*flags: str, **options: Any) -> str:
    class Vocab:
        def piece(self, token: int, special: bool) -> bytes:
            return b""

    class Info:
        chat_template, tool_use_template, bos, eos, add_bos = SWITCHED, None, 1, 2, False

    class Model:
        info, vocab = Info(), Vocab()

    model: Any = Model()
    host = make_host(parse(["-m", "x.gguf", *flags], {}).settings.model, model)
    return host.prompt(SAY, tools=None, kwargs={}, **options)


def test_flags() -> None:
    assert host_prompt("--reasoning-effort", "high") == "xNone|high|TrueFalse|True"
    assert host_prompt("--no-reasoning-preserve") == "xNone||FalseTrue|True"
    assert host_prompt("--chat-template-kwargs", '{"preserve_thinking": 7}') == "xNone||7False|True"


@pytest.mark.parametrize("flags", [("-rea", "off"), ("--reasoning-budget", "0")])
def test_turned_off_by_a_flag(flags: tuple[str, ...]) -> None:
    with Faked(Fake(), "--chat-template", SWITCHED, *flags) as server:
        assert prompt(server).endswith("False<think></think>")
        on = prompt(server, chat_template_kwargs={"enable_thinking": True})
        assert on.endswith("|True") == (flags[0] == "-rea")  # the server's budget holds


def test_turned_on_by_a_flag() -> None:
    """A variable of another name, too."""
    source = "{% if thinking %}on{% else %}off{% endif %}"
    with Faked(Fake(), "--chat-template", source) as server:
        assert prompt(server) == "off"
        assert prompt(server, chat_template_kwargs={"enable_thinking": True}) == "on"
    with Faked(Fake(), "--chat-template", source, "--reasoning", "on") as server:
        assert prompt(server) == "on"
        assert prompt(server, chat_template_kwargs={"thinking": False}) == "off"


def test_skip_chat_parsing() -> None:
    with Faked(Fake(), "--chat-template", SWITCHED, "--skip-chat-parsing") as server:
        script = "<think>Hm.</think>" + CALL
        server.fake.script = script.encode()
        body = {"messages": SAY, "temperature": 0, "tools": [TOOL]}
        choice = server.client.post(PATH, body).json["choices"][0]
        assert choice["message"] == {"role": "assistant", "content": script}
        assert choice["finish_reason"] == "stop"
        told = server.client.post("/v1/messages", {**body, "tools": [], "max_tokens": 200}).json["content"]
        assert told == [{"type": "text", "text": script}]


def test_ids_as_the_template_wants_them() -> None:
    """Mistral's have nine letters and digits, whoever asks."""
    source = "{% for m in messages %}{{ m.content }}{% endfor %}{{ tools }}{# [TOOL_CALLS][ARGS] #}"
    with Faked(Fake(), "--chat-template", source) as server:
        server.fake.script = b"[TOOL_CALLS]f[ARGS]{}"
        body = {"messages": SAY, "temperature": 0, "tools": [TOOL]}
        chat = server.client.post(PATH, body).json["choices"][0]["message"]["tool_calls"][0]["id"]
        tool = {"name": "f", "input_schema": {"type": "object"}}
        message = server.client.post("/v1/messages", {**body, "tools": [tool], "max_tokens": 99})
        use = next(block["id"] for block in message.json["content"] if block["type"] == "tool_use")
        asked = {"input": "x", "temperature": 0, "tools": [{"type": "function", **TOOL["function"]}]}
        response = server.client.post("/v1/responses", asked).json["output"][0]["call_id"]
        for id in (chat, use, response):
            assert re.fullmatch("[a-zA-Z0-9]{9}", id)


def test_parallel_calls_as_the_template_knows_them() -> None:
    """Where a message can have one call only, the first ends the answer unless the request asks for several."""
    source = (
        "{% for m in messages %}{% if m.tool_calls %}{% if m.tool_calls | length > 1 %}{{ raise_exception('one') }}"
        "{% endif %}{{ m.tool_calls[0].function }}{% endif %}{{ m.content }}{% endfor %}{{ tools }}{# <tool_call> #}"
    )
    with Faked(Fake(), "--chat-template", source) as server:
        server.fake.script = f"{CALL}\n{CALL}".encode()
        body: dict[str, Any] = {"messages": SAY, "temperature": 0, "tools": [TOOL]}
        message = server.client.post(PATH, body).json["choices"][0]["message"]
        assert (len(message["tool_calls"]), message["content"]) == (1, None)
        both = server.client.post(PATH, {**body, "parallel_tool_calls": True}).json["choices"][0]["message"]
        assert len(both["tool_calls"]) == 2


HARMONY = "{% for m in messages %}{{ m.content }}{% endfor %}<|start|>assistant{# <|channel|><|message|> #}"
FORMED = {"const": "Yes"}


@pytest.mark.parametrize(
    ("source", "script", "thought"),
    [
        (OPENED, 'Hm.</think>\n\n"Yes"', "Hm."),
        (OPENED, '</think>"Yes"', ""),
        (SWITCHED, '"Yes"', ""),
        (HARMONY, '<|channel|>final<|message|>"Yes"', ""),
        (
            HARMONY,
            "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant"
            '<|channel|>final <|constrain|>json<|message|>"Yes"',
            "Hm.",
        ),
    ],
)
def test_a_schema_forms_the_answer_and_not_the_thought(source: str, script: str, thought: str) -> None:
    """Of a model whose prompt has opened a thought, too, and of one that begins with a header."""
    with Faked(Fake(n_ctx=1024, script=script.encode()), "--chat-template", source, n_ctx=1024) as server:
        for fields in (
            {"response_format": {"type": "json_schema", "schema": FORMED}},
            {"json_schema": FORMED},
        ):
            answer = server.client.post(PATH, {"messages": SAY, "temperature": 0, **fields})
            assert answer.status == 200, answer.body
            message = answer.json["choices"][0]["message"]
            assert (message["content"], message.get("reasoning_content", "")) == ('"Yes"', thought)
        body = {"input": "x", "temperature": 0}
        body["text"] = {"format": {"type": "json_schema", "name": "n", "schema": FORMED}}
        assert server.client.post("/v1/responses", body).json["output"][-1]["content"][0]["text"] == '"Yes"'
        server.fake.script = script.replace("Yes", "Maybe").encode()
        body = {"messages": SAY, "temperature": 0, "json_schema": FORMED}
        refused = server.client.post(PATH, {**body, "max_tokens": len(script)}).json["choices"][0]["message"]
        assert "Maybe" not in refused["content"]


def test_a_grammar_of_the_whole_text() -> None:
    """One that does not speak of a thought's end leaves no room for one."""
    with Faked(Fake(script=b"Yes"), "--chat-template", OPENED) as server:
        body = {"messages": SAY, "temperature": 0, "grammar": 'root ::= "Yes"'}
        message = server.client.post(PATH, body).json["choices"][0]["message"]
        assert message == {"role": "assistant", "content": "Yes"}
        server.fake.script = b"Hm.</think>Yes"
        body["grammar"] = 'root ::= "Hm.</think>Yes"'
        message = server.client.post(PATH, body).json["choices"][0]["message"]
        assert (message["reasoning_content"], message["content"]) == ("Hm.", "Yes")


@pytest.fixture(scope="module")
def opened() -> Iterator[Faked]:
    """Without a script the fake goes on from the last byte: behind "<think>" and "</think>" comes "?@ABC"."""
    source = "{% for m in messages %}{{ m.content }}{% endfor %}<think>"
    with Faked(Fake(n_ctx=1024), "--chat-template", source, "-np", "2", n_ctx=1024) as server:
        yield server


LIMITED: dict[str, Any] = {"messages": SAY, "temperature": 0, "reasoning_budget_tokens": 3}
ENDED = "?@A</think>"


def test_a_long_thought_is_ended(opened: Faked) -> None:
    opened.fake.script = b""
    body = {**LIMITED, "reasoning_budget_message": " Enough.", "max_tokens": 30}
    answer = opened.client.post(PATH, body).json
    message, n_content = answer["choices"][0]["message"], 30 - len("?@A Enough.</think>")
    assert (message["reasoning_content"], message["content"]) == (
        "?@A Enough.",
        "?@ABCDEFGHIJKLM"[:n_content],
    )
    assert answer["choices"][0]["finish_reason"] == "length"
    n_prompt = opened.client.post(PATH, {"messages": SAY, "max_tokens": 1}).json["usage"]["prompt_tokens"]
    assert answer["usage"]["prompt_tokens"] == n_prompt
    assert answer["usage"]["completion_tokens"] == answer["timings"]["predicted_n"] == 30
    for n in (8, 11, 14):  # in the forced end, at its end, behind it
        cut = opened.client.post(PATH, {**LIMITED, "max_tokens": n}).json["choices"][0]
        assert cut["finish_reason"] == "length"
        assert cut["message"]["content"] == "?@ABC"[: max(0, n - len(ENDED))]
    stopped = opened.client.post(PATH, {**LIMITED, "stop": "D"}).json["choices"][0]
    assert (stopped["finish_reason"], stopped["message"]["content"]) == ("stop", "?@ABC")


def test_a_long_thought_is_ended_in_a_stream(opened: Faked) -> None:
    opened.fake.script = b""
    body = {**LIMITED, "stream": True, "n": 2, "logprobs": True, "max_tokens": len(ENDED) + 5}
    answer = opened.client.post(PATH, {**body, "stream_options": {"include_usage": True}})
    events = [json.loads(line[6:]) for line in answer.body.split(b"\n\n") if line.startswith(b"data: {")]
    told: dict[tuple[int, str], str] = {}
    logprobs: dict[int, str] = {0: "", 1: ""}
    for event in events:
        for choice in event["choices"]:
            for name, text in choice["delta"].items():
                key = (choice["index"], name)
                told[key] = told.get(key, "") + (text or "")
            entries = (choice.get("logprobs") or {}).get("content") or []
            logprobs[choice["index"]] += "".join(one["token"] for one in entries)
    for i in range(2):
        assert (told[i, "reasoning_content"], told[i, "content"]) == ("?@A", "?@ABC")
        assert logprobs[i] == ENDED + "?@ABC"
    assert events[-1]["usage"]["completion_tokens"] == 2 * len(logprobs[0])


@pytest.mark.parametrize(("script", "thought"), [(b"a</think>Yes", "a"), (b"ab</</think>Yes", "ab</")])
def test_a_thought_that_ends_in_time_is_left_alone(opened: Faked, script: bytes, thought: str) -> None:
    opened.fake.script = script
    message = opened.client.post(PATH, LIMITED).json["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == (thought, "Yes")


def test_what_constrains_the_answer_holds_behind_an_ended_thought(opened: Faked) -> None:
    opened.fake.script = b""
    body = {**LIMITED, "json_schema": {"const": "Yes"}, "max_tokens": 200}
    message = opened.client.post(PATH, body).json["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == ("?@A", '"Yes"')
    schema = {"properties": {"a": {"const": 1}}, "required": ["a"], "additionalProperties": False}
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", **schema}}}
    body = {**LIMITED, "tools": [tool], "tool_choice": "required", "max_tokens": 400}
    for _ in range(2):  # compiled, and known
        message = opened.client.post(PATH, body).json["choices"][0]["message"]
        assert message["reasoning_content"] == "?@A"
        function = message["tool_calls"][0]["function"]
        assert (function["name"], json.loads(function["arguments"])) == ("f", {"a": 1})


def test_budgets_of_other_endpoints(opened: Faked) -> None:
    opened.fake.script = b""
    body = {"messages": SAY, "temperature": 0, "max_tokens": len(ENDED) + 5}
    body["thinking"] = {"type": "enabled", "budget_tokens": 3}
    told = opened.client.post("/v1/messages", body).json["content"]
    assert [block.get("thinking") or block["text"] for block in told] == ["?@A", "?@ABC"]
    body = {"input": "x", "temperature": 0, "max_output_tokens": len(ENDED) + 5, "reasoning_budget_tokens": 3}
    output = opened.client.post("/v1/responses", body).json["output"]
    assert [item["content"][0]["text"] for item in output] == ["?@A", "?@ABC"]


@pytest.mark.parametrize(
    ("source", "opens"), [(SWITCHED, "<think>"), (HARMONY, "<|channel|>analysis<|message|>")]
)
def test_a_thought_that_the_model_opens_is_ended(source: str, opens: str) -> None:
    flags = ("--chat-template", source, "--reasoning-budget", "3", "--reasoning-budget-message", "!")
    with Faked(Fake(n_ctx=1024, script=f"{opens}abcdef".encode()), *flags, n_ctx=1024) as server:
        message = server.client.post(PATH, {"messages": SAY, "temperature": 0}).json["choices"][0]["message"]
        assert message["reasoning_content"].startswith("abc!")
        server.fake.script = b"Yes, indeed."
        message = server.client.post(PATH, {"messages": SAY, "temperature": 0}).json["choices"][0]["message"]
        assert message == {"role": "assistant", "content": "Yes, indeed."}


def test_many_thoughts_are_ended_at_once(opened: Faked) -> None:
    opened.fake.script = b""
    body = {**LIMITED, "max_tokens": len(ENDED) + 5}
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: opened.client.post(PATH, body), range(24)))
    for answer in answers:
        assert answer.json["choices"][0]["message"]["content"] == "?@ABC"
    opened.until(lambda: not opened.engine.tasks)


def test_a_format_or_a_call() -> None:
    """Tools that may be called leave the content to the schema; in every dialect, and behind a thought that was cut."""
    source = "{% for m in messages %}{{ m.content }}{% endfor %}{{ tools }}<think>{# <tool_call> #}"
    form = {"type": "json_schema", "schema": FORMED}
    body: dict[str, Any] = {"messages": SAY, "temperature": 0, "tools": [TOOL], "response_format": form}
    with Faked(Fake(n_ctx=2048), "--chat-template", source, n_ctx=2048) as server:

        def message(script: str, path: str = PATH, **fields: Any) -> Any:
            server.fake.script = script.encode()
            answer = server.client.post(path, {**body, "max_tokens": 200, **fields})
            assert answer.status == 200, answer.body
            return answer.json["choices"][0]["message"] if path == PATH else answer.json["content"]

        told = message('Hm.</think>\n"Yes"')
        assert (told["reasoning_content"], told["content"]) == ("Hm.", '"Yes"')
        assert "tool_calls" not in told
        told = message(f"Hm.</think>{CALL}")
        assert (told["content"], told["tool_calls"][0]["function"]["name"]) == (None, "f")
        assert "No" not in message('</think>"No"')["content"]
        assert message("</think>No", json_schema=FORMED, response_format=None)["content"] == '"Yes"'
        told = message("", reasoning_budget_tokens=3)
        assert len(told["reasoning_content"]) == 3
        assert told["content"] == '"Yes"' or told["tool_calls"]
        tool = {"name": "f", "input_schema": {"type": "object"}}
        output = {"output_config": {"format": form}, "response_format": None, "tools": [tool]}
        assert message(f"</think>{CALL}", "/v1/messages", **output)[0]["type"] == "tool_use"
        assert message('</think>"Yes"', "/v1/messages", **output)[0]["text"] == '"Yes"'
        wrong = {"type": "json_schema", "schema": {"type": "no"}}
        refused = server.client.post(PATH, {**body, "response_format": wrong})
        assert (refused.status, '"response_format"' in refused.error["message"]) == (400, True)


def test_a_continued_answer_with_channels() -> None:
    """Its content stands in the final one, behind its thought."""
    with Faked(Fake(n_ctx=1024), "--chat-template", HARMONY, n_ctx=1024) as server:
        begun = {"role": "assistant", "content": "He"}
        final = "<|channel|>final<|message|>He"
        assert prompt(server, messages=[*SAY, begun]) == f"x<|start|>assistant{final}"
        thought = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant"
        told = prompt(server, messages=[*SAY, {**begun, "reasoning_content": "Hm."}])
        assert told == f"x<|start|>assistant{thought}{final}"
        server.fake.script = b" said: no."
        body = {"messages": [*SAY, begun], "temperature": 0}
        for fields in ({}, {"json_schema": {"const": "Yes"}}):
            message = server.client.post(PATH, {**body, **fields}).json["choices"][0]["message"]
            assert message == {"role": "assistant", "content": '"Yes"' if fields else " said: no."}
