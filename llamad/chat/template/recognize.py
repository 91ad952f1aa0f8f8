"""Recognizes which built-in template a Jinja text resembles, by the markers of turns that it writes, as llama.cpp does
when its Jinja is off. Constants and a search; any thread."""

from __future__ import annotations

from llamad.chat.template.builtin_templates import DOTS1, builtin

# The first entry whose markers all occur decides. The order is llama.cpp's, because families reuse markers of others.
_MARKS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("phi4", ("<|im_start|>", "<|im_sep|>")),
    ("smolvlm", ("<|im_start|>", "<end_of_utterance>")),
    ("chatml", ("<|im_start|>",)),
    ("mistral-v7", ("[INST]", "[SYSTEM_PROMPT]")),
    ("mistral-v1", ("' [INST] ' + system_message",)),
    ("mistral-v1", ("[AVAILABLE_TOOLS]", " [INST]")),
    ("mistral-v3-tekken", ("[AVAILABLE_TOOLS]", '"[INST]"')),
    ("mistral-v3", ("[AVAILABLE_TOOLS]", "[INST]")),
    ("llama2-sys-strip", ("[INST]", "content.strip()")),
    ("llama2-sys-bos", ("[INST]", "bos_token + '[INST]")),
    ("llama2-sys", ("[INST]", "<<SYS>>")),
    ("llama2", ("[INST]",)),
    ("phi3", ("<|assistant|>", "<|end|>")),
    ("chatglm4", ("[gMASK]<sop>",)),
    ("exaone-moe", ("<|assistant|>", "<|user|>", "<|tool_declare|>")),
    ("falcon3", ("<|assistant|>", "<|user|>", "</s>")),
    ("glmedge", ("<|assistant|>", "<|user|>")),
    ("glmedge", ("<|{{ item['role'] }}|>", "<|begin_of_image|>")),
    ("zephyr", ("<|user|>", "<|endoftext|>")),
    ("monarch", ("bos_token + message['role']",)),
    ("gemma", ("<start_of_turn>",)),
    ("orion", ("'\\n\\nAssistant: ' + eos_token",)),
    ("openchat", ("GPT4 Correct ",)),
    ("vicuna-orca", ("USER: ", "ASSISTANT: ", "SYSTEM: ")),
    ("vicuna", ("USER: ", "ASSISTANT: ")),
    ("deepseek", ("### Instruction:", "<|EOT|>")),
    ("command-r", ("<|START_OF_TURN_TOKEN|>", "<|USER_TOKEN|>")),
    ("llama3", ("<|start_header_id|>", "<|end_header_id|>")),
    ("chatglm3", ("[gMASK]sop",)),
    ("minicpm", ("<用户>",)),
    ("deepseek2", ("'Assistant: ' + message['content'] + eos_token",)),
    ("deepseek3", ("<｜Assistant｜>", "<｜User｜>", "<｜end▁of▁sentence｜>")),
    ("exaone4", ("[|system|]", "[|assistant|]", "[|endofturn|]", "[|tool|]")),
    ("exaone3", ("[|system|]", "[|assistant|]", "[|endofturn|]")),
    ("rwkv-world", ("rwkv-world",)),
    ("rwkv-world", ("{{- 'User: ' + message['content']|trim + '\\n\\n' -}}",)),
    ("granite-4.0", ("<|start_of_role|>", "<tool_call>", "g4_default_system_message")),
    ("granite-4.0", ("<|start_of_role|>", "<tools>", "g4_default_system_message")),
    ("granite-4.1", ("<|start_of_role|>", "<tool_call>")),
    ("granite-4.1", ("<|start_of_role|>", "<tools>")),
    ("granite", ("<|start_of_role|>",)),
    (
        "gigachat",
        (
            "message['role'] + additional_special_tokens[0] + message['content']"
            " + additional_special_tokens[1]",
        ),
    ),
    ("megrez", ("<|role_start|>",)),
    ("yandex", (" Ассистент:",)),
    ("bailing", ("<role>ASSISTANT</role>", "'HUMAN'")),
    ("bailing-think", ("<role>ASSISTANT</role>", '"HUMAN"', "<think>")),
    ("bailing2", ("<role>ASSISTANT</role>", "<role>HUMAN</role>", "<|role_end|>")),
    ("llama4", ("<|header_start|>", "<|header_end|>")),
    ("", ("<|endofuserprompt|>",)),
    ("hunyuan-moe", ("<|extra_0|>", "<|extra_4|>")),
    ("gpt-oss", ("<|start|>", "<|channel|>")),
    ("hunyuan-vl", ("<｜hy_Assistant｜>", "<｜hy_begin▁of▁sentence｜>")),
    ("hunyuan-dense", ("<｜hy_Assistant｜>", "<｜hy_place▁holder▁no▁3｜>")),
    ("kimi-k2", ("<|im_assistant|>assistant<|im_middle|>",)),
    ("seed_oss", ("<seed:bos>",)),
    ("grok-2", ("'Assistant: '  + message['content'] + '<|separator|>",)),
    ("pangu-embedded", ("[unused9]系统：[unused10]",)),
    ("solar-open", ("<|begin|>", "<|end|>", "<|content|>")),
)


def recognized(source: str) -> str | None:
    """Return the Jinja text of the built-in template, or None if it is none of them."""
    for name, marks in _MARKS:
        if all(mark in source for mark in marks):
            return builtin(name) if name else DOTS1  # dots1 has no name in llama.cpp
    return None
