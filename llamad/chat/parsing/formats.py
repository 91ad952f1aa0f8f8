"""The tool-call formats: how to detect from a chat template which one its model writes, and the markers of each.

Constants and pure functions; any thread.
"""

from __future__ import annotations

import re
import secrets
import string
from collections.abc import Callable

import msgspec

from llamad.chat.parsing.literal_calls import GEMMA_CALL, GEMMA_CALL_END, GEMMA_QUOTE, PYTHON_CALLS
from llamad.chat.parsing.parameter_calls import HUNYUAN
from llamad.chat.parsing.tag_calls import SPELLINGS
from llamad.chat.parsing.token_calls import (
    APERTUS_CALLS,
    DEEPSEEK_CALL,
    DEEPSEEK_CALLS,
    KIMI_CALL,
    KIMI_CALLS,
    MISTRAL_CALLS,
    PYTHON_TAG,
    SOLAR_ARGUMENTS,
    SOLAR_CALL,
    SOLAR_CALL_END,
    SOLAR_CALLS,
    SOLAR_NAME,
)


class Format(msgspec.Struct, frozen=True):
    """`name` selects the parser of calls; `variant` the spelling that a grammar forces.

    `think` are the tags around reasoning, None if the model has none (gpt-oss's channels are not tags).
    `open` and `close` are around the calls of formats that differ only in them; `ignored` are tags around content, to
    be removed.
    """

    name: str = "generic"
    variant: str = ""
    think: tuple[str, str] | None = None
    open: str = ""
    close: str = ""
    ignored: tuple[str, ...] = ()

    @property
    def reasons(self) -> bool:
        return self.think is not None or self.name == "gpt-oss"

    @property
    def special(self) -> tuple[str, ...]:
        """Texts that may be special tokens, but must reach the parser."""
        own = SPELLINGS[self.variant].special if self.name == "invoke" else _SPECIAL.get(self.name, ())
        if self.variant == "hunyuan":
            inner = (
                "tool_calls",
                "/tool_calls",
                "tool_sep",
                "arg_key",
                "/arg_key",
                "arg_value",
                "/arg_value",
            )
            own = tuple(f"<{name}{HUNYUAN}>" for name in inner)
        tags = (*filter(None, (self.open, self.close)), *(self.think or ()), *self.ignored)
        return tuple(dict.fromkeys((*own, *tags, *(part for tag in tags for part in _TOKEN.findall(tag)))))


_TOKEN = re.compile(r"<\|[^<>|\s]*\|?>")  # a special token inside a longer tag
_THINK_TAGS = (
    ("<seed:think>", "</seed:think>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("[THINK]", "[/THINK]"),
    ("◁think▷", "◁/think▷"),
    ("<|inner_prefix|>", "<|inner_suffix|>"),
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<mm:think>", "</mm:think>"),
    ("<thought>", "</thought>"),
    ("<reasoning>", "</reasoning>"),
)
_ANALYSIS = "<|channel|>analysis<|message|>"
_APRIEL_THINK = ("Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]")  # the first is in the prompt

_SPECIAL = {
    "hermes": ("<tool_call>", "</tool_call>"),
    "qwen3-coder": ("<tool_call>", "</tool_call>", "<seed:tool_call>", "</seed:tool_call>"),
    "glm": ("<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"),
    "llama3": (PYTHON_TAG,),
    "mistral": (MISTRAL_CALLS, "[ARGS]", "[CALL_ID]"),
    "deepseek": (
        DEEPSEEK_CALLS[0],
        DEEPSEEK_CALL,
        "<｜tool▁sep｜>",
        "<｜tool▁call▁end｜>",
        "<｜tool▁calls▁end｜>",
    ),
    "gpt-oss": (
        "<|start|>",
        "<|channel|>",
        "<|message|>",
        "<|constrain|>",
        "<|end|>",
        "<|call|>",
        "<|return|>",
    ),
    "kimi-k2": (
        KIMI_CALLS,
        KIMI_CALL,
        "<|tool_call_argument_begin|>",
        "<|tool_call_end|>",
        "<|tool_calls_section_end|>",
    ),
    "command-r": ("<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>"),
    "granite": ("<|tool_call|>",),
    "gemma": (GEMMA_CALL, GEMMA_CALL_END, GEMMA_QUOTE, "<|channel>", "<channel|>"),
    "python": PYTHON_CALLS,
    "apertus": APERTUS_CALLS,
    "solar": (SOLAR_CALLS, SOLAR_CALL, SOLAR_NAME, SOLAR_ARGUMENTS, SOLAR_CALL_END, "<|calls|>"),
}
_SOLAR_IGNORED = ("<|begin|>assistant", "<|content|>", "<|end|>", "<|flush|>")
_KIMI_K3 = Format(
    "invoke",
    "kimi-k3",
    think=("<|open|>think<|sep|>", "<|close|>think<|sep|>"),
    ignored=(
        "<|open|>response<|sep|>",
        "<|close|>response<|sep|>",
        "<|close|>message<|sep|>",
        "<|end_of_msg|>",
    ),
)

_LISTS = (("<TOOLCALL>", "</TOOLCALL>"), ("<tool_calls>", "</tool_calls>"), ("functools[", ""))


def detect(template_source: str) -> Format:
    """Detects the format of tool calls and the reasoning tags from a chat template's source.

    A template without known calls gets the generic format, which must be described in the prompt.
    """
    has = template_source.__contains__
    think = next((tags for tags in _THINK_TAGS if has(tags[0]) or has(tags[1])), None)
    if has(_APRIEL_THINK[0]):
        think = _APRIEL_THINK
    if has("<|channel|>") and has("<|message|>"):
        return Format("gpt-oss")
    if (found := _of_recent(has, think)) is not None:
        return found
    if has(DEEPSEEK_CALLS[0]):
        return Format("deepseek", variant="fenced" if has("```json") else "", think=think)
    if has(KIMI_CALLS):
        return Format("kimi-k2", think=think)
    if has("<|START_ACTION|>"):
        tags = _SPECIAL["command-r"]
        return Format("command-r", "", think, "<|START_ACTION|>", "<|END_ACTION|>", tags)
    if has(MISTRAL_CALLS):
        variant = "call_id" if has("[CALL_ID]") else "args" if has("[ARGS]") else ""
        return Format("mistral", variant, think)
    if has("<arg_key>"):
        return Format("glm", think=think)
    if has("<function=") and has("<parameter="):
        return Format("qwen3-coder", "seed" if has("<seed:tool_call>") else "", think)
    if has("<|tool_call|>") and has("<|start_of_role|>"):
        return Format("granite", think=think, ignored=("<response>", "</response>") if think else ())
    for opens, closes in _LISTS:  # before Hermes: Apriel's template mentions both tags and writes these
        if has(opens):
            return Format("list", "", think, opens.removesuffix("["), closes)
    if has("<tool_call>") and not has("<invoke name="):
        return Format("hermes", think=think)
    if has(">>>all") and has(">>>${recipient}"):
        return Format("functionary", think=think)
    if any(map(has, (PYTHON_TAG, "<|start_header_id|>ipython", "<|header_start|>ipython", "<function="))):
        return Format("llama3", think=think)
    return Format(think=think)


def _of_recent(has: Callable[[str], bool], think: tuple[str, str] | None) -> Format | None:
    """Formats that one string identifies; their templates often mention other formats' tags as well."""
    if has("DSML") and (has("dsml_token") or has("｜DSML｜")):
        block = "v3.2" if has("function_calls") else "v4"
        return Format("invoke", f"deepseek-{block}", think)
    if has(HUNYUAN) and has("<tool_sep"):
        tags = (f"<tool_call{HUNYUAN}>", f"</tool_call{HUNYUAN}>")
        return Format("glm", "hunyuan", (f"<think{HUNYUAN}>", f"</think{HUNYUAN}>"), *tags)
    if has("<minimax:tool_call>"):
        return Format("invoke", "minimax", think)
    if has('<function name="') and has('<param name="'):
        return Format("invoke", "minicpm5", think)
    if has("<|open|>") and has("<|close|>") and has("<|end_of_msg|>"):
        return _KIMI_K3
    if has(GEMMA_CALL + "call:"):
        return Format("gemma", think=("<|channel>thought", "<channel|>"))
    if has(PYTHON_CALLS[0]) or has("<|tool_list_start|>") or has("List of tools: "):
        return Format("python", think=think)
    if has(APERTUS_CALLS[0]):
        return Format("apertus", think=think)
    if has(SOLAR_CALL):
        return Format("solar", think=("<|think|>", "<|end|>"), ignored=_SOLAR_IGNORED)
    if has("<|function_call|>") and has("<|role_sep|>"):
        return Format("list", "object", think, "<|function_call|>", "", ("<|message_sep|>",))
    if has("<|message_sep|>") and has("function call"):
        return Format("list", "object", think, "function call<|role_sep|>\n", "", ("<|message_sep|>",))
    if has("Action:") and has('"tool_name"') and not has("<|START_ACTION|>"):
        return Format("list", "fenced", think, "Action:", "")
    return None


def ends_in_reasoning(format: Format, prompt: str) -> bool:
    """Whether the rendered prompt ends with open reasoning, which the model continues."""
    opens = _ANALYSIS if format.name == "gpt-oss" else ""
    opens = format.think[0] if format.think else opens
    return bool(opens) and prompt.rstrip().endswith(opens)


def thought_tags(format: Format) -> tuple[str, str, str]:
    """What opens reasoning, what ends it, and what follows before the answer; empty without reasoning."""
    if format.name == "gpt-oss":
        return _ANALYSIS, "<|end|>", "<|start|>assistant"
    return (*format.think, "") if format.think else ("", "", "")


def answer_tag(format: Format) -> str:
    """What opens the content of an answer; empty: nothing does."""
    return "<|channel|>final<|message|>" if format.name == "gpt-oss" else ""


def without_thought(format: Format, prompt: str, is_sure: bool, last: str = "") -> str:
    """The prompt with reasoning turned off: open reasoning is closed, and unless it `is_sure` that the model opens none
    itself, a closed one is added. `last` is its text."""
    opened = ends_in_reasoning(format, prompt)
    if not format.reasons or (is_sure and not opened):
        return prompt
    if format.name == "gpt-oss":
        return prompt + ("" if opened else _ANALYSIS) + f"{last}<|end|><|start|>assistant"
    opens, closes = format.think or ("", "")
    if opened:
        return f"{prompt}{last}\n{closes}\n\n" if last or prompt.endswith("\n") else prompt + closes
    if not last and prompt.rstrip().endswith(closes):
        return prompt
    return f"{prompt}{opens}\n{last}\n{closes}\n\n"


def new_call_id(format: Format, name: str, index: int, prefix: str = "call_") -> str:
    """An id for a call without one, in a form that the format's template accepts."""
    match format.name:
        case "kimi-k2":
            return f"functions.{name}:{index}"
        case "mistral":
            return _random(string.ascii_letters + string.digits, 9)
        case "solar":
            return _random(string.ascii_lowercase + string.digits, 10)
    return prefix + _random(string.ascii_letters + string.digits, 24)


def _random(letters: str, n: int) -> str:
    return "".join(secrets.choice(letters) for _ in range(n))
