"""Owns the asyncio side of the engine: submit, abort, and dispatch of events to each task's sink.

Runs on the event loop; starts the engine thread, which never holds the GIL in a step.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from llamad.base.clock import be_brief_here
from llamad.base.fair_count import share_of
from llamad.client.action import RESULT_ABORTED, RESULT_FAILED, Acted, Action
from llamad.client.port import Port
from llamad.client.step_trace import StepTrace
from llamad.client.task import FAILURE_ABORTED, FAILURE_MEMORY, Done, Sink, Task
from llamad.client.wakeup import Gathering
from llamad.protocol.blobs import Blob
from llamad.protocol.channel import Link

log = logging.getLogger("llamad.engine")

EVENT_ADMITTED, EVENT_TEXT, EVENT_DONE, EVENT_FAILED, EVENT_STEP, EVENT_ACTION, EVENT_PROMPT = range(1, 8)
RETRY_SECONDS = 0.005
STOP_SECONDS = 1.0


class Running:
    """A task on the event loop's side."""

    __slots__ = ("sink", "slot", "task")

    def __init__(self, sink: Sink, task: Task) -> None:
        self.sink = sink
        self.task = task  # keeps what the engine points to alive
        self.slot = -1  # until it is admitted


class EngineSide(Protocol):
    """The engine's end of the channel: what its thread runs, and what may be read meanwhile."""

    @property
    def link(self) -> Link: ...
    @property
    def n_ubatch(self) -> int: ...
    @property
    def is_failed(self) -> bool: ...
    def run(self) -> None: ...
    def stats(self) -> dict[str, int]: ...
    def slots(self) -> list[tuple[int, int, int, int]]: ...
    def n_idle(self) -> int: ...


class Engine:
    """All tasks in flight, by id. Ids increase, so the oldest is the smallest."""

    def __init__(
        self, side: EngineSide, *, n_slots: int, queue_max: int, trace: StepTrace | None = None
    ) -> None:
        self._side = side
        self._port = port = Port(side.link)
        self._gathering = Gathering(port.announce, port.wake, n_tokens_max=side.n_ubatch, n_tasks_max=n_slots)
        self.n_slots = n_slots
        self.queue_max = queue_max
        self.tasks: dict[int, Running] = {}
        self._actions: dict[int, tuple[asyncio.Future[Acted], Blob | None]] = {}
        self._left_behind: list[Blob | None] = []
        self._trace = trace
        self._steps: list[tuple[Any, ...]] = []  # for the trace, until their responses are written
        self._next_id = 1
        self._n_groups = 0
        self._backlog: deque[tuple[Callable[[], bool], Callable[[], None] | None]] = deque()
        self._thread = threading.Thread(target=side.run, name="llamad-engine", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        """Start the engine thread and listen to it."""
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._port.event_fd, self._on_events)
        self._thread.start()
        be_brief_here()

    async def stop(self) -> None:
        """Stop the engine thread, or leave it in a long step: the process is about to exit.
        Tasks still in flight are aborted."""
        if self._loop is None:
            return
        self._send(self._port.stop)
        t_end = time.monotonic() + STOP_SECONDS
        # Events are still taken meanwhile: the engine may be waiting for room in its ring.
        while self._thread.is_alive() and time.monotonic() < t_end:
            await asyncio.sleep(RETRY_SECONDS)
        if self._thread.is_alive():
            log.warning("the engine is in a long step; exiting without waiting for it")
        while self._on_events():
            pass
        self._on_written()
        self._loop.remove_reader(self._port.event_fd)
        self._loop = None
        for task_id in list(self.tasks):
            self.tasks.pop(task_id).sink.on_failed(FAILURE_ABORTED, 0)
        if self._thread.is_alive():
            # It may be writing to one of them right now.
            self._left_behind = [blob for _, blob in self._actions.values()]
        for action_id in list(self._actions):
            self._acted(action_id, Acted(RESULT_ABORTED, 0, 0, 0, 0))
        if self._trace is not None:
            self._trace.close()

    @property
    def is_alive(self) -> bool:
        """Whether the engine thread still runs."""
        return self._thread.is_alive()

    @property
    def is_failed(self) -> bool:
        """Whether the engine lost its context and could not create another."""
        return self._side.is_failed

    def stats(self) -> dict[str, int]:
        """Counters and times (µs), read without waiting for the engine."""
        n_wakes, wake_us, write_us = self._port.parts()
        return self._side.stats() | {"n_wakes": n_wakes, "wake_us": wake_us, "write_us": write_us}

    def slots(self) -> list[tuple[int, int, int, int]]:
        """(state, tokens held, tokens decoded, prompt tokens taken from the cache) of every slot."""
        return self._side.slots()

    def n_idle(self) -> int:
        """Slots without a task."""
        return self._side.n_idle()

    @property
    def n_running(self) -> int:
        return sum(running.slot >= 0 for running in self.tasks.values())

    @property
    def n_waiting(self) -> int:
        return len(self.tasks) - self.n_running

    def can_accept(self, n_tasks: int) -> bool:
        """Whether the queue has room for `n_tasks` more."""
        return len(self.tasks) + n_tasks <= self.n_slots + self.queue_max

    def has_share(self, client: int, n_tasks: int) -> bool:
        """Whether `n_tasks` more leave room in the queue for other clients."""
        n_own = sum(running.task.context.client == client for running in self.tasks.values())
        return n_own + n_tasks <= self.n_slots + share_of(self.queue_max)

    def new_group(self) -> int:
        """A number for tasks that share the prefill of one prompt."""
        self._n_groups += 1
        return self._n_groups

    def submit(self, task: Task, sink: Sink) -> int:
        """Submit a task to the engine; its events reach `sink` from the next iteration of the event loop on."""
        context, command = task.context, task.command()
        task_id = self._next_id
        self._next_id += 1
        # A busy engine polls for commands.
        loop = self._loop if self._gathering.is_open or not self.tasks else None
        if loop is not None:
            self._gathering.open(loop)
        self.tasks[task_id] = Running(sink, task)
        self._send(
            lambda: self._port.submit(
                task_id,
                command,
                task.prompt,
                request_id=context.request_id.encode("utf-8", "replace"),
                key_name=context.key_name.encode("utf-8", "replace"),
                owner=context.owner,
                client=context.client,
                deadline_us=context.deadline_us,
                wake=not self._gathering.is_open,
            ),
            lambda: self._refuse(task_id),
        )
        if loop is not None:
            self._gathering.add(len(task.prompt) // 4)
        return task_id

    def abort(self, task_id: int) -> None:
        """The client has disconnected. The sink still gets on_failed(FAILURE_ABORTED), or on_done if that is first."""
        if task_id in self.tasks:
            self._send(lambda: self._port.abort(task_id))

    def pause(self, task_id: int) -> None:
        """Back-pressure: the task keeps its slot but decodes nothing."""
        self._send(lambda: self._port.pause(task_id))

    def resume(self, task_id: int) -> None:
        self._send(lambda: self._port.resume(task_id))

    async def act(self, action: Action) -> Acted:
        """Run an action on a slot once it is idle. If cancelled, it is withdrawn unless it has started."""
        assert self._loop is not None
        action_id = self._next_id
        self._next_id += 1
        future: asyncio.Future[Acted] = self._loop.create_future()
        # Keeps the blob alive until the engine has answered, even after a cancellation.
        self._actions[action_id] = (future, action.blob)
        blob_id = action.blob.id if action.blob is not None else 0
        self._send(
            lambda: self._port.act(
                action_id,
                action.kind,
                action.slot,
                blob_id,
                nowait=action.nowait,
                owner=action.owner,
                n_tokens=action.n_tokens,
                n_keep=action.n_keep,
                n_discard=action.n_discard,
            ),
            lambda: self._acted(action_id, Acted(RESULT_FAILED, 0, 0, 0, 0)),
        )
        try:
            return await future
        except asyncio.CancelledError:
            self._send(lambda: self._port.abort(action_id))
            raise

    def _acted(self, action_id: int, acted: Acted) -> None:
        future, _ = self._actions.pop(action_id, (None, None))
        if future is not None and not future.done():
            future.set_result(acted)

    def _refuse(self, task_id: int) -> None:
        """The engine cannot accept this task."""
        running = self.tasks.pop(task_id, None)
        if running is not None:
            running.sink.on_failed(FAILURE_MEMORY, 0)

    def _send(self, command: Callable[[], bool], refused: Callable[[], None] | None = None) -> None:
        """Sends commands in order; those that do not fit the ring wait here."""
        self._backlog.append((command, refused))
        if len(self._backlog) == 1:
            self._retry()

    def _retry_later(self) -> None:
        if self._loop is not None:
            self._loop.call_later(RETRY_SECONDS, self._retry)

    def _retry(self) -> None:
        while self._backlog:
            command, refused = self._backlog[0]
            try:
                if not command():
                    self._retry_later()
                    return
            except Exception:
                # Drop it: at the head it would block all later commands.
                log.exception("cannot send a command to the engine")
                if refused is not None and self._loop is not None:
                    self._loop.call_soon(refused)
            self._backlog.popleft()

    def _on_events(self) -> int:
        """Dispatch the engine's events to their tasks. Returns their number."""
        n_events = self._take_events()
        if n_events and self._loop is not None:
            # Transports write at once or at the end of this iteration of the loop: a callback runs after both.
            self._loop.call_soon(self._on_written)
        return n_events

    def _take_events(self) -> int:
        tasks = self.tasks
        events = self._port.poll()
        for event in events:
            kind, task_id = event[0], event[1]
            if kind == EVENT_STEP:
                self._steps.append(event)
                continue
            if kind == EVENT_ACTION:
                self._acted(task_id, Acted(*event[2:]))
                continue
            running = tasks.get(task_id)
            if running is None:
                continue
            try:
                if kind == EVENT_TEXT:
                    running.sink.on_text(event[2])
                elif kind == EVENT_PROMPT:
                    running.sink.on_prompt(*event[2:])
                elif kind == EVENT_ADMITTED:
                    running.slot = event[2]
                    running.sink.on_admitted(*event[2:])
                elif kind == EVENT_DONE:
                    del tasks[task_id]
                    running.sink.on_done(Done(*event[2:]))
                elif kind == EVENT_FAILED:
                    del tasks[task_id]
                    running.sink.on_failed(event[2], event[3])
            except Exception:
                self._give_up(task_id, running)
        return len(events)

    def _give_up(self, task_id: int, running: Running) -> None:
        """A sink raised. A bug in one request must not lose the events of the others."""
        log.exception("request %s: writing the response failed", running.task.context.request_id)
        self.abort(task_id)
        try:
            running.sink.on_broken()
        except Exception:
            log.exception("request %s: cleaning up failed, too", running.task.context.request_id)

    def _on_written(self) -> None:
        """The last events' responses are written; the trace gets the time that took."""
        self._port.written()
        steps, self._steps = self._steps, []
        if not steps or self._trace is None:
            return
        try:
            self._trace.write(steps, self._port.parts())
        except OSError as error:
            # If the trace cannot be written, it stops; the requests go on.
            log.error("--step-trace stopped: %s", error)
            self._trace = None
