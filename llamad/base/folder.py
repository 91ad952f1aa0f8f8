"""Resolves paths that a client names inside a folder that the operator opened. Reads the file system; any thread."""

from __future__ import annotations

import os


def below(folder: str, path: str) -> str | None:
    """Return the real path of `path`, which is absolute or relative to the folder. Return None if dots or links lead
    out of the folder."""
    if "\0" in path:
        return None
    root = os.path.realpath(folder)
    resolved = os.path.realpath(os.path.join(root, path))
    return resolved if os.path.commonpath((root, resolved)) == root else None
