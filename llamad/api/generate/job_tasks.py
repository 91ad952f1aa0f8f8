"""The tasks of a job in the engine: submits, pauses and aborts them.

Runs on the event loop. Must not know what happens with their events.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from llamad.api.generate.task_maker import TaskMaker
from llamad.api.request.errors import bad, queue_full, share_full
from llamad.client.engine_client import EngineClient
from llamad.client.task import Sink, Task, WatchingSink


class TaskSink(Sink, Protocol):
    """Receives the events of a task; `task_id` is 0 while it has none."""

    index: int
    task_id: int


S = TypeVar("S", bound=TaskSink)


class JobTasks:
    __slots__ = ("_engine", "_sinks", "_t_paused", "_watching", "is_paused")

    def __init__(self, engine: EngineClient) -> None:
        self._engine = engine
        self._sinks: Sequence[TaskSink] = ()
        self._watching: list[WatchingSink] = []
        self.is_paused = False
        self._t_paused = 0.0

    def check_room(self, client: int, n_tasks: int) -> None:
        """Raise ApiError unless the engine has room for `n_tasks` tasks of this client."""
        engine = self._engine
        if n_tasks > engine.n_slots + engine.queue_max:
            raise bad(
                f"{n_tasks} completions do not fit the queue;"
                ' send fewer prompts or a smaller "n", or start llamad with a larger --queue-max'
            )
        if not engine.can_accept(n_tasks):
            raise queue_full()
        if not engine.has_share(client, n_tasks):
            raise share_full()

    def submit(
        self, sinks: Sequence[S], maker: TaskMaker, watch: Callable[[S, Task], WatchingSink] | None
    ) -> None:
        """Submit a task for each sink. `watch`, if given, makes a sink that stands between a task and its sink."""
        self._sinks = sinks
        for sink in sinks:
            task = maker.make(sink.index, self._engine)
            if watch is not None:
                self._watching.append(watch(sink, task))
            sink.task_id = self._engine.submit(task, sink if watch is None else self._watching[-1])

    def forget(self) -> None:
        """Drop the references to the sinks, which refer to the job."""
        self._sinks, self._watching = (), []

    def end_thinking(self) -> None:
        """End the reasoning now, if there is any."""
        for one in self._watching:
            one.end_thinking()

    def abort(self) -> None:
        for task_id in self._running():
            self._engine.abort(task_id)

    def pause(self) -> None:
        self.is_paused = True
        self._t_paused = time.monotonic()
        for task_id in self._running():
            self._engine.pause(task_id)

    def resume(self) -> None:
        self.is_paused = False
        for task_id in self._running():
            self._engine.resume(task_id)

    def is_stalled(self, now: float, seconds: float) -> bool:
        """Whether the tasks have been paused for this many seconds while others wait for a slot; 0: there is no
        limit."""
        if not self.is_paused or not 0 < seconds <= now - self._t_paused:
            return False
        return self._engine.n_queued(now) > self.n_queued(now)

    def n_queued(self, t_before: float) -> int:
        """Return how many of the tasks have waited for their first slot since `t_before`."""
        running = (self._engine.tasks.get(sink.task_id) for sink in self._sinks)
        return sum(one is not None and one.is_queued(t_before) for one in running)

    def _running(self) -> list[int]:
        return [sink.task_id for sink in self._sinks if sink.task_id]
