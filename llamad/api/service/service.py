"""Holds what the requests of all models share: keys, clients, memory, workers, streams.

Made once at start, used on the event loop. Must not hold anything of a single request or of a model.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from collections.abc import Coroutine
from typing import Any, Protocol

from llamad.api.request.errors import ApiError, memory_full
from llamad.api.service.auth import Keys
from llamad.api.service.error_dialects import worded
from llamad.api.service.kept_streams import KeptStreams
from llamad.api.service.metrics import Metrics
from llamad.api.service.prompt_files import PromptFiles
from llamad.api.service.response_store import ResponseStore
from llamad.api.service.running_completions import Completion, RunningCompletions
from llamad.api.service.text_workers import TextWorkers
from llamad.api.service.unread_streams import give_way
from llamad.api.service.usage import Uses
from llamad.base.fair_pool import FairPool
from llamad.base.memory_budget import Budget, BudgetFull
from llamad.flags.settings import DaemonSettings
from llamad.http.exchange import Exchange
from llamad.http.request import Request, address_of
from llamad.models.cache_disk.disk_cache import DiskCache

log = logging.getLogger("llamad.api")

N_JSON_WORKERS = 2
PINGS_SECONDS = 0.5  # streams are checked at least this often
CLIENT_MAX = 2**64 - 1
# Garbage is only collected if requests hold at most this many bytes; it then takes about 20 ms with the GIL.
GARBAGE_BYTES_MAX = 8 << 20


class Thinking(Completion, Protocol):
    """A completion whose reasoning can be ended, if its request asked for that."""

    is_controlled: bool
    is_admitted: bool

    def end_thinking(self) -> None: ...


class Closing(Protocol):
    """What a request holds until it has ended."""

    def close(self) -> None: ...


class Stream(Protocol):
    """A stream that may be silent, or whose client may stall."""

    def tick(self, now: float) -> None: ...


def address(request: Request) -> str:
    """Return the client's address without its port; connections are counted by this address."""
    host, _, port = request.peer.rpartition(":")
    return address_of((host.strip("[]"), port) if host else None)


def _drop(task: asyncio.Task[None]) -> None:
    task.cancel()


class Service:
    """`disk` is the prompt cache on disk, or None without one."""

    def __init__(self, settings: DaemonSettings, build_info: str, disk: DiskCache | None = None) -> None:
        self.settings = settings
        self.disk = disk
        self.build_info = build_info
        self.keys = Keys([])  # set by ModelTable.set_keys()
        self.is_leaving = False  # /health reports it; requests may still be served (--drain-delay-seconds)
        self.is_draining = False  # new requests are refused
        self.metrics = Metrics()
        self.uses = Uses()
        # The memory that requests may hold; the HTTP server sets its limit.
        self.budget = Budget(settings.bodies_max_bytes)
        self.t_created = int(time.time())
        self.texts = TextWorkers()
        # These threads read large bodies and write large responses.
        self.json_workers = FairPool(N_JSON_WORKERS, "llamad-json")
        self.prompt_files = PromptFiles(settings.log_prompts_dir) if settings.log_prompts_dir else None
        self.responses = ResponseStore()
        self.streams: set[Stream] = set()
        self.kept_streams = KeptStreams()
        self.running: RunningCompletions[Thinking] = RunningCompletions()
        self._jobs: set[asyncio.Task[None]] = set()

    def find_key(self, request: Request) -> str | None:
        """Return the name of the key that a request carries, "" if it needs none, or None if it lacks one. For public
        endpoints; the others have Request.key_name."""
        return self.keys.find(request) if self.keys else ""

    def has_key(self, request: Request) -> bool:
        """Whether the request carries a key, or needs none."""
        return self.find_key(request) is not None

    def client(self, request: Request) -> int:
        """Return a number for the client: for its key, or for its address if there are no keys."""
        if request.key_name:
            return hash(request.key_name) & CLIENT_MAX
        return hash(address(request)) & CLIENT_MAX

    def session(self, request: Request) -> int:
        """Return a number for the conversation that X-Session-Id names, which is separate for each key; 0: none."""
        id = request.headers.get("x-session-id", "")
        return hash((request.key_name, id)) & CLIENT_MAX if id else 0

    def memory_full(self) -> ApiError:
        return memory_full(self.budget.bytes_max)

    def spawn(
        self, exchange: Exchange, work: Coroutine[Any, Any, None], place: Closing | None = None
    ) -> None:
        """Run the long part of a request. Its errors become the response; it is cancelled if the client disconnects."""
        task = asyncio.ensure_future(self._answered(exchange, work))
        if place is not None:  # the task may be cancelled before it has begun
            task.add_done_callback(lambda _: place.close())
        exchange.on_abort = lambda: _drop(task)
        self._jobs.add(task)
        task.add_done_callback(self._jobs.discard)
        self._let_give_way(exchange, task)

    def _let_give_way(self, exchange: Exchange, task: asyncio.Task[None]) -> None:
        """Let the task be cancelled while it prepares the response, if another client needs its memory more."""
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
        """Whether requests hold at most half of the memory that they held at the peak. Any thread."""
        return 2 * self.budget.n_bytes <= self.budget.n_peak

    def free_garbage(self) -> None:
        """Collect garbage if requests hold so little memory that this is fast. Objects from before the first request
        are not searched (gc.freeze). Called on any thread when is_quiet() is true."""
        if self.budget.n_bytes <= GARBAGE_BYTES_MAX:
            gc.collect()
        self.budget.forget_peak()

    async def watch_streams(self) -> None:
        """Send pings on streams that wait or prefill, and end those that stall. Runs until it is cancelled."""
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
                    log.exception("checking a stream failed")
                    self.streams.discard(stream)

    def _watch_kept_streams(self, now: float) -> None:
        try:
            self.kept_streams.tick(now)
            give_way(self.kept_streams, now, self.settings.stall_seconds)
        except Exception:
            log.exception("checking the kept streams failed")

    def close(self) -> None:
        self.texts.close()
        self.json_workers.close()
        if self.prompt_files is not None:
            self.prompt_files.close()
