"""ChatTemplate: a template with a model's special tokens, ready to render conversations.

Any thread; compiled templates are shared. Long conversations belong on a worker thread.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from datetime import datetime
from types import TracebackType
from typing import Any

from jinja2.environment import Template

from llamad.chat.template.budget import QUICK_SECONDS, QUICK_SIZE, SECONDS, SIZE, Budget, Exhausted
from llamad.chat.template.caps import Caps, probe
from llamad.chat.template.errors import NotQuick, TemplateError
from llamad.chat.template.normalize import Write, generic, normalize
from llamad.chat.template.sandbox import Raised, compiled
from llamad.chat.template.turns import REASONING


class ChatTemplate:
    """A compiled template. `seconds` limits the CPU time of one rendering, `size` the characters of its output."""

    def __init__(
        self, source: str, *, bos: str = "", eos: str = "", seconds: float = SECONDS, size: int = SIZE
    ) -> None:
        self.source = source
        self.bos = bos
        self.eos = eos
        self.seconds = seconds
        self.size = size
        self._template = compiled(source)

    def render(
        self,
        messages: list[dict[str, Any]],
        *,
        tools: list[dict[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        kwargs: dict[str, Any] | None = None,
        now: datetime | None = None,
        quick: bool = False,
    ) -> str:
        """Return the prompt. `kwargs` are the template's own variables (chat_template_kwargs). With `quick`, raise
        NotQuick if it takes longer than a few milliseconds."""
        variables = {
            "bos_token": self.bos,
            "eos_token": self.eos,
            "documents": None,
            **(
                {"functions": json.dumps(tools, ensure_ascii=False, indent=2)} if tools else {}
            ),  # Firefunction
            **(kwargs or {}),
            "messages": with_reasoning(messages),
            "tools": tools,
            "add_generation_prompt": add_generation_prompt,
        }
        try:
            with self._budget(now, quick) as budget:
                return _written(self._template, variables, budget)
        except (Raised, Exhausted) as e:
            if quick and isinstance(e, Exhausted):
                raise NotQuick from None
            raise TemplateError(str(e)) from None
        except (RecursionError, MemoryError):
            raise TemplateError("the template or the messages are nested too deeply") from None
        except Exception as e:  # a template can make Python raise anything
            raise TemplateError(f"template error, {_where(self._template, e.__traceback__)}{e}") from None

    def _budget(self, now: datetime | None, quick: bool) -> Budget:
        if quick:
            return Budget(min(QUICK_SECONDS, self.seconds), min(QUICK_SIZE, self.size), now)
        return Budget(self.seconds, self.size, now)

    def prompt(
        self,
        messages: list[dict[str, Any]],
        *,
        tools: list[dict[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        kwargs: dict[str, Any] | None = None,
        now: datetime | None = None,
        write: Write = generic,
        quick: bool = False,
    ) -> str:
        """Return the prompt for messages as clients send them, which are normalized first. `write` formats calls that
        the template cannot write. Templates that show the date get it in the same variables as in llama-server."""
        today = now or datetime.now()
        days = {"date_string": today.strftime("%d %b %Y"), "datetime": today.strftime("%b %d %Y")}
        caps = self.caps
        native = tools if caps.uses_tools else None  # it may fail with tools that it cannot describe
        return self.render(
            normalize(messages, caps, tools, write),
            tools=native or ([] if caps.tools_must_be_list else None),
            add_generation_prompt=add_generation_prompt,
            kwargs={**days, **(kwargs or {})},
            now=now,
            quick=quick,
        )

    @functools.cached_property
    def caps(self) -> Caps:
        """Return what the template supports. It is detected once, by rendering small conversations."""
        return probe(self.render)


def with_reasoning(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the messages with their reasoning under the names that templates read: `reasoning_content`, or `thinking`
    for gpt-oss. Clients use several names."""
    copies = []
    for message in messages:
        reasoning = next((message[key] for key in REASONING if message.get(key) is not None), None)
        if reasoning is not None:
            message = {"thinking": reasoning, **message, "reasoning_content": reasoning}
        copies.append(message)
    return copies


def _written(template: Template, variables: dict[str, Any], budget: Budget) -> str:
    pieces: list[str] = []
    size = 0
    for piece in template.root_render_func(template.new_context(variables)):
        pieces.append(piece)
        size += len(piece)
        if size > budget.size:
            raise Exhausted(f"the rendered prompt is larger than {budget.size:,} characters")
    return "".join(pieces)


def _where(template: Template, traceback: TracebackType | None) -> str:
    """Return which line of the template was running, from the innermost frame of its code."""
    line = 0
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename == "<template>":
            line = template.get_corresponding_lineno(traceback.tb_lineno)
        traceback = traceback.tb_next
    return f"line {line}: " if line else ""
