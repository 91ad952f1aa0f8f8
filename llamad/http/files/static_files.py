"""Responds to requests for static files: whole files, 304, ranges, compressed files, streams of large ones.

handle() runs on the event loop. Threads of its own read the disk, so that a slow disk delays nothing else. It must not
know which paths are endpoints.
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
from llamad.http.files.library import Changed, Library, StoredFile
from llamad.http.files.media_types import is_compressible, media_type
from llamad.http.request import Request, Response, address_of

log = logging.getLogger("llamad.http")

Headers = tuple[tuple[str, str], ...]

N_THREADS = 2
# A large file is read in pieces of this size, each after the client has taken the one before.
PIECE = 256 * 1024


class Source(msgspec.Struct, frozen=True):
    """A folder with files to serve, additional headers of its responses, and the paths that it serves (None: all)."""

    folder: Folder
    headers: Headers = ()
    only: frozenset[str] | None = None


class StaticFiles:
    """Serves each file from the first source that has it. `error` makes an error in the application's format."""

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
        """Redirect to the same path with a slash at its end. The location is relative, because a proxy may have removed
        a prefix of the path, and because an absolute path that begins with two slashes would name another host."""
        where = f"./{quote(request.path.rpartition('/')[2])}/"
        return Response(301, b"", "", (("Location", where),))

    async def _serve(self, exchange: Exchange) -> None:
        request = exchange.request
        client = _client(request)
        try:
            source, library, file = await self._pool.run(client, partial(self._find, request.path))
            if file.data is not None:
                exchange.send(self._small(request, source, file, file.data))
            else:
                await self._send_large(exchange, client, source, library, file)
        except Missing:
            exchange.send(self._error(404, "File Not Found", request))
        except IsFolder:
            exchange.send(self.to_folder(request))
        except conditions.Unsatisfiable as error:
            refused = self._error(416, f"The range begins after the file's {error.size} bytes.", request)
            refused.headers += (("Content-Range", f"bytes */{error.size}"),)
            exchange.send(refused)
        except Changed:
            exchange.fail(self._error(500, "The file changed while it was served; ask again.", request))
        except Exception:
            log.exception("request %s: a static file cannot be served", request.request_id)
            exchange.fail(self._error(500, "The file cannot be read; see the server's log.", request))

    def _find(self, path: str) -> tuple[Source, Library, StoredFile]:
        names = names_of(path)
        for source, library in self._sources:
            if source.only is None or path in source.only:
                try:
                    return source, library, library.find(names)
                except Missing:
                    continue
        raise Missing

    @staticmethod
    def _small(request: Request, source: Source, file: StoredFile, data: bytes) -> Response:
        """Return the response for a file that is in memory."""
        is_zipped = bool(
            file.zipped
            and "range" not in request.headers
            and conditions.accepts_gzip(request.headers.get("accept-encoding", ""))
        )
        tag = file.tag[:-1] + '-gzip"' if is_zipped else file.tag
        headers = _headers(source, file, tag)
        if conditions.is_unchanged(request.headers, tag, file.modified):
            return Response(304, b"", "", headers)
        content_type = media_type(file.names[-1])
        if is_zipped:
            return Response(200, file.zipped, content_type, (*headers, ("Content-Encoding", "gzip")))
        span = _span(request, file)
        if span is None:
            return Response(200, data, content_type, headers)
        headers = (*headers, _content_range(span, file))
        return Response(206, memoryview(data)[slice(*span)], content_type, headers)

    async def _send_large(
        self, exchange: Exchange, client: int, source: Source, library: Library, file: StoredFile
    ) -> None:
        request = exchange.request
        headers = _headers(source, file, file.tag)
        if conditions.is_unchanged(request.headers, file.tag, file.modified):
            exchange.send(Response(304, b"", "", headers))
            return
        span = _span(request, file)
        if span is not None:
            headers = (*headers, _content_range(span, file))
        at, stop = span or (0, file.size)
        resumed = asyncio.Event()
        exchange.on_resume = resumed.set
        status = 200 if span is None else 206
        exchange.begin(status, media_type(file.names[-1]), headers, length=stop - at)
        while at < stop and request.method != "HEAD" and not exchange.closed:
            piece = await self._pool.run(client, partial(library.read, file, at, min(PIECE, stop - at)))
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


def _span(request: Request, file: StoredFile) -> tuple[int, int] | None:
    """Return the range that the request asks for, or None. Ranges are defined for GET only. Raises Unsatisfiable."""
    if request.method != "GET":
        return None
    return conditions.wanted_range(request.headers, file.size, file.tag, file.modified, time.time())


def _content_range(span: tuple[int, int], file: StoredFile) -> tuple[str, str]:
    return "Content-Range", f"bytes {span[0]}-{span[1] - 1}/{file.size}"


def _headers(source: Source, file: StoredFile, tag: str) -> Headers:
    """Return the headers. With "no-cache" browsers check each time whether their copy is up to date, so that users see
    an update at once."""
    return (
        ("ETag", tag),
        ("Last-Modified", conditions.http_date(file.modified)),
        ("Cache-Control", "no-cache"),
        ("Accept-Ranges", "bytes"),
        ("X-Content-Type-Options", "nosniff"),
        *((("Vary", "Accept-Encoding"),) if is_compressible(file.names[-1]) else ()),
        *source.headers,
    )
