"""Downloads of models that a client asked for: each in a thread, with progress for GET /models/sse.

Used on the event loop. A download that ends awaits `ended`, which reads the catalogue again, and is told only then: a
client that reads the list because of the event finds the model there.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor

from llamad.flags.settings import ModelSettings
from llamad.models.fleet.model_events import ModelEvents
from llamad.models.hub.fetch import Fetch
from llamad.models.model_download import ModelDownload
from llamad.protocol.errors import LoadError

log = logging.getLogger("llamad.download")

PROGRESS_SECONDS = 0.2
# How many questions to a hub may be open at a time. They have threads of their own, because a hub may be slow, and
# loads must not wait for it.
CHECKS_MAX = 4


class Downloads:
    """The downloads that run, by the name of the model."""

    def __init__(self, events: ModelEvents) -> None:
        self.ended: Callable[[], Awaitable[None]] | None = None
        self._events = events
        self._checking = ThreadPoolExecutor(CHECKS_MAX, "llamad-hub")
        self._running: dict[str, tuple[ModelDownload, asyncio.Task[None]]] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._running

    def names(self) -> list[str]:
        return sorted(self._running)

    async def check(self, settings: ModelSettings) -> None:
        """Ask the hub whether it has a model. Raises HubError."""
        check = Fetch(settings, os.environ).check
        await asyncio.get_running_loop().run_in_executor(self._checking, check)

    def start(self, name: str, settings: ModelSettings) -> None:
        """Begin to download a model. What has arrived of an earlier try is used."""
        download = ModelDownload(settings)
        self._running[name] = (download, asyncio.ensure_future(self._run(name, download)))
        self._events.tell(name, "model_status", {"status": "downloading"})

    async def cancel(self, name: str) -> None:
        """End a download, and return when it has ended. What has arrived is kept."""
        download, task = self._running[name]
        download.cancel()
        await asyncio.wait([task])

    async def _run(self, name: str, download: ModelDownload) -> None:
        watching = asyncio.ensure_future(self._watch(name, download))
        failure = ""
        try:
            await download.run()
        except LoadError as error:
            failure = str(error)
            log.log(logging.INFO if download.is_cancelled else logging.ERROR, "%s: %s", name, error)
        else:
            log.info("%s is downloaded", name)
        finally:
            watching.cancel()
            if self.ended is not None:
                await self.ended()
            del self._running[name]
        if failure:
            self._events.tell(name, "download_failed", {"reason": failure})
        else:
            self._events.tell(name, "download_finished")

    async def _watch(self, name: str, download: ModelDownload) -> None:
        """Tell the progress until cancelled."""
        told = -1
        while True:
            meter = download.meter
            if meter is not None and meter.name and meter.done != told:
                told = meter.done
                self._events.tell(
                    name,
                    "download_progress",
                    {"progress": {meter.name: {"done": told, "total": meter.total}}},
                )
            await asyncio.sleep(PROGRESS_SECONDS)

    def close(self) -> None:
        for download, _ in self._running.values():
            download.cancel()
        self._checking.shutdown(wait=False, cancel_futures=True)
