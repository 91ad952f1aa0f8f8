"""Chat templates: Jinja text from a model or by a built-in name, rendered in a sandbox with limits.

Any thread; rendering a long conversation is a worker thread's work. It knows neither HTTP nor the engine.

    template = ChatTemplate(source, bos="<s>", eos="</s>")
    template.prompt(messages, tools=tools)     messages as clients send them
    template.render(messages, tools=tools)     messages as the template wants them
"""

from __future__ import annotations

from .caps import Caps
from .errors import TemplateError
from .normalize import generic, normalize
from .render import ChatTemplate
from .stock import CHATML, builtin, builtin_names

__all__ = [
    "CHATML",
    "Caps",
    "ChatTemplate",
    "TemplateError",
    "builtin",
    "builtin_names",
    "generic",
    "normalize",
]
