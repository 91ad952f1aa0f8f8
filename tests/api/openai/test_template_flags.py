"""The flags that decide on the chat template, and the limits that the server's flags set for OpenAI's fields."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.fake_daemon import Faked
from support.live_daemon import Live, model_path
from support.models.tiny_model import write_tiny

from llamad.api.service.chat_template import make_host
from llamad.chat.host import ChatHost
from llamad.chat.template import CHATML, builtin
from llamad.engine.testing.fake import Fake
from llamad.flags.parse import parse

SAY = [{"role": "user", "content": "x"}]


def host(*flags: str, template: str = "", add_bos: bool = False, for_tools: str | None = None) -> ChatHost:
    vocab = SimpleNamespace(piece=lambda token, special: b"<%d>" % token)
    info = SimpleNamespace(chat_template=template, bos=1, eos=2, add_bos=add_bos, tool_use_template=for_tools)
    model: Any = SimpleNamespace(info=info, vocab=vocab)
    return make_host(parse(["-m", "x.gguf", *flags], {}).settings.model, model)


def prompt(made: ChatHost, messages: list[dict[str, Any]] = SAY) -> str:
    return made.prompt(messages, tools=None, kwargs={})


def test_sources(tmp_path: Path) -> None:
    assert host().source == CHATML
    assert prompt(host(template="{{ bos_token }}model{{ eos_token }}")) == "<1>model<2>"
    assert prompt(host("--chat-template", "{{ 1 + 1 }}", template="model")) == "2"
    file = tmp_path / "template.jinja"
    file.write_text("{{ 'file' }}")
    assert prompt(host("--chat-template-file", str(file), template="model")) == "file"
    assert "<|start_header_id|>" in prompt(host("--chat-template", "llama3"))


def test_without_jinja_the_built_in_template_is_recognized() -> None:
    jinja = "{{ 'own words <start_of_turn>' }}"
    assert prompt(host(template=jinja)) == "own words <start_of_turn>"
    made = host("--no-jinja", template=jinja)
    assert prompt(made) == "<start_of_turn>user\nx<end_of_turn>\n<start_of_turn>model\n"
    assert host("--no-jinja", "--chat-template", "zephyr", template=jinja).source == builtin("zephyr")
    assert host("--no-jinja").source == CHATML
    with pytest.raises(ValueError, match="--no-jinja: the chat template is none of the built-in ones"):
        host("--no-jinja", template="{{ messages }}")


def test_without_jinja_there_are_no_tools() -> None:
    tools = [{"type": "function", "function": {"name": "f"}}]
    with Faked(Fake(), "--no-jinja") as server:
        assert server.client.post("/v1/chat/completions", {"messages": SAY, "max_tokens": 1}).status == 200
        for path, body in (
            ("/v1/chat/completions", {"messages": SAY, "tools": tools}),
            (
                "/v1/messages",
                {"messages": SAY, "max_tokens": 1, "tools": [{"name": "f", "input_schema": {}}]},
            ),
            ("/v1/responses", {"input": "x", "tools": [{"type": "function", "name": "f", "parameters": {}}]}),
        ):
            answer = server.client.post(path, body)
            assert (answer.status, "--no-jinja" in answer.json["error"]["message"]) == (501, True), path


def test_the_template_for_tools() -> None:
    """The model's own, where no flag gives another; one that is no template is left out."""
    calls = "{{ tools or 'tools' }}{# [TOOL_CALLS][ARGS] #}"
    both = host(template="{{ tools or 'plain' }}{# <tool_call> #}", for_tools=calls)
    assert (prompt(both.serving(False)), prompt(both.serving(True))) == ("plain", "tools")
    assert {"<tool_call>", "[TOOL_CALLS]"} <= set(both.markers)
    assert prompt(host(for_tools=calls)) == "tools"
    flagged = host("--chat-template", "{{ 'flag' }}", template="plain", for_tools=calls)
    assert prompt(flagged.serving(True)) == "flag"
    assert prompt(host(template="{{ 'plain' }}", for_tools="{% if %}").serving(True)) == "plain"


def test_the_beginning_is_not_doubled() -> None:
    """The tokenizer adds the token itself."""
    assert prompt(host(template="{{ bos_token }}a", add_bos=True)) == "a"


def test_prefill() -> None:
    messages = [*SAY, {"role": "assistant", "content": [{"type": "text", "text": "Well, "}]}]
    assert prompt(host(), messages).endswith("<|im_start|>assistant\nWell, ")
    closed = prompt(host("--no-prefill-assistant"), messages)
    assert closed.endswith("Well, <|im_end|>\n<|im_start|>assistant\n")


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--chat-template", "nonsense"), "neither Jinja nor a built-in"),
        (("--chat-template", "{% if %}"), "--chat-template"),
        (("--chat-template", "chatml", "--chat-template-file", "x"), "cannot be combined"),
        (("--chat-template-file", "/does/not/exist"), "--chat-template-file /does/not/exist"),
        (("--chat-template-kwargs", "{"), "not valid JSON"),
        (("--chat-template-kwargs", "[]"), "must be a JSON object"),
    ],
)
def test_bad_flags(flags: tuple[str, ...], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        host(*flags)


def test_caps_name_the_field() -> None:
    with Faked(Fake(), "--n-predict-max", "5", "--n-probs-max", "3", "--n-max", "2") as server:
        for path, prompt in (
            ("/v1/chat/completions", {"messages": SAY}),
            ("/v1/completions", {"prompt": "x"}),
        ):
            for name, value in (("max_tokens", 6), ("max_completion_tokens", 6), ("n_predict", 6), ("n", 3)):
                answer = server.client.post(path, {**prompt, name: value})
                assert answer.status == 400
                assert answer.error["message"].startswith(f'"{name}" may be at most')
            assert server.client.post(path, prompt).json["usage"]["completion_tokens"] <= 5
        probs = {"messages": SAY, "logprobs": True, "top_logprobs": 4}
        assert "--n-probs-max" in server.client.post("/v1/chat/completions", probs).error["message"]
        probs = {"prompt": "x", "logprobs": 4}
        assert "--n-probs-max" in server.client.post("/v1/completions", probs).error["message"]


def test_a_model_with_a_template_for_tools(tmp_path: Path) -> None:
    named = {"tokenizer.chat_template.tool_use": "{{ tools[0].function.name }}!{# <tool_call> #}"}
    model = write_tiny(tmp_path / "tools.gguf", model_path(), tokenizer=named)
    tool = {"type": "function", "function": {"name": "f"}}
    with Live("-c", "256", model=model) as server:

        def asked(**fields: Any) -> Any:
            return server.client.post("/apply-template", {"messages": SAY, **fields}).json["prompt"]

        assert asked(tools=[tool]) == "f!"
        assert asked().startswith("<|im_start|>")
        assert asked(tools=[tool], tool_choice="none") == asked()
        assert server.client.get("/props").json["chat_template_tool_use"] == next(iter(named.values()))
