"""The files of prompts in the folder: adds new ones to the index, and knows those that are ignored.

refresh() and clear() block and run on the writer's thread; ignore() runs on any thread. Must not remove files.
"""

from __future__ import annotations

from llamad.models.cache_disk.faults import is_of_file, log_ignored, reason_of
from llamad.models.cache_disk.folder import Folder, entry_names
from llamad.models.cache_disk.index import Index, stored
from llamad.models.cache_disk.row_file import EntryBroken, RowFile


class RowFiles:
    def __init__(self, folder: Folder, index: Index) -> None:
        self._folder = folder
        self._index = index
        self._ignored: set[str] = set()  # files that cannot be read, and broken ones that cannot be removed

    def clear(self) -> None:
        """Forget all files, because there is another folder now."""
        for name in self._index.names():
            self._index.remove(name)
        self._ignored.clear()

    def ignore(self, name: str) -> None:
        """Leave this file alone as long as it is there."""
        self._ignored.add(name)

    def refresh(self, folder: int) -> list[tuple[str, str]]:
        """Bring the index up to date with the folder. Return the names of broken files, and what is wrong with each. A
        file that cannot be read is ignored. Raises OSError."""
        names = set(entry_names(folder))
        self._ignored &= names
        for name in self._index.names() - names:
            self._index.remove(name)
        broken, unreadable = [], []
        for name in names - self._index.names() - self._ignored:
            try:
                self._load(folder, name)
            except FileNotFoundError:
                continue
            except EntryBroken as error:
                broken.append((name, str(error)))
            except OSError as error:
                if not is_of_file(error):
                    raise
                unreadable.append((name, reason_of(error)))
        if unreadable:
            entry_names(folder)  # raises if it is the folder that cannot be read
            self._ignored.update(name for name, _ in unreadable)
            log_ignored(unreadable)
        return broken

    def _load(self, folder: int, name: str) -> None:
        """Add a file to the index. Raises OSError, EntryBroken."""
        with RowFile(folder, name) as file:
            if file.description.salt_id != self._folder.salt_id:
                raise EntryBroken("the folder's salt has changed since")
            self._index.add(stored(file.description, file.size, file.used))
