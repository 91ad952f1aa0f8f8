"""Owns the model's chat template in use, and what follows from it: the format of its calls and thoughts.

Made once, in the loader's thread; rendering is any thread's. It knows neither HTTP nor the engine.
"""

from __future__ import annotations

from typing import Any

from llamad.chat.output import Format, detect
from llamad.chat.template import CHATML, ChatTemplate, TemplateError, builtin, builtin_names


class ChatHost:
    """`source` is Jinja text or the name of a built-in template; empty: ChatML."""

    def __init__(
        self, source: str, *, bos: str, eos: str, adds_bos: bool, kwargs: dict[str, Any], prefill: bool
    ) -> None:
        text = source
        if source and "{" not in source:
            named = builtin(source.strip())
            if named is None:
                raise ValueError(
                    f"'{source[:64]}' is neither Jinja nor a built-in template; those are {', '.join(builtin_names())}"
                )
            text = named
        self.source = text or CHATML
        self.template = ChatTemplate(self.source, bos=bos, eos=eos)
        self.format: Format = detect(self.source)
        self.kwargs = kwargs
        self.prefill = prefill
        self._bos = bos if adds_bos else ""

    def prompt(
        self,
        messages: list[dict[str, Any]],
        *,
        tools: list[dict[str, Any]] | None,
        kwargs: dict[str, Any],
        add_generation_prompt: bool = True,
    ) -> str:
        """The rendered conversation. Where the last message is the assistant's, the answer goes on with it."""
        merged = {**self.kwargs, **kwargs}
        begun = ""
        last = messages[-1]
        if (
            self.prefill
            and add_generation_prompt
            and last["role"] == "assistant"
            and not last.get("tool_calls")
        ):
            begun = _text(last.get("content"))
            messages = messages[:-1]
        try:
            text = self.template.prompt(
                messages, tools=tools, kwargs=merged, add_generation_prompt=add_generation_prompt
            )
        except RecursionError:  # while the messages are made into what the template understands
            raise TemplateError("the messages or the tools are nested too deep") from None
        # The tokenizer adds the token that begins a text by itself.
        if self._bos and text.startswith(self._bos):
            text = text[len(self._bos) :]
        return text + begun


def _text(content: object) -> str:
    if isinstance(content, list):
        return "".join(str(part.get("text") or "") for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""
