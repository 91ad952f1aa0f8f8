"""Owns the flags about chat templates and reasoning. Pure data; must not compute."""

from __future__ import annotations

from functools import partial

from llamad.flags.types.flag import Flag, Later
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
        help="The chat template, by a built-in name or as Jinja text, in place of the model's own.",
    ),
    flag(
        names=("--chat-template-file",),
        env=("LLAMA_ARG_CHAT_TEMPLATE_FILE",),
        dest="chat_template_file",
        kind=File(optional=True),
        default=None,
        help="The same, read from a file.",
    ),
    flag(
        names=("--chat-template-kwargs",),
        env=("LLAMA_ARG_CHAT_TEMPLATE_KWARGS",),
        dest="chat_template_kwargs",
        kind=Text(),
        default="{}",
        metavar="JSON",
        help="Variables of the template for every chat, as a JSON object; a request's own come on top.",
    ),
    # Jinja is the only way llamad will ever render a template, so asking for it changes nothing.
    flag(
        names=("--jinja",),
        off=("--no-jinja",),
        env=("LLAMA_ARG_JINJA",),
        dest="jinja",
        kind=Switch(),
        default=True,
        status=Later("chat templates without Jinja"),
    ),
    flag(
        names=("--reasoning-format",),
        env=("LLAMA_ARG_THINK",),
        dest="reasoning_format",
        kind=Choice(("none", "auto", "deepseek", "deepseek-legacy")),
        default="auto",
        help="Where a model's thoughts go: none leaves them in the content, auto and deepseek move them to"
        " reasoning_content, deepseek-legacy does both.",
    ),
    flag(
        names=("-rea", "--reasoning"),
        env=("LLAMA_ARG_REASONING",),
        dest="reasoning",
        kind=ON_OFF_AUTO,
        default="auto",
        help="Thinking in chats: on, off, or auto, which is on where the template has a switch for it."
        " A request's enable_thinking or reasoning_effort comes on top.",
    ),
    flag(
        names=("--reasoning-effort",),
        env=("LLAMA_ARG_REASONING_EFFORT",),
        dest="reasoning_effort",
        kind=Text(),
        default="default",
        help="How hard to think, as the template calls it (low, medium, high, ...); default leaves it to the template.",
    ),
    flag(
        names=("--reasoning-budget",),
        env=("LLAMA_ARG_THINK_BUDGET",),
        dest="reasoning_budget",
        kind=Int(low=-1),
        default=-1,
        help="Tokens that a thought may have: one that has had them is ended, and the answer goes on behind it."
        " -1 does not limit them, 0 turns thinking off.",
    ),
    flag(
        names=("--reasoning-budget-message",),
        env=("LLAMA_ARG_THINK_BUDGET_MESSAGE",),
        dest="reasoning_budget_message",
        kind=Text(optional=True),
        default=None,
        help="What a thought says at its end when its budget ends it; with a budget of 0, all that it says.",
    ),
    flag(
        names=("--reasoning-preserve",),
        off=("--no-reasoning-preserve",),
        env=("LLAMA_ARG_REASONING_PRESERVE",),
        dest="reasoning_preserve",
        kind=Switch(),
        default=True,
        help="Thoughts of earlier turns stay in the prompt, where the template has a variable for it.",
    ),
    flag(
        names=("--skip-chat-parsing",),
        off=("--no-skip-chat-parsing",),
        env=("LLAMA_ARG_SKIP_CHAT_PARSING",),
        dest="skip_chat_parsing",
        kind=Switch(),
        default=False,
        help="Everything a model writes in a chat is content, thoughts and calls included.",
    ),
    flag(
        names=("--prefill-assistant",),
        off=("--no-prefill-assistant",),
        env=("LLAMA_ARG_PREFILL_ASSISTANT",),
        dest="prefill_assistant",
        kind=Switch(),
        default=True,
        help="Go on with the last message where it is the assistant's; off: take it as a finished one.",
    ),
    flag(
        names=("--spm-infill",),
        env=("LLAMA_ARG_SPM_INFILL",),
        dest="spm_infill",
        kind=Switch(),
        default=False,
        help="/infill puts the suffix before the prefix, as some models want it.",
    ),
)
