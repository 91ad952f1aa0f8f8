"""Finds images in a text: data: URIs in Markdown, in HTML, or alone. Pure functions.

A client's text may have any length, so the search takes linear time: every step looks at a bounded part of the text, or
continues after the part that it has looked at.
"""

from __future__ import annotations

import re

from llamad.media.sources.data_uri import from_uri
from llamad.media.sources.errors import SourceError

AROUND_MAX = 1024  # characters of a tag or an image's name before its URI, and after it
_START = re.compile(r"data:image/", re.IGNORECASE)
_BEFORE_MARKDOWN = re.compile(r"!\[[^\]\n]*\]\(\s*")
_AFTER_MARKDOWN = re.compile(rf'\s{{0,64}}(?:"[^"\n]{{0,{AROUND_MAX}}}"\s{{0,64}})?\)')
_BEFORE_TAG = re.compile(r"<img\b[^<>]*\bsrc\s*=\s*[\"']", re.IGNORECASE)
_AFTER_TAG = re.compile(rf"[\"'][^<>]{{0,{AROUND_MAX}}}>")
_MARKDOWN_URI = re.compile(r"[^\s)]*")
_TAG_URIS = {'"': re.compile(r'[^"]*'), "'": re.compile(r"[^']*")}
_BARE_URI = re.compile(
    r"data:image/[\w.+-]{1,64}(?:;[\w.+-]{1,64}=[\w.+-]{1,64}){0,4};base64,[\w+/-]*={0,2}", re.I | re.A
)


def may_hold_images(text: str) -> bool:
    return "data:image/" in text.lower()


def split_text(text: str) -> list[str | bytes]:
    """Split a text at the images in it: return strings, and the bytes of each image, in order. Raises SourceError if
    the URI of an image in Markdown or HTML is not one; a URI alone stays text unless it is an image."""
    parts: list[str | bytes] = []
    end = at = 0
    # For each form, by its closing character: before this position no URI of that form can be closed.
    hopeless: dict[str, int] = {}
    while (match := _START.search(text, at)) is not None:
        at = match.start()
        image, start, stop = _image(text, at, end, hopeless)
        if image is None:
            at = stop
            continue
        parts += [text[end:start]] if start > end else []
        parts.append(image)
        end = at = stop
    if end < len(text) or not parts:
        parts.append(text[end:])
    return parts


def _image(text: str, at: int, end: int, hopeless: dict[str, int]) -> tuple[bytes | None, int, int]:
    """Return the image whose URI begins at `at`, and the start and the end of the text that it replaces. If there is no
    image, return None, and where to continue the search as the last value."""
    first = max(end, at - AROUND_MAX)
    if (quote := text[at - 1 : at]) in _TAG_URIS:
        start = _begins(_BEFORE_TAG, text, text.rfind("<", first, at), at)
        uri, after = _TAG_URIS[quote], _AFTER_TAG
    else:
        quote, start = ")", -1
        if text[max(end, at - 64) : at].rstrip().endswith("]("):
            start = _begins(_BEFORE_MARKDOWN, text, text.rfind("![", first, at), at)
        uri, after = _MARKDOWN_URI, _AFTER_MARKDOWN
    if start >= 0 and at >= hopeless.get(quote, 0):
        stop = uri.match(text, at).end()  # type: ignore[union-attr]
        closed = after.match(text, stop)
        if closed is not None:
            return from_uri(text[at:stop], ("image",)), start, closed.end()
        hopeless[quote] = stop
    return _bare(text, at)


def _begins(form: re.Pattern[str], text: str, start: int, at: int) -> int:
    """Return `start` if the text from there up to the URI matches the form, else -1."""
    return start if start >= 0 and form.fullmatch(text, start, at) is not None else -1


def _bare(text: str, at: int) -> tuple[bytes | None, int, int]:
    match = _BARE_URI.match(text, at)
    if match is None:
        return None, at, at + 1
    try:
        data = from_uri(match[0], ("image",))
    except SourceError:
        data = b""
    return (data if is_image(data) else None), at, match.end()


def is_image(data: bytes) -> bool:
    """Return whether the data begins like a PNG, JPEG, GIF, BMP or WebP file."""
    if data[:4] == b"RIFF":
        return data[8:12] == b"WEBP"
    return data.startswith((b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF87a", b"GIF89a", b"BM"))
