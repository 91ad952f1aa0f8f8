"""Reads file:// addresses: only files inside the folder that the operator opened with --media-path."""

from __future__ import annotations

import os
import stat
from urllib.parse import unquote

from llamad.base.folder import below
from llamad.media.sources.errors import SourceError

SCHEME = "file://"


def read(address: str, folder: str | None, bytes_max: int) -> bytes:
    """Return the file's bytes; its path is relative to the folder, or absolute and inside it. Raises SourceError.
    Blocks."""
    if folder is None:
        raise SourceError(
            "file:// is off; start the server with --media-path FOLDER to allow the files in it"
        )
    path = unquote(address.removeprefix(SCHEME))
    resolved = below(folder, path)
    if resolved is None:
        raise SourceError("file:// reads only files below --media-path")
    try:
        # The file may have been replaced since its path was resolved, so a link is not followed, and opening a pipe
        # does not wait.
        fd = os.open(resolved, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise SourceError(f"the file cannot be opened: {error.strerror}") from None
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise SourceError("it is not a regular file")
        with open(fd, "rb", closefd=False) as file:
            data = file.read(bytes_max + 1)
    finally:
        os.close(fd)
    if len(data) > bytes_max:
        raise SourceError(f"the file has more than {bytes_max} bytes (--media-max-bytes)")
    return data
