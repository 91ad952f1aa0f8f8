"""Which format each real template is read as: its calls, and the tag that opens its thoughts."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.chat_outputs import Parsed, parse, tool

from llamad.chat.host import ChatHost
from llamad.chat.parsing import Format, detect

# Read as generic: Gemma 2, Phi 3.5, RWKV and SmolLM3 have no calls of their own in the template. MiniMax M3 (nested
# elements) and Muse are not known; their calls stay text unless forced.
FORMATS = {
    "Apertus-8B-Instruct": ("apertus", "<|inner_prefix|>"),
    "Apriel-1.6-15b-Thinker-fixed": ("list <tool_calls>", "Here are my reasoning steps:"),
    "Bielik-11B-v3.0-Instruct": ("hermes", "<think>"),
    "ByteDance-Seed-OSS": ("qwen3-coder seed", "<seed:think>"),
    "Cohere2MoE": ("command-r <|START_ACTION|>", "<|START_THINKING|>"),
    "CohereForAI-c4ai-command-r-plus-tool_use": ("list fenced Action:", ""),
    "CohereForAI-c4ai-command-r7b-12-2024-tool_use": ("command-r <|START_ACTION|>", "<|START_THINKING|>"),
    "GLM-4.6": ("glm", "<think>"),
    "GLM-4.7-Flash": ("glm", "<think>"),
    "GigaChat3-10B-A1.8B": ("list object function call<|role_sep|>", ""),
    "GigaChat3.1-10B-A1.8B": ("list object <|function_call|>", ""),
    "HuggingFaceTB-SmolLM3-3B": ("generic", "<think>"),
    "Kimi-K2-Instruct": ("kimi-k2", ""),
    "Kimi-K2-Thinking": ("kimi-k2", "<think>"),
    "Kimi-K3": ("invoke kimi-k3", "<|open|>think<|sep|>"),
    "LFM2-8B-A1B": ("python", ""),
    "LFM2.5-8B-A1B": ("python", "<think>"),
    "LFM2.5-Instruct": ("python", "<think>"),
    "MiMo-VL": ("hermes", ""),
    "MiniMax-M1": ("list <tool_calls>", ""),
    "MiniMax-M2": ("invoke minimax", "<think>"),
    "MiniMax-M3": ("generic", "<mm:think>"),
    "Mistral-Small-3.2-24B-Instruct-2506": ("mistral call_id", ""),
    "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": ("qwen3-coder", "<think>"),
    "NVIDIA-Nemotron-Nano-v2": ("list <TOOLCALL>", "<think>"),
    "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use": ("hermes", ""),
    "NousResearch-Hermes-3-Llama-3.1-8B-tool_use": ("hermes", ""),
    "Qwen-QwQ-32B": ("hermes", "<think>"),
    "Qwen-Qwen2.5-7B-Instruct": ("hermes", ""),
    "Qwen-Qwen3-0.6B": ("hermes", "<think>"),
    "Qwen3-Coder": ("qwen3-coder", ""),
    "Qwen3.5-4B": ("qwen3-coder", "<think>"),
    "Reka-Edge": ("hermes", "<think>"),
    "Spark2.5": ("glm", "<think>"),
    "StepFun3.5-Flash": ("qwen3-coder", "<think>"),
    "deepseek-ai-DeepSeek-R1-Distill-Llama-8B": ("deepseek fenced", "<think>"),
    "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B": ("deepseek fenced", "<think>"),
    "deepseek-ai-DeepSeek-V3.1": ("deepseek", "<think>"),
    "deepseek-ai-DeepSeek-V3.2": ("invoke deepseek-v3.2", "<think>"),
    "deepseek-ai-DeepSeek-V4-Flash-0731": ("invoke deepseek-v4", "<think>"),
    "deepseek-ai-DeepSeek-V4": ("invoke deepseek-v4", "<think>"),
    "fireworks-ai-llama-3-firefunction-v2": ("list functools", ""),
    "google-gemma-2-2b-it": ("generic", ""),
    "google-gemma-4-31B-it-interleaved": ("gemma", "<|channel>thought"),
    "google-gemma-4-31B-it": ("gemma", "<|channel>thought"),
    "ibm-granite-granite-3.3-2B-Instruct": ("granite", "<think>"),
    "ibm-granite-granite-4.0": ("hermes", ""),
    "ibm-granite-granite-4.1": ("hermes", ""),
    "inclusionai-ling-3.0-flash": ("glm", "<think>"),
    "llama-cpp-deepseek-r1": ("deepseek fenced", "<think>"),
    "llama-cpp-rwkv-world": ("generic", "<think>"),
    "meetkai-functionary-medium-v3.1": ("llama3", ""),
    "meetkai-functionary-medium-v3.2": ("functionary", ""),
    "meta-llama-Llama-3.1-8B-Instruct": ("llama3", ""),
    "meta-llama-Llama-3.2-3B-Instruct": ("llama3", ""),
    "meta-llama-Llama-3.3-70B-Instruct": ("llama3", ""),
    "microsoft-Phi-3.5-mini-instruct": ("generic", ""),
    "mistralai-Ministral-3-14B-Reasoning-2512": ("mistral args", "[THINK]"),
    "mistralai-Mistral-Nemo-Instruct-2407": ("mistral", ""),
    "moonshotai-Kimi-K2": ("kimi-k2", ""),
    "muse-glimmer": ("generic", ""),
    "openai-gpt-oss-120b": ("gpt-oss", ""),
    "openbmb-MiniCPM5-1B": ("invoke minicpm5", "<think>"),
    "poolside-Laguna-S-2.1": ("glm", "<think>"),
    "poolside-Laguna-XS-2.1": ("glm", "<think>"),
    "poolside-Laguna-XS.2": ("glm", "<think>"),
    "tencent-Hy3": ("glm hunyuan <tool_call:opensource>", "<think:opensource>"),
    "unsloth-Apriel-1.5": ("list <tool_calls>", "<thinking>"),
    "unsloth-mistral-Devstral-Small-2507": ("mistral args", ""),
    "upstage-Solar-Open-100B": ("solar", "<|think|>"),
}


def _calls(format: Format) -> str:
    return " ".join(filter(None, (format.name, format.variant, format.open.strip())))


def test_all_are_listed(sources: dict[str, str]) -> None:
    assert sorted(FORMATS) == sorted(sources)


@pytest.mark.parametrize("name", FORMATS)
def test_format(sources: dict[str, str], name: str) -> None:
    format = detect(sources[name])
    assert (_calls(format), format.think[0] if format.think else "") == FORMATS[name]


TOOLS = [
    tool(
        "get_weather",
        city={"type": "string", "description": "Where"},
        days={"type": "integer", "description": "N"},
    ),
    tool("run", code={"type": "string", "description": "What"}),
]
for _tool in TOOLS:
    _tool["function"]["description"] = "Does it"
CALLED = [
    ("get_weather", {"city": "Paris", "days": 3}),
    ("run", {"code": 'if a < b:\n    print("é")'}),
]
USER = {"role": "user", "content": "Needle?"}


def _host(source: str) -> ChatHost:
    return ChatHost(source, bos="<s>", eos="</s>", adds_bos=True, kwargs={}, prefill=True)


def _answer(n: int) -> dict[str, Any]:
    calls = [
        {
            "id": f"call1234{i}",
            "type": "function",
            "function": {"name": name, "arguments": json.dumps(arguments)},
        }
        for i, (name, arguments) in enumerate(CALLED[:n])
    ]
    return {"role": "assistant", "content": "", "tool_calls": calls}


@pytest.mark.parametrize("name", sorted(set(FORMATS) - {"MiniMax-M3", "muse-glimmer"}))
def test_what_the_template_writes_the_parser_reads(sources: dict[str, str], name: str) -> None:
    """An assistant's calls, as the prompt of the next turn has them, are calls to the parser; with a template that
    has no place for calls or tools too."""
    host = _host(sources[name])
    n = 2 if host.has_parallel_calls else 1
    asked = host.prompt([USER], tools=TOOLS, kwargs={})
    told = host.prompt([USER, _answer(n)], tools=TOOLS, kwargs={}, add_generation_prompt=False)
    # Some prompts end with what an answer with calls does not begin with.
    n_same = next(i for i in range(len(told)) if not asked.startswith(told[: i + 1]))
    texts = [told[n_same:], told[told.rfind("Needle?") + 7 :]]
    parsed: list[Parsed] = [parse(host.format, [text], tools=TOOLS) for text in texts]
    best = max(parsed, key=lambda one: len(one.calls))
    assert [(call.name, json.loads(call.arguments)) for call in best.calls] == CALLED[:n]


@pytest.mark.parametrize("name", FORMATS)
def test_thinking_turned_off(sources: dict[str, str], name: str) -> None:
    """No prompt leaves a thought open then, and every one that thinks by itself has a finished one."""
    host = _host(sources[name])
    text = host.prompt([USER], tools=None, kwargs={}, thinking=False)
    if host.format.think:
        opens, closes = host.format.think
        assert text.rfind(closes) > text.rfind(opens) or opens not in text
    said = host.prompt([USER], tools=None, kwargs={}, thinking=False, last_thought="No time.")
    assert ("No time." in said) == host.format.reasons
