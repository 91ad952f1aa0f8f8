"""Finds files that a client names below a folder that the operator opened. Looks at the file system; any thread."""

from __future__ import annotations

import os


def below(folder: str, path: str) -> str | None:
    """The real path of what a relative path means in the folder, or an absolute one; None: it leads out of it, by
    dots or by links."""
    if "\0" in path:
        return None
    root = os.path.realpath(folder)
    found = os.path.realpath(os.path.join(root, path))
    return found if os.path.commonpath((root, found)) == root else None
