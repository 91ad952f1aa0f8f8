"""Tasks between two engines: the next engine gets those of the last one, and goes on with them.

Runs on the event loop. Must not decide which tasks may go on (engine_client.py), or when there is another engine.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Protocol

import msgspec

from llamad.base.clock import clock_us
from llamad.client.command import Command
from llamad.client.control import Asking
from llamad.client.media_embeddings import Lending
from llamad.client.port import Port
from llamad.client.renewal import CannotRenew, RenewedGrammars, is_fit, renew
from llamad.client.running import Running
from llamad.client.task import Task
from llamad.protocol.errors import EngineEnded
from llamad.protocol.messages import FAILURE_DEADLINE, FAILURE_ENGINE
from llamad.tokenizer.vocab import Vocab

log = logging.getLogger("llamad.engine")


class TaskTable(Protocol):
    """The part of EngineClient that is needed here."""

    tasks: dict[int, Running]

    def send(self, command: Callable[[Port], bool], refused: Callable[[], None] | None = None) -> None: ...

    def fail(self, task_id: int, failure: int) -> None: ...


class Resumption:
    """The engine that tasks are sent to. `on_went_on` is called once for each engine that has continued a task of an
    earlier one."""

    def __init__(self, table: TaskTable, on_went_on: Callable[[], None] | None) -> None:
        self.n_resumed = 0  # how often a task that had run in one engine was sent to another
        self._table = table
        self._on_went_on = on_went_on
        self._vocab: Vocab | None = None
        self._asking: Asking | None = None
        self._lending: Lending | None = None
        self._grammars: RenewedGrammars | None = None
        self.resumed: set[int] = set()  # tasks of earlier engines that this one has sent no text of
        self._renewals: set[asyncio.Task[None]] = set()

    def connect(self, vocab: Vocab | None, asking: Asking, lending: Lending) -> None:
        """Send the tasks of the last engine to this one, the oldest first."""
        self._vocab, self._asking, self._lending = vocab, asking, lending
        self._grammars = RenewedGrammars(asking)
        for task_id in sorted(self._table.tasks):
            self.take_over(task_id)

    def disconnect(self, task_in_hand: int) -> None:
        """The engine has ended: all tasks are orphans. It was about to admit `task_in_hand`, if there is one."""
        self._asking = self._grammars = None
        self.resumed.clear()
        for task_id, running in self._table.tasks.items():
            running.lose_engine(task_id == task_in_hand)

    def is_stale(self, task: Task) -> bool:
        """Return whether the task was prepared for an engine that has ended, so that this engine cannot run it."""
        return task.vocab is not self._vocab or not is_fit(task, self._asking, self._lending)

    def watch_deadline(self, task_id: int, deadline_us: int) -> None:
        """Fail an orphan at its deadline; an engine watches over its own tasks."""

        def expire() -> None:
            running = self._table.tasks.get(task_id)
            if running is not None and not running.is_sent:
                self._table.fail(task_id, FAILURE_DEADLINE)

        delay = max(0.0, (deadline_us - clock_us()) / 1e6)
        asyncio.get_running_loop().call_later(delay, expire)

    def went_on(self, task_id: int) -> None:
        """Note that the engine has sent text of a task, or its end."""
        if task_id in self.resumed:
            self.resumed.clear()
            if self._on_went_on is not None:
                self._on_went_on()

    def take_over(self, task_id: int) -> None:
        """Send an orphan to the engine, as soon as its grammar and embeddings are there."""
        running = self._table.tasks.get(task_id)
        if running is None or running.is_sent or running.is_aborted or self._asking is None:
            return  # an aborted one ends in this iteration of the event loop, and the engine must not run it
        if running.task.vocab is not self._vocab:
            self._table.fail(task_id, FAILURE_ENGINE)
        elif is_fit(running.task, self._asking, self._lending):
            self._send_again(task_id, running)
        else:
            assert self._grammars is not None
            assert self._lending is not None
            running.is_preparing = True
            renewal = asyncio.ensure_future(self._renew(task_id, running, self._grammars, self._lending))
            self._renewals.add(renewal)
            renewal.add_done_callback(self._renewals.discard)

    async def _renew(
        self, task_id: int, running: Running, grammars: RenewedGrammars, lending: Lending
    ) -> None:
        failure = 0
        try:
            await renew(running.task, grammars, lending)
        except EngineEnded:
            return  # the next engine takes it over
        except CannotRenew as error:
            log.error("request %s cannot go on: %s", running.task.context.request_id, error)
            failure = error.failure
        except Exception:  # a bug must not keep its client waiting for ever
            log.exception("request %s cannot go on", running.task.context.request_id)
            failure = FAILURE_ENGINE
        if (
            self._table.tasks.get(task_id) is not running
            or running.is_aborted
            or self._grammars is not grammars
        ):
            return
        running.is_preparing = False
        if failure:
            self._table.fail(task_id, failure)
        else:
            self._send_again(task_id, running)

    def _send_again(self, task_id: int, running: Running) -> None:
        """Send an orphan to the engine. Those that ran before get a slot before those that did not."""
        task = running.task
        if running.was_admitted:
            context = msgspec.structs.replace(task.context, priority=task.context.priority + 1)
            task = msgspec.structs.replace(task, context=context)
            self.n_resumed += 1
            self.resumed.add(task_id)
        try:
            command = Command(task, running.history)
        except (ValueError, OverflowError) as error:
            log.error("request %s cannot go on: %s", task.context.request_id, error)
            self._table.fail(task_id, FAILURE_ENGINE)
            return
        running.is_sent = True
        running.t_submit = time.monotonic()  # no slot could get free while there was no engine
        self._table.send(
            lambda port: port.submit(task_id, command), lambda: self._table.fail(task_id, FAILURE_ENGINE)
        )
        if running.is_paused:
            self._table.send(lambda port: port.pause(task_id))
