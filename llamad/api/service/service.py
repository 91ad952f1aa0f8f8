"""Owns what the requests of all models share: keys, clients, memory, workers, streams.

Made once at start, used on the event loop. Must not hold anything of a single request, or of a model.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from collections.abc import Coroutine
from typing import Any, Protocol

from llamad.api.request.errors import ApiError, memory_full
from llamad.api.service.admission import Place
from llamad.api.service.auth import Keys
from llamad.api.service.error_dialects import worded
from llamad.api.service.kept_streams import KeptStreams
from llamad.api.service.metrics import Metrics
from llamad.api.service.prompt_files import PromptFiles
from llamad.api.service.response_store import ResponseStore
from llamad.api.service.running_completions import Completion, RunningCompletions
from llamad.api.service.text_workers import TextWorkers
from llamad.api.service.unread_streams import give_way
from llamad.base.fair_pool import FairPool
from llamad.base.memory_budget import Budget, BudgetFull
from llamad.flags.settings import DaemonSettings
from llamad.http.exchange import Exchange
from llamad.http.request import Request, address_of

log = logging.getLogger("llamad.api")

N_JSON_WORKERS = 2
PINGS_SECONDS = 0.5  # how often streams are looked at, at least
CLIENT_MAX = 2**64 - 1
# The most that requests may hold when the heap is searched for garbage: some 20 ms, with the GIL.
GARBAGE_BYTES_MAX = 8 << 20


class Thinking(Completion, Protocol):
    """A completion whose reasoning can be ended, where that was asked for."""

    is_controlled: bool
    is_admitted: bool

    def end_thinking(self) -> None: ...


class Stream(Protocol):
    """A stream that may be silent, or whose client may stall."""

    def tick(self, now: float) -> None: ...


def address(request: Request) -> str:
    """Return the client's address without its port, as connections are counted by it."""
    host, _, port = request.peer.rpartition(":")
    return address_of((host.strip("[]"), port) if host else None)


def _drop(task: asyncio.Task[None]) -> None:
    task.cancel()


class Service:
    def __init__(self, settings: DaemonSettings, build_info: str) -> None:
        self.settings = settings
        self.build_info = build_info
        self.keys = Keys([])  # set by ModelTable.set_keys()
        self.is_leaving = False  # /health says so; requests may still be served (--drain-delay-seconds)
        self.is_draining = False  # new requests are refused
        self.metrics = Metrics()
        # The memory for what requests hold; the HTTP server sets its limit.
        self.budget = Budget(settings.bodies_max_bytes)
        self.t_created = int(time.time())
        self.texts = TextWorkers()
        # Read large bodies, write large responses.
        self.json_workers = FairPool(N_JSON_WORKERS, "llamad-json")
        self.prompt_files = PromptFiles(settings.log_prompts_dir) if settings.log_prompts_dir else None
        self.responses = ResponseStore()
        self.streams: set[Stream] = set()
        self.kept_streams = KeptStreams()
        self.running: RunningCompletions[Thinking] = RunningCompletions()
        self._jobs: set[asyncio.Task[None]] = set()

    def find_key(self, request: Request) -> str | None:
        """The name of the key that a request carries, empty if it needs none, None if it lacks one. For endpoints that
        are public: the others have Request.key_name."""
        return self.keys.find(request) if self.keys else ""

    def has_key(self, request: Request) -> bool:
        """Whether the request carries a key, or needs none."""
        return self.find_key(request) is not None

    def client(self, request: Request) -> int:
        """The client as a number: of its key, or of its address if there are no keys."""
        if request.key_name:
            return hash(request.key_name) & CLIENT_MAX
        return hash(address(request)) & CLIENT_MAX

    def session(self, request: Request) -> int:
        """The conversation that X-Session-Id names as a number, of its key alone; 0: none."""
        id = request.headers.get("x-session-id", "")
        return hash((request.key_name, id)) & CLIENT_MAX if id else 0

    def memory_full(self) -> ApiError:
        return memory_full(self.budget.bytes_max)

    def spawn(self, exchange: Exchange, work: Coroutine[Any, Any, None], place: Place | None = None) -> None:
        """Run the long part of a request; its errors become the response. Cancelled if the client disconnects."""
        task = asyncio.ensure_future(self._answered(exchange, work))
        if place is not None:  # it may be cancelled before it has begun
            task.add_done_callback(lambda _: place.close())
        exchange.on_abort = lambda: _drop(task)
        self._jobs.add(task)
        task.add_done_callback(self._jobs.discard)
        self._let_give_way(exchange, task)

    def _let_give_way(self, exchange: Exchange, task: asyncio.Task[None]) -> None:
        """While the task prepares the answer, another client may need the memory more."""
        claim = exchange.claim

        def give_way() -> None:
            task.cancel()
            if not exchange.begun:
                exchange.fail(worded(self.memory_full(), exchange.request))

        def done(_: object) -> None:
            if claim.give_way is give_way:
                claim.give_way = None

        claim.give_way = give_way
        task.add_done_callback(done)

    async def _answered(self, exchange: Exchange, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except ApiError as error:
            exchange.fail(worded(error, exchange.request))
        except BudgetFull:
            exchange.fail(worded(self.memory_full(), exchange.request))
        except Exception:
            log.exception("request %s failed", exchange.request.request_id)
            failure = ApiError(500, "Internal server error; see the server's log")
            exchange.fail(worded(failure, exchange.request))

    def is_quiet(self) -> bool:
        """Any thread: whether requests hold far less memory than they did."""
        return 2 * self.budget.n_bytes <= self.budget.n_peak

    def free_garbage(self) -> None:
        """Any thread, when it is quiet: free what refers to itself. Requests that hold little are quick to look at, and
        what was there before the first one is not looked at (gc.freeze)."""
        if self.budget.n_bytes <= GARBAGE_BYTES_MAX:
            gc.collect()
        self.budget.forget_peak()

    async def watch_streams(self) -> None:
        """Sends pings on streams that wait or prefill, and ends those that stall; runs until cancelled."""
        while True:  # a request may have an interval of its own
            periods = [n for n in (self.settings.ping_seconds, self.settings.stall_seconds) if n > 0]
            await asyncio.sleep(min([PINGS_SECONDS, *(period / 4 for period in periods)]))
            now = time.monotonic()
            self._watch_kept_streams(now)
            for stream in list(self.streams):
                try:
                    stream.tick(now)
                except Exception:
                    # A bug in one stream must not stop the pings of the others.
                    log.exception("watching a stream failed")
                    self.streams.discard(stream)

    def _watch_kept_streams(self, now: float) -> None:
        try:
            self.kept_streams.tick(now)
            give_way(self.kept_streams, now, self.settings.stall_seconds)
        except Exception:
            log.exception("watching the kept streams failed")

    def close(self) -> None:
        self.texts.close()
        self.json_workers.close()
        if self.prompt_files is not None:
            self.prompt_files.close()
