"""Makes a task fit for another engine: its grammar is compiled there, and its embeddings are mapped there.

Runs on the event loop. Must not decide which tasks go on.
"""

from __future__ import annotations

from llamad.client.control import Asking
from llamad.client.media_embeddings import Lending
from llamad.client.task import Task
from llamad.grammar.grammar import GrammarError
from llamad.protocol.errors import EngineFault


class CannotRenew(Exception):
    """The engine cannot have what the task needs."""


def is_fit(task: Task, asking: Asking | None, lending: Lending | None) -> bool:
    """Return whether the task's grammar and embeddings are those of this engine."""
    return (task.grammar is None or task.grammar.asking is asking) and (
        task.rows is None or task.rows.lending is lending
    )


async def renew(task: Task, asking: Asking, lending: Lending) -> None:
    """Prepare the task for this engine. Raises CannotRenew, EngineEnded."""
    try:
        if task.grammar is not None and task.grammar.asking is not asking:
            task.grammar = await asking.compile(task.grammar.text, task.grammar.time_max_us)
        if task.rows is not None and task.rows.lending is not lending:
            task.rows = await lending.lend(task.rows.packed, list(task.rows.blobs))
    except (GrammarError, EngineFault, MemoryError) as error:
        raise CannotRenew(str(error)) from None
