"""A generation request: its tasks in the engine, and the response to the client.

Runs on the event loop. A Job is one request; a CompletionPart is one completion of one of its prompts and receives the
engine's events. The dialect defines the format of the response; each endpoint has one.
"""

from __future__ import annotations

import logging
import time
from array import array
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from llamad.api.generate import accounting, cache_miss, completion_json, prompt_log
from llamad.api.generate.dialect import Dialect
from llamad.api.generate.failures import failure_error
from llamad.api.generate.from_disk import FromDisk
from llamad.api.generate.held_tokens import HELD_MAX, joined
from llamad.api.generate.job_memory import JobMemory
from llamad.api.generate.job_tasks import JobTasks
from llamad.api.generate.prepare import PreparedPrompts
from llamad.api.generate.response_writer import ResponseWriter
from llamad.api.generate.task_maker import TaskMaker
from llamad.api.generate.text_part import TextPart
from llamad.api.request import generation as options
from llamad.api.request.constraints import ConstraintSource
from llamad.api.request.errors import ApiError
from llamad.api.request.parse import GenerationRequest
from llamad.api.service.adapters import adapters_of
from llamad.api.service.admission import Place
from llamad.api.service.body_reading import in_worker
from llamad.api.service.kept_streams import conversation_of
from llamad.api.service.served_model import ServedModel
from llamad.base.clock import clock_us
from llamad.client.engine_client import EngineClient
from llamad.client.events import Done, TokenProbs
from llamad.client.task import Task, WatchingSink
from llamad.client.text_event import TextEvent
from llamad.http import sse
from llamad.http.exchange import Exchange
from llamad.http.request import JSON, Response
from llamad.options.option import LEFT_OUT
from llamad.protocol.messages import STOP_LIMIT
from llamad.protocol.model_info import Model

log = logging.getLogger("llamad.api")

# The most values of a response (tokens, probabilities) that are encoded on the event loop; a few milliseconds.
WHOLE_INLINE_MAX = 4096


class CompletionPart(TextPart):
    """One completion of one prompt. on_text(), called for every token, is in the compiled base class."""

    job: Job
    __slots__ = (
        "done",
        "drawn",
        "has_calls",
        "index",
        "miss",
        "n_cached",
        "n_prompt",
        "pieces",
        "seed",
        "slot",
        "state",
        "t_admitted_us",
        "task_id",
        "tokens_prompt",
    )

    def __init__(self, job: Job, index: int, tokens_prompt: bytes, seed: int) -> None:
        self.job = job
        self.index = index
        self.seed = seed
        self.tokens_prompt = tokens_prompt
        self.n_prompt = len(tokens_prompt) // 4
        self.task_id = 0
        self.slot = -1
        self.n_cached = 0
        self.t_admitted_us = 0
        self.has_calls = False  # whether the dialect found tool calls in its text
        self.pieces: list[TextEvent] = []  # empty if streamed
        self.held = []
        self.miss: dict[str, Any] = {}  # its `cache_miss`, if it has one
        self.drawn = array("i")  # its tokens, if they are remembered
        self.done: Done | None = None
        self.state: object = None  # belongs to the dialect

    @property
    def ended(self) -> Done:
        """Return how it ended; must only be called once it has."""
        assert self.done is not None
        return self.done

    def data(self) -> bytes:
        """Return the whole text, if it is not streamed."""
        return b"".join([piece.data for piece in self.pieces])

    # Called by the engine's client.

    def on_admitted(self, slot: int, n_cached: int, t_us: int) -> None:
        self.slot = slot
        self.n_cached = n_cached
        self.t_admitted_us = t_us
        self.job.set_admitted()
        self.job.served.metrics.queue_seconds.observe((t_us - self.job.t_submit_us) / 1e6)
        if self.job.tells_progress:
            self.on_progress(n_cached, 0)

    def on_progress(self, n_processed: int, prompt_us: int) -> None:
        counts = self.n_prompt, self.n_cached, n_processed, prompt_us
        fields = {"prompt_progress": completion_json.progress(*counts)}
        if self.job.generation.timings_per_token:
            fields["timings"] = completion_json.timings(n_processed, self.n_cached, prompt_us, 0, 0, 0, 0)
        self.job.write(self.job.dialect.progress(self, fields))

    def on_prompt(self, tokens: list[int], probs: list[TokenProbs]) -> None:
        assert self.job.on_prompt is not None
        self.job.on_prompt(self, tokens, probs)

    def hold(self, text: TextEvent) -> TextEvent | None:
        """Return the event to send now, if any. on_text() calls this for tokens without text, and for the text after
        them."""
        if not (self.job.generation.stream and self.job.dialect.holds):
            return text
        self.held.append(text)
        if not text.data and len(self.held) <= HELD_MAX:
            return None
        whole, self.held = joined(self.held), []
        return whole

    def on_piece(self, piece: TextEvent) -> None:
        """Handle everything except plain text events; called by on_text()."""
        if self.job.remember is not None:
            self.drawn.extend(piece.tokens)
        if self.job.generation.stream:
            self.job.write(self.job.dialect.piece(self, piece))
        else:
            self.pieces.append(piece)

    def on_done(self, done: Done) -> None:
        self.done = done
        self.task_id = 0
        cache_miss.note(self)
        self.job.on_part_done(self)

    def on_failed(self, failure: int, code: int) -> None:
        self.task_id = 0
        self.job.on_part_failed(failure, code)

    def on_broken(self) -> None:
        self.job.give_up()


class Job:
    """A generation request. Its response begins with the first text, so that an early failure still has its own
    status."""

    def __init__(
        self,
        served: ServedModel,
        exchange: Exchange,
        generation: GenerationRequest,
        constraint: ConstraintSource,
        model: Model,
        engine: EngineClient,
        dialect: Dialect[Job, CompletionPart],
        *,
        id: str = "",
        markers: bool = False,
        on_prompt: Callable[[CompletionPart, list[int], list[TokenProbs]], None] | None = None,
    ) -> None:
        self.served = served
        self.exchange = exchange
        self.out = ResponseWriter(exchange, dialect.content_type)
        self.memory = JobMemory(exchange)
        exchange.details = partial(accounting.details, self)
        self.finish = ""  # why it ended, for the log, if it failed
        self.adapter_ids: Sequence[int] = ()
        self.adapter_uses: Sequence[tuple[int, float]] = ()
        self.outline = cache_miss.Outline()  # where the messages of a chat stand in its prompt
        self.generation: GenerationRequest = generation
        self.constraint = constraint
        self.model: Model = model
        self.engine = engine
        self.tasks = JobTasks(engine)
        self.dialect = dialect
        self.content_type = JSON  # the content type of a response that is not streamed
        self.markers = markers
        self.id = id  # the id of the response; if it is empty, no other request can act on the job
        self.is_controlled = False  # whether its reasoning may be ended with end_thinking()
        self.is_admitted = False
        # Makes the sinks of the tasks.
        self.watch: Callable[[CompletionPart, Task], WatchingSink] | None = None
        # How the output is parsed, as results show it.
        self.parsing: Callable[[], options.Parsing] = options.Parsing
        self.on_prompt = on_prompt
        # Keeps the tokens and the text of a part that has ended.
        self.remember: Callable[[CompletionPart], None] | None = None
        self.ready: PreparedPrompts | None = None
        self.parts: list[CompletionPart] = []
        self.n_left = 0
        self.t_submit_us = 0
        self.t_written = time.monotonic()

    @property
    def tells_progress(self) -> bool:
        return self.generation.stream and self.generation.return_progress

    def submit(self, ready: PreparedPrompts) -> None:
        """Submit all prompts to the engine, or none: now, or when the engine has what the disk has of them."""
        served, exchange = self.served, self.exchange
        if served.host.disk is not None and self.on_prompt is None:
            stored = FromDisk(served, exchange.request, self.generation, ready)
            counted = served.try_preparing(exchange) if stored else None
            if counted is not None:
                served.service.spawn(exchange, self._submit_later(ready, stored, counted), counted)
                return
        self._submit(ready)

    async def _submit_later(self, ready: PreparedPrompts, stored: FromDisk, counted: Place) -> None:
        with counted:
            await stored.insert()
        self.served.ready()
        if not self.exchange.closed:
            self._submit(ready)

    def _submit(self, ready: PreparedPrompts) -> None:
        """Submit all prompts to the engine, or none. The system prompt changes only if the request is accepted."""
        g, request = self.generation, self.exchange.request
        n_parts = len(ready.tokens) * g.n
        text = ready.constraint.text if ready.constraint is not None else ""
        options.check_echo(g, self.constraint, n_parts, text)
        can_resume = g.stream and self.dialect.content_type == sse.CONTENT_TYPE
        conversation = conversation_of(request) if can_resume else ""
        client = self.served.service.client(request)
        self.tasks.check_room(client, n_parts)
        if self.on_prompt is not None:
            options.check_prompt_probs(g, ready.tokens, self.served.settings.answer_max_bytes)
        t_submit_us = clock_us()
        maker = self._task_maker(ready, client, n_parts, t_submit_us)
        self.memory.count(options.held_bytes(g, self.constraint, ready.tokens, maker.bias, ready.breakers))
        parts = [
            CompletionPart(self, i * g.n + k, tokens, options.seed_of(g, k))
            for i, tokens in enumerate(ready.tokens)
            for k in range(g.n)
        ]
        prompt_log.show(self.served.service, self.model, request.request_id, ready.tokens)
        self._begin(ready, parts, t_submit_us, conversation)
        if g.stream and not self.out.is_kept:
            for part in parts:
                part.frame = self.dialect.frame(part)
        self.tasks.submit(parts, maker, self.watch)
        if g.system_prompt is not None:
            self.served.key_states.set_system(self.key, ready.system)

    def _task_maker(self, ready: PreparedPrompts, client: int, n_parts: int, t_submit_us: int) -> TaskMaker:
        g, served = self.generation, self.served
        uses = adapters_of(served, self.key, g.model, g.lora)
        self.adapter_ids = [use.info.id for use in uses]
        self.adapter_uses = [(use.info.id, use.scale) for use in uses]
        maker = TaskMaker(served, self.exchange.request, client, g, self.model, ready, uses, t_submit_us)
        maker.answer_bytes_max = 0 if g.stream else max(1, served.settings.answer_max_bytes // n_parts)
        maker.is_streamed = g.stream or self.watch is not None
        maker.has_markers = self.markers or g.shows_markers
        maker.has_prompt_probs = self.on_prompt is not None
        maker.has_progress = self.tells_progress
        return maker

    def _begin(
        self, ready: PreparedPrompts, parts: list[CompletionPart], t_submit_us: int, conversation: str
    ) -> None:
        """Set the parts, and open the response, before the tasks are submitted."""
        self.memory.hold(self._give_way)
        self.ready = ready
        self.parts = parts
        self.n_left = len(parts)
        self.t_submit_us = t_submit_us
        if self.id:
            self.served.service.running.add(self)
        if self.generation.stream:
            self.served.service.streams.add(self)
        if conversation:
            # The generation goes on if the client disconnects or reads slowly.
            release = self.served.usage.hold()
            kept = self.served.service.kept_streams.open(self.key, conversation, self, release)
            self.out.keep(kept, self._headers())
            return
        self.exchange.on_abort = self.abort
        if self.generation.stream:
            self.exchange.on_pause, self.exchange.on_resume = self.tasks.pause, self.tasks.resume

    def answer_nothing(self) -> None:
        """Respond to a request that has nothing for the engine to do."""
        self.parts = [CompletionPart(self, 0, b"", self.generation.seed)]
        self.n_left = 1
        self.parts[0].on_done(Done(STOP_LIMIT, t_us=clock_us()))

    def _left(self) -> None:
        """Remove the job from all tables, because it has ended or nobody needs its output."""
        # The client of a kept stream has disconnected, and has its own line in the access log.
        if self.exchange.closed and not self.out.closed:
            log.info("request %s: ended without its client: %s", self.request_id, accounting.summary(self))
        self.served.service.streams.discard(self)
        if self.id:
            self.served.service.running.discard(self)
        self.memory.stay()
        if not self.n_left:
            self.memory.release()

    def _forget(self) -> None:
        """Drop the references to the parts, which refer to the job. Without the cycle both are freed immediately."""
        if self.n_left:
            return
        # Its large body is still being written, and the access log line comes after it.
        if not self.exchange.closed:
            details = accounting.details(self)
            self.exchange.details = lambda: details
        self.tasks.forget()
        self.parts, self.ready = [], None

    # Called for other requests of the same client.

    @property
    def key(self) -> str:
        return self.exchange.request.key_name

    @property
    def request_id(self) -> str:
        return self.exchange.request.request_id

    def end_thinking(self) -> None:
        """End the reasoning now, if there is any."""
        self.tasks.end_thinking()

    def set_admitted(self) -> None:
        """Note that the engine has begun with one of its parts."""
        self.is_admitted = True
        self.memory.stay()

    # Called for the client.

    def abort(self) -> None:
        """Stop the tasks, because the client has disconnected or another part failed."""
        self.tasks.abort()

    def give_way(self, reason: str) -> None:
        """End the job, because nobody reads its kept stream."""
        log.info("request %s: %s", self.request_id, reason)
        self.finish = "unread"
        self._fail(ApiError(408, reason))

    def n_queued(self, t_before: float) -> int:
        """Return how many of its tasks have waited for a slot since `t_before`."""
        return self.tasks.n_queued(t_before)

    def tick(self, now: float) -> None:
        """Send a ping on a silent stream, to keep its connection alive. End a stream whose client stalls while others
        wait for a slot. It stays paused until half of its buffer is read, so that reading a byte now and then is not
        progress."""
        settings = self.served.service.settings
        own = self.generation.sse_ping_interval
        ping_seconds = settings.ping_seconds if own == LEFT_OUT else own
        if 0 < ping_seconds <= now - self.t_written:
            self.write(self.dialect.ping(self))
        if self.tasks.is_stalled(now, settings.stall_seconds) and not self.exchange.closed:
            log.info("request %s: its client stalls; freeing its slot for others", self.request_id)
            self.finish = "stalled"
            reason = "The client did not read its stream while others waited for a slot (--stall-seconds)"
            self._fail(ApiError(408, reason))

    # To the client.

    def write(self, data: bytes) -> None:
        if not data:
            return
        self.t_written = time.monotonic()
        if self.out.begun:
            self.out.write(data)
        elif not self.out.closed:
            self.out.begin(self._headers, self.dialect.begin(self) + data)

    def _headers(self) -> tuple[tuple[str, str], ...]:
        return self.generation.left_out.headers(self.request_id)

    def on_part_done(self, part: CompletionPart) -> None:
        self.n_left -= 1
        if self.out.closed:  # the client has disconnected, or got the failure of another part
            self._left()
            self._forget()
            return
        last = self.dialect.done(part) if self.generation.stream else b""
        if self.generation.stream and self.remember is not None:
            self.remember(part)
        if self.n_left:
            self.write(last)
            return
        self._left()
        if self.generation.stream:
            last += self.dialect.end(self)
            if not self.out.begun:
                self.write(last)
                last = b""
            self.out.end(last)
            self._forget()
        else:
            self._send_whole()

    def _send_whole(self) -> None:
        g = self.generation
        n_values = sum(part.n_prompt // 16 + part.n_decoded * (1 + 2 * g.n_probs) for part in self.parts)
        n_values += len(self.parts) * len(g.stop)
        if n_values <= WHOLE_INLINE_MAX:
            self._send(self.dialect.whole(self))
        else:
            # A job that is done does not change any more, so any thread may read it.
            in_worker(self.served.service, self.exchange, partial(self.dialect.whole, self), self._send)

    def _send(self, body: bytes) -> None:
        if self.remember is not None:
            for part in self.parts:
                self.remember(part)
        self.exchange.send(Response(200, body, self.content_type, self._headers()))
        self._forget()

    def on_part_failed(self, failure: int, code: int) -> None:
        self.n_left -= 1
        self.finish = self.finish or accounting.failed_finish(failure)
        self._fail(failure_error(failure, code, self.model.n_ctx_slot))
        self._forget()

    def _fail(self, error: ApiError) -> None:
        """End the whole request with this error, whatever the state of its parts."""
        self._left()
        self.abort()
        if not self.out.closed:
            self.out.fail(self.dialect.failed(error), self.dialect.refused(error))

    def _give_way(self) -> None:
        """End the request, because another client needs the memory more and the engine has not begun with this one."""
        self.finish = "memory"
        self._fail(self.served.service.memory_full())

    def give_up(self) -> None:
        """End the request after an exception: the client gets a 500, or its stream is cut off."""
        self.finish = "error"
        self._left()
        self.abort()
        self.out.cut_off(self.dialect.refused(ApiError(500, "Internal server error; see the server's log")))
