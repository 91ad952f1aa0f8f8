"""Chooses the files of the page at `/`: the package's own, or the folder of --path. Built once at start-up."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from llamad.flags.settings import DaemonSettings
from llamad.http.files.folder import Folder, refusal
from llamad.http.files.static_files import Source, StaticFiles
from llamad.http.request import Request, Response

log = logging.getLogger("llamad.api")

PAGE = Path(__file__).parents[2] / "page"
# The page shows what a model writes, and this must stay text: no inline script runs, and nothing is loaded from or sent
# to another host. The policy does not apply to a folder of --path.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; media-src 'self' data: blob:;"
    " connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = (("Content-Security-Policy", POLICY), ("Referrer-Policy", "no-referrer"))
# Other pages import this file, so it is served even if the folder of --path does not have it.
CLIENT = frozenset({"/completion.js"})


def page_files(
    settings: DaemonSettings, error: Callable[[int, str, Request | None], Response]
) -> StaticFiles | None:
    """Return the files to serve, or None with --no-ui. Raises ValueError if --path is not a folder."""
    if not settings.ui:
        if settings.static_path is not None:
            log.warning("--path has no effect: --no-ui turns all files off")
        return None
    page = Folder(str(PAGE))
    if settings.static_path is None:
        return StaticFiles([Source(page, HEADERS)], error)
    reason = refusal(settings.static_path)
    if reason is not None:
        raise ValueError(f"--path {reason}")
    return StaticFiles([Source(Folder(settings.static_path)), Source(page, HEADERS, CLIENT)], error)
