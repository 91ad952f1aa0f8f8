"""The chat template in use, and the format of tool calls and reasoning that it implies.

It is made once in the loader thread; any thread may render. It knows neither HTTP nor the engine.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from llamad.chat.parsing import Delta, Format, detect, ends_in_reasoning, without_thought
from llamad.chat.template import (
    CHATML,
    ChatTemplate,
    TemplateError,
    builtin,
    builtin_names,
    generic,
    recognized,
)
from llamad.chat.template.turns import REASONING

_ONE = [{"role": "user", "content": "x"}]
_EFFORTS = ("reasoning_strength", "thinking_effort")  # other names of reasoning_effort


class ChatHost:
    """`source` is Jinja text or the name of a built-in template; if it is empty, ChatML is used. Without `jinja`, Jinja
    text only selects the built-in template that it resembles, and there are no tools."""

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
        """Return the ChatHost for a chat with or without tools."""
        return self.for_tools if has_tools and self.for_tools is not None else self

    @property
    def markers(self) -> list[str]:
        """Return the texts of special tokens that the parser of answers must see."""
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
        """Render the conversation. If the last message is the assistant's, the answer continues it.

        `thinking` sets the template's switch for reasoning. If it is False, and the template has no switch or opens
        reasoning nevertheless, the reasoning is closed in the prompt, with `last_thought` as its text. If it is None, a
        switch is turned on."""
        merged = {**self.kwargs, **kwargs, **self._switched(kwargs, thinking, bool(last_thought))}
        if "reasoning_effort" in merged:
            merged = {**dict.fromkeys(_EFFORTS, merged["reasoning_effort"]), **merged}
        field = self.continued(messages, prefill, add_generation_prompt)
        last = messages[-1]
        if field:
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
        if add_generation_prompt and not field and last["role"] == "tool":
            text = self._opened(text, merged)
        # The tokenizer adds BOS itself.
        if self._bos and text.startswith(self._bos):
            text = text[len(self._bos) :]
        begun = _text(last.get("content")) if field == "content" else ""
        thought = _thought(last) if field else ""
        if thinking is False and add_generation_prompt and not begun and field != "reasoning_content":
            is_sure = bool(self.template.caps.thinking_switch) and not last_thought
            text = without_thought(self.format, text, is_sure, last_thought)
        return text + (self._begun(text, thought, field == "content") if field else "") + begun

    def continued(self, messages: list[dict[str, Any]], prefill: bool | str | None, begins: bool) -> str:
        """Return which field of the last message the answer continues: "content", "reasoning_content", or "". Unless
        the request says which, it is the reasoning if the message has nothing else."""
        last = messages[-1]
        choice = self.prefill if prefill is None else prefill
        if not choice or not begins or last["role"] != "assistant" or last.get("tool_calls"):
            return ""
        if isinstance(choice, str):
            is_thought = choice == "reasoning_content"
        else:
            is_thought = bool(_thought(last)) and not _text(last.get("content"))
        return "reasoning_content" if is_thought and self.format.reasons else "content"

    def echo(self, last: dict[str, Any], field: str) -> tuple[Delta, ...]:
        """Return the text that the answer continues, as deltas of the parser; `field` comes from continued()."""
        deltas = (Delta("reasoning", _thought(last)), Delta("content", _text(last.get("content"))))
        return tuple(
            one for one in deltas[: {"reasoning_content": 1, "content": 2}.get(field, 0)] if one.text
        )

    def generation_prompt(self, prompt: str) -> str:
        """Return the end of a rendered prompt that opens the answer, or "" if the answer continues a message."""
        return next((one for one in self._openings if prompt.endswith(one)), "")

    def _opened(self, text: str, kwargs: dict[str, Any]) -> str:
        """Return a prompt that ends with a tool's result, and opens the answer. Gemma 4's template closes the turn if
        the calls had content, and does not open the next one."""
        if not self.template.caps.content_after_results:
            return text
        bare, whole = (
            self.template.prompt(_ONE, kwargs=kwargs, add_generation_prompt=begins)
            for begins in (False, True)
        )
        end = bare.rpartition("x")[2]
        return text + whole.removeprefix(bare) if end and text.endswith(end) else text

    @cached_property
    def closing(self) -> str:
        """Return the text between the content of an answer and that of a user's next message."""
        answer = {"role": "assistant", "content": "needle"}
        try:
            text = self.prompt([*_ONE, answer, *_ONE], tools=None, kwargs={})
        except TemplateError:
            return ""
        return text.rpartition("needle")[2].partition(str(_ONE[0]["content"]))[0]

    @cached_property
    def _openings(self) -> list[str]:
        """Return all texts with which the template opens an answer, the longest first."""
        openings = set()
        for thinking in (None, True, False):
            try:
                bare, whole = (
                    self.prompt(_ONE, tools=None, kwargs={}, thinking=thinking, add_generation_prompt=begins)
                    for begins in (False, True)
                )
            except TemplateError:
                continue
            if whole.startswith(bare):
                openings.add(whole[len(bare) :])
        return sorted(openings, key=len, reverse=True)

    def _begun(self, text: str, thought: str, is_over: bool) -> str:
        """Return the text between the generation prompt and the content of a message that is continued: its reasoning,
        and the tag that opens the content."""
        opens, ends, after = self.format.calls.thought_tags
        is_open = ends_in_reasoning(self.format, text)
        before = self.format.calls.answer_tag if is_over else ""
        if not opens or (is_over and not thought and not is_open):
            return before
        return ("" if is_open else opens) + thought + (ends + after if is_over else "") + before

    def _switched(self, kwargs: dict[str, Any], thinking: bool | None, has_thought: bool) -> dict[str, Any]:
        """Return the variables that switch reasoning in the template. With a `last_thought` it must stay on there. A
        template whose switch only changes a text (Apertus) has its own default."""
        switch = self.template.caps.thinking_switch
        if thinking is None:
            is_ours = switch == "enable_thinking" and self.template.caps.switch_acts_at_once
            return {switch: True} if is_ours and switch not in {**self.kwargs, **kwargs} else {}
        value = thinking or has_thought
        return {"enable_thinking": value} | ({switch: value} if switch and switch not in kwargs else {})


def _template(source: str, jinja: bool) -> str:
    """Return the Jinja text to render. Raises ValueError."""
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
    """Return the text that an answer continues. Its parts are joined as in llama-server."""
    if isinstance(content, list):
        return "\n\n".join(str(part.get("text") or "") for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


def _thought(message: dict[str, Any]) -> str:
    return _text(next((message[name] for name in REASONING if message.get(name)), ""))
