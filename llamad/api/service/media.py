"""Turns the images and sound of a request into encodings: it gets their bytes and passes them to the media reader.

Runs on the event loop; files are read, and long texts decoded, in a thread. Only a few files are in memory at a time;
the others wait as the references in their requests, and clients take turns.
"""

from __future__ import annotations

import asyncio
from functools import partial

from llamad.api.request.errors import ApiError, bad
from llamad.api.request.media import MediaPart
from llamad.base.fair_turns import FairTurns
from llamad.base.memory_budget import Claim
from llamad.flags.settings import ModelSettings
from llamad.media.encoding import Encoding
from llamad.media.reader import MediaError, MediaReader
from llamad.media.sources import data_uri, local
from llamad.media.sources.errors import SourceError

INLINE_MAX = 1 << 16  # the longest text in characters that is decoded on the event loop
N_FILES = 8  # files in memory at a time, besides what the requests hold; one client may have all but one


def _decoded(source: str, families: tuple[str, ...]) -> bytes:
    if source[:5].lower() == "data:":
        return data_uri.from_uri(source, families)
    return data_uri.from_base64(source)


class Media:
    def __init__(self, settings: ModelSettings, reader: MediaReader) -> None:
        self._settings = settings
        self._reader = reader
        self._turns = FairTurns(N_FILES)

    def apply(self, settings: ModelSettings) -> None:
        self._settings = settings

    @property
    def sees(self) -> bool:
        return self._reader.info.sees

    @property
    def hears(self) -> bool:
        return self._reader.info.hears

    async def encode(self, client: int, owner: int, files: list[MediaPart], claim: Claim) -> list[Encoding]:
        """Return the encodings in the order of the files; `claim` counts the bytes of the files. If one fails, or the
        caller is cancelled, all are stopped. Raises ApiError, BudgetFull."""
        tasks = [asyncio.ensure_future(self._encode(client, owner, file, claim)) for file in files]
        try:
            return list(await asyncio.gather(*tasks))
        finally:
            for task in tasks:
                task.cancel()

    async def _encode(self, client: int, owner: int, file: MediaPart, claim: Claim) -> Encoding:
        async with self._turns.place(client):
            return await self._read(client, owner, file, claim)

    async def _read(self, client: int, owner: int, file: MediaPart, claim: Claim) -> Encoding:
        try:
            data = await self._bytes(client, file)
        except SourceError as error:
            raise bad(f'"{file.field}": {error}') from None
        if len(data) > self._settings.media_max_bytes:
            raise bad(
                f'"{file.field}": the file has {len(data)} bytes; the limit is'
                f" {self._settings.media_max_bytes} (--media-max-bytes)"
            )
        claim.add(len(data))
        sound = file.is_sound or is_sound(data)
        what = "sound" if sound else "image"
        if not (self.hears if sound else self.sees):
            raise ApiError(501, f'"{file.field}": this model\'s projector reads no {what}')
        try:
            return await self._reader.read(client, owner, data, is_sound=sound)
        except MediaError as error:
            raise bad(f'"{file.field}": the {what} {error}') from None

    async def _bytes(self, client: int, file: MediaPart) -> bytes:
        source, settings = file.source, self._settings
        if isinstance(source, bytes):
            return source
        if source.startswith(local.SCHEME):
            read = partial(local.read, source, settings.media_path, settings.media_max_bytes)
            return await self._reader.threads.run(client, read)
        if not source.startswith(("http://", "https://")):
            decode = partial(_decoded, source, ("audio",) if file.is_sound else ("image", "audio"))
            if len(source) <= INLINE_MAX:
                return decode()
            return await self._reader.threads.run(client, decode)
        if not settings.media_urls:
            raise SourceError(
                "addresses are not fetched; start the server with --media-urls, or send a data: URI"
            )
        from llamad.media.sources import web  # imported here because TLS takes long to import

        return await web.fetch(source, settings.media_max_bytes)


def is_sound(data: bytes) -> bool:
    """Return whether the data begins like a WAV, FLAC or MP3 file."""
    if data[:4] == b"RIFF":
        return data[8:12] == b"WAVE"
    if data.startswith((b"fLaC", b"ID3")):
        return True
    # An MPEG frame begins with eleven set bits; the second byte of a JPEG file is smaller.
    return data[:1] == b"\xff" and b"\xe0" <= data[1:2] < b"\xff"
