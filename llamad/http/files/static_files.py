"""Owns the responses to requests for static files: found, unchanged, in part, compressed, streamed.

handle() belongs to the event loop; disks are read by threads of its own, so that a slow one delays nothing else. Must
not know which paths are endpoints.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from urllib.parse import quote

import msgspec

from llamad.base.fair_pool import FairPool
from llamad.http.exchange import Exchange
from llamad.http.files import conditions
from llamad.http.files.folder import Folder, IsFolder, Missing, names_of
from llamad.http.files.library import Changed, Found, Library
from llamad.http.files.media_types import is_compressible, media_type
from llamad.http.request import Request, Response, address_of

log = logging.getLogger("llamad.http")

Headers = tuple[tuple[str, str], ...]

N_THREADS = 2
# A large file is read in pieces of this size, each when the client has taken the one before.
PIECE = 256 * 1024


class Source(msgspec.Struct, frozen=True):
    """A folder that is looked in, what its responses say besides, and which of its paths count (None: all)."""

    folder: Folder
    headers: Headers = ()
    only: frozenset[str] | None = None


class StaticFiles:
    """The first source that has a file serves it. `error` makes an error in the application's format."""

    def __init__(
        self, sources: Sequence[Source], error: Callable[[int, str, Request | None], Response]
    ) -> None:
        self._sources = [(source, Library(source.folder)) for source in sources]
        self._error = error
        self._pool = FairPool(N_THREADS, "llamad-files")
        self._jobs: set[asyncio.Task[None]] = set()

    def close(self) -> None:
        self._pool.close()

    def handle(self, exchange: Exchange) -> None:
        task = asyncio.ensure_future(self._serve(exchange))
        exchange.on_abort = lambda: _drop(task)
        self._jobs.add(task)
        task.add_done_callback(self._jobs.discard)

    @staticmethod
    def to_folder(request: Request) -> Response:
        """The same path with a slash at its end. Relative, for a proxy may have put a prefix before it; and a path that
        begins with two slashes would be another host."""
        where = f"./{quote(request.path.rpartition('/')[2])}/"
        return Response(301, b"", "", (("Location", where),))

    async def _serve(self, exchange: Exchange) -> None:
        request = exchange.request
        client = _client(request)
        try:
            source, library, found = await self._pool.run(client, partial(self._find, request.path))
            if found.data is not None:
                exchange.send(self._small(request, source, found, found.data))
            else:
                await self._send_large(exchange, client, source, library, found)
        except Missing:
            exchange.send(self._error(404, "File Not Found", request))
        except IsFolder:
            exchange.send(self.to_folder(request))
        except conditions.Unsatisfiable as error:
            refused = self._error(416, f"The range begins behind the file's {error.size} bytes.", request)
            refused.headers += (("Content-Range", f"bytes */{error.size}"),)
            exchange.send(refused)
        except Changed:
            exchange.fail(self._error(500, "The file changed while it was served; ask again.", request))
        except Exception:
            log.exception("request %s: a static file cannot be served", request.request_id)
            exchange.fail(self._error(500, "The file cannot be read; see the server's log.", request))

    def _find(self, path: str) -> tuple[Source, Library, Found]:
        names = names_of(path)
        for source, library in self._sources:
            if source.only is None or path in source.only:
                try:
                    return source, library, library.find(names)
                except Missing:
                    continue
        raise Missing

    @staticmethod
    def _small(request: Request, source: Source, found: Found, data: bytes) -> Response:
        """The response with a file that is in memory."""
        is_zipped = bool(
            found.zipped
            and "range" not in request.headers
            and conditions.accepts_gzip(request.headers.get("accept-encoding", ""))
        )
        tag = found.tag[:-1] + '-gzip"' if is_zipped else found.tag
        headers = _headers(source, found, tag)
        if conditions.is_unchanged(request.headers, tag, found.modified):
            return Response(304, b"", "", headers)
        content_type = media_type(found.names[-1])
        if is_zipped:
            return Response(200, found.zipped, content_type, (*headers, ("Content-Encoding", "gzip")))
        part = _part(request, found)
        if part is None:
            return Response(200, data, content_type, headers)
        headers = (*headers, _content_range(part, found))
        return Response(206, memoryview(data)[slice(*part)], content_type, headers)

    async def _send_large(
        self, exchange: Exchange, client: int, source: Source, library: Library, found: Found
    ) -> None:
        request = exchange.request
        headers = _headers(source, found, found.tag)
        if conditions.is_unchanged(request.headers, found.tag, found.modified):
            exchange.send(Response(304, b"", "", headers))
            return
        part = _part(request, found)
        if part is not None:
            headers = (*headers, _content_range(part, found))
        at, stop = part or (0, found.size)
        resumed = asyncio.Event()
        exchange.on_resume = resumed.set
        status = 200 if part is None else 206
        exchange.begin(status, media_type(found.names[-1]), headers, length=stop - at)
        while at < stop and request.method != "HEAD" and not exchange.closed:
            piece = await self._pool.run(client, partial(library.read, found, at, min(PIECE, stop - at)))
            at += len(piece)
            resumed.clear()
            exchange.write(piece)
            if exchange.paused:
                await resumed.wait()
        exchange.end()


def _drop(task: asyncio.Task[None]) -> None:
    task.cancel()


def _client(request: Request) -> int:
    host, _, port = request.peer.rpartition(":")
    return hash(address_of((host.strip("[]"), port) if host else None))


def _part(request: Request, found: Found) -> tuple[int, int] | None:
    """Ranges are defined for GET only. Raises Unsatisfiable."""
    if request.method != "GET":
        return None
    return conditions.wanted_range(request.headers, found.size, found.tag, found.modified, time.time())


def _content_range(part: tuple[int, int], found: Found) -> tuple[str, str]:
    return "Content-Range", f"bytes {part[0]}-{part[1] - 1}/{found.size}"


def _headers(source: Source, found: Found, tag: str) -> Headers:
    """Browsers ask each time whether what they keep is still right, so that an update is seen at once."""
    return (
        ("ETag", tag),
        ("Last-Modified", conditions.http_date(found.modified)),
        ("Cache-Control", "no-cache"),
        ("Accept-Ranges", "bytes"),
        ("X-Content-Type-Options", "nosniff"),
        *((("Vary", "Accept-Encoding"),) if is_compressible(found.names[-1]) else ()),
        *source.headers,
    )
