"""The built-in templates, by llama.cpp's names: Jinja text that renders the same as llama.cpp's own function.

Constants only. As in llama.cpp, they write no BOS token (the tokenizer adds it), and some ignore whether a generation
prompt was requested.
"""

from __future__ import annotations

import json
import re

TRIMMED = 'message.content|trim(" \\t\\n\\r\\x0b\\x0c")'  # exactly the characters of C's isspace
VALUES = {
    "content": "message.content",
    "trim": TRIMMED,
    "role": "message.role",
    "ROLE": "('HUMAN' if message.role == 'user' else message.role|upper)",
    "Role": "message.role[:1]|upper ~ message.role[1:]",
    "system": "state.system",
}

PLACES = re.compile(r"\{(" + "|".join(VALUES) + r")\}")


def say(text: str) -> str:
    """Return a `{{ }}` that writes `text`, with placeholders such as {content}, {trim} and {role}."""
    pieces = PLACES.split(text)
    spelled = [
        f"({VALUES[piece]})" if i % 2 else json.dumps(piece, ensure_ascii=False)
        for i, piece in enumerate(pieces)
        if piece
    ]
    return "{{ " + " ~ ".join(spelled) + " }}" if spelled else ""


def choose(roles: dict[str, str], otherwise: str | None = None) -> str:
    """Return an `if` over message.role, whose branches are Jinja text."""
    branches = ""
    for role, text in roles.items():
        branches += "{% " + ("elif" if branches else "if") + f" message.role == {json.dumps(role)} %}}" + text
    if otherwise is not None:
        branches += "{% else %}" + otherwise
    return branches + "{% endif %}"


def turns(body: str, tail: str = "", head: str = "") -> str:
    """Return `body` (Jinja text) for every message, then `tail` if a generation prompt is requested."""
    prompt = "{% if add_generation_prompt %}" + say(tail) + "{% endif %}" if tail else ""
    return say(head) + "{% for message in messages %}" + body + "{% endfor %}" + prompt


def three(system: str, user: str, assistant: str, tail: str = "", **more: str) -> str:
    """Return turns with one text for each of the three roles (and `more`); other roles write nothing."""
    roles = {"system": system, "user": user, "assistant": assistant, **more}
    return turns(choose({role: say(text) for role, text in roles.items()}), tail)


def two(system: str, user: str, otherwise: str, tail: str = "", head: str = "") -> str:
    """Return turns with a text for the system, one for the user, and one for every other role."""
    return turns(choose({"system": say(system), "user": say(user)}, say(otherwise)), tail, head)


STATE = "{% set state = namespace(inside=false, system='') %}"


def _mistral(before: str, after: str, assistant: str) -> str:
    """Return turns with [INST] before the first message of a turn, and [/INST] after the user's."""
    opened = (
        "{% if not state.inside %}"
        + say(f"{before}[INST]{after}")
        + "{% set state.inside = true %}{% endif %}"
    )
    return STATE + turns(
        opened
        + choose(
            {"system": say("{content}\n\n"), "user": say("{content}" + before + "[/INST]")},
            say(after + assistant + "</s>") + "{% set state.inside = false %}",
        )
    )


def _llama2(system: str, content: str = "{content}", again: str = "[INST] ") -> str:
    opened = "{% if state.inside %}" + say(again) + "{% set state.inside = false %}{% endif %}"
    return (
        STATE
        + say("[INST] ")
        + turns(
            opened
            + choose(
                {"system": say(system), "user": say(content + " [/INST]")},
                say(content + "</s>") + "{% set state.inside = true %}",
            )
        )
    )


def _held_system(content: str, arms: str, tail: str = "") -> str:
    """Return turns in which state.system holds the system's text until a message takes it."""
    keep = f"{{% set state.system = state.system ~ ({VALUES[content]}) %}}"
    return STATE + turns(choose({"system": keep}, arms), tail)


TAKEN = "{% if state.system %}" + say("{system}\n\n") + "{% set state.system = '' %}{% endif %}"
FIRST_IS_SYSTEM = "messages and messages[0].role == 'system'"
GEMMA = (
    say("<start_of_turn>")
    + choose(
        {"assistant": say("model\n")},
        say("{role}\n") + "{% if message.role != 'model' %}" + TAKEN + "{% endif %}",
    )
    + say("{trim}<end_of_turn>\n")
)
ORION = choose({"user": say("Human: ") + TAKEN + say("{content}\n\nAssistant: </s>")}, say("{content}</s>"))
FUNCTIONS = "available functions<|role_sep|>[]<|message_sep|>"
GIGACHAT = "{% if loop.first and message.role == 'system' %}" + say("{content}<|message_sep|>") + "{% else %}"
GIGACHAT += choose(
    {
        "user": say("user<|role_sep|>{content}<|message_sep|>" + FUNCTIONS),
        "assistant": say("assistant<|role_sep|>{content}<|message_sep|>"),
    }
)
GIGACHAT += "{% endif %}"
HUNYUAN_FIRST = "{% if loop.first and message.role == 'system' %}" + say(
    "{content}<｜hy_place▁holder▁no▁3｜>"
)
GRANITE = "<|start_of_role|>{role}<|end_of_role|>{content}<|end_of_text|>\n"
GRANITE_TAIL = "<|start_of_role|>assistant<|end_of_role|>"
GRANITE_CALL = "{content}<|end_of_text|>\n"
EXAONE = "[|assistant|]"
PANGU = {"system": "系统", "user": "用户", "assistant": "助手", "tool": "工具", "function": "方法"}
KIMI = {
    "system": "<|im_system|>system",
    "user": "<|im_user|>user",
    "assistant": "<|im_assistant|>assistant",
    "tool": "<|im_system|>tool",
}

CHATML = turns(say("<|im_start|>{role}\n{content}<|im_end|>\n"), "<|im_start|>assistant\n")
GRANITE_4 = turns(
    choose({"assistant_tool_call": say(GRANITE_TAIL + "<|tool_call|>" + GRANITE_CALL)}, say(GRANITE)),
    GRANITE_TAIL,
)

# llama.cpp recognizes this template by its markers, but has no name for it.
DOTS1 = two(
    "<|system|>{content}<|endofsystem|>",
    "<|userprompt|>{content}<|endofuserprompt|>",
    "<|response|>{content}<|endofresponse|>",
    "<|response|>",
)

TEMPLATES: dict[str, str] = {
    "bailing": turns(say("<role>{ROLE}</role>{content}"), "<role>ASSISTANT</role>"),
    "bailing-think": turns(say("<role>{ROLE}</role>{content}"), "<role>ASSISTANT</role><think>"),
    "bailing2": "{% if not ("
    + FIRST_IS_SYSTEM
    + ") %}"
    + say("<role>SYSTEM</role>detailed thinking off<|role_end|>")
    + "{% endif %}"
    + turns(say("<role>{ROLE}</role>{content}<|role_end|>"), "<role>ASSISTANT</role>"),
    "chatglm3": turns(say("<|{role}|>\n {content}"), "<|assistant|>", "[gMASK]sop"),
    "chatglm4": turns(say("<|{role}|>\n{content}"), "<|assistant|>\n", "[gMASK]<sop>"),
    "chatml": CHATML,
    "command-r": three(
        "<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>{trim}<|END_OF_TURN_TOKEN|>",
        "<|START_OF_TURN_TOKEN|><|USER_TOKEN|>{trim}<|END_OF_TURN_TOKEN|>",
        "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>{trim}<|END_OF_TURN_TOKEN|>",
        "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>",
    ),
    "deepseek": three(
        "{content}",
        "### Instruction:\n{content}\n",
        "### Response:\n{content}\n<|EOT|>\n",
        "### Response:\n",
    ),
    "deepseek-ocr": turns(say("{content}")),
    "deepseek2": three(
        "{content}\n\n", "User: {content}\n\n", "Assistant: {content}<｜end▁of▁sentence｜>", "Assistant:"
    ),
    "deepseek3": three(
        "{content}\n\n",
        "<｜User｜>{content}",
        "<｜Assistant｜>{content}<｜end▁of▁sentence｜>",
        "<｜Assistant｜>",
    ),
    "exaone-moe": three(
        "<|system|>\n{trim}<|endofturn|>\n",
        "<|user|>\n{trim}<|endofturn|>\n",
        "<|assistant|>\n{trim}<|endofturn|>\n",
        "<|assistant|>\n",
        tool="<|tool|>\n{trim}<|endofturn|>\n",
    ),
    "exaone3": three(
        "[|system|]{trim}[|endofturn|]\n", "[|user|]{trim}\n", EXAONE + "{trim}[|endofturn|]\n", EXAONE
    ),
    "exaone4": three(
        "[|system|]{trim}[|endofturn|]\n",
        "[|user|]{trim}\n",
        EXAONE + "{trim}[|endofturn|]\n",
        EXAONE,
        tool="[|tool|]{trim}[|endofturn|]\n",
    ),
    "falcon3": turns(say("<|{role}|>\n{content}\n"), "<|assistant|>\n"),
    "gemma": _held_system("trim", GEMMA, "<start_of_turn>model\n"),
    "gigachat": turns(GIGACHAT, "assistant<|role_sep|>", "<s>"),
    "glmedge": turns(say("<|{role}|>\n{content}"), "<|assistant|>"),
    "gpt-oss": turns(
        say("<|start|>{role}<|message|>{content}") + choose({"assistant": say("<|return|>")}, say("<|end|>")),
        "<|start|>assistant",
    ),
    "granite": turns(
        say("<|start_of_role|>{role}<|end_of_role|>")
        + choose({"assistant_tool_call": say("<|tool_call|>")})
        + say(GRANITE_CALL),
        GRANITE_TAIL,
    ),
    "granite-4.0": GRANITE_4,
    "granite-4.1": GRANITE_4,
    "grok-2": three(
        "System: {trim}<|separator|>\n\n",
        "Human: {trim}<|separator|>\n\n",
        "Assistant: {content}<|separator|>\n\n",
        "Assistant:",
    ),
    "hunyuan-dense": turns(
        HUNYUAN_FIRST
        + "{% endif %}"
        + choose(
            {
                "assistant": say("<｜hy_Assistant｜>{content}<｜hy_place▁holder▁no▁2｜>"),
                "user": say("<｜hy_User｜>{content}<｜hy_Assistant｜>"),
            }
        )
    ),
    "hunyuan-moe": turns(
        choose(
            {"system": say("<|startoftext|>{content}<|extra_4|>"), "assistant": say("{content}<|eos|>")},
            say("<|startoftext|>{content}<|extra_0|>"),
        )
    ),
    "hunyuan-vl": turns(
        HUNYUAN_FIRST
        + "{% else %}"
        + choose({"user": say("{content}<｜hy_User｜>"), "assistant": say("{content}<｜hy_Assistant｜>")})
        + "{% endif %}",
        head="<｜hy_begin▁of▁sentence｜>",
    ),
    "kimi-k2": turns(
        choose({role: say(text + "<|im_middle|>") for role, text in KIMI.items()})
        + say("{content}<|im_end|>"),
        "<|im_assistant|>assistant<|im_middle|>",
    ),
    "llama2": _llama2("{content}\n"),
    "llama2-sys": _llama2("<<SYS>>\n{content}\n<</SYS>>\n\n"),
    "llama2-sys-bos": _llama2("<<SYS>>\n{content}\n<</SYS>>\n\n", again="<s>[INST] "),
    "llama2-sys-strip": _llama2("<<SYS>>\n{trim}\n<</SYS>>\n\n", "{trim}"),
    "llama3": turns(
        say("<|start_header_id|>{role}<|end_header_id|>\n\n{trim}<|eot_id|>"),
        "<|start_header_id|>assistant<|end_header_id|>\n\n",
    ),
    "llama4": turns(
        say("<|header_start|>{role}<|header_end|>\n\n{trim}<|eot|>"),
        "<|header_start|>assistant<|header_end|>\n\n",
    ),
    "megrez": turns(
        say("<|role_start|>{role}<|role_end|>{content}<|turn_end|>"), "<|role_start|>assistant<|role_end|>"
    ),
    "minicpm": turns(choose({"user": say("<用户>{trim}<AI>")}, say("{trim}"))),
    "mistral-v1": _mistral(" ", " ", "{content}"),
    "mistral-v3": _mistral("", " ", "{trim}"),
    "mistral-v3-tekken": _mistral("", "", "{content}"),
    "mistral-v7": two(
        "[SYSTEM_PROMPT] {content}[/SYSTEM_PROMPT]", "[INST] {content}[/INST]", " {content}</s>"
    ),
    "mistral-v7-tekken": two(
        "[SYSTEM_PROMPT]{content}[/SYSTEM_PROMPT]", "[INST]{content}[/INST]", "{content}</s>"
    ),
    "monarch": turns(
        "{% if not loop.first %}" + say("<s>") + "{% endif %}" + say("{role}\n{content}</s>\n"),
        "<s>assistant\n",
    ),
    "openchat": turns(
        choose(
            {"system": say("{content}<|end_of_turn|>")}, say("GPT4 Correct {Role}: {content}<|end_of_turn|>")
        ),
        "GPT4 Correct Assistant:",
    ),
    "orion": _held_system("content", ORION),
    "pangu-embedded": turns(
        "{% if loop.first and message.role != 'system' %}"
        + say("[unused9]系统：[unused10]")
        + "{% endif %}"
        + choose({role: say(f"[unused9]{word}：{{content}}[unused10]") for role, word in PANGU.items()}),
        "[unused9]助手：",
    ),
    "phi3": turns(say("<|{role}|>\n{content}<|end|>\n"), "<|assistant|>\n"),
    "phi4": turns(say("<|im_start|>{role}<|im_sep|>{content}<|im_end|>"), "<|im_start|>assistant<|im_sep|>"),
    "rwkv-world": turns(
        choose(
            {
                "system": say("System: {trim}\n\n"),
                "user": say("User: {trim}\n\n") + "{% if loop.last %}" + say("Assistant:") + "{% endif %}",
                "assistant": say("Assistant: {trim}\n\n"),
            }
        )
    ),
    "seed_oss": turns(
        say("<seed:bos>{role}\n")
        + choose({"assistant": say("{trim}")}, say("{content}"))
        + say("<seed:eos>"),
        "<seed:bos>assistant\n",
    ),
    "smolvlm": two(
        "{content}\n\n",
        "User: {content}<end_of_utterance>\n",
        "Assistant: {content}<end_of_utterance>\n",
        "Assistant:",
        "<|im_start|>",
    ),
    "solar-open": turns(say("<|begin|>{role}<|content|>{content}<|end|>"), "<|begin|>assistant"),
    "vicuna": three("{content}\n\n", "USER: {content}\n", "ASSISTANT: {content}</s>\n", "ASSISTANT:"),
    "vicuna-orca": three(
        "SYSTEM: {content}\n", "USER: {content}\n", "ASSISTANT: {content}</s>\n", "ASSISTANT:"
    ),
    "yandex": turns(
        choose({"user": say(" Пользователь: {content}\n\n"), "assistant": say(" Ассистент: {content}\n\n")}),
        " Ассистент:[SEP]",
    ),
    "zephyr": turns(say("<|{role}|>\n{content}<|endoftext|>\n"), "<|assistant|>\n"),
}


def builtin(name: str) -> str | None:
    """Return the Jinja text of a built-in template, or None if there is none of this name."""
    return TEMPLATES.get(name)


def builtin_names() -> list[str]:
    return sorted(TEMPLATES)
