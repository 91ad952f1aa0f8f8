"""The media types of static files, by file extension. Pure data, because the tables of operating systems differ from
one machine to the next."""

from __future__ import annotations

UNKNOWN = "application/octet-stream"

# Text files are compressed, and their type gets a charset.
_TEXTS = {
    "css": "text/css",
    "csv": "text/csv",
    "gbnf": "text/plain",
    "htm": "text/html",
    "html": "text/html",
    "js": "text/javascript",
    "json": "application/json",
    "map": "application/json",
    "md": "text/markdown",
    "mjs": "text/javascript",
    "svg": "image/svg+xml",
    "txt": "text/plain",
    "webmanifest": "application/manifest+json",
    "xml": "application/xml",
}
_BINARY = {
    "avif": "image/avif",
    "gif": "image/gif",
    "gz": "application/gzip",
    "ico": "image/x-icon",
    "jpeg": "image/jpeg",
    "jpg": "image/jpeg",
    "mp3": "audio/mpeg",
    "mp4": "video/mp4",
    "ogg": "audio/ogg",
    "otf": "font/otf",
    "pdf": "application/pdf",
    "png": "image/png",
    "ttf": "font/ttf",
    "wasm": "application/wasm",
    "wav": "audio/wav",
    "webm": "video/webm",
    "webp": "image/webp",
    "woff": "font/woff",
    "woff2": "font/woff2",
    "zip": "application/zip",
}
# Binary files that compress well.
_DENSE = {"ico", "otf", "ttf", "wasm"}


def _extension(name: str) -> str:
    return name.rpartition(".")[2].lower() if "." in name else ""


def media_type(name: str) -> str:
    extension = _extension(name)
    if extension in _TEXTS:
        return f"{_TEXTS[extension]}; charset=utf-8"
    return _BINARY.get(extension, UNKNOWN)


def is_compressible(name: str) -> bool:
    return _extension(name) in _TEXTS.keys() | _DENSE
