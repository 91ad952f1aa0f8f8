"""The formats: how to tell from a chat template which one its model writes, and the texts that mark it.

Constants and pure functions; any thread.
"""

from __future__ import annotations

import secrets
import string
from dataclasses import dataclass

from .marked import DEEPSEEK_CALL, DEEPSEEK_CALLS, KIMI_CALL, KIMI_CALLS, MISTRAL_CALLS, PYTHON_TAG


@dataclass(frozen=True, slots=True)
class Format:
    """`name` says how calls are read, `variant` which of its spellings is written where a grammar forces one.

    `think` are the tags around a thought, None where the model has none (gpt-oss's channels are no tags).
    `open` and `close` stand around the calls of the formats that differ by them only; `ignored` are tags around
    content that nobody should see.
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
        """Texts that may be special tokens and must reach the parser nevertheless."""
        return (*_SPECIAL.get(self.name, ()), *filter(None, (self.open, self.close)), *(self.think or ()))


_THINK_TAGS = (
    ("<seed:think>", "</seed:think>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("[THINK]", "[/THINK]"),
    ("◁think▷", "◁/think▷"),
    ("<|inner_prefix|>", "<|inner_suffix|>"),
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<thought>", "</thought>"),
    ("<reasoning>", "</reasoning>"),
)

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
}

_LISTS = (("<TOOLCALL>", "</TOOLCALL>"), ("<tool_calls>", "</tool_calls>"), ("functools[", ""))


def detect(template_source: str) -> Format:
    """The format of the calls and the tags of the thoughts that a chat template's text shows.

    A template that shows no known calls gets the generic format, which needs its own words in the prompt.
    """
    has = template_source.__contains__
    think = next((tags for tags in _THINK_TAGS if has(tags[0]) or has(tags[1])), None)
    if has("<|channel|>") and has("<|message|>"):
        return Format("gpt-oss")
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
    for opens, closes in _LISTS:  # before Hermes: Apriel's template speaks of both tags and writes these
        if has(opens):
            return Format("list", "", think, opens.removesuffix("["), closes)
    if has("<tool_call>") and not has("<invoke name="):
        return Format("hermes", think=think)
    if has(PYTHON_TAG) or has("<|start_header_id|>ipython") or has("<function="):
        return Format("llama3", think=think)
    return Format(think=think)


def ends_in_reasoning(format: Format, prompt: str) -> bool:
    """Whether the rendered prompt has opened a thought that the model is to continue."""
    opens = "<|channel|>analysis<|message|>" if format.name == "gpt-oss" else ""
    opens = format.think[0] if format.think else opens
    return bool(opens) and prompt.rstrip().endswith(opens)


def new_call_id(format: Format, name: str, index: int) -> str:
    """An id for a call to which the model gave none, such as the format's template will take back."""
    if format.name == "kimi-k2":
        return f"functions.{name}:{index}"
    letters = string.ascii_letters + string.digits
    return "".join(secrets.choice(letters) for _ in range(9 if format.name == "mistral" else 32))
