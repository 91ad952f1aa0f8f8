"""Owns the download of one file: continued where it broke off, checked, and in its place only when it is whole.

Any thread; blocks. Of several processes that want the same file one downloads it, and the others wait.
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
from llamad.models.hub.client import Answer, Client, broken_off, shown
from llamad.models.hub.errors import Cancelled, HubError
from llamad.models.hub.part_file import PartFile, read_etag
from llamad.models.hub.progress import Display, Meter, size_text
from llamad.models.hub.repository import refused

log = logging.getLogger("llamad.download")

# Tries in a row that bring nothing, and the pause after the first, which doubles.
TRIES_MAX = 5
PAUSE_SECONDS = 1.0
LOCK_SECONDS = 0.2
SPARE_BYTES = 64 << 20  # left free on the disk
OTHER_FOLDER = "LLAMA_CACHE names another folder for models"
_RANGE = re.compile(r"bytes (\d{1,19})-\d{1,19}/(\d{1,19}|\*)", re.ASCII)


class Wanted(msgspec.Struct, frozen=True):
    """A file to have at `target`. With an `oid` its contents are checked. Without one the host's ETag says whether a
    file that is there is still the same."""

    url: str
    target: Path
    name: str
    size: int | None = None
    oid: str = ""
    repo: str | None = None  # for messages


class Downloader:
    """`stop` ends a download from another thread, with Cancelled."""

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

    def fetch(self, wanted: Wanted, n_tries: int = TRIES_MAX) -> None:
        """`n_tries` in a row may bring nothing. Raises HubError."""
        self._meter.begin_file(wanted.name)
        is_told = False

        def wait(size: int) -> None:
            nonlocal is_told
            if not is_told:
                is_told = True
                log.info("another process downloads %s; waiting for it", wanted.name)
            self._show(size)
            self._wait(LOCK_SECONDS)

        part = None
        try:
            wanted.target.parent.mkdir(parents=True, exist_ok=True)
            part = PartFile.open(wanted.target, bool(wanted.oid), wait)
            if part is None:
                return
            try:
                self._try_often(wanted, part, n_tries)
            finally:
                part.close()
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                needed = None if wanted.size is None or part is None else wanted.size - part.size
                raise _disk_full(wanted, needed) from None
            raise HubError(f"{wanted.target}: {error.strerror}; {OTHER_FOLDER}") from None
        finally:
            self._display.clear()

    def pause(self, error: HubError, n_vain: int) -> None:
        """Before another try, where one may help; else raises the error."""
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

    def _try_often(self, wanted: Wanted, part: PartFile, n_tries: int) -> None:
        n_vain, best = 0, part.size
        is_last_chance = False  # what was continued turned out to be wrong
        while True:
            size = part.size
            try:
                if self._try(wanted, part):
                    return
                if is_last_chance or not size:
                    raise HubError(
                        f"{shown(wanted.url)}: what arrives is not what its checksum says; the file there, or the"
                        " way to it, is broken"
                    )
                self._display.clear()
                log.warning("%s: what was there of it is wrong; downloading it anew", wanted.name)
                is_last_chance = True
            except HubError as error:
                # What is dropped and comes again is no progress.
                n_vain = 0 if part.size > best else n_vain + 1
                best = max(best, part.size)
                if n_vain >= n_tries:
                    raise
                self.pause(error, n_vain)

    def _try(self, wanted: Wanted, part: PartFile) -> bool:
        """One request. False: all is there, and wrong."""
        if wanted.oid:
            part.expect(wanted.oid, wanted.size)
        if wanted.size is not None and part.size > wanted.size:
            part.restart(size=wanted.size)
        if not part.size or part.size != wanted.size:
            with self._client.open(wanted.url, self._headers(wanted, part)) as answer:
                if not self._receive(wanted, part, answer):
                    return True  # the file that is there is the same
                etag = answer.etag
        else:
            etag = ""
        if not part.is_right():
            part.restart(size=wanted.size)
            return False
        part.finish("" if wanted.oid else etag)
        self._display.clear()
        log.info("downloaded %s (%s)", wanted.name, size_text(part.size))
        if not part.is_hashed:
            log.warning("%s could not be verified: its host gives no checksum", wanted.name)
        return True

    def _headers(self, wanted: Wanted, part: PartFile) -> dict[str, str]:
        headers = {"Accept-Encoding": "identity"}
        if not wanted.oid:
            known = read_etag(wanted.target)
            if known and wanted.target.exists():
                headers["If-None-Match"] = known
            if part.etag and not part.etag.startswith("W/"):
                headers |= {"Range": f"bytes={part.size}-", "If-Range": part.etag}
        elif part.size:
            headers["Range"] = f"bytes={part.size}-"  # its checksum tells whether the host still has the same
        return headers

    def _receive(self, wanted: Wanted, part: PartFile, answer: Answer) -> bool:
        """Appends what comes. False: nothing is needed."""
        outage = answer.outage()
        if outage is not None:
            raise outage
        if not wanted.oid and wanted.target.exists() and _is_same(answer, wanted.target):
            return False
        if answer.status == 416 and part.size:
            part.restart(size=wanted.size)
            raise HubError(f"{shown(wanted.url)} has less than what is there", is_outage=True)
        if answer.status not in (200, 206):
            raise refused(answer.status, self._client, wanted.url, wanted.repo)
        answer.check_plain()
        total = _total(wanted, part, answer)
        data = self._begin(wanted, part, answer, total)
        if not wanted.oid and answer.linked_hash:
            part.expect(answer.linked_hash, total)
        _check_room(wanted, total, part.size)
        if total is not None:
            self._meter.set_file_total(total)
        while data:
            part.append(data)
            if total is not None and part.size > total:
                part.restart(size=wanted.size)
                raise HubError(f"{shown(answer.url)} sends more than it said ({total} bytes)")
            self._show(part.size)
            if self._stop.is_set():
                raise Cancelled
            data = answer.read()
        if (total is not None and part.size < total) or not part.size:
            raise broken_off(answer.url, None)
        return True

    def _begin(self, wanted: Wanted, part: PartFile, answer: Answer, total: int | None) -> bytes:
        """The first bytes to append. What is there is dropped if it is not continued, but not for the page that a
        network shows before it lets anyone through."""
        data = answer.read()
        if answer.status == 206:
            return data
        while 0 < len(data) < len(MAGIC) and (more := answer.read()):
            data += more
        if not data:
            raise broken_off(answer.url, None)
        if not data.startswith(MAGIC):
            raise HubError(f"{shown(answer.url)} is no GGUF file; check the address")
        part.restart("" if wanted.oid else answer.etag, wanted.size if wanted.size is not None else total)
        return data


def _total(wanted: Wanted, part: PartFile, answer: Answer) -> int | None:
    """The size of the file that a body is of, or a part of; None: not known. Raises HubError for another one."""
    length = answer.number("Content-Length")
    total = length
    if answer.status == 206:
        match = _RANGE.fullmatch(answer.header("Content-Range"))
        if match is None or int(match[1]) != part.size:
            part.restart(size=wanted.size)
            raise HubError(f"{shown(answer.url)} sends another range than was asked for", is_outage=True)
        total = int(match[2]) if match[2] != "*" else (None if length is None else part.size + length)
    if wanted.size is not None and total is not None and total != wanted.size:
        raise HubError(
            f"{shown(answer.url)} has {total} bytes where the hub lists {wanted.size}; try again later, or tell"
            " whoever runs it"
        )
    return total if total is not None else wanted.size


def _is_same(answer: Answer, target: Path) -> bool:
    """Whether the file that is there need not be downloaded. One without a known ETag was put there by somebody else,
    and is left alone."""
    known = read_etag(target)
    return answer.status == 304 or (answer.status == 200 and (not known or answer.etag in ("", known)))


def free_bytes(folder: Path) -> int:
    """Of the disk that the folder is on, or would be."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    there = os.statvfs(folder)
    return there.f_bavail * there.f_frsize


def _check_room(wanted: Wanted, total: int | None, size: int) -> None:
    if total is not None and total - size > free_bytes(wanted.target.parent) - SPARE_BYTES:
        raise _disk_full(wanted, total - size)


def _disk_full(wanted: Wanted, needed: int | None) -> HubError:
    folder = wanted.target.parent
    need = f"needs {size_text(needed)}, and " if needed is not None else "does not fit: "
    return HubError(
        f"{wanted.name} {need}{folder} has {size_text(free_bytes(folder))} free; make room (`llamad list`,"
        f" `llamad rm`), or set LLAMA_CACHE to a folder on another disk"
    )
