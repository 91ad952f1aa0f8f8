"""What endpoints see of a model: its description, its engine, its embedder, and the states of its slots.

Runs on the event loop. All of them outlive the engine process; each new process is connected to them. host.py starts
and ends the processes.
"""

from __future__ import annotations

import asyncio
import importlib
import logging

from llamad.client.adapters import Adapters
from llamad.client.control import Asking
from llamad.client.embedding import Embedder
from llamad.client.engine_client import EngineClient
from llamad.client.slot_states import States
from llamad.client.step_trace import StepTrace
from llamad.flags.settings import ModelSettings
from llamad.models import stalls
from llamad.models.adapter_loading import AdapterLoading
from llamad.models.cache_disk.disk_cache import DiskCache
from llamad.models.disk_prompts import DiskPrompts
from llamad.models.model_user import ModelUser
from llamad.models.projector import make_reader
from llamad.models.restarts import Restarts
from llamad.protocol.blobs import Arena
from llamad.protocol.cache_memory import CacheMemory
from llamad.protocol.channel import Descriptors, Link
from llamad.protocol.control_messages import Loaded, Ready
from llamad.protocol.errors import EngineEnded, Stopped
from llamad.protocol.messages import FAILURE_ABORTED, FAILURE_ENGINE, RESULT_ABORTED
from llamad.protocol.model_info import Model
from llamad.ses1.ses1 import Layout, StateError

log = logging.getLogger("llamad.engine")


def states_layout(settings: ModelSettings, ready: Ready) -> tuple[Layout | None, str]:
    """Return the layout of the model's states, or None and the reason why there is none."""
    if settings.grp_attn_n > 1:
        return None, "with --grp-attn-n its positions are grouped"
    if not ready.states:
        return None, "llama.cpp cannot save this model's KV cache"
    try:
        return Layout(ready.states[0], ready.states[1], ready.n_window), ""
    except StateError as error:
        return None, str(error)


class Connections:
    """`model`, `engine` (if the model generates) and `embedder` (if the flags enable it) are set when the first engine
    connects, and stay. Each engine maps the blobs of `arena`, and keeps prompts in `cache_memory` for the next. Raises
    OSError if the step trace cannot be opened."""

    def __init__(
        self, settings: ModelSettings, arena: Arena | None = None, cache_memory: CacheMemory | None = None
    ) -> None:
        self.settings = settings
        self.arena = arena or Arena()
        self.cache_memory = cache_memory or CacheMemory()
        self.label = ""  # the model's name in log lines, if there are several models
        self.restarts = Restarts()
        self.users: list[ModelUser] = []  # those that serve requests with this model
        # A number for each API key seen so far, by its name. The engine keeps the keys' prefixes apart by it, so all
        # users have the same.
        self.owners: dict[str, int] = {}
        self.model: Model | None = None
        self.engine: EngineClient | None = None
        self.states: States | None = None  # None unless the flags enable them
        self.disk: DiskPrompts | None = None  # None unless prompts are kept on disk
        self.spec_types = ""  # how the engine drafts; "" if it does not
        self.embedder: Embedder | None = None
        self.media = make_reader(settings, self.arena) if not settings.is_remote else None
        self.adapters = Adapters(settings.lora, not settings.lora_init_without_apply)
        self.loading = AdapterLoading(settings, self.adapters)
        # Opened now, so that a wrong path fails at start-up and not at the first request.
        self._trace = StepTrace(settings.step_trace) if settings.step_trace else None

    def kill(self, reason: str) -> None:
        """End the engine process, if there is one, because it has sent invalid data."""

    def keep_on_disk(self, cache: DiskCache, build: str) -> None:
        """Keep the prompts of the cache memory on disk, too. `build` names the build of llama.cpp."""
        if self.disk is None:
            self.disk = DiskPrompts(self, cache, build)

    @property
    def prefix(self) -> str:
        """Return the beginning of a log line about this model."""
        return f"{self.label}: " if self.label else ""

    def prepare_users(self, model: Model) -> list[str]:
        """Let all users prepare for a model; return the markers of all of them. Runs in a thread."""
        markers = list(dict.fromkeys(marker for user in self.users for marker in user.prepare(model)))
        model.vocab.show_markers(markers)
        return markers

    async def show_engine(self) -> None:
        """Let all users prepare an engine that was connected. Raises LoadError."""
        if self.engine is not None:
            for user in self.users:
                await user.engine_ready(self.engine)

    def import_numpy(self) -> asyncio.Future[object]:
        """Import NumPy in a thread if embeddings are enabled, because on the event loop it would delay the first
        request by a tenth of a second."""
        names = ["numpy"] if self.settings.wants_vectors else []
        load = asyncio.get_running_loop().run_in_executor
        return load(None, lambda: [importlib.import_module(name) for name in names])

    async def connect_all(self, channel: Descriptors, control: Asking, loaded: Loaded, ready: Ready) -> None:
        """Connect an engine to everything that uses it."""
        # This is first, because a request may use any of the adapters as soon as the engine is connected.
        await self.loading.reopen(control)
        if loaded.can_generate:
            self.connect(Link(channel.memory, channel.command, channel.event), control)
            self.set_states(ready)
            self.spec_types = ready.spec_types
        if loaded.vectors is not None:
            self.connect_vectors(loaded, control)
        self.loading.connect(control, self.engine if loaded.can_generate else None)

    def connect(self, link: Link, control: Asking) -> None:
        """Connect an engine that generates."""
        if self.engine is None:
            self.engine = EngineClient(
                n_slots=self.settings.n_parallel,
                queue_max=self.settings.queue_max,
                trace=self._trace,
                on_broken=self.kill,
                on_went_on=self.restarts.went_on,
                resume_max=self.settings.resume_after_crash,
            )
        assert self.model is not None
        self.engine.connect(link, control, self.model.vocab)
        if self.media is not None:
            self.media.n_at_once = self.engine.n_ubatch

    def connect_vectors(self, loaded: Loaded, control: Asking) -> None:
        """Connect an engine that computes embeddings."""
        assert loaded.vectors is not None
        n_pack, n_texts_max = loaded.vectors_pack
        if self.embedder is None:
            self.embedder = Embedder(
                loaded.vectors,
                jobs_max=self.settings.n_parallel + self.settings.queue_max,
                n_pack=n_pack,
                n_texts_max=n_texts_max,
                arena=self.arena,
                resume_max=self.settings.resume_after_crash,
                on_went_on=self.restarts.went_on,
            )
        assert self.model is not None
        lend = self.engine.lend_rows if self.engine is not None else None
        self.embedder.connect(control, self.model.vocab, lend)

    def set_states(self, ready: Ready) -> None:
        settings, model, engine = self.settings, self.model, self.engine
        if not settings.wants_states or model is None or engine is None:
            return
        layout, refusal = states_layout(settings, ready)
        if self.disk is not None:
            self.disk.source.layout = layout
        if layout is None:
            log.warning("slots cannot be saved: %s", refusal)
        if self.states is None:
            self.states = States(
                engine,
                layout,
                refusal,
                n_vocab=model.info.n_vocab,
                n_ctx=model.n_ctx_slot,
                adapters=self.adapters,
                arena=self.arena,
            )
        else:
            self.states.layout, self.states.refusal = layout, refusal
        self.states.takes_parts = ready.takes_parts

    def disconnect(self, *, is_stopped: bool) -> None:
        """The engine has ended: fail the requests that it had in flight, unless they go on in the next one. With
        `is_stopped` the daemon has ended the engine, and all of them fail."""
        for user in self.users:
            user.engine_ended()
        self.loading.disconnect()
        if self.disk is not None:
            self.disk.source.forget_slots()
        if self.engine is not None:
            if is_stopped:
                self.engine.disconnect(FAILURE_ABORTED, RESULT_ABORTED)
            else:
                self.engine.disconnect()
        if self.embedder is not None:
            self.embedder.disconnect(Stopped() if is_stopped else None)

    def fail_waiting(self, *, is_stopped: bool = False) -> None:
        """Fail the requests that wait for the next engine, because there will be none."""
        if self.engine is not None:
            self.engine.fail_orphans(FAILURE_ABORTED if is_stopped else FAILURE_ENGINE)
        if self.embedder is not None:
            self.embedder.fail_orphans(Stopped() if is_stopped else EngineEnded())

    @property
    def is_idle(self) -> bool:
        """Whether nothing is in flight that the engine's end, or that of the media processes, would cut."""
        engine, embedder, media = self.engine, self.embedder, self.media
        return (
            (engine is None or engine.is_idle)
            and (embedder is None or embedder.is_idle)
            and (media is None or media.is_idle)
            and self.loading.is_idle
        )

    def apply_limits(self) -> None:
        """Apply the limits of queues, which a reload may have changed."""
        if self.engine is not None:
            self.engine.queue_max = self.settings.queue_max
            self.engine.resume_max = self.settings.resume_after_crash
        if self.embedder is not None:
            self.embedder.jobs_max = self.settings.n_parallel + self.settings.queue_max
            self.embedder.resume_max = self.settings.resume_after_crash

    def close_connections(self) -> None:
        """Fail all requests in flight and close everything."""
        if self.engine is not None:
            self.engine.disconnect(FAILURE_ABORTED, RESULT_ABORTED)
            self.engine.close()
        if self.states is not None:
            self.states.close()
        if self.disk is not None:
            self.disk.close()
        if self.media is not None:
            self.media.close()
        if self.embedder is not None:
            self.embedder.close()

    def silence(self) -> tuple[float, float]:
        """Return for how many seconds the engine has had work but finished no step, and the limit on that."""
        silent = limit = 0.0
        engine, embedder = self.engine, self.embedder
        if engine is not None:
            silent, stats = engine.silent_seconds(), engine.stats()
            longest, prompts = stats.get("turn_us_max", 0) / 1e6, stats.get("prompt_us", 0) / 1e6
            limit = stalls.limit(longest, engine.n_ubatch, prompts, stats.get("n_prompt_tokens", 0))
        if embedder is not None:
            silent, counts = max(silent, embedder.silent_seconds()), embedder.counts
            limit = max(limit, stalls.limit(0.0, embedder.n_pack, counts.seconds, counts.n_tokens))
        return silent, self.settings.engine_stall_seconds or limit
