"""Grammar fragments that several formats share: text up to a tag, tags around parameters, literals that are not JSON.

Any thread, no state.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from llamad.chat.parsing.formats import Format
from llamad.chat.parsing.literal_calls import GEMMA_QUOTE
from llamad.chat.parsing.parameter_calls import HUNYUAN
from llamad.chat.parsing.tag_calls import SPELLINGS
from llamad.chat.schema.expressions import (
    EMPTY,
    Chars,
    Expr,
    Literal,
    Reference,
    alt,
    normal,
    opt,
    rep,
    seq,
)

_LAST = 0x10FFFF
DIGITS = rep(Chars(((48, 57),)), 1, 3)


class Tags(msgspec.Struct, frozen=True):
    """How a format writes a call with one tag per parameter. `key` makes the tag from a parameter's name and type."""

    opens: Expr
    closes: str
    key: Callable[[str, str], str]
    after: str
    line: str
    typed: bool = False


def tags_of(format: Format, name: str) -> Tags:
    if format.variant == "hunyuan":
        key = f"<arg_key{HUNYUAN}>{{}}</arg_key{HUNYUAN}>\n<arg_value{HUNYUAN}>"
        opens: Expr = Literal(f"<tool_call{HUNYUAN}>{name}<tool_sep{HUNYUAN}>\n")
        closes, after = f"</tool_call{HUNYUAN}>", f"</arg_value{HUNYUAN}>"
        return Tags(opens, closes, lambda k, _: key.format(k), after, "\n")
    if format.name == "glm":
        key, after = "<arg_key>{}</arg_key>\n<arg_value>", "</arg_value>"
        opens = Literal(f"<tool_call>{name}\n")
        return Tags(opens, "</tool_call>", lambda k, _: key.format(k), after, "\n")
    if format.name == "qwen3-coder":
        seed = "seed:" if format.variant == "seed" else ""
        key, after = ("<parameter={}>", "</parameter>") if seed else ("<parameter={}>\n", "\n</parameter>")
        opens = Literal(f"<{seed}tool_call>\n<function={name}>\n")
        return Tags(opens, f"</function>\n</{seed}tool_call>", lambda k, _: key.format(k), after, "\n")
    one = SPELLINGS[format.variant]
    number: Expr = EMPTY
    if format.variant == "kimi-k3":
        number = seq(Literal(' index="'), DIGITS, Literal('"'))
    opens = seq(Literal(f'{one.call}{name}"'), number, Literal(one.tag_end + one.line))

    def tag(key: str, kind: str) -> str:
        said = kind
        if one.string == "true":
            said = "true" if kind == "string" else "false"
        attribute = f' {one.type_attribute}="{said}"' if one.type_attribute else ""
        return f'{one.key}{key}"{attribute}{one.tag_end}'

    return Tags(opens, one.call_end, tag, one.value_end, one.line, bool(one.type_attribute))


def breaks() -> Expr:
    """The same line breaks as in the schemas' rules."""
    return seq(rep(Literal("\n"), 1, 2), rep(Chars(normal([(9, 9), (32, 32)])), 0, 20))


def until(tag: str) -> Expr:
    """Any text without the tag, then the tag. If the tag's first character occurs in it again, the text may not contain
    the part before that either."""
    first = tag[0]
    again_at = tag.find(first, 1)
    if again_at > 0:
        return seq(until(tag[:again_at]), Literal(tag[again_at:]))
    misses: list[Expr] = []
    begun: list[Expr] = []
    for n in range(1, len(tag)):
        misses.append(seq(Literal(tag[:n]), _not(first + tag[n])))
        begun.append(Literal(tag[:n]))
    again = rep(alt(begun), 0, None)  # starts of the tag followed by its first character
    return seq(rep(alt([_not(first), seq(again, alt(misses))]), 0, None), again, Literal(tag))


def _not(chars: str) -> Expr:
    ranges: list[tuple[int, int]] = []
    low = 0
    for code in sorted({ord(c) for c in chars} | {0xD800}):
        high = code - 1
        if low <= high:
            ranges.append((low, high))
        low = 0xE000 if code == 0xD800 else code + 1
    return Chars((*ranges, (low, _LAST)))


def gemma_value(rule: Callable[[str, Expr], Reference]) -> Expr:
    """Any value in Gemma's syntax."""
    text = rule("gemma-string", seq(Literal(GEMMA_QUOTE), until(GEMMA_QUOTE)))
    whole = rep(Chars(((48, 57),)), 1, 15)
    number = seq(opt(Literal("-")), whole, opt(seq(Literal("."), whole)))
    words = alt(map(Literal, ("true", "false", "null")))
    value = Reference("gemma-value")
    key = rep(Chars(normal([(48, 57), (65, 90), (95, 95), (97, 122)])), 1, 64)
    member = seq(key, Literal(":"), value)

    def several(one: Expr) -> Expr:
        return opt(seq(one, rep(seq(Literal(","), one), 0, None)))

    nested = alt(
        [
            seq(Literal("{"), several(member), Literal("}")),
            seq(Literal("["), several(value), Literal("]")),
        ]
    )
    return rule("gemma-value", alt([text, number, words, nested]))
