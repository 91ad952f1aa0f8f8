"""The vocabulary, which the front reads from the model's file and keeps for the next engines.

Made and awaited on the event loop; a thread reads the file.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from llamad.flags.settings import ModelSettings
from llamad.protocol.errors import LoadError
from llamad.tokenizer.vocab import Vocab
from llamad.tokenizer.vocab_file import FileId, VocabError, VocabFile, file_id


class KeptVocab:
    def __init__(self) -> None:
        self._kept: tuple[FileId, Vocab] | None = None

    @property
    def is_there(self) -> bool:
        return self._kept is not None

    @property
    def vocab(self) -> Vocab:
        assert self._kept is not None
        return self._kept[1]

    async def read(self, settings: ModelSettings) -> None:
        """Read the vocabulary if there is none yet, or if the file was replaced. llama.cpp aborts on an invalid
        vocabulary, so the engine must have checked it before. Raises LoadError."""
        try:
            self._kept = await asyncio.get_running_loop().run_in_executor(None, self._read, settings)
        except VocabError as error:
            raise LoadError(str(error)) from None

    async def try_read(self, settings: ModelSettings) -> None:
        """Read the vocabulary ahead. If it cannot be read, nothing is raised: the engine is about to say why it cannot
        load the model, and its reason is the better one."""
        with suppress(LoadError):
            await self.read(settings)

    def _read(self, settings: ModelSettings) -> tuple[FileId, Vocab]:
        kept, now = self._kept, file_id(settings.model)
        if kept is not None and kept[0] == now:
            return kept
        file = VocabFile(settings.model, settings.override_kv, api_only=settings.llama_api_only)
        return now, file.vocab(special=settings.special)
