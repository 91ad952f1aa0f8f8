"""Downloads one file: it continues an earlier download, checks the file, and moves it to its place when it is complete.

Any thread; blocks. If several processes need the same file, one downloads it, and the others wait.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import threading
from pathlib import Path

import msgspec

from llamad.base.model_file import MAGIC
from llamad.models.hub.client import Client, Response, broken_off, shown
from llamad.models.hub.errors import Cancelled, HubError
from llamad.models.hub.part_file import PartFile, read_etag
from llamad.models.hub.progress import Display, Meter, size_text
from llamad.models.hub.repository import refused

log = logging.getLogger("llamad.download")

# How many tries in a row may bring nothing, and the pause after the first one, which then doubles.
TRIES_MAX = 5
PAUSE_SECONDS = 1.0
LOCK_SECONDS = 0.2
SPARE_BYTES = 64 << 20  # bytes that stay free on the disk
OTHER_FOLDER = "LLAMA_CACHE names another folder for models"
_RANGE = re.compile(r"bytes (\d{1,19})-\d{1,19}/(\d{1,19}|\*)", re.ASCII)


class FileRequest(msgspec.Struct, frozen=True):
    """A file to download to `target`. With an `oid` its contents are checked. Without one, the host's ETag tells
    whether an existing file is still the same."""

    url: str
    target: Path
    name: str
    size: int | None = None
    oid: str = ""
    repo: str | None = None  # for messages


class Downloader:
    """Downloads files. Another thread sets `stop` to end a download, which then raises Cancelled."""

    def __init__(
        self,
        client: Client,
        meter: Meter,
        stop: threading.Event | None = None,
        pause_seconds: float = PAUSE_SECONDS,
    ) -> None:
        self._client = client
        self._meter = meter
        self._stop = stop or threading.Event()
        self._pause_seconds = pause_seconds
        self._display = Display(meter)

    def fetch(self, file: FileRequest, n_tries: int = TRIES_MAX) -> None:
        """Download the file; give up after `n_tries` in a row that bring nothing. Raises HubError."""
        self._meter.begin_file(file.name)
        is_logged = False

        def wait(size: int) -> None:
            nonlocal is_logged
            if not is_logged:
                is_logged = True
                log.info("another process downloads %s; waiting for it", file.name)
            self._show(size)
            self._wait(LOCK_SECONDS)

        part_file = None
        try:
            file.target.parent.mkdir(parents=True, exist_ok=True)
            part_file = PartFile.open(file.target, bool(file.oid), wait)
            if part_file is None:
                return
            try:
                self._try_often(file, part_file, n_tries)
            finally:
                part_file.close()
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                needed = None if file.size is None or part_file is None else file.size - part_file.size
                raise _disk_full(file, needed) from None
            raise HubError(f"{file.target}: {error.strerror}; {OTHER_FOLDER}") from None
        finally:
            self._display.clear()

    def pause(self, error: HubError, n_vain: int) -> None:
        """Pause before another try. If another try cannot help, raise the error."""
        if not error.is_outage:
            raise error
        pause = max(error.retry_seconds, self._pause_seconds * 2**n_vain)
        self._display.clear()
        log.warning("%s; trying again in %.3g s", error, pause)
        self._wait(pause)

    def _wait(self, seconds: float) -> None:
        if self._stop.wait(seconds):
            raise Cancelled

    def _show(self, size: int) -> None:
        self._meter.set_file(size)
        self._display.update()

    def _try_often(self, file: FileRequest, part_file: PartFile, n_tries: int) -> None:
        n_vain, best = 0, part_file.size
        is_last_chance = False  # an earlier download was continued, and its contents turned out to be wrong
        while True:
            size = part_file.size
            try:
                if self._try(file, part_file):
                    return
                if is_last_chance or not size:
                    raise HubError(
                        f"{shown(file.url)}: the file does not match its checksum; the file there, or the"
                        " connection to it, is broken"
                    )
                self._display.clear()
                log.warning(
                    "%s: the incomplete file is wrong; downloading it again from the start", file.name
                )
                is_last_chance = True
            except HubError as error:
                # Bytes that were dropped and arrive again are no progress.
                n_vain = 0 if part_file.size > best else n_vain + 1
                best = max(best, part_file.size)
                if n_vain >= n_tries:
                    raise
                self.pause(error, n_vain)

    def _try(self, file: FileRequest, part_file: PartFile) -> bool:
        """Make one request. Return False if the file is complete, but wrong."""
        if file.oid:
            part_file.expect(file.oid, file.size)
        if file.size is not None and part_file.size > file.size:
            part_file.restart(size=file.size)
        if not part_file.size or part_file.size != file.size:
            with self._client.open(file.url, self._headers(file, part_file)) as response:
                if not self._receive(file, part_file, response):
                    return True  # the existing file is still the same
                etag = response.etag
        else:
            etag = ""
        if not part_file.is_right():
            part_file.restart(size=file.size)
            return False
        part_file.finish("" if file.oid else etag)
        self._display.clear()
        log.info("downloaded %s (%s)", file.name, size_text(part_file.size))
        if not part_file.is_hashed:
            log.warning("%s could not be verified: its host gives no checksum", file.name)
        return True

    def _headers(self, file: FileRequest, part_file: PartFile) -> dict[str, str]:
        headers = {"Accept-Encoding": "identity"}
        if not file.oid:
            known = read_etag(file.target)
            if known and file.target.exists():
                headers["If-None-Match"] = known
            if part_file.etag and not part_file.etag.startswith("W/"):
                headers |= {"Range": f"bytes={part_file.size}-", "If-Range": part_file.etag}
        elif part_file.size:
            headers["Range"] = f"bytes={part_file.size}-"  # the checksum shows whether it fits
        return headers

    def _receive(self, file: FileRequest, part_file: PartFile, response: Response) -> bool:
        """Append the body to the file. Return False if the existing file is still the same."""
        outage = response.outage()
        if outage is not None:
            raise outage
        if not file.oid and file.target.exists() and _is_same(response, file.target):
            return False
        if response.status == 416 and part_file.size:
            part_file.restart(size=file.size)
            raise HubError(f"{shown(file.url)} has a shorter file than the part that is here", is_outage=True)
        if response.status not in (200, 206):
            raise refused(response.status, self._client, file.url, file.repo)
        response.check_plain()
        total = _total(file, part_file, response)
        data = self._begin(file, part_file, response, total)
        if not file.oid and response.linked_hash:
            part_file.expect(response.linked_hash, total)
        _check_room(file, total, part_file.size)
        if total is not None:
            self._meter.set_file_total(total)
        while data:
            part_file.append(data)
            if total is not None and part_file.size > total:
                part_file.restart(size=file.size)
                raise HubError(f"{shown(response.url)} sends more than it said ({total} bytes)")
            self._show(part_file.size)
            if self._stop.is_set():
                raise Cancelled
            data = response.read()
        if (total is not None and part_file.size < total) or not part_file.size:
            raise broken_off(response.url, None)
        return True

    def _begin(self, file: FileRequest, part_file: PartFile, response: Response, total: int | None) -> bytes:
        """Return the first bytes to append. If they do not continue the incomplete file, it is dropped, but not for the
        login page of a network."""
        data = response.read()
        if response.status == 206:
            return data
        while 0 < len(data) < len(MAGIC) and (more := response.read()):
            data += more
        if not data:
            raise broken_off(response.url, None)
        if not data.startswith(MAGIC):
            raise HubError(f"{shown(response.url)} is not a GGUF file; check the address")
        part_file.restart("" if file.oid else response.etag, file.size if file.size is not None else total)
        return data


def _total(file: FileRequest, part_file: PartFile, response: Response) -> int | None:
    """Return the size of the whole file to which a body belongs, or None if it is not known. Raises HubError if it is
    not the expected size."""
    length = response.number("Content-Length")
    total = length
    if response.status == 206:
        match = _RANGE.fullmatch(response.header("Content-Range"))
        if match is None or int(match[1]) != part_file.size:
            part_file.restart(size=file.size)
            raise HubError(f"{shown(response.url)} sends another range than was requested", is_outage=True)
        total = int(match[2]) if match[2] != "*" else (None if length is None else part_file.size + length)
    if file.size is not None and total is not None and total != file.size:
        raise HubError(
            f"{shown(response.url)} has {total} bytes where the hub lists {file.size}; try again later, or tell"
            " whoever runs it"
        )
    return total if total is not None else file.size


def _is_same(response: Response, target: Path) -> bool:
    """Return whether the existing file need not be downloaded. A file without a known ETag was put there by somebody
    else, and is left alone."""
    known = read_etag(target)
    return response.status == 304 or (response.status == 200 and (not known or response.etag in ("", known)))


def free_bytes(folder: Path) -> int:
    """Return the free bytes of the disk where the folder is or would be."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    there = os.statvfs(folder)
    return there.f_bavail * there.f_frsize


def _check_room(file: FileRequest, total: int | None, size: int) -> None:
    if total is not None and total - size > free_bytes(file.target.parent) - SPARE_BYTES:
        raise _disk_full(file, total - size)


def _disk_full(file: FileRequest, needed: int | None) -> HubError:
    folder = file.target.parent
    need = f"needs {size_text(needed)}, and " if needed is not None else "does not fit: "
    return HubError(
        f"{file.name} {need}{folder} has {size_text(free_bytes(folder))} free; make room (`llamad list`,"
        f" `llamad rm`), or set LLAMA_CACHE to a folder on another disk"
    )
