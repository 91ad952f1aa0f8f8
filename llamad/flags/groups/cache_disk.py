"""The flags about the prompt cache on disk. Pure data; must not compute."""

from __future__ import annotations

from llamad.flags.groups.slots import TITLE
from llamad.flags.types.declaration import flag, flags_of
from llamad.flags.types.kinds import File, Size


class CacheDisk:
    """Settings about the prompt cache on disk, which all models of the daemon share."""

    cache_disk: str | None = flag(
        kind=File(),
        default=None,
        metavar="FOLDER",
        secret=True,
        help="Keep prompts of --cache-ram in this folder, too, so that conversations survive a restart of the daemon.",
    )
    cache_disk_bytes: int = flag(
        kind=Size(0, 2**50),
        default=32 * 1024**3,
        help="Maximum size of all files of --cache-disk; the prompts that are worth least are removed first. 0: no"
        " limit.",
    )


FLAGS = flags_of(CacheDisk, TITLE)
