"""Where the turns that the server generated stand in a rendered prompt.

Pure, any thread. A turn is only replaced if the text before it is the text that it was generated after, and if what the
template made of it means the same to the parser. Everything else stays text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b

import msgspec

from llamad.chat.parsing import OutputParser
from llamad.chat.replay.memory import Mark, Reading, Turn
from llamad.chat.replay.recorder import Recorder

# The rendered form of a turn may be this much longer than what the model has written, and a fixed number of bytes more.
_LONGER, _MORE = 4, 4096
_CLOSINGS_FEWER = 3  # and it may have so many closing tokens less
_DIGEST_BYTES = 16
_SPECIAL = re.compile(r"\s*(<[^<>\s]+>|\[/?[A-Z_]+\])")  # the special token at the start of a text

Parser = Callable[[Reading], OutputParser]


class Closings:
    """The special tokens that may close an assistant's message: by their ids, and by their texts in a prompt."""

    def __init__(self, texts: Iterable[bytes], ids: Iterable[int]) -> None:
        self.ids = frozenset(ids)
        longest_first = sorted(set(filter(None, texts)), key=len, reverse=True)
        self._any = re.compile(b"|".join(map(re.escape, longest_first))) if longest_first else None

    def end(self, data: bytes, start: int, n_within: int, limit: int) -> int:
        """Return where the message closes that begins at `start` and has n_within closings within it, or -1."""
        if self._any is None:
            return -1
        for i, match in enumerate(self._any.finditer(data, start, limit)):
            if i == n_within:
                return match.start()
        return -1


def closing_text(after: str, ends: Iterable[str]) -> str:
    """Return the special token that closes an answer if the template closes it with none of `ends`, which are the texts
    with which the model ends it; otherwise "". `after` is what the template writes after an answer."""
    if any(end and end in after for end in ends):
        return ""
    closing = _SPECIAL.match(after)
    return closing[1] if closing is not None else ""


def marked(prompt: str, opening: str) -> Mark:
    """Return the mark of a prompt that ends with this opening."""
    data, end = prompt.encode("utf-8", "replace"), opening.encode("utf-8", "replace")
    n_bytes = len(data) - len(end)
    return Mark(n_bytes, _digest(data[:n_bytes]), end)


def spliced(
    prompt: str,
    turns: Sequence[Turn],
    closings: Closings,
    parser: Parser,
    thought: str = "",
    stable: Callable[[str], str] = str,
    call_ends: Sequence[str] = (),
) -> list[bytes | Turn]:
    """Return the prompt as texts and the turns between them: one text if no turn can take its place. `thought` is the
    tag that opens reasoning. `stable` returns a text of the same length in which the markers of files are the same for
    every request. `call_ends` are the texts with which calls end if the template does not close the message there."""
    data = prompt.encode("utf-8", "replace")
    same = stable(prompt).encode("utf-8", "replace")
    pieces: list[bytes | Turn] = []
    so_far, n_hashed, end = blake2b(digest_size=_DIGEST_BYTES), 0, 0
    for turn in turns:
        start = turn.prompt.n_bytes
        if start < max(end, n_hashed) or start > len(data):
            continue
        so_far.update(same[n_hashed:start])
        n_hashed = start
        if so_far.digest() != turn.prompt.digest:
            continue
        closing = _closing(data, turn, closings, parser, thought.encode(), call_ends)
        if closing >= 0:
            pieces += [data[end:start] + turn.prompt.opening, turn]
            end = closing
    return [*pieces, data[end:]]


def _closing(
    data: bytes, turn: Turn, closings: Closings, parser: Parser, thought: bytes, call_ends: Sequence[str]
) -> int:
    """Return where the text of a turn closes, or -1 if the text does not mean the same as the turn.

    The text begins with the opening that the turn had. A template may leave out reasoning from there. If the turn has
    none, this is an empty block, and the turn keeps it; otherwise it is the template that drops the reasoning. One
    without a thought may be missing as a whole, as in Apertus' template after results; the turn keeps it, too."""
    start, opening = turn.prompt.n_bytes, turn.prompt.opening
    readings = [turn.reading]
    if not data.startswith(opening, start):
        at = opening.find(thought) if thought else -1
        if at < 0:
            opening = b""
        elif data.startswith(opening[:at], start):
            opening = opening[:at]
            readings = [_begun(turn.reading, False), _begun(turn.reading, True)]
        else:
            return -1
    start += len(opening)
    limit = start + _LONGER * turn.n_bytes + _MORE
    # A model may close a part of its answer that the template does not close, as GigaChat's does before a call.
    for n_within in range(turn.n_closings, max(-1, turn.n_closings - _CLOSINGS_FEWER - 1), -1):
        closing = closings.end(data, start, n_within, limit)
        if closing >= 0 and _is_rendered(data[start:closing], turn, readings, parser):
            return closing
    for tag in map(str.encode, call_ends if turn.said.calls else ()):
        closing = data.find(tag, start, limit) + len(tag)
        if closing >= len(tag) and _is_rendered(data[start:closing], turn, readings, parser):
            return closing
    return -1


def _is_rendered(text: bytes, turn: Turn, readings: Sequence[Reading], parser: Parser) -> bool:
    """Whether this text of a prompt means the same as the turn."""
    rendered = _digest(text)
    if rendered != turn.rendered:
        if not any(_means(text, turn, parser(reading)) for reading in readings):
            return False
        turn.rendered = rendered
    return True


def _begun(reading: Reading, in_reasoning: bool) -> Reading:
    return msgspec.structs.replace(reading, starts_in_reasoning=in_reasoning)


def _means(text: bytes, turn: Turn, parser: OutputParser) -> bool:
    """Whether the parser reads in this text what it read in the model's."""
    recorder = Recorder(parser)
    recorder.feed(text.decode("utf-8", "replace"))
    recorder.finish()
    said = recorder.said()
    return turn.said.is_said_by(said) and said.is_said_by(turn.said)


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=_DIGEST_BYTES).digest()
