"""Look-aheads at the start of a pattern, which are conditions on the whole text: `^(?!a)(?=b)c` is `^c`, and not `^a`,
and `^b`.

Any thread; pure functions on the pattern's text. The rest of the pattern is left to regex.py.
"""

from __future__ import annotations


def split(pattern: str) -> tuple[str, list[tuple[str, bool]]]:
    """Return the pattern without its look-aheads, and each of these as a pattern, with whether the text must match."""
    conditions: list[tuple[str, bool]] = []
    at = 1
    while pattern.startswith("^") and pattern.startswith(("(?!", "(?="), at):
        end = _end(pattern, at)
        if end < 0 or pattern[end + 1 : end + 2] in ("*", "+", "?", "{"):
            return pattern, []
        conditions.append((f"^(?:{pattern[at + 3 : end]})", pattern[at + 2] == "="))
        at = end + 1
    return ("^" + pattern[at:] if conditions else pattern), conditions


def _end(pattern: str, at: int) -> int:
    """Return where the group that opens at `at` closes, or -1 if it does not."""
    depth, in_class, escaped = 0, False, False
    for i in range(at, len(pattern)):
        c = pattern[i]
        if escaped:
            escaped = False
        elif c == "\\":
            escaped = True
        elif in_class:
            in_class = c != "]"
        elif c == "[":
            in_class = True
        elif c == "(":
            depth += 1
        elif c == ")":
            depth -= 1
            if depth == 0:
                return i
    return -1
