"""The first stage of a load: downloads the files that the flags name, in a thread, and reports the progress.

A ModelDownload is made and awaited on the event loop. The program does not wait for the thread when it exits; data that
has arrived is kept.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from llamad.base import model_file
from llamad.flags.settings import ModelSettings
from llamad.models.projector import ProjectorFileError, with_projector
from llamad.protocol.errors import LoadError

if TYPE_CHECKING:
    from llamad.models.hub.progress import Meter

log = logging.getLogger("llamad.download")


def with_files(
    settings: ModelSettings,
    environ: Mapping[str, str],
    *,
    meter: Meter | None = None,
    stop: threading.Event | None = None,
    is_offline: bool = False,
) -> ModelSettings:
    """Return the settings with the paths of the files that they name, and without the token, which is not needed any
    more. The files are downloaded unless `is_offline`. Raises LoadError. Blocks."""
    from llamad.models.hub.errors import (
        HubError,  # imported here, because the HTTP client takes long to import
    )
    from llamad.models.hub.fetch import Fetch

    try:
        files = Fetch(settings, environ, meter=meter, stop=stop, is_offline=is_offline).run()
        draft = settings.model_draft
        if settings.hf_repo_draft is not None:
            named = _draft_download(settings)
            draft = Fetch(named, environ, meter=meter, stop=stop, is_offline=is_offline).run().model
    except HubError as error:
        raise LoadError(str(error)) from None
    flags = {"--hf-repo": settings.hf_repo, "--model-url": settings.model_url, "-m": settings.model}
    reason = model_file.refusal(files.model, next(flag for flag, value in flags.items() if value is not None))
    if reason is not None:
        raise LoadError(reason)
    aliases = settings.aliases or ((settings.hf_repo,) if settings.hf_repo is not None else ())
    try:
        return with_projector(
            msgspec.structs.replace(
                settings,
                model=files.model,
                mmproj=files.projector,
                model_draft=draft,
                aliases=aliases,
                hf_token=None,
            )
        )
    except ProjectorFileError as error:
        raise LoadError(str(error)) from None


def _draft_download(settings: ModelSettings) -> ModelSettings:
    """Return the settings of a model that is downloaded as the draft model."""
    return msgspec.structs.replace(
        settings,
        hf_repo=settings.hf_repo_draft,
        hf_file=None,
        model_url=None,
        mmproj_url=None,
        mmproj_auto=False,
    )


class ModelDownload:
    """A download in a thread. `meter` is None until it has begun."""

    def __init__(self, settings: ModelSettings) -> None:
        self.meter: Meter | None = None
        self._settings = settings
        self._stop = threading.Event()

    async def run(self) -> ModelSettings:
        """Run with_files() in a thread and return its result. Raises LoadError."""
        from llamad.models.hub.progress import Meter

        loop = asyncio.get_running_loop()
        done: asyncio.Future[ModelSettings] = loop.create_future()
        self.meter = meter = Meter()

        def settle(result: ModelSettings | Exception) -> None:
            if done.done():
                return
            if isinstance(result, Exception):
                done.set_exception(result)
            else:
                done.set_result(result)

        def work() -> None:
            result: ModelSettings | Exception
            try:
                result = with_files(self._settings, os.environ, meter=meter, stop=self._stop)
            except LoadError as error:
                result = error
            except Exception as error:  # a bug must not leave the daemon loading for ever
                log.exception("downloading the model failed")
                result = LoadError(f"the model cannot be downloaded: {type(error).__name__}: {error}")
            try:
                loop.call_soon_threadsafe(settle, result)
            except RuntimeError:
                pass  # the loop is closed: the program exits

        threading.Thread(target=work, name="llamad-download", daemon=True).start()
        return await done

    def cancel(self) -> None:
        self._stop.set()

    @property
    def is_cancelled(self) -> bool:
        return self._stop.is_set()
