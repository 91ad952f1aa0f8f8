"""Images and sound in prompts: where a request names them, and the prompt that contains them.

Runs on the event loop and in workers. Must not read a file or an address: llamad/api/service/media.py does.
"""

from __future__ import annotations

import re
import secrets
from array import array
from collections.abc import Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import msgspec

from llamad.api.request import checks
from llamad.api.request.errors import ApiError, bad
from llamad.api.request.prompt import Built, Prompt, PromptObject, Prompts
from llamad.api.request.text_limits import limited
from llamad.client.command import packed_run
from llamad.media.sources.errors import SourceError
from llamad.media.sources.text_images import may_hold_images, split_text
from llamad.protocol.control_messages import MediaRun
from llamad.protocol.model_info import Model

if TYPE_CHECKING:
    from llamad.media.encoding import Encoding
    from llamad.protocol.blobs import Blob

FILES_MAX = 64  # in one prompt
MARKER = "<__media__>"  # stands for a file in the text of a prompt object; /props shows it
_IMG = re.compile(r"\[img-(\d{1,10})\]")
FLOAT_BYTES = INT_BYTES = 4


class MediaPart(msgspec.Struct, frozen=True):
    """A file, or the place where it is: a data: URI, http, https, file://, or base64. `field` is the field of the
    request, for errors."""

    source: str | bytes
    field: str
    is_sound: bool = False


class TokenPart(msgspec.Struct, frozen=True):
    """A part of a prompt whose tokens are known, as int32."""

    tokens: bytes


class MediaPrompt(Built):
    """Texts, tokens and files in their order. Its tokens are known once its files are encoded."""

    __slots__ = ("_encodings", "parts", "spans")

    def __init__(self, parts: Sequence[str | TokenPart | MediaPart]) -> None:
        self.parts = parts
        self._encodings: list[Encoding] = []
        self.spans: list[tuple[int, int]] = []  # where the tokens of its files begin and end
        n_files = len(self.files)
        if n_files > FILES_MAX:
            raise bad(f"a prompt may hold at most {FILES_MAX} images and sounds, not {n_files}")

    @property
    def files(self) -> list[MediaPart]:
        return [part for part in self.parts if isinstance(part, MediaPart)]

    @property
    def n_chars(self) -> int:
        return sum(len(part) for part in self.parts if isinstance(part, str))

    def encode(self, encodings: list[Encoding]) -> None:
        """Set the encodings of its files, in their order."""
        self._encodings = encodings

    def tokens(self, model: Model, system: bytes) -> bytes:
        tokens = self._joined(model, system)
        if memoryview(tokens[-INT_BYTES:]).cast("i")[0] < 0:
            raise bad("the prompt ends with an image or a sound; text must follow it")
        return tokens

    def embedded(self, model: Model) -> bytes:
        """Return the tokens of a text to embed. Nothing has to follow its last file except the model's EOS."""
        tokens = self._joined(model, b"")
        if model.info.add_eos and model.info.eos >= 0:
            tokens += array("i", [model.info.eos]).tobytes()
        return tokens

    def _joined(self, model: Model, system: bytes) -> bytes:
        made, n_bytes, i = [system], len(system), 0
        self.spans.clear()
        if not system and model.info.add_bos and model.info.bos >= 0:
            made.append(array("i", [model.info.bos]).tobytes())
            n_bytes += INT_BYTES
        for part in self.parts:
            if isinstance(part, str):
                made.append(limited(part.encode("utf-8", "replace"), False, model))
            elif isinstance(part, TokenPart):
                made.append(part.tokens)
            else:
                made.append(self._encodings[i].tokens())
                self.spans.append((n_bytes // INT_BYTES, (n_bytes + len(made[-1])) // INT_BYTES))
                i += 1
            n_bytes += len(made[-1])
        return b"".join(made)

    def runs(self) -> list[MediaRun]:
        """Return where rows stand in the tokens."""
        placed = zip(self._encodings, self.spans, strict=True)
        return [run for encoding, (first, _) in placed for run in _runs(encoding, first)]

    def rows(self) -> tuple[bytes, list[Blob]]:
        """Return the runs packed for the engine, and the memory that holds their rows."""
        packed = [
            packed_run(run.blob, run.rows_at, run.grid_at, run.first, run.n_rows) for run in self.runs()
        ]
        unique = {encoding.rows.id: encoding.rows for encoding in self._encodings}
        return b"".join(packed), list(unique.values())


def _runs(encoding: Encoding, first: int) -> list[MediaRun]:
    """Return the runs of one file. Its rows lie one behind the other in memory, followed by the positions of its
    grids."""
    runs = []
    rows_at, grid_at = 0, encoding.n_rows * encoding.n_row * FLOAT_BYTES
    for piece in encoding.pieces:
        if not piece.tokens:
            at = grid_at if piece.is_grid else -1
            runs.append(
                MediaRun(
                    encoding.rows.id, rows_at, at, first, piece.n_tokens, piece.n_pos, piece.is_non_causal
                )
            )
            rows_at += piece.n_tokens * encoding.n_row * FLOAT_BYTES
            if piece.is_grid:
                grid_at += 3 * piece.n_tokens * INT_BYTES
        first += piece.n_tokens
    return runs


FILE_PARTS = (
    "image_url",
    "input_image",
    "image",
    "input_audio",
    "audio_url",
    "audio",
    "file",
    "video_url",
    "input_video",
)


def part_file(part: dict[str, Any], kind: str, owner: str) -> MediaPart:
    """Return the file of a part of FILE_PARTS, in the forms of OpenAI, llama-server and vLLM. `owner` is the field that
    has the content."""
    field, value = f"{owner}.content.{kind}", part.get(kind)
    if kind in ("image_url", "input_image", "image"):
        value = part.get("image_url") if kind == "input_image" else value
        source = value.get("url") if isinstance(value, dict) else value
    elif kind in ("input_audio", "audio_url", "audio"):
        source = value.get("data") or value.get("url") if isinstance(value, dict) else value
    else:
        raise ApiError(501, f'"{owner}" has a part of type "{kind}"; images and sound can be read')
    if not isinstance(source, str) or not source:
        raise bad(f'"{field}" names no file: give a data: URI or base64')
    return MediaPart(source, field, is_sound="audio" in kind)


class Markers:
    """Stand in a text for the files of one request until the text is rendered. No client can guess them."""

    def __init__(self) -> None:
        self._nonce = secrets.token_hex(12)
        self.files: list[MediaPart] = []

    def add(self, file: MediaPart) -> str:
        """Add a file, and return the text that stands for it."""
        self.files.append(file)
        return f"<__media_{self._nonce}_{len(self.files) - 1}__>"

    def in_text(self, text: str, field: str) -> str:
        """Return a text in which markers replace the images that it contains as data: URIs."""
        if not may_hold_images(text):
            return text
        try:
            parts = split_text(text)
        except SourceError as error:
            raise bad(f'"{field}": {error}') from None
        return "".join(part if isinstance(part, str) else self.add(MediaPart(part, field)) for part in parts)

    def shown(self, rendered: str) -> str:
        """Return a rendered text with the marker of prompt objects."""
        return re.sub(f"<__media_{self._nonce}_\\d+__>", MARKER, rendered)

    def stable(self, text: str) -> str:
        """Return a text of the same length in which each marker depends on its file alone, for digests."""
        if not self.files:
            return text
        return re.sub(f"<__media_{self._nonce}_(\\d+)__>", self._stable, text)

    def _stable(self, marker: re.Match[str]) -> str:
        file = self.files[int(marker[1])]
        source = file.source.encode("utf-8", "replace") if isinstance(file.source, str) else file.source
        digest = blake2b(source, digest_size=len(self._nonce) // 2).hexdigest()
        return marker[0].replace(self._nonce, digest)

    def ends(self, rendered: str) -> list[int]:
        """Return where the markers in a rendered text end."""
        if not self.files:
            return []
        return [marker.end() for marker in re.finditer(f"<__media_{self._nonce}_\\d+__>", rendered)]

    def prompt(self, *rendered: str | bytes | TokenPart) -> MediaPrompt:
        """Return the prompt that a template rendered, with its files. It may have parts whose tokens are known."""
        parts: list[str | TokenPart | MediaPart] = []
        for piece in rendered:
            if isinstance(piece, TokenPart):
                parts.append(piece)
                continue
            text = piece.decode("utf-8", "replace") if isinstance(piece, bytes) else piece
            for i, one in enumerate(re.split(f"<__media_{self._nonce}_(\\d+)__>", text)):
                if i % 2:
                    parts.append(self.files[int(one)])
                elif one:
                    parts.append(one)
        return MediaPrompt(parts)


def with_image_data(text: str, images: Sequence[Any]) -> str | MediaPrompt:
    """Return a prompt of the older form, in which `[img-N]` stands for the image with the id N. Unused images are no
    error."""
    files: dict[int, MediaPart] = {}
    for i, one in enumerate(images):
        name = f"image_data[{i}]"
        if not isinstance(one, dict):
            raise bad(f'"{name}" must be an object with "data" and "id"')
        number = checks.whole(f"{name}.id", one.get("id", i), 0, 10**10)
        data = checks.text(f"{name}.data", one.get("data"))
        files[number] = MediaPart(data, f"{name}.data")
    parts: list[str | MediaPart] = []
    end = 0
    for match in _IMG.finditer(text):
        file = files.get(int(match[1]))
        if file is None:
            continue
        parts += [text[end : match.start()]] if match.start() > end else []
        parts.append(file)
        end = match.end()
    if not parts:
        return text
    parts += [text[end:]] if end < len(text) else []
    return MediaPrompt(parts)


def sent_prompts(prompts: Prompts, images: Sequence[Any], *, reads_media: bool) -> list[Prompt | Built]:
    """Return the prompts of a request with the files that they name. Raises an error if the model cannot read them."""
    if images and not reads_media:
        raise refused("image_data", "images")
    built: list[Prompt | Built] = []
    if not reads_media and any(isinstance(one, PromptObject) for one in prompts):
        raise refused("prompt.multimodal_data", "images")
    for one in prompts:
        if isinstance(one, PromptObject):
            built.append(with_markers(one.text, one.files, "prompt"))
        elif isinstance(one, str) and images:
            built.append(with_image_data(one, images))
        else:
            built.append(one)
    return built


def with_markers(text: str, data: Sequence[Any], field: str) -> MediaPrompt:
    """Return the prompt of a prompt object: each marker in its text stands for the next of its files, in base64."""
    texts = text.split(MARKER)
    if len(texts) - 1 != len(data):
        raise bad(
            f'"{field}": "prompt_string" has {len(texts) - 1} markers and "multimodal_data" {len(data)} files'
        )
    parts: list[str | MediaPart] = []
    for i, one in enumerate(texts):
        parts += [one] if one else []
        if i < len(data):
            name = f"{field}.multimodal_data[{i}]"
            parts.append(MediaPart(checks.text(name, data[i]), name))
    return MediaPrompt(parts)


def refused(field: str, what: str) -> ApiError:
    return ApiError(501, f'"{field}": this model reads no {what}; start the server with --mmproj FILE')
