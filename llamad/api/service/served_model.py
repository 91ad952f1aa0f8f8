"""Holds what the endpoints need of one model: its host, template, defaults, grammars, media, states and queues.

Made once for each model at start, used on the event loop. Must not hold anything of a single request. What all models
share is in service.py.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from llamad.api.request import constraints
from llamad.api.request.constraints import Grammars
from llamad.api.request.dry_breakers import Breakers
from llamad.api.request.errors import ApiError, shutting_down
from llamad.api.request.generation import Drafting, drafting_of
from llamad.api.request.media import MediaPart, refused
from llamad.api.request.parse import Defaults
from llamad.api.request.system_prompt import read_file
from llamad.api.service.admission import Admission, Place
from llamad.api.service.chat_template import make_host, turn_end
from llamad.api.service.key_state import KeyStates
from llamad.api.service.known_prompts import KnownPrompts
from llamad.api.service.metrics import ModelMetrics
from llamad.api.service.service import Service, address
from llamad.api.service.turns import ModelTurns
from llamad.api.service.usage import Usage
from llamad.base.clock import clock_us
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
from llamad.models.host import Host
from llamad.models.host_state import State
from llamad.options.values import SystemPrompt
from llamad.protocol.errors import LoadError
from llamad.protocol.model_info import Model
from llamad.tokenizer.tokenize_pool import Tokenizing
from llamad.tokenizer.vocab import Vocab

if TYPE_CHECKING:
    from llamad.api.service.gate import Gate
    from llamad.api.service.media import Media
    from llamad.media.encoding import Encoding

T = TypeVar("T")

log = logging.getLogger("llamad.api")

# The smallest value, in bytes, of the limit on states in transit (bodies, files, responses).
ROOM_BYTES_MIN = 2**30
TOKENIZING_THREADS_MAX = 4
# The largest body of a chat, in bytes, that is rendered on the event loop, if its template is fast.
CHAT_INLINE_MAX = 16384
_READY = State.READY  # it is read on every request, and an Enum lookup is slow
_GONE = (State.FAILED, State.DRAINING)


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


def _no_text() -> ApiError:
    return ApiError(501, "This model is for embeddings or scores; it cannot generate text")


def _media(settings: ModelSettings, host: Host) -> Media | None:
    if host.media is None:
        return None
    from llamad.api.service.media import Media  # imported here because only models with a projector need it

    return Media(settings, host.media)


class ServedModel:
    """One model as the endpoints see it. `variant` has settings that differ from those of the host, which several
    models may share. With a gate, requests wait there for the engine. Raises ValueError, with a message, for flags that
    cannot be applied."""

    def __init__(
        self,
        service: Service,
        host: Host,
        variant: Mapping[str, Any] | None = None,
        gate: Gate | None = None,
    ) -> None:
        self.service = service
        self.host = host
        self.gate = gate
        self._variant = variant or {}
        self._shared = self._own = host.settings  # the host's settings, and what the variant makes of them
        if variant:
            self._own = msgspec.structs.replace(self._shared, **variant)
        settings = self.settings
        self.metrics = ModelMetrics()
        self.usage = gate.usage if gate is not None else Usage()
        self.key_states = KeyStates(_system_prompt(settings), is_shared=settings.system_prompt_shared)
        self.constraint = constraints.from_flags(settings)
        self.grammars = Grammars()
        self.breakers = Breakers()
        self.known = KnownPrompts()
        self.chat: ChatHost  # prepare() sets this and the next two
        self.defaults: Defaults
        self.turn_end = -1  # the token that ends a message
        self.chat_inline_max = CHAT_INLINE_MAX  # smaller if the template is slow
        # Set by prepare(), because a projector may have to be downloaded first.
        self.media: Media | None = None
        self.files = _state_files(settings)
        self.sessions = Sessions(settings.sessions_max_bytes, evict=settings.sessions_evict)
        self.room = Room(max(settings.sessions_max_bytes, ROOM_BYTES_MIN))
        # Requests whose texts or grammars are with a worker; they count as queued.
        self.preparing = Admission(settings.n_parallel + settings.queue_max)
        # Requests that wait for the model to be loaded.
        self.waiting = Admission(settings.n_parallel + settings.queue_max)
        # State actions that run or wait for their slot.
        self.state_actions = Admission(settings.n_parallel + settings.queue_max)
        # Texts of /tokenize and similar endpoints that wait or are being tokenized.
        self.counted = Admission(settings.queue_max)
        # The threads that tokenize short texts, by vocabulary. A new engine may have another vocabulary if the model's
        # file was replaced; the threads of the old one still finish their texts.
        self._tokenizing: dict[Vocab, Tokenizing] = {}
        self._eog_tokens: list[int] | None = None
        if service.disk is not None:
            host.keep_on_disk(service.disk, service.build_info)
        self.turns = ModelTurns(host.disk.turns if host.disk is not None else None)
        host.users.append(self)
        host.on_state.append(self._on_state)

    @property
    def settings(self) -> ModelSettings:
        """Return the current settings of the model; a reload changes some of them, a download others."""
        shared = self.host.settings
        if not self._variant:
            return shared
        if shared is not self._shared:
            self._shared, self._own = shared, msgspec.structs.replace(shared, **self._variant)
        return self._own

    def prepare(self, model: Model) -> list[str]:
        """Apply the flags that need the vocabulary; runs in a thread before any request for this model. Return the
        texts of the special tokens that are needed to parse the model's output."""
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
            self.turn_end = turn_end(self.chat, model)
            self.turns.prepare(model, self.chat)
        except ValueError as error:
            raise LoadError(str(error)) from None
        return self.chat.markers

    async def engine_ready(self, engine: EngineClient) -> None:
        """Give the server's own grammar to a new engine, before any request uses it."""
        self.defaults.apply(self.settings)  # the settings may have been reloaded since prepare()
        try:
            await self.grammars.prepare(self.constraint, engine)
        except ApiError as error:
            raise LoadError(f"--grammar or --json-schema: {error.message}") from None

    def engine_ended(self) -> None:
        self.grammars.forget()
        self.known.misses.clear()

    def apply(self, changes: dict[str, Any]) -> None:
        """Change limits for later requests."""
        self.host.apply(changes)
        settings = self.settings
        self.counted.n_max = settings.queue_max
        for queue in (self.waiting, self.preparing, self.state_actions):
            queue.n_max = settings.n_parallel + settings.queue_max
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
        """Return the model's name for clients without a key; it contains no path."""
        return self.settings.alias or os.path.basename(self.settings.model)

    @property
    def names(self) -> tuple[str, ...]:
        """Return all names of the model."""
        return (self.name, self.public_name, *self.settings.aliases)

    def name_for(self, request: Request) -> str:
        """Return the model's name that the client of this request may see."""
        return self.name if self.service.has_key(request) else self.public_name

    def public_settings(self) -> dict[str, Any]:
        """Return the server's flags as /props shows them, without keys and tokens."""
        return props(Settings(self.service.settings, self.settings))

    # What serves the model.

    def drafting(self) -> Drafting:
        """Return how the model's engine drafts."""
        return drafting_of(self.host.spec_types, self.settings)

    @property
    def can_wake(self) -> bool:
        """Whether the model sleeps, or is being loaded again after it slept, so that a request may wait for it."""
        return self.gate is not None or self.host.state is State.SLEEPING or self.host.is_waking

    @property
    def accepts(self) -> bool:
        """Whether requests are accepted: the model serves, or will be woken for them."""
        return self.host.state is _READY or (self.can_wake and self.host.state not in _GONE)

    @property
    def is_idle(self) -> bool:
        """Whether nobody uses the model, so that its engine can be ended."""
        return self.usage.n_active == 0 and self.host.is_idle

    @property
    def n_idle_slots(self) -> int:
        """The number of idle slots; all of them if the model sleeps. A model for embeddings only has no slots; its
        requests count instead."""
        engine, embedder, n_slots = self.host.engine, self.host.embedder, self.settings.n_parallel
        if engine is None:
            return max(0, n_slots - (embedder.n_jobs if embedder is not None else 0))
        return n_slots if not engine.is_connected and self.accepts else engine.n_idle()

    def _on_state(self, host: Host) -> None:
        self.usage.touch()  # the time of a load is not idle time

    def described(self) -> Model:
        """Return the model for what needs its vocabulary and template but no engine: also while its engine is being
        started again, sleeps or is unloaded. Raises ApiError if it was never loaded or has failed."""
        host = self.host
        if host.state is _READY and host.model is not None:
            return host.model
        if host.model is None or host.is_changing or host.state in _GONE:
            raise self.not_ready()
        return host.model

    def described_text(self) -> Model:
        """Return the same as described(). Raises ApiError if the model cannot generate text."""
        model = self.described()
        if self.host.engine is None:
            raise _no_text()
        return model

    def loaded(self) -> Model:
        """Return the model if its engine serves. Raises ApiError if not."""
        host = self.host
        if host.state is _READY and host.model is not None:
            return host.model
        raise self.not_ready()

    def ready(self) -> tuple[Model, EngineClient]:
        """Return the model and its engine. Raises ApiError if it is not ready or cannot generate text."""
        model, engine = self.loaded(), self.host.engine
        if engine is None:
            raise _no_text()
        return model, engine

    def states(self) -> States:
        """Return the states of the engine's slots. Raises ApiError if the model is not ready."""
        self.ready()
        states = self.host.states
        if states is None:
            raise self.not_ready()
        return states

    def described_states(self) -> States:
        """Return the states for what is known without an engine: their layout and sizes. Raises ApiError if the model
        was never loaded."""
        self.described_text()
        states = self.host.states
        if states is None:
            raise self.not_ready()
        return states

    def embedder(self) -> tuple[Model, Embedder]:
        """Return the model and its embedder. The caller has checked that the flags enable it. Raises ApiError if it is
        not ready."""
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
        if self.host.state is State.UNLOADED:
            message = "The model is not loaded; POST /models/load loads it"
            return ApiError(503, message, headers=(("Retry-After", "1"),))
        return ApiError(503, f"Loading model{waits}", headers=(("Retry-After", "1"),))

    def not_ready_for(self, request: Request) -> ApiError:
        """Return the same error as not_ready(), but without the reason if the client has no key, because the reason of
        a failed load names files."""
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
        """Return the threads that tokenize short texts with the model's vocabulary; they are started on first use."""
        vocab = self.described().vocab
        threads = self._tokenizing.get(vocab)
        if threads is None:
            n_threads = min(TOKENIZING_THREADS_MAX, os.cpu_count() or 1)
            threads = self._tokenizing[vocab] = Tokenizing(vocab, n_threads)
            asyncio.get_running_loop().add_reader(threads.fd, threads.poll)
        return threads

    async def count_text(self, request: Request, n_chars: int, work: Callable[[], T]) -> T:
        """Run `work`, which tokenizes a text of any length that is only counted or returned. Raises ApiError if too
        many such texts wait."""
        with self.counted.enter(self.service.client(request)) as client:
            return await self.service.texts.count(client, n_chars, work)

    async def encode_media(self, request: Request, files: list[MediaPart]) -> list[Encoding]:
        """Return the encodings of images and sound. Raises ApiError, BudgetFull."""
        if self.media is None:
            raise refused(files[0].field, "sound" if files[0].is_sound else "images")
        claim = self.service.budget.claim(request.key_name or address(request))
        try:
            return await self.media.encode(self.service.client(request), self.owner(request), files, claim)
        finally:
            claim.release()

    def enter_preparing(self, exchange: Exchange) -> Place:
        """Count a request that is being prepared. Raises ApiError if too many, or too many of this client's, are
        counted already."""
        return self.preparing.enter(self.service.client(exchange.request))

    def try_preparing(self, exchange: Exchange) -> Place | None:
        """Count a request like enter_preparing(), or return None if too many are counted already."""
        try:
            return self.enter_preparing(exchange)
        except ApiError:
            return None

    def owner(self, request: Request) -> int:
        """Return the owner of the cached prefixes and slots that the request may use: a number of its key, or 0 for
        all."""
        if self.settings.share_prefixes or not request.key_name:
            return 0
        owners = self.host.owners
        return owners.setdefault(request.key_name, len(owners) + 1)

    def deadline_us(self, request: Request) -> int:
        """Return the deadline of the request's tasks on the engine's clock; 0: none. The time that the request has
        taken so far counts, because it may have waited for the model to be loaded."""
        timeout = self.settings.request_timeout
        if timeout <= 0:
            return 0
        return clock_us() + int((request.t_start + timeout - time.monotonic()) * 1e6)

    def eog_tokens(self) -> list[int]:
        """Return all end-of-generation tokens. They are kept, because finding them takes a scan of the vocabulary."""
        if self._eog_tokens is None:
            self._eog_tokens = self.described().vocab.eog_tokens()
        return self._eog_tokens

    def take_over(self, old: ServedModel) -> None:
        """Take the place of a model with other settings: what its clients have saved and set stays."""
        self.sessions, self.room, self.metrics, self.grammars = (
            old.sessions,
            old.room,
            old.metrics,
            old.grammars,
        )
        self.turns, self.known = old.turns, old.known
        self._tokenizing = old._tokenizing
        if self.settings.system_prompt_file == old.settings.system_prompt_file:
            self.key_states = old.key_states

    def retire(self) -> None:
        """Serve no more engines: another model takes its place. Requests that run go on."""
        self.host.users.remove(self)
        self.host.on_state.remove(self._on_state)

    def close(self) -> None:
        for threads in self._tokenizing.values():
            asyncio.get_running_loop().remove_reader(threads.fd)
        self._tokenizing.clear()
        self.grammars.close()
