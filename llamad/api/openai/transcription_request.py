"""Reads the form of POST /v1/audio/transcriptions: a sound, and fields that are sent as text whatever their type.

Runs on the event loop for a small body, else in a worker. Fields for what a model cannot return (times, speakers) are
refused with an error that names them. Must not look into the sound, which goes to the decoder process unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import UnionType
from typing import Any, ClassVar, Literal, Union, get_args, get_origin

import msgspec

from llamad.api.openai.request import ChatRequest
from llamad.api.request.errors import bad
from llamad.api.request.ignored_fields import TRANSCRIPTIONS, Hosted
from llamad.api.request.media import Markers, MediaPart
from llamad.api.service.served_model import ServedModel
from llamad.http.multipart import FormError, FormPart, boundary_of, parts
from llamad.options.option import fields_of

TEXT_MAX = 1 << 20  # bytes of all fields except the file
FILE = "file"
ASKED = "Transcribe audio to text"
_LFM2 = ("<|tool_list_start|>", "<|tool_list_end|>")
_NO_CHAT = "a transcription is no chat: it takes no"

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


class TranscriptionRequest(ChatRequest, kw_only=True):
    """The options of a transcription; its only message is made from the form."""

    HOSTED: ClassVar[Hosted] = TRANSCRIPTIONS
    REFUSED: ClassVar[Mapping[str, str]] = {
        **{name: f"{_NO_CHAT} {name}" for name in ("messages", "tools", "functions", "tool_choice")},
        "known_speaker_names": '"known_speaker_names": this server does not distinguish speakers',
        "known_speaker_references": '"known_speaker_references": this server does not distinguish speakers',
        "timestamp_granularities": '"timestamp_granularities": the model tells no times',
    }


class Transcription(msgspec.Struct):
    """A form that was read."""

    request: TranscriptionRequest
    media: Markers  # holds the sound
    n_chars: int
    is_text: bool  # whether the response is the text alone


class _Own(msgspec.Struct):
    """Fields that are not options."""

    prompt: str = ""
    language: str = ""
    response_format: str = "json"
    include: tuple[str, ...] = ()


def read(served: ServedModel, content_type: str, body: bytes | memoryview) -> Transcription:
    """Return the transcription that a form asks for. Raises ApiError."""
    fields, file = _fields(body, content_type, served.settings.media_max_bytes)
    own = _own(fields)
    request = served.defaults.decode(TranscriptionRequest, _encode(fields))
    if request.n != 1:
        raise bad('"n" must be 1')
    _check_format(own.response_format, request.stream)
    request.logprobs = request.logprobs or bool(own.include)
    media = Markers()
    marker = media.add(MediaPart(file, FILE, is_sound=True))
    is_lfm2 = all(one in served.chat.source for one in _LFM2)
    text = own.prompt or ("" if is_lfm2 else ASKED)
    text += f" (language: {own.language})" if own.language else ""
    system = [{"role": "system", "content": "Perform ASR."}] if is_lfm2 else []
    request.messages = [*system, {"role": "user", "content": text + marker}]
    return Transcription(request, media, len(text), own.response_format == "text")


def _fields(body: bytes | memoryview, content_type: str, file_max: int) -> tuple[dict[str, Any], bytes]:
    """Return the fields, converted to their types, and the file."""
    fields: dict[str, Any] = {}
    file: bytes | None = None
    n_left = TEXT_MAX
    try:
        for part in parts(body, boundary_of(content_type)):
            name, is_many = part.name.removesuffix("[]"), part.name.endswith("[]")
            if name in fields and not (is_many and isinstance(fields[name], list)):
                raise bad(f'"{name[:64]}" is given twice')
            if name == FILE:
                file = _file(part, file, file_max)
                continue
            n_left -= len(part.data)
            if n_left < 0:
                raise bad(f"The fields other than the file have more than {TEXT_MAX} bytes")
            value = _value(name, part.data)
            fields[name] = [*fields.get(name, ()), value] if is_many else value
    except FormError as error:
        raise bad(f"The form cannot be read: {error}") from None
    if file is None:
        raise bad('"file" is missing: send the sound as a field of this name')
    return fields, file


def _file(part: FormPart, earlier: bytes | None, file_max: int) -> bytes:
    if earlier is not None:
        raise bad('"file" is given twice')
    if len(part.data) > file_max:
        raise bad(f'"file" has {len(part.data)} bytes; the limit is {file_max} (--media-max-bytes)')
    return bytes(part.data)


def _value(name: str, data: memoryview) -> Any:
    """Return the value of a field. The values of a form are text; if the field is not a string, its text is parsed as
    JSON."""
    try:
        text = str(data, "utf-8")
    except UnicodeDecodeError:
        raise bad(f'"{name[:64]}" is not UTF-8') from None
    if name in _STRINGS:
        return text
    try:
        return _decode(text)
    except (msgspec.DecodeError, RecursionError):
        return text


def _is_string(kind: Any) -> bool:
    kinds = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    return any(one is str or get_origin(one) is Literal for one in kinds)


_STRINGS = {
    *(name for name, field in fields_of(TranscriptionRequest).items() if _is_string(field.type)),
    *_Own.__struct_fields__,
    *TRANSCRIPTIONS.fields,
}


def _own(fields: dict[str, Any]) -> _Own:
    given = {name: fields.pop(name) for name in _Own.__struct_fields__ if name in fields}
    try:
        own = msgspec.convert(given, _Own)
    except msgspec.ValidationError as error:
        raise bad(f"The form cannot be read: {error}") from None
    if unknown := set(own.include) - {"logprobs"}:
        raise bad(f'"include" may hold "logprobs", not "{min(unknown)[:64]}"')
    return own


def _check_format(format: str, streams: bool) -> None:
    if format in ("verbose_json", "srt", "vtt", "diarized_json"):
        raise bad(
            f'"response_format" "{format}" has timestamps, which the model does not return; use "json" or "text"'
        )
    if format not in ("json", "text"):
        raise bad('"response_format" must be "json" or "text"')
    if streams and format == "text":
        raise bad('"response_format" must be "json" for a stream, which has events')
