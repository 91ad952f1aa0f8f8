"""Each template of llama.cpp's sources makes of ten conversations the prompt that it makes in llama-server, or one that
differs for a reason in docs/api.md."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.http_client import Client
from support.live_daemon import Live
from support.peer import llama_server

SYSTEM = {"role": "system", "content": "Be brief."}
USER = {"role": "user", "content": "How warm is it in Rome?"}
AGAIN = {"role": "user", "content": "And in Oslo?"}
ANSWER = {"role": "assistant", "content": "It is 20 degrees."}
THOUGHT = {"reasoning_content": "I think of Rome."}
PARTS = [{"type": "text", "text": "How warm"}, {"type": "text", "text": "is it?"}]


def tool(name: str, **properties: str) -> dict[str, Any]:
    shapes = {key: {"type": kind, "description": f"The {key}"} for key, kind in properties.items()}
    parameters = {"type": "object", "properties": shapes, "required": list(shapes)}
    return {
        "type": "function",
        "function": {"name": name, "description": f"Gets the {name}", "parameters": parameters},
    }


def call(i: int, name: str, **arguments: Any) -> dict[str, Any]:
    return {
        "id": f"call0000{i}",
        "type": "function",
        "function": {"name": name, "arguments": json.dumps(arguments)},
    }


def calls(*made: dict[str, Any], content: str = "", **more: str) -> dict[str, Any]:
    return {"role": "assistant", "content": content, "tool_calls": list(made), **more}


def result(i: int, content: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": f"call0000{i}", "content": content}


TOOLS = [tool("weather", city="string", days="integer"), tool("clock", zone="string")]
ROME, NOON = call(1, "weather", city="Rome", days=1), call(2, "clock", zone="CET")

SHAPES: dict[str, dict[str, Any]] = {
    "question": {"messages": [USER]},
    "turns": {"messages": [SYSTEM, USER, {**ANSWER, **THOUGHT}, AGAIN, ANSWER, USER]},
    "parts": {"messages": [SYSTEM, {"role": "user", "content": PARTS}]},
    "tools": {"messages": [SYSTEM, USER], "tools": TOOLS},
    "result": {"messages": [USER, calls(ROME), result(1, "20")], "tools": TOOLS},
    "answered": {"messages": [USER, calls(ROME), result(1, "20"), ANSWER, AGAIN], "tools": TOOLS},
    "two calls": {
        "messages": [USER, calls(ROME, NOON), result(1, "20"), result(2, '{"time": "12:00"}')],
        "tools": TOOLS,
    },
    "call after text": {
        "messages": [SYSTEM, USER, calls(ROME, content="I look.", **THOUGHT), result(1, "20")],
        "tools": TOOLS,
    },
    "reasoning": {
        "messages": [
            USER,
            calls(ROME, **THOUGHT),
            result(1, "20"),
            {**ANSWER, "reasoning_content": "Now I know."},
            AGAIN,
        ],
        "tools": TOOLS,
    },
    "no thinking": {"messages": [SYSTEM, USER], "chat_template_kwargs": {"enable_thinking": False}},
}


NEEDS_CALLS = ("result", "answered", "two calls", "call after text", "reasoning")
NEEDS_TOOLS = ("tools", *NEEDS_CALLS)

# The differences: what llamad does, as a row of the table in docs/api.md says it, and the templates and shapes.
DIFFERENCES: dict[str, dict[str, tuple[str, ...]]] = {
    "describes tools in the system message, writes calls and results as text": {
        "HuggingFaceTB-SmolLM3-3B": NEEDS_TOOLS,
        "LFM2-8B-A1B": NEEDS_CALLS,
        "LFM2.5-Instruct": NEEDS_CALLS,
        "deepseek-ai-DeepSeek-R1-Distill-Llama-8B": NEEDS_TOOLS,
        "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B": NEEDS_TOOLS,
        "deepseek-ai-DeepSeek-V3.1": NEEDS_TOOLS,
        "fireworks-ai-llama-3-firefunction-v2": NEEDS_TOOLS,
        "google-gemma-2-2b-it": NEEDS_TOOLS,
        "ibm-granite-granite-3.3-2B-Instruct": NEEDS_CALLS,
        "llama-cpp-deepseek-r1": NEEDS_TOOLS,
        "llama-cpp-rwkv-world": NEEDS_TOOLS,
        "microsoft-Phi-3.5-mini-instruct": NEEDS_TOOLS,
    },
    "closes a thought in the prompt if reasoning is off": dict.fromkeys(
        (
            "Apriel-1.6-15b-Thinker-fixed",
            "ByteDance-Seed-OSS",
            "Cohere2MoE",
            "Kimi-K2-Thinking",
            "LFM2.5-8B-A1B",
            "LFM2.5-Instruct",
            "MiniMax-M2",
            "MiniMax-M3",
            "NVIDIA-Nemotron-Nano-v2",
            "StepFun3.5-Flash",
            "deepseek-ai-DeepSeek-R1-Distill-Llama-8B",
            "llama-cpp-deepseek-r1",
            "mistralai-Ministral-3-14B-Reasoning-2512",
            "openai-gpt-oss-120b",
            "unsloth-Apriel-1.5",
            "upstage-Solar-Open-100B",
        ),
        ("no thinking",),
    ),
    "sets the template's own switch for reasoning (`thinking`), too": {"Kimi-K3": ("no thinking",)},
    "writes calls that were made at once one after another, each with its result": dict.fromkeys(
        (
            "GigaChat3-10B-A1.8B",
            "GigaChat3.1-10B-A1.8B",
            "meta-llama-Llama-3.1-8B-Instruct",
            "meta-llama-Llama-3.2-3B-Instruct",
            "meta-llama-Llama-3.3-70B-Instruct",
            "openai-gpt-oss-120b",
        ),
        ("two calls",),
    ),
    "puts an empty line behind a system's text in a user message": {
        "google-gemma-2-2b-it": ("turns", "parts", "no thinking")
    },
    "puts a system's text that the template drops into the user's message": {
        "mistralai-Mistral-Nemo-Instruct-2407": ("call after text",)
    },
    "names a tool's turn after the function, as the model's authors do": dict.fromkeys(
        ("Kimi-K2-Instruct", "Kimi-K2-Thinking"), NEEDS_CALLS
    ),
    "keeps content beside a call, and an answer beside reasoning": {
        "google-gemma-4-31B-it-interleaved": ("call after text",),
        "openai-gpt-oss-120b": ("call after text",),
        "unsloth-mistral-Devstral-Small-2507": ("turns", "call after text", "reasoning"),
    },
    "gives parts of a user's content to the template, whose authors join them without a break": dict.fromkeys(
        ("LFM2.5-8B-A1B", "mistralai-Ministral-3-14B-Reasoning-2512"), ("parts",)
    ),
    "escapes quotation marks in the JSON of tools, as transformers does": {
        "meetkai-functionary-medium-v3.1": NEEDS_TOOLS
    },
    "keeps the reasoning of earlier turns": {"tencent-Hy3": ("turns",)},
}


def test_the_table_in_the_docs_has_these_differences() -> None:
    page = (Path(__file__).parents[3] / "docs" / "api.md").read_text(encoding="utf-8")
    table = page.partition("| llamad | llama-server | where |\n")[2].partition("\n\n")[0]
    assert [row.split(" | ")[0].removeprefix("| ") for row in table.splitlines()[1:]] == list(DIFFERENCES)


def prompts(client: Client, **more: str) -> dict[str, str]:
    """Return the prompt of each shape, or the status of the error."""
    answers = {shape: client.post("/apply-template", body | more) for shape, body in SHAPES.items()}
    return {
        shape: one.json["prompt"] if one.status == 200 else f"error {one.status}"
        for shape, one in answers.items()
    }


@pytest.mark.soak
def test_prompts_are_those_of_llama_server_but_for_the_differences(
    sources: dict[str, str], tiny: str, tmp_path: Path
) -> None:
    assert len(sources) >= 70
    files = {name: tmp_path / f"{name}.jinja" for name in sources}
    for name, path in files.items():
        path.write_text(sources[name], encoding="utf-8")
    preset = tmp_path / "models.ini"
    rows = (
        f"[{name}]\nmodel = {tiny}\nctx-size = 256\nchat-template-file = {path}\n"
        for name, path in files.items()
    )
    preset.write_text("\n".join(rows), encoding="utf-8")
    with Live("--models-preset", str(preset), "--models-max", "1") as server:
        own = {name: prompts(server.client, model=name) for name in sources}
    differing = set()
    for name, path in files.items():
        flags = ("--jinja", "--no-warmup", "-c", "256", "--chat-template-file", str(path))
        with llama_server(tiny, *flags) as client:
            differing |= {
                (name, shape) for shape, text in prompts(client).items() if text != own[name][shape]
            }
    assert not any(text.startswith("error") for texts in own.values() for text in texts.values())
    listed = [
        (name, shape) for one in DIFFERENCES.values() for name, shapes in one.items() for shape in shapes
    ]
    assert differing == set(listed)
    assert len(listed) == len(set(listed))
