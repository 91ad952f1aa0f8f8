"""Owns what the endpoints need of one model: its host, template, defaults, grammars, media, states and queues.

Made once at start for each model, used on the event loop. Must not hold anything of a single request. What models share
is in service.py.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from llamad.api.request import constraints
from llamad.api.request.constraints import Grammars
from llamad.api.request.dry_breakers import Breakers
from llamad.api.request.errors import ApiError, shutting_down
from llamad.api.request.media import MediaPart, refused
from llamad.api.request.parse import Defaults
from llamad.api.request.system_prompt import read_file
from llamad.api.service.admission import Admission, Place
from llamad.api.service.chat_template import make_host, turn_end
from llamad.api.service.key_state import KeyStates
from llamad.api.service.metrics import ModelMetrics
from llamad.api.service.service import Service, address
from llamad.chat.host import ChatHost
from llamad.client.embedding import Embedder
from llamad.client.engine_client import EngineClient
from llamad.client.sessions import Sessions
from llamad.client.slot_states import States
from llamad.client.state_bytes import Room
from llamad.client.state_files import StateFiles
from llamad.flags.help import props
from llamad.flags.settings import ModelSettings, Settings
from llamad.http.exchange import Exchange
from llamad.http.request import Request
from llamad.models.host import Host, State
from llamad.options.values import SystemPrompt
from llamad.protocol.errors import LoadError
from llamad.protocol.model_info import Model
from llamad.tokenizer.tokenize_pool import Tokenizing
from llamad.tokenizer.vocab import Vocab

if TYPE_CHECKING:
    from llamad.api.service.media import Media
    from llamad.media.encoding import Encoding

T = TypeVar("T")

log = logging.getLogger("llamad.api")

# The least limit on states in transit (bodies, files, responses), in bytes.
ROOM_BYTES_MIN = 2**30
TOKENIZING_THREADS_MAX = 4
# The largest body of a chat that is rendered on the event loop, if its template is quick.
CHAT_INLINE_MAX = 16384
_READY = State.READY  # read on every request; an Enum lookup is slow


def _system_prompt(settings: ModelSettings) -> SystemPrompt:
    file = settings.system_prompt_file
    try:
        return SystemPrompt() if file is None else read_file(file)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ValueError(f"--system-prompt-file {file}: {reason}") from None


def _state_files(settings: ModelSettings) -> StateFiles | None:
    path = settings.slot_save_path
    try:
        return None if path is None else StateFiles(path)
    except OSError as error:
        raise ValueError(
            f"--slot-save-path {path}: {error.strerror}; it must be a directory that llamad can write to"
        ) from None


def _media(settings: ModelSettings, host: Host) -> Media | None:
    if host.media is None:
        return None
    from llamad.api.service.media import Media  # only with a projector

    return Media(settings, host.media)


class ServedModel:
    """Raises ValueError, with a message, for flags that cannot be honoured."""

    def __init__(self, service: Service, host: Host) -> None:
        settings = host.settings
        self.service = service
        self.host = host
        self.metrics = ModelMetrics()
        self.key_states = KeyStates(_system_prompt(settings), is_shared=settings.system_prompt_shared)
        self.constraint = constraints.from_flags(settings)
        self.grammars = Grammars()
        self.breakers = Breakers()
        self.chat: ChatHost  # set by prepare(), as the next two
        self.defaults: Defaults
        self.turn_end = -1  # the token that ends a message
        self.chat_inline_max = CHAT_INLINE_MAX  # less for a template that is not quick
        self.media: Media | None = None  # set by prepare(): a projector may have to be downloaded first
        self.files = _state_files(settings)
        self.sessions = Sessions(settings.sessions_max_bytes, evict=settings.sessions_evict)
        self.room = Room(max(settings.sessions_max_bytes, ROOM_BYTES_MIN))
        # Requests whose texts or grammars are with a worker; they count as queued.
        self.preparing = Admission(settings.n_parallel + settings.queue_max)
        # State actions that run or wait for their slot.
        self.state_actions = Admission(settings.n_parallel + settings.queue_max)
        # Texts of /tokenize and its like that wait or are tokenized.
        self.counted = Admission(settings.queue_max)
        # The threads that tokenize short texts, by vocabulary: a new engine may have another one, if the model's file
        # was replaced. What the threads of the old one still have is answered, too.
        self._tokenizing: dict[Vocab, Tokenizing] = {}
        self._eog_tokens: list[int] | None = None
        self._owners: dict[str, int] = {}  # numbers of the keys seen so far, by name
        host.prepare = self.prepare
        host.engine_ready = self.engine_ready
        host.engine_ended = self.grammars.forget

    @property
    def settings(self) -> ModelSettings:
        """As they are now: a reload changes some, a download others."""
        return self.host.settings

    def prepare(self, model: Model) -> list[str]:
        """In a thread, before any request for this model: apply the flags that need the vocabulary. Returns the texts
        of special tokens that its answers are parsed by."""
        self.media = self.media or _media(self.settings, self.host)
        self.defaults = Defaults(self.settings, model)
        for warning in self.defaults.warnings:
            log.warning("%s", warning)
        self._eog_tokens = None
        for bias in self.settings.options.logit_bias:
            if bias.token >= model.info.n_vocab:
                last = model.info.n_vocab - 1
                raise LoadError(f"--logit-bias {bias.token}: this model's tokens are 0 to {last}")
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

    async def engine_ready(self, engine: EngineClient) -> None:
        """Before any request sees this engine: give it the server's own grammar."""
        self.defaults.apply(self.settings)  # a reload may have come since prepare()
        try:
            await self.grammars.prepare(self.constraint, engine)
        except ApiError as error:
            raise LoadError(f"--grammar or --json-schema: {error.message}") from None

    def apply(self, changes: dict[str, Any]) -> None:
        """Other limits, for requests to come."""
        self.host.apply(changes)
        settings = self.settings
        self.counted.n_max = settings.queue_max
        self.state_actions.n_max = self.preparing.n_max = settings.n_parallel + settings.queue_max
        if self.media is not None:
            self.media.apply(settings)
        if self.host.model is not None:
            self.defaults.apply(settings)

    # Names.

    @property
    def name(self) -> str:
        return self.settings.alias or self.settings.model

    @property
    def public_name(self) -> str:
        """The model's name for clients without a key: no path."""
        return self.settings.alias or os.path.basename(self.settings.model)

    @property
    def names(self) -> tuple[str, ...]:
        """All names of the model."""
        return (self.name, self.public_name, *self.settings.aliases)

    def name_for(self, request: Request) -> str:
        """The model's name that the request may see."""
        return self.name if self.service.has_key(request) else self.public_name

    def public_settings(self) -> dict[str, Any]:
        """The server's flags as /props shows them: no keys, no tokens."""
        return props(Settings(self.service.settings, self.settings))

    # What serves it.

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

    def not_ready(self) -> ApiError:
        if self.service.is_leaving or self.host.state is State.DRAINING:
            return shutting_down()
        if self.host.state is State.FAILED:
            return ApiError(500, f"The model cannot be served: {self.host.error}")
        waits = f"; {self.host.waits_for}" if self.host.waits_for else ""
        if self.host.state is State.RESTARTING:
            message = f"The model is being loaded again, because {self.host.error}{waits}"
            return ApiError(503, message, headers=(("Retry-After", "2"),))
        return ApiError(503, f"Loading model{waits}", headers=(("Retry-After", "1"),))

    def not_ready_for(self, request: Request) -> ApiError:
        """As not_ready(). The reason of a failed load names files, so only clients with a key see it."""
        if not self.service.has_key(request):
            if self.host.state is State.FAILED:
                return ApiError(500, "The model cannot be served; see the server's log")
            if self.host.state is State.RESTARTING:
                return ApiError(503, "The model is being loaded again", headers=(("Retry-After", "2"),))
            if self.host.waits_for and self.host.state is State.LOADING:
                return ApiError(503, "Loading model", headers=(("Retry-After", "1"),))
        return self.not_ready()

    # Work for a request.

    def tokenizing(self) -> Tokenizing:
        """The threads that tokenize short texts with the model's vocabulary; started on first use."""
        vocab = self.loaded().vocab
        threads = self._tokenizing.get(vocab)
        if threads is None:
            n_threads = min(TOKENIZING_THREADS_MAX, os.cpu_count() or 1)
            threads = self._tokenizing[vocab] = Tokenizing(vocab, n_threads)
            asyncio.get_running_loop().add_reader(threads.fd, threads.poll)
        return threads

    async def count_text(self, request: Request, n_chars: int, work: Callable[[], T]) -> T:
        """Tokenize what is only counted or looked at, however long. Raises ApiError if too many such texts wait."""
        with self.counted.enter(self.service.client(request)) as client:
            return await self.service.texts.count(client, n_chars, work)

    async def encode_media(self, request: Request, files: list[MediaPart]) -> list[Encoding]:
        """Raises ApiError, BudgetFull."""
        if self.media is None:
            raise refused(files[0].field, "sound" if files[0].is_sound else "images")
        claim = self.service.budget.claim(request.key_name or address(request))
        try:
            return await self.media.encode(self.service.client(request), self.owner(request), files, claim)
        finally:
            claim.release()

    def enter_preparing(self, exchange: Exchange) -> Place:
        """Raises ApiError if too many requests, or too many of this client's, are being prepared."""
        return self.preparing.enter(self.service.client(exchange.request))

    def owner(self, request: Request) -> int:
        """Whose cached prefixes and slots the request may use: its key's, or all (0)."""
        if self.settings.share_prefixes or not request.key_name:
            return 0
        return self._owners.setdefault(request.key_name, len(self._owners) + 1)

    def deadline_us(self, t_submit_us: int) -> int:
        """The deadline of a task submitted now, on the engine's clock; 0: none."""
        timeout = self.settings.request_timeout
        return t_submit_us + int(timeout * 1e6) if timeout > 0 else 0

    def eog_tokens(self) -> list[int]:
        """All end-of-generation tokens; found once, as it takes a scan of the vocabulary."""
        if self._eog_tokens is None:
            self._eog_tokens = self.ready()[0].vocab.eog_tokens()
        return self._eog_tokens

    def close(self) -> None:
        for threads in self._tokenizing.values():
            asyncio.get_running_loop().remove_reader(threads.fd)
        self._tokenizing.clear()
        self.grammars.close()
