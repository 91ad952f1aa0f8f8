"""The front's side of an engine: submits and aborts tasks, and dispatches events to each task's sink.

Runs on the event loop. The engine may end at any moment, and another may take its place: then tasks in flight go on
there (if `resume_max` allows it), actions in flight fail, and the counters continue from their last values.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable

from llamad.base.clock import be_brief_here
from llamad.base.fair_count import share_of
from llamad.client.command import Command
from llamad.client.control import Asking
from llamad.client.events import Acted, Done, SlotCounts, Step
from llamad.client.grammar import EngineGrammar
from llamad.client.media_embeddings import Lending, MediaEmbeddings
from llamad.client.port import ChannelBroken, Port
from llamad.client.resumption import Resumption
from llamad.client.running import Running
from llamad.client.step_trace import StepTrace
from llamad.client.task import ENGINE_ABSENT, Action, Ended, Sink, Task
from llamad.client.wakeup import Gathering
from llamad.protocol.blobs import Blob
from llamad.protocol.channel import Link
from llamad.protocol.errors import EngineEnded
from llamad.protocol.messages import (
    ACTION_INSERT,
    ACTION_RESTORE,
    EVENT_ACTION,
    EVENT_ADMITTED,
    EVENT_DONE,
    EVENT_FAILED,
    EVENT_PROGRESS,
    EVENT_PROMPT,
    EVENT_STEP,
    EVENT_TEXT,
    FAILURE_ABORTED,
    FAILURE_ENGINE,
    FAILURE_MEMORY,
    RESULT_DONE,
    RESULT_ENGINE,
    RESULT_FAILED,
)
from llamad.tokenizer.vocab import Vocab

log = logging.getLogger("llamad.engine")

RETRY_SECONDS = 0.005
# Fields of stats() that describe the current engine. All others are sums over all engines since the start.
GAUGES = frozenset(
    [
        "t_last_step_us",
        "n_waiting",
        "turn_us_max",
        "state_us_max",
        "cache_entries",
        "cache_bytes",
        "cache_buffer",
        "cache_us_max",
        "device_bytes",
        "checkpoints",
        "checkpoint_bytes",
        "checkpoint_us_max",
    ]
)
MAXIMA = frozenset(["n_tokens_max"])  # fields of stats() that are maxima over all engines
NO_COUNTS = SlotCounts()


def _ended(task: Task, done: Done) -> Ended:
    word = task.stops[done.stop_word] if done.stop_word >= 0 else b""
    return Ended(task.context.owner, done.stop_type, word)


class EngineClient:
    """All tasks in flight, by id. Ids increase, so the oldest task has the smallest id. `on_broken` is called with the
    reason when the engine must be ended, and `on_went_on` when a task has got new text in another engine than before.
    A task goes on after `resume_max` engines that ended while they ran it, at most."""

    def __init__(
        self,
        *,
        n_slots: int,
        queue_max: int,
        trace: StepTrace | None = None,
        on_broken: Callable[[str], None] | None = None,
        on_went_on: Callable[[], None] | None = None,
        resume_max: int = 0,
    ) -> None:
        self.n_slots = n_slots
        self.queue_max = queue_max
        self.resume_max = resume_max
        self.tasks: dict[int, Running] = {}
        self.resumption = Resumption(self, on_went_on)
        self.ended: dict[int, Ended] = {}  # by slot; removed when the slot gets its next task
        self._on_broken = on_broken
        self._port: Port | None = None  # None while no engine is connected
        self._asking: Asking | None = None
        self._lending: Lending | None = None
        self._gathering: Gathering | None = None
        self._actions: dict[int, tuple[asyncio.Future[Acted], Action]] = {}
        self._trace = trace
        self._steps: list[Step] = []  # for the trace, until their responses are written
        self._next_id = 1
        self._n_groups = 0
        self._backlog: deque[tuple[Callable[[Port], bool], Callable[[], None] | None]] = deque()
        self._before: dict[str, int] = {}  # counters of engines that have ended
        self._loop: asyncio.AbstractEventLoop | None = None

    def connect(self, link: Link, asking: Asking, vocab: Vocab | None = None) -> None:
        """Use this engine from now on; `vocab` is its vocabulary."""
        assert self._port is None
        self._loop = asyncio.get_running_loop()
        self._port = port = Port(link)
        self._asking = asking
        self._lending = Lending(asking)
        self._gathering = Gathering(
            port.announce, port.wake, n_tokens_max=port.n_ubatch, n_tasks_max=self.n_slots
        )
        self._loop.add_reader(port.event_fd, self._on_events)
        be_brief_here()
        self.resumption.connect(vocab, asking, self._lending)

    def disconnect(self, failure: int | None = None, result: int = RESULT_ENGINE) -> None:
        """The engine has ended, if there was one: handle its last events, then fail its actions. With `failure`, all
        tasks fail; without it, those that cannot go on in another engine fail."""
        if not self._detach(result) and failure is None:
            return
        for task_id, running in list(self.tasks.items()):
            if failure is not None:
                self.fail(task_id, failure)
            elif running.is_aborted:
                self.fail(task_id, FAILURE_ABORTED)
            elif not self.resume_max or not running.can_go_on(self.resume_max):
                self.fail(task_id, FAILURE_ENGINE)
            elif running.task.context.deadline_us:
                self.resumption.watch_deadline(task_id, running.task.context.deadline_us)
        if failure is None and self.tasks:
            log.info("%d requests go on in the next engine", len(self.tasks))

    def fail_orphans(self, failure: int = FAILURE_ENGINE) -> None:
        """Fail the tasks that wait for another engine, because none comes. Those that a connected engine prepares go
        on."""
        if self._port is not None:
            return
        for task_id, running in list(self.tasks.items()):
            if not running.is_sent:
                self.fail(task_id, failure)

    def _detach(self, result: int) -> bool:
        """Forget the engine; its tasks are orphans then, and its actions have failed. Return False if there is none."""
        port = self._port
        if port is None or self._loop is None:
            return False
        while self._on_events():
            pass
        self._on_written()
        self._loop.remove_reader(port.event_fd)
        task_in_hand = port.task_in_hand()
        self._before = self.stats()
        self.ended.clear()
        self._port = self._asking = self._gathering = None
        self._backlog.clear()
        self.resumption.disconnect(task_in_hand)
        for action_id in list(self._actions):
            self._acted(action_id, Acted(result))
        return True

    def fail(self, task_id: int, failure: int) -> None:
        """Fail a task that no engine has."""
        running = self.tasks.pop(task_id, None)
        if running is None:
            return
        try:
            running.sink.on_failed(failure, 0)
        except Exception:
            self._give_up(task_id, running)

    def stop(self) -> None:
        """Ask the engine to fail its tasks and to end."""
        self.send(Port.stop)

    def close(self) -> None:
        if self._trace is not None:
            self._trace.close()

    @property
    def is_connected(self) -> bool:
        return self._port is not None

    @property
    def is_idle(self) -> bool:
        """Whether no task, action or command is in flight."""
        return not (self.tasks or self._actions or self._backlog)

    def stats(self) -> dict[str, int]:
        """Return counters and times (µs) without waiting for the engine."""
        port = self._port
        if port is None:
            gone = (GAUGES - {"t_last_step_us"}) & self._before.keys()  # the last step stays the last one
            return self._before | dict.fromkeys(gone, 0)
        stats = port.stats() | port.wakes()
        for name, before in self._before.items():
            if name in MAXIMA:
                stats[name] = max(stats[name], before)
            elif name not in GAUGES:
                stats[name] = stats.get(name, 0) + before
        return stats

    def slots(self) -> list[SlotCounts]:
        return self._port.slots() if self._port is not None else [NO_COUNTS] * self.n_slots

    def n_decoded(self, task_id: int) -> int:
        """Return the number of tokens that a task has generated; 0 while it waits, and after its end."""
        running = self.tasks.get(task_id)
        return self.slots()[running.slot].n_decoded if running is not None and running.slot >= 0 else 0

    def n_idle(self) -> int:
        """Return the number of slots without a task."""
        return self._port.n_idle() if self._port is not None else 0

    def silent_seconds(self) -> float:
        """Return for how long the engine has made no progress although it has work."""
        return self._port.silent_us() / 1e6 if self._port is not None else 0.0

    @property
    def n_ubatch(self) -> int:
        """The number of tokens that the engine computes at once; 0 while there is no engine."""
        return self._port.n_ubatch if self._port is not None else 0

    @property
    def n_running(self) -> int:
        return sum(running.slot >= 0 for running in self.tasks.values())

    @property
    def n_waiting(self) -> int:
        return sum(running.slot < 0 and running.is_sent for running in self.tasks.values())

    def n_queued(self, t_before: float) -> int:
        """Return the number of tasks that have waited for their first slot since this time."""
        return sum(running.is_queued(t_before) for running in self.tasks.values())

    def can_accept(self, n_tasks: int) -> bool:
        """Return whether the queue has room for `n_tasks` more."""
        return len(self.tasks) + n_tasks <= self.n_slots + self.queue_max

    def has_share(self, client: int, n_tasks: int) -> bool:
        """Return whether `n_tasks` more tasks of this client leave room in the queue for other clients."""
        n_max = self.n_slots + share_of(self.queue_max)
        if len(self.tasks) + n_tasks <= n_max:  # even if all of them were this client's
            return True
        n_own = sum(running.task.context.client == client for running in self.tasks.values())
        return n_own + n_tasks <= n_max

    def new_group(self) -> int:
        """Return a new number for tasks that share the prefill of one prompt."""
        self._n_groups += 1
        return self._n_groups

    def submit(self, task: Task, sink: Sink, *, goes_on: bool = False) -> int:
        """Submit a task to the engine; its events reach `sink` from the next iteration of the event loop on. With
        `goes_on` it continues a request, and waits for another engine if there is none."""
        command = Command(task)
        task_id = self._next_id
        self._next_id += 1
        self.tasks[task_id] = Running(sink, task)
        gathering, loop = self._gathering, self._loop
        if goes_on and self.resume_max and (gathering is None or self.resumption.is_stale(task)):
            self.tasks[task_id].is_sent = False
            if task.context.deadline_us:
                self.resumption.watch_deadline(task_id, task.context.deadline_us)
            if gathering is not None:
                asyncio.get_running_loop().call_soon(self.resumption.take_over, task_id)
            return task_id
        if gathering is None or loop is None or self.resumption.is_stale(task):
            asyncio.get_running_loop().call_soon(self._refuse, task_id, FAILURE_ENGINE, ENGINE_ABSENT)
            return task_id
        # A busy engine polls for commands.
        is_gathering = gathering.is_open or len(self.tasks) == 1
        if is_gathering:
            gathering.open(loop)
        self.send(
            lambda port: port.submit(task_id, command, wake=not gathering.is_open),
            lambda: self._refuse(task_id, FAILURE_MEMORY, 0),
        )
        if is_gathering:
            gathering.add(len(task.prompt) // 4)
        return task_id

    def abort(self, task_id: int) -> None:
        """Abort a task. Its sink still gets on_failed(FAILURE_ABORTED), or on_done if the task ends before that."""
        running = self.tasks.get(task_id)
        if running is None:
            return
        running.is_aborted = True
        if running.is_sent:
            self.send(lambda port: port.abort(task_id))
        else:
            asyncio.get_running_loop().call_soon(self._refuse, task_id, FAILURE_ABORTED, 0)

    def pause(self, task_id: int) -> None:
        """Pause a task for back-pressure: it keeps its slot but decodes nothing."""
        running = self.tasks.get(task_id)
        if running is not None:
            running.is_paused = True
            self.send(lambda port: port.pause(task_id))

    def resume(self, task_id: int) -> None:
        running = self.tasks.get(task_id)
        if running is not None:
            running.is_paused = False
            self.send(lambda port: port.resume(task_id))

    def forget(self, adapter: int) -> None:
        """Tell the engine to close an adapter that no task uses or will use."""
        self.send(lambda port: port.forget(adapter))

    async def lend_rows(self, packed: bytes, blobs: list[Blob]) -> MediaEmbeddings:
        """Map the embeddings of a prompt in the engine, for a later task. Raises MemoryError, EngineEnded."""
        if self._lending is None:
            raise EngineEnded
        return await self._lending.lend(packed, blobs)

    async def act(self, action: Action) -> Acted:
        """Run an action on a slot once it is idle. If cancelled, it is withdrawn unless it has started."""
        asking = self._asking
        if asking is None or self._loop is None:
            return Acted(RESULT_ENGINE)
        if action.blob is not None:
            try:
                if not await asking.lend(action.blob):
                    raise MemoryError
            except EngineEnded:
                pass
            if self._asking is not asking:
                return Acted(RESULT_ENGINE)
        action_id = self._next_id
        self._next_id += 1
        future: asyncio.Future[Acted] = self._loop.create_future()
        # Keeps the blob alive until the engine has answered, even after a cancellation.
        self._actions[action_id] = (future, action)
        self.send(
            lambda port: port.act(action_id, action),
            lambda: self._acted(action_id, Acted(RESULT_FAILED)),
        )
        try:
            return await future
        except asyncio.CancelledError:
            self.send(lambda port: port.abort(action_id))
            raise

    def _acted(self, action_id: int, acted: Acted) -> None:
        """Deliver the result of an action. Raises ValueError if the engine reports more bytes than the blob holds."""
        future, action = self._actions.get(action_id, (None, None))
        if future is None or action is None:
            return
        if (
            action.blob is not None
            and acted.result == RESULT_DONE
            and action.kind not in (ACTION_RESTORE, ACTION_INSERT)
        ):
            action.blob.size = acted.n_bytes
        del self._actions[action_id]
        if action.blob is not None and self._asking is not None:
            self._asking.give_back(action.blob)
        if not future.done():
            future.set_result(acted)

    async def compile(self, text: str, time_max_us: int) -> EngineGrammar:
        """Compile a grammar for tasks. Raises GrammarError, EngineEnded."""
        if self._asking is None:
            raise EngineEnded
        return await self._asking.compile(text, time_max_us)

    def _refuse(self, task_id: int, failure: int, code: int) -> None:
        """Fail a task that cannot be sent to the engine."""
        running = self.tasks.pop(task_id, None)
        if running is not None:
            running.sink.on_failed(failure, code)

    def send(self, command: Callable[[Port], bool], refused: Callable[[], None] | None = None) -> None:
        """Send commands in order; commands that do not fit into the ring wait in the backlog."""
        if self._port is None:
            return  # disconnect() has failed everything that waited
        self._backlog.append((command, refused))
        if len(self._backlog) == 1:
            self._retry()

    def _retry_later(self) -> None:
        if self._loop is not None:
            self._loop.call_later(RETRY_SECONDS, self._retry)

    def _retry(self) -> None:
        while self._backlog and self._port is not None:
            command, refused = self._backlog[0]
            try:
                if not command(self._port):
                    self._retry_later()
                    return
            except Exception:
                # Drop the command, because it would block all later ones.
                log.exception("cannot send a command to the engine")
                if refused is not None and self._loop is not None:
                    self._loop.call_soon(refused)
            self._backlog.popleft()

    def _on_events(self) -> int:
        """Dispatch the engine's events to their tasks. Return the number of events."""
        n_events = self._take_events()
        if n_events:
            self._on_written()  # transports write at once, unless a client reads too slowly
        return n_events

    def _take_events(self) -> int:
        tasks, port = self.tasks, self._port
        if port is None:
            return 0
        try:
            events = port.poll()
        except ChannelBroken as error:
            self._break(port, str(error))
            return 0
        resumed = self.resumption.resumed
        for kind, task_id, event in events:
            if kind == EVENT_STEP:
                self._steps.append(event)
                continue
            if kind == EVENT_ACTION:
                try:
                    self._acted(task_id, event)
                except ValueError as error:
                    self._break(port, f"the result of an action: {error}")
                    return 0
                continue
            running = tasks.get(task_id)
            if running is None:
                continue
            try:
                if kind == EVENT_TEXT:
                    if resumed:
                        self.resumption.went_on(task_id)
                    running.history.add(event)
                    running.sink.on_text(event)
                elif kind == EVENT_PROMPT:
                    running.on_prompt(event)
                elif kind == EVENT_PROGRESS:
                    running.on_progress(event)
                elif kind == EVENT_ADMITTED:
                    self.ended.pop(event.slot, None)
                    running.on_admitted(event)
                elif kind == EVENT_DONE:
                    self.resumption.went_on(task_id)
                    del tasks[task_id]
                    self.ended[event.slot] = _ended(running.task, event)
                    running.sink.on_done(event)
                elif kind == EVENT_FAILED:
                    if event.failure == FAILURE_ENGINE and self.resume_max:
                        continue  # the engine is about to end, and disconnect() decides
                    del tasks[task_id]
                    running.sink.on_failed(event.failure, event.code)
            except Exception:
                self._give_up(task_id, running)
        return len(events)

    def _break(self, port: Port, what: str) -> None:
        """The engine wrote invalid data: stop reading from it, and have it ended."""
        log.error("the engine wrote invalid data: %s", what)
        assert self._loop is not None
        self._loop.remove_reader(port.event_fd)
        if self._on_broken is not None:
            self._on_broken(f"it wrote {what}")

    def _give_up(self, task_id: int, running: Running) -> None:
        """Abort a task whose sink raised an exception. The events of other tasks are still dispatched."""
        log.exception("request %s: writing the response failed", running.task.context.request_id)
        self.abort(task_id)
        try:
            running.sink.on_broken()
        except Exception:
            log.exception("request %s: cleaning up failed, too", running.task.context.request_id)

    def _on_written(self) -> None:
        """The responses to the last events have been written: write the steps and that time to the trace."""
        if self._port is None:
            return
        self._port.written()
        steps, self._steps = self._steps, []
        if not steps or self._trace is None:
            return
        try:
            self._trace.write(steps, self._port.wakes())
        except OSError as error:
            # If the trace cannot be written, it stops; the requests go on.
            log.error("--step-trace stopped: %s", error)
            self._trace = None
