"""Owns the chat template in use, and the format of tool calls and reasoning that follows from it.

Made once in the loader thread; any thread may render. Knows neither HTTP nor the engine.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from llamad.chat.parsing import (
    Delta,
    Format,
    detect,
    ends_in_reasoning,
    without_thought,
)
from llamad.chat.template import (
    CHATML,
    ChatTemplate,
    TemplateError,
    builtin,
    builtin_names,
    generic,
    recognized,
)
from llamad.chat.template.render import REASONING

_ONE = [{"role": "user", "content": "x"}]
_EFFORTS = ("reasoning_strength", "thinking_effort")  # other names of reasoning_effort


class ChatHost:
    """`source` is Jinja text or the name of a built-in template; empty: ChatML. Without `jinja` a text only says which
    built-in template it is a form of, and there are no tools."""

    def __init__(
        self,
        source: str,
        *,
        bos: str,
        eos: str,
        adds_bos: bool,
        kwargs: dict[str, Any],
        prefill: bool,
        jinja: bool = True,
    ) -> None:
        self.has_tools = jinja
        self.source = _template(source, jinja)
        self.template = ChatTemplate(self.source, bos=bos, eos=eos)
        self.format: Format = detect(self.source)
        caps = self.template.caps
        if not caps.uses_tools and not self.format.calls.is_written:
            self.format = Format(think=self.format.think)  # the tools are described in the system message
        calls = self.format.calls
        self._write = calls.written if calls.is_written else generic
        self.has_parallel_calls = caps.supports_parallel_calls or not caps.uses_tool_calls
        self.kwargs = kwargs
        self.prefill = prefill
        self.for_tools: ChatHost | None = None  # the model's template for chats with tools, if it has one
        self._bos = bos if adds_bos else ""

    def serving(self, has_tools: bool) -> ChatHost:
        """The one to use."""
        return self.for_tools if has_tools and self.for_tools is not None else self

    @property
    def markers(self) -> list[str]:
        """Texts of special tokens that answers are parsed by."""
        more = self.for_tools.markers if self.for_tools is not None else []
        return list(dict.fromkeys([*self.format.special, *more]))

    def prompt(
        self,
        messages: list[dict[str, Any]],
        *,
        tools: list[dict[str, Any]] | None,
        kwargs: dict[str, Any],
        thinking: bool | None = None,
        last_thought: str = "",
        prefill: bool | str | None = None,
        add_generation_prompt: bool = True,
        quick: bool = False,
    ) -> str:
        """The rendered conversation. If the last message is the assistant's, the answer continues it.

        `thinking` sets the template's switch. If there is none, or the prompt opens reasoning nevertheless, False
        closes it in the prompt, with `last_thought` as its text. None: on, if there is a switch."""
        merged = {**self.kwargs, **kwargs, **self._switched(kwargs, thinking, bool(last_thought))}
        if "reasoning_effort" in merged:
            merged = {**dict.fromkeys(_EFFORTS, merged["reasoning_effort"]), **merged}
        part = self.continued(messages, prefill, add_generation_prompt)
        last = messages[-1]
        if part:
            messages = messages[:-1]
        try:
            text = self.template.prompt(
                messages,
                tools=tools,
                kwargs=merged,
                add_generation_prompt=add_generation_prompt,
                write=self._write,
                quick=quick,
            )
        except RecursionError:  # while the messages are normalized
            raise TemplateError("the messages or tools are nested too deeply") from None
        # The tokenizer adds BOS itself.
        if self._bos and text.startswith(self._bos):
            text = text[len(self._bos) :]
        begun = _text(last.get("content")) if part == "content" else ""
        thought = _thought(last) if part else ""
        if thinking is False and add_generation_prompt and not begun and part != "reasoning_content":
            is_sure = bool(self.template.caps.thinking_switch) and not last_thought
            text = without_thought(self.format, text, is_sure, last_thought)
        return text + (self._begun(text, thought, part == "content") if part else "") + begun

    def continued(self, messages: list[dict[str, Any]], prefill: bool | str | None, begins: bool) -> str:
        """Which part of the last message the answer continues: "content", "reasoning_content", or none. Unless the
        request says so, it is the reasoning if there is no more."""
        last = messages[-1]
        wanted = self.prefill if prefill is None else prefill
        if not wanted or not begins or last["role"] != "assistant" or last.get("tool_calls"):
            return ""
        if isinstance(wanted, str):
            is_thought = wanted == "reasoning_content"
        else:
            is_thought = bool(_thought(last)) and not _text(last.get("content"))
        return "reasoning_content" if is_thought and self.format.reasons else "content"

    def echo(self, last: dict[str, Any], part: str) -> tuple[Delta, ...]:
        """What continued() says an answer goes on with, as the parser would have found it."""
        found = (Delta("reasoning", _thought(last)), Delta("content", _text(last.get("content"))))
        return tuple(one for one in found[: {"reasoning_content": 1, "content": 2}.get(part, 0)] if one.text)

    def generation_prompt(self, prompt: str) -> str:
        """The end of a rendered prompt that opens the answer; "" where that is continued."""
        return next((one for one in self._openings if prompt.endswith(one)), "")

    @cached_property
    def _openings(self) -> list[str]:
        """All that the template opens an answer with, the longest first."""
        found = set()
        for thinking in (None, True, False):
            try:
                bare, whole = (
                    self.prompt(_ONE, tools=None, kwargs={}, thinking=thinking, add_generation_prompt=begins)
                    for begins in (False, True)
                )
            except TemplateError:
                continue
            if whole.startswith(bare):
                found.add(whole[len(bare) :])
        return sorted(found, key=len, reverse=True)

    def _begun(self, text: str, thought: str, is_over: bool) -> str:
        """What stands between the generation prompt and the content of a message that is continued: its reasoning, and
        what opens the content."""
        opens, ends, after = self.format.calls.thought_tags
        is_open = ends_in_reasoning(self.format, text)
        before = self.format.calls.answer_tag if is_over else ""
        if not opens or (is_over and not thought and not is_open):
            return before
        return ("" if is_open else opens) + thought + (ends + after if is_over else "") + before

    def _switched(self, kwargs: dict[str, Any], thinking: bool | None, has_thought: bool) -> dict[str, Any]:
        """The template's switches. With a `last_thought`, reasoning must stay on in the template."""
        switch = self.template.caps.thinking_switch
        if thinking is None:
            return (
                {} if switch != "enable_thinking" or switch in {**self.kwargs, **kwargs} else {switch: True}
            )
        value = thinking or has_thought
        return {"enable_thinking": value} | ({switch: value} if switch and switch not in kwargs else {})


def _template(source: str, jinja: bool) -> str:
    """The Jinja text to render. Raises ValueError."""
    if not source:
        return CHATML
    if "{" in source:
        text = source if jinja else recognized(source)
        if text is None:
            raise ValueError(
                "--no-jinja: the chat template is none of the built-in ones; leave it out, or name one"
            )
        return text
    text = builtin(source.strip())
    if text is None:
        raise ValueError(
            f"'{source[:64]}' is neither Jinja nor a built-in template; use one of {', '.join(builtin_names())}"
        )
    return text


def _text(content: object) -> str:
    if isinstance(content, list):
        return "".join(str(part.get("text") or "") for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


def _thought(message: dict[str, Any]) -> str:
    return _text(next((message[name] for name in REASONING if message.get(name)), ""))
