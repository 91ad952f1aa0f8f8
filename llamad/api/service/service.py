"""Owns what all endpoints share: the settings, the model's host, the metrics, the workers.

Made once at start, used on the event loop. Must not hold anything of a single request.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import time
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol

from llamad.api.request import constraints
from llamad.api.request.constraints import Grammars
from llamad.api.request.dry_breakers import Breakers
from llamad.api.request.errors import ApiError, memory_full, queue_full, share_full
from llamad.api.request.media import MediaPart, refused
from llamad.api.request.parse import Defaults
from llamad.api.request.system_prompt import read_file
from llamad.api.service.chat_template import make_host, turn_end
from llamad.api.service.error_dialects import worded
from llamad.api.service.kept_streams import KeptStreams
from llamad.api.service.key_state import KeyStates
from llamad.api.service.metrics import Metrics
from llamad.api.service.prompt_files import PromptFiles
from llamad.api.service.response_store import ResponseStore
from llamad.api.service.running_completions import Completion, RunningCompletions
from llamad.api.service.text_workers import TextWorkers
from llamad.api.service.unread_streams import give_way
from llamad.base.fair_count import FairCount
from llamad.base.fair_pool import FairPool
from llamad.base.memory_budget import Budget, BudgetFull
from llamad.chat.host import ChatHost
from llamad.client.embedding import Embedder
from llamad.client.engine_client import EngineClient
from llamad.client.sessions import Sessions
from llamad.client.slot_states import States
from llamad.client.state_bytes import Room
from llamad.client.state_files import StateFiles
from llamad.flags.help import props
from llamad.flags.settings import Settings
from llamad.http.exchange import Exchange
from llamad.http.request import Request, address_of
from llamad.models.host import Host, State
from llamad.options.values import SystemPrompt
from llamad.protocol.errors import LoadError
from llamad.protocol.model_info import Model
from llamad.tokenizer.tokenize_pool import Tokenizing
from llamad.tokenizer.vocab import Vocab

if TYPE_CHECKING:
    from llamad.api.service.media import Media
    from llamad.media.encoding import Encoding

log = logging.getLogger("llamad.api")

# The least limit on states in transit (bodies, files, responses), in bytes.
ROOM_BYTES_MIN = 2**30
TOKENIZING_THREADS_MAX = 4
N_JSON_WORKERS = 2
PINGS_SECONDS = 0.5  # how often streams are looked at, at least
# The largest body of a chat that is rendered on the event loop, if its template is quick.
CHAT_INLINE_MAX = 16384
CLIENT_MAX = 2**64 - 1
# The most that requests may hold when the heap is searched for garbage: some 20 ms, with the GIL.
GARBAGE_BYTES_MAX = 8 << 20
_READY = State.READY  # read on every request; an Enum lookup is slow


class Thinking(Completion, Protocol):
    """A completion whose reasoning can be ended, where that was asked for."""

    is_controlled: bool
    is_admitted: bool

    def end_thinking(self) -> None: ...


class Stream(Protocol):
    """A stream that may be silent, or whose client may stall."""

    def tick(self, now: float) -> None: ...


def _system_prompt(settings: Settings) -> SystemPrompt:
    file = settings.system_prompt_file
    try:
        return SystemPrompt() if file is None else read_file(file)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ValueError(f"--system-prompt-file {file}: {reason}") from None


def _state_files(settings: Settings) -> StateFiles | None:
    path = settings.slot_save_path
    try:
        return None if path is None else StateFiles(path)
    except OSError as error:
        raise ValueError(
            f"--slot-save-path {path}: {error.strerror}; it must be a directory that llamad can write to"
        ) from None


def _media(settings: Settings, host: Host) -> Media | None:
    if host.media is None:
        return None
    from llamad.api.service.media import Media  # only with a projector

    return Media(settings, host.media)


class Preparing:
    """A request that is counted as one in preparation, until it is closed; as a context, its client."""

    def __init__(self, counts: FairCount, client: int) -> None:
        self._counts: FairCount | None = counts
        self._client = client
        counts.add(client)

    def close(self) -> None:
        if self._counts is not None:
            self._counts.remove(self._client)
            self._counts = None

    def __enter__(self) -> int:
        return self._client

    def __exit__(self, *_: object) -> None:
        self.close()


def _address(request: Request) -> str:
    """Return the client's address without its port, as connections are counted by it."""
    host, _, port = request.peer.rpartition(":")
    return address_of((host.strip("[]"), port) if host else None)


def _drop(task: asyncio.Task[None]) -> None:
    task.cancel()


class Service:
    """Raises ValueError, with a message, for flags that cannot be honoured."""

    def __init__(self, settings: Settings, host: Host, build_info: str) -> None:
        self.settings = settings
        self.key_states = KeyStates(_system_prompt(settings), is_shared=settings.system_prompt_shared)
        self.constraint = constraints.from_flags(settings)
        self.grammars = Grammars()
        self.chat: ChatHost  # set by prepare()
        self.defaults: Defaults  # likewise
        self.turn_end = -1  # the token that ends a message; likewise
        host.prepare = self.prepare
        host.engine_ready = self.engine_ready
        host.engine_ended = self.grammars.forget
        self.host = host
        self.build_info = build_info
        self.metrics = Metrics()
        # The memory for what requests hold; the HTTP server sets its limit.
        self.budget = Budget(settings.bodies_max_bytes)
        self.t_created = int(time.time())
        self.texts = TextWorkers(settings.queue_max)
        # Read large bodies, write large responses.
        self.json_workers = FairPool(N_JSON_WORKERS, "llamad-json")
        self.files = _state_files(settings)
        self.prompt_files = PromptFiles(settings.log_prompts_dir) if settings.log_prompts_dir else None
        self.sessions = Sessions(settings.sessions_max_bytes, evict=settings.sessions_evict)
        self.room = Room(max(settings.sessions_max_bytes, ROOM_BYTES_MIN))
        # State actions that run or wait for their slot.
        self.state_actions = FairCount(settings.n_parallel + settings.queue_max)
        self.breakers = Breakers()
        self.responses = ResponseStore()
        self.media: Media | None = None  # set by prepare(): a projector may have to be downloaded first
        self.streams: set[Stream] = set()
        self.kept_streams = KeptStreams()
        self.running: RunningCompletions[Thinking] = RunningCompletions()
        # Requests whose texts or grammars are with a worker; they count as queued.
        self._preparing = FairCount(settings.n_parallel + settings.queue_max)
        # The name of the key that a request carries, empty if it needs none, None if it lacks one. For endpoints that
        # are public: the others have Request.key_name. Set by app.py, which has the keys.
        self.find_key: Callable[[Request], str | None] = lambda request: ""
        self.chat_inline_max = CHAT_INLINE_MAX  # less for a template that is not quick
        # The threads that tokenize short texts, by vocabulary: a new engine may have another one, if the model's file
        # was replaced. What the threads of the old one still have is answered, too.
        self._tokenizing: dict[Vocab, Tokenizing] = {}
        self._jobs: set[asyncio.Task[None]] = set()
        self._eog_tokens: list[int] | None = None
        self._owners: dict[str, int] = {}  # numbers of the keys seen so far, by name

    def prepare(self, model: Model) -> list[str]:
        """In a thread, before any request for this model: apply the flags that need the vocabulary. Returns the texts
        of special tokens that its answers are parsed by."""
        self.media = self.media or _media(self.settings, self.host)
        self.defaults = Defaults(self.settings, model)
        for warning in self.defaults.warnings:
            log.warning("%s", warning)
        self._eog_tokens = None
        try:
            self.key_states.prepare(model)
        except ApiError as error:
            raise LoadError(f"--system-prompt-file: {error.message}") from None
        try:
            self.chat = make_host(self.settings, model)
            markers = self.chat.markers
            model.vocab.show_markers(markers)
            self.turn_end = turn_end(self.chat, model)
        except ValueError as error:
            raise LoadError(str(error)) from None
        return markers

    def apply(self, settings: Settings) -> None:
        """Other limits, for requests to come."""
        self.settings = settings
        n_waiting, n_parallel = settings.queue_max, settings.n_parallel
        self.texts.counted.n_max = n_waiting
        self.state_actions.n_max = self._preparing.n_max = n_parallel + n_waiting
        if self.media is not None:
            self.media.apply(settings)
        if self.host.model is not None:
            self.defaults.apply(settings)

    async def engine_ready(self, engine: EngineClient) -> None:
        """Before any request sees this engine: give it the server's own grammar."""
        self.defaults.apply(self.settings)  # a reload may have come since prepare()
        try:
            await self.grammars.prepare(self.constraint, engine)
        except ApiError as error:
            raise LoadError(f"--grammar or --json-schema: {error.message}") from None

    @property
    def is_leaving(self) -> bool:
        """Whether /health says that the server leaves, though requests may still be served."""
        return self.host.is_leaving

    @property
    def model_name(self) -> str:
        return self.settings.alias or self.host.settings.model

    @property
    def names(self) -> tuple[str, ...]:
        """All names of the model."""
        return (self.model_name, self.public_name, *self.settings.aliases)

    @property
    def public_name(self) -> str:
        """The model's name for clients without a key: no path."""
        return self.settings.alias or os.path.basename(self.host.settings.model)

    def has_key(self, request: Request) -> bool:
        """Whether the request carries a key, or needs none."""
        return self.find_key(request) is not None

    def name_for(self, request: Request) -> str:
        """The model's name that the request may see."""
        return self.model_name if self.has_key(request) else self.public_name

    def public_settings(self) -> dict[str, Any]:
        """The server's flags as /props shows them: no keys, no tokens."""
        return props(self.host.settings)

    def loaded(self) -> Model:
        """The model. Raises ApiError if there is none."""
        host = self.host
        if host.state is _READY and host.model is not None:
            return host.model
        raise self.not_ready()

    def ready(self) -> tuple[Model, EngineClient]:
        """The model and its engine. Raises ApiError if there is none."""
        model, engine = self.loaded(), self.host.engine
        if engine is None:
            raise ApiError(501, "This model is for embeddings or scores; it cannot generate text")
        return model, engine

    def states(self) -> States:
        """The states of the engine's slots. Raises ApiError if there are none."""
        self.ready()
        states = self.host.states
        if states is None:
            raise self.not_ready()
        return states

    def embedder(self) -> tuple[Model, Embedder]:
        """The model and its embedder; the caller has checked that the flags enable it."""
        model, embedder = self.loaded(), self.host.embedder
        if embedder is None:
            raise self.not_ready()
        return model, embedder

    async def encode_media(self, request: Request, files: list[MediaPart]) -> list[Encoding]:
        """Raises ApiError, BudgetFull."""
        if self.media is None:
            raise refused(files[0].field, "sound" if files[0].is_sound else "images")
        claim = self.budget.claim(request.key_name or _address(request))
        try:
            return await self.media.encode(self.client(request), self.owner(request), files, claim)
        finally:
            claim.release()

    def memory_full(self) -> ApiError:
        return memory_full(self.budget.bytes_max)

    def not_ready(self) -> ApiError:
        if self.is_leaving or self.host.state is State.DRAINING:
            return ApiError(503, "The server is shutting down", headers=(("Retry-After", "5"),))
        if self.host.state is State.FAILED:
            return ApiError(500, f"The model cannot be served: {self.host.error}")
        waits = f"; {self.host.waits_for}" if self.host.waits_for else ""
        if self.host.state is State.RESTARTING:
            message = f"The model is being loaded again, because {self.host.error}{waits}"
            return ApiError(503, message, headers=(("Retry-After", "2"),))
        return ApiError(503, f"Loading model{waits}", headers=(("Retry-After", "1"),))

    def not_ready_for(self, request: Request) -> ApiError:
        """As not_ready(). The reason of a failed load names files, so only clients with a key see it."""
        if self.host.state is State.FAILED and not self.has_key(request):
            return ApiError(500, "The model cannot be served; see the server's log")
        if self.host.state is State.RESTARTING and not self.has_key(request):
            return ApiError(503, "The model is being loaded again", headers=(("Retry-After", "2"),))
        if self.host.waits_for and self.host.state is State.LOADING and not self.has_key(request):
            return ApiError(503, "Loading model", headers=(("Retry-After", "1"),))
        return self.not_ready()

    def tokenizing(self) -> Tokenizing:
        """The threads that tokenize short texts with the model's vocabulary; started on first use."""
        vocab = self.loaded().vocab
        found = self._tokenizing.get(vocab)
        if found is None:
            n_threads = min(TOKENIZING_THREADS_MAX, os.cpu_count() or 1)
            found = self._tokenizing[vocab] = Tokenizing(vocab, n_threads)
            asyncio.get_running_loop().add_reader(found.fd, found.poll)
        return found

    def client(self, request: Request) -> int:
        """The client as a number: of its key, or of its address if there are no keys."""
        if request.key_name:
            return hash(request.key_name) & CLIENT_MAX
        return hash(_address(request)) & CLIENT_MAX

    def owner(self, request: Request) -> int:
        """Whose cached prefixes and slots the request may use: its key's, or all (0)."""
        if self.settings.share_prefixes or not request.key_name:
            return 0
        return self._owners.setdefault(request.key_name, len(self._owners) + 1)

    def session(self, request: Request) -> int:
        """The conversation that X-Session-Id names as a number, of its key alone; 0: none."""
        id = request.headers.get("x-session-id", "")
        return hash((request.key_name, id)) & CLIENT_MAX if id else 0

    @property
    def n_preparing(self) -> int:
        return len(self._preparing)

    def enter_preparing(self, exchange: Exchange) -> Preparing:
        """Counts the request at once, so that many in one turn of the loop are not too many. Raises ApiError where too
        many requests, or too many of this client's, are being prepared."""
        if self._preparing.is_full:
            raise queue_full()
        if not self._preparing.has_share(self.client(exchange.request)):
            raise share_full()
        return self.preparing(exchange)

    def preparing(self, exchange: Exchange) -> Preparing:
        """Counts a request that was let in before."""
        return Preparing(self._preparing, self.client(exchange.request))

    def deadline_us(self, t_submit_us: int) -> int:
        """The deadline of a task submitted now, on the engine's clock; 0: none."""
        timeout = self.settings.request_timeout
        return t_submit_us + int(timeout * 1e6) if timeout > 0 else 0

    def eog_tokens(self) -> list[int]:
        """All end-of-generation tokens; found once, as it takes a scan of the vocabulary."""
        if self._eog_tokens is None:
            self._eog_tokens = self.ready()[0].vocab.eog_tokens()
        return self._eog_tokens

    def spawn(
        self, exchange: Exchange, work: Coroutine[Any, Any, None], preparing: Preparing | None = None
    ) -> None:
        """Run the long part of a request; its errors become the response. Cancelled if the client disconnects."""
        task = asyncio.ensure_future(self._answered(exchange, work))
        if preparing is not None:  # it may be cancelled before it has begun
            task.add_done_callback(lambda _: preparing.close())
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
            if self.host.engine is not None:
                give_way(self.kept_streams, self.host.engine, now, self.settings.stall_seconds)
        except Exception:
            log.exception("watching the kept streams failed")

    def close(self) -> None:
        for one in self._tokenizing.values():
            asyncio.get_running_loop().remove_reader(one.fd)
        self._tokenizing.clear()
        self.texts.close()
        self.json_workers.close()
        self.grammars.close()
        if self.prompt_files is not None:
            self.prompt_files.close()
