"""The reasoning of a model: the tags around it, and whether a prompt has opened it.

Constants and pure functions; any thread.
"""

from __future__ import annotations

from llamad.chat.parsing.syntax.call_format import Format, Has, Think

_APRIEL = ("Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]")  # the first is in the prompt
_TAGS = (
    ("<seed:think>", "</seed:think>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("[THINK]", "[/THINK]"),
    ("◁think▷", "◁/think▷"),
    ("<|inner_prefix|>", "<|inner_suffix|>"),
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<mm:think>", "</mm:think>"),
    ("<thought>", "</thought>"),
    ("<reasoning>", "</reasoning>"),
)


def think_tags(has: Has) -> Think:
    """Return the tags around reasoning in a template, or None if it has none."""
    if has(_APRIEL[0]):
        return _APRIEL
    return next((tags for tags in _TAGS if any(map(has, tags))), None)


def ends_in_reasoning(format: Format, prompt: str) -> bool:
    """Return whether the rendered prompt ends inside reasoning, which the model continues."""
    opens, _, _ = format.calls.thought_tags
    return bool(opens) and prompt.rstrip().endswith(opens)


def without_thought(format: Format, prompt: str, is_sure: bool, last: str = "") -> str:
    """Return the prompt with reasoning turned off. Open reasoning is closed. Unless it `is_sure` that the model opens
    none itself, closed reasoning is added. `last` is the text of the reasoning."""
    opened = ends_in_reasoning(format, prompt)
    opens, closes, after = format.calls.thought_tags
    if not opens or (is_sure and not opened):
        return prompt
    if after:
        return prompt + ("" if opened else opens) + last + closes + after
    if opened:
        return f"{prompt}{last}\n{closes}\n\n" if last or prompt.endswith("\n") else prompt + closes
    if not last and prompt.rstrip().endswith(closes):
        return prompt
    return f"{prompt}{opens}\n{last}\n{closes}\n\n"
