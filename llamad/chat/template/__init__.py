"""Chat templates: Jinja text from a model, or a built-in template, rendered in a sandbox with limits.

Any thread; long conversations belong on a worker thread. Knows neither HTTP nor the engine.

    template = ChatTemplate(source, bos="<s>", eos="</s>")
    template.prompt(messages, tools=tools)     takes messages as clients send them
    template.render(messages, tools=tools)     takes messages as the template needs them
"""

from llamad.chat.template.budget import QUICK_SECONDS
from llamad.chat.template.builtin_templates import CHATML, builtin, builtin_names
from llamad.chat.template.caps import DROPPING, KEEPING, Caps
from llamad.chat.template.errors import NotQuick, TemplateError
from llamad.chat.template.normalize import generic, normalize
from llamad.chat.template.recognize import recognized
from llamad.chat.template.render import ChatTemplate

__all__ = [
    "CHATML",
    "DROPPING",
    "KEEPING",
    "QUICK_SECONDS",
    "Caps",
    "ChatTemplate",
    "NotQuick",
    "TemplateError",
    "builtin",
    "builtin_names",
    "generic",
    "normalize",
    "recognized",
]
