"""Makes tasks fit for another engine: their grammars are compiled there, and their embeddings are mapped there.

Runs on the event loop. Must not decide which tasks go on.
"""

from __future__ import annotations

import asyncio
from weakref import WeakValueDictionary

from llamad.client.control import Asking
from llamad.client.grammar import EngineGrammar
from llamad.client.media_embeddings import Lending
from llamad.client.task import Task
from llamad.grammar.grammar import GrammarError
from llamad.protocol.errors import EngineFault
from llamad.protocol.messages import FAILURE_ENGINE, FAILURE_LOST


class CannotRenew(Exception):
    """The engine cannot have what the task needs, which ends with this failure."""

    def __init__(self, reason: str, failure: int) -> None:
        super().__init__(reason)
        self.failure = failure


class RenewedGrammars:
    """The grammars of tasks in one engine. Tasks with equal grammars share one, as they did in the last engine."""

    def __init__(self, asking: Asking) -> None:
        self.asking = asking
        self._compiling: dict[str, asyncio.Task[EngineGrammar]] = {}
        self._compiled: WeakValueDictionary[str, EngineGrammar] = WeakValueDictionary()

    async def get(self, text: str, time_max_us: int) -> EngineGrammar:
        """Return the grammar, compiled now if no task has it. Raises GrammarError, EngineEnded, EngineFault."""
        grammar = self._compiled.get(text)
        if grammar is not None:
            return grammar
        compiling = self._compiling.get(text)
        if compiling is None:
            compiling = asyncio.ensure_future(self._compile(text, time_max_us))
            self._compiling[text] = compiling
        return await asyncio.shield(compiling)

    async def _compile(self, text: str, time_max_us: int) -> EngineGrammar:
        try:
            self._compiled[text] = grammar = await self.asking.compile(text, time_max_us)
            return grammar
        finally:
            del self._compiling[text]


def is_fit(task: Task, asking: Asking | None, lending: Lending | None) -> bool:
    """Return whether the task's grammar and embeddings are those of this engine."""
    return (task.grammar is None or task.grammar.asking is asking) and (
        task.rows is None or task.rows.lending is lending
    )


async def renew(task: Task, grammars: RenewedGrammars, lending: Lending) -> None:
    """Prepare the task for this engine. Raises CannotRenew, EngineEnded."""
    try:
        if task.grammar is not None and task.grammar.asking is not grammars.asking:
            task.grammar = await grammars.get(task.grammar.text, task.grammar.time_max_us)
    except (GrammarError, EngineFault) as error:
        raise CannotRenew(f"its grammar cannot be compiled again: {error}", FAILURE_ENGINE) from None
    try:
        if task.rows is not None and task.rows.lending is not lending:
            task.rows = await lending.lend(task.rows.packed, list(task.rows.blobs))
    except (EngineFault, MemoryError) as error:
        raise CannotRenew(f"its images or sound cannot be mapped again: {error}", FAILURE_LOST) from None
