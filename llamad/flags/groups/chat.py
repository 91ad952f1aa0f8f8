"""The flags about chat templates and reasoning. Pure data; must not compute."""

from __future__ import annotations

from typing import Literal

from llamad.flags.types.declaration import flag, flags_of
from llamad.flags.types.kinds import ON_OFF_AUTO, File, Int, OnOffAuto, Text


class Chat:
    """Settings about chat templates and reasoning."""

    chat_template: str | None = flag(
        kind=Text(),
        default=None,
        metavar="NAME|JINJA",
        help="Chat template instead of the model's: the name of a built-in one, or Jinja text.",
    )
    chat_template_file: str | None = flag(
        kind=File(),
        default=None,
        help="The same, from a file.",
    )
    chat_template_kwargs: str = flag(
        kind=Text(),
        default="{}",
        metavar="JSON",
        help="Template variables for every chat, as a JSON object; those of a request take precedence.",
    )
    jinja: bool = flag(
        off=("--no-jinja",),
        default=True,
        help="Render chats with the model's or the given Jinja template; off: with the built-in template that it is"
        " recognized as, without tools.",
    )
    reasoning_format: Literal["none", "auto", "deepseek", "deepseek-legacy"] = flag(
        env=("LLAMA_ARG_THINK",),
        default="auto",
        help="Where reasoning goes; none: content, auto and deepseek: reasoning_content, deepseek-legacy:"
        " both.",
    )
    reasoning: OnOffAuto = flag(
        names=("-rea", "--reasoning"),
        kind=ON_OFF_AUTO,
        default="auto",
        help="Reasoning in chats; auto: on if the template has a switch for it. A request's enable_thinking or"
        " reasoning_effort takes precedence.",
    )
    reasoning_effort: str = flag(
        kind=Text(),
        default="default",
        help="Reasoning effort, in the template's words (low, medium, high, ...); default: up to the template.",
    )
    reasoning_budget: int = flag(
        env=("LLAMA_ARG_THINK_BUDGET",),
        kind=Int(low=-1),
        default=-1,
        help="Maximum reasoning tokens; when they are used up, the reasoning ends and the answer follows."
        " -1: no limit, 0: no reasoning.",
    )
    reasoning_budget_message: str | None = flag(
        env=("LLAMA_ARG_THINK_BUDGET_MESSAGE",),
        kind=Text(),
        default=None,
        help="Text that ends the reasoning when its budget is used up; with a budget of 0 it is the whole reasoning.",
    )
    reasoning_preserve: bool = flag(
        off=("--no-reasoning-preserve",),
        default=True,
        help="Keep the reasoning of earlier turns in the prompt, if the template has a switch for it.",
    )
    replay: bool = flag(
        off=("--no-replay",),
        default=True,
        help="Put the tokens that were generated into the prompt when a chat comes back, also if the client writes the"
        " turn differently or leaves out its reasoning; off: tokenize what the template makes of the messages.",
    )
    skip_chat_parsing: bool = flag(
        off=("--no-skip-chat-parsing",),
        default=False,
        help="Leave everything in content, reasoning and tool calls included.",
    )
    prefill_assistant: bool = flag(
        off=("--no-prefill-assistant",),
        default=True,
        help="Continue a final assistant message; off: treat it as complete.",
    )
    spm_infill: bool = flag(
        default=False,
        help="Put the suffix before the prefix in /infill, as some models expect.",
    )


FLAGS = flags_of(Chat, "Chat")
