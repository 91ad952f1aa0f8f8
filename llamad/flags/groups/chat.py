"""Owns the flags about chat templates and reasoning. Pure data; must not compute."""

from __future__ import annotations

from functools import partial

from llamad.flags.types.flag import Flag
from llamad.flags.types.kinds import ON_OFF_AUTO, Choice, File, Int, Switch, Text

flag = partial(Flag, group="Chat")

FLAGS: tuple[Flag, ...] = (
    flag(
        names=("--chat-template",),
        env=("LLAMA_ARG_CHAT_TEMPLATE",),
        dest="chat_template",
        kind=Text(optional=True),
        default=None,
        metavar="NAME|JINJA",
        help="Chat template instead of the model's: the name of a built-in one, or Jinja text.",
    ),
    flag(
        names=("--chat-template-file",),
        env=("LLAMA_ARG_CHAT_TEMPLATE_FILE",),
        dest="chat_template_file",
        kind=File(optional=True),
        default=None,
        help="The same, from a file.",
    ),
    flag(
        names=("--chat-template-kwargs",),
        env=("LLAMA_ARG_CHAT_TEMPLATE_KWARGS",),
        dest="chat_template_kwargs",
        kind=Text(),
        default="{}",
        metavar="JSON",
        help="Template variables for every chat, as a JSON object; those of a request take precedence.",
    ),
    flag(
        names=("--jinja",),
        off=("--no-jinja",),
        env=("LLAMA_ARG_JINJA",),
        dest="jinja",
        kind=Switch(),
        default=True,
        help="Render chats with the model's or the given Jinja template; off: with the built-in template that it is"
        " recognized as, without tools.",
    ),
    flag(
        names=("--reasoning-format",),
        env=("LLAMA_ARG_THINK",),
        dest="reasoning_format",
        kind=Choice(("none", "auto", "deepseek", "deepseek-legacy")),
        default="auto",
        help="Where reasoning goes; none: content, auto and deepseek: reasoning_content, deepseek-legacy:"
        " both.",
    ),
    flag(
        names=("-rea", "--reasoning"),
        env=("LLAMA_ARG_REASONING",),
        dest="reasoning",
        kind=ON_OFF_AUTO,
        default="auto",
        help="Reasoning in chats; auto: on if the template has a switch for it. A request's enable_thinking or"
        " reasoning_effort takes precedence.",
    ),
    flag(
        names=("--reasoning-effort",),
        env=("LLAMA_ARG_REASONING_EFFORT",),
        dest="reasoning_effort",
        kind=Text(),
        default="default",
        help="Reasoning effort, in the template's words (low, medium, high, ...); default: up to the template.",
    ),
    flag(
        names=("--reasoning-budget",),
        env=("LLAMA_ARG_THINK_BUDGET",),
        dest="reasoning_budget",
        kind=Int(low=-1),
        default=-1,
        help="Maximum reasoning tokens; when they are used up, the reasoning ends and the answer follows."
        " -1: no limit, 0: no reasoning.",
    ),
    flag(
        names=("--reasoning-budget-message",),
        env=("LLAMA_ARG_THINK_BUDGET_MESSAGE",),
        dest="reasoning_budget_message",
        kind=Text(optional=True),
        default=None,
        help="Text that ends the reasoning when its budget is used up; with a budget of 0, all of it.",
    ),
    flag(
        names=("--reasoning-preserve",),
        off=("--no-reasoning-preserve",),
        env=("LLAMA_ARG_REASONING_PRESERVE",),
        dest="reasoning_preserve",
        kind=Switch(),
        default=True,
        help="Keep the reasoning of earlier turns in the prompt, if the template has a switch for it.",
    ),
    flag(
        names=("--skip-chat-parsing",),
        off=("--no-skip-chat-parsing",),
        env=("LLAMA_ARG_SKIP_CHAT_PARSING",),
        dest="skip_chat_parsing",
        kind=Switch(),
        default=False,
        help="Leave everything in content, reasoning and tool calls included.",
    ),
    flag(
        names=("--prefill-assistant",),
        off=("--no-prefill-assistant",),
        env=("LLAMA_ARG_PREFILL_ASSISTANT",),
        dest="prefill_assistant",
        kind=Switch(),
        default=True,
        help="Continue a final assistant message; off: treat it as complete.",
    ),
    flag(
        names=("--spm-infill",),
        env=("LLAMA_ARG_SPM_INFILL",),
        dest="spm_infill",
        kind=Switch(),
        default=False,
        help="Put the suffix before the prefix in /infill, as some models expect.",
    ),
)
