"""Owns the model's life cycle in the daemon: loading, ready, failed, draining.

Runs on the event loop; loading runs in a thread. Endpoints check `state` and never wait.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from enum import Enum

from llamad.client.engine import Engine
from llamad.client.slot_states import States
from llamad.client.step_trace import StepTrace
from llamad.engine.core import Core
from llamad.engine.embedder import Computer, Embedder
from llamad.engine.loading.memory import cache_ram_bytes
from llamad.engine.loading.model import LoadedModel, load
from llamad.engine.loading.opening import LoadCancelled, Loading, Opening
from llamad.engine.loading.threads import compute_threads, sampler_threads
from llamad.flags.settings import Settings
from llamad.protocol.errors import ComputeFailed, LoadError
from llamad.protocol.model_info import Model
from llamad.ses1.ses1 import Layout, StateError

log = logging.getLogger("llamad.engine")

PROGRESS_SECONDS = 0.5


def wants_states(settings: Settings) -> bool:
    """Whether any endpoint can request a slot's state."""
    return settings.endpoint_slots or settings.slot_save_path is not None


class State(Enum):
    LOADING = "loading model"
    READY = "ok"
    FAILED = "error"
    DRAINING = "draining"


def learn_layout(core: Core, token: int, n_window: int) -> Layout:
    """The layout of this model's states; n_window is its sliding window, or 0. Before the engine starts.
    Raises StateError."""
    probed = core.probe(token)
    if not probed:
        raise StateError("llama.cpp cannot save this model's KV cache")
    return Layout(probed[0], probed[1], n_window)


class Host:
    """`model`, `engine` (if it generates) and `embedder` (if the flags enable it) are set from READY on, also while
    DRAINING."""

    def __init__(self, settings: Settings, opening: Opening | None = None) -> None:
        self.settings = settings
        self._opening = opening  # if the model is being opened already
        self.state = State.LOADING
        self.error = ""
        self.model: Model | None = None
        self.loaded: LoadedModel | None = None  # its contexts
        self.engine: Engine | None = None
        self.states: States | None = None  # if the flags enable them
        self.embedder: Embedder | None = None
        # Called in the loader thread with the loaded model, before the state is READY. May raise LoadError.
        self.prepare: Callable[[Model], None] | None = None
        self._layout: Layout | None = None
        self._no_layout = ""
        self._loading = opening.loading if opening is not None else Loading()
        # Opened now, so that a wrong path fails at start-up and not at the first request. Raises OSError.
        self._trace = StepTrace(settings.step_trace) if settings.step_trace else None

    async def load(self) -> None:
        """Load the model and start the engine. A failure sets the state; nothing is raised."""
        loop = asyncio.get_running_loop()
        t_start = time.monotonic()
        future: asyncio.Future[tuple[LoadedModel, Core | None]] = loop.create_future()
        progress = asyncio.ensure_future(self._show_progress())
        try:
            # Not the executor: a stopping daemon must not wait for a long load.
            threading.Thread(
                target=self._load_in_thread, args=(loop, future), name="llamad-load", daemon=True
            ).start()
            self.loaded, core = await future
            self.model = self.loaded.model
            self.start(core)
        except LoadCancelled:
            return
        except LoadError as error:
            self.fail(str(error))
            return
        except Exception as error:
            log.exception("loading failed")
            self.fail(f"{type(error).__name__}: {error}")
            return
        finally:
            progress.cancel()
        log.info(
            "model ready in %.1f s: %s, %d slots of %d tokens",
            time.monotonic() - t_start,
            self.model.info.description,
            self.settings.n_parallel,
            self.model.n_ctx_slot,
        )

    def fail(self, error: str) -> None:
        """The model cannot be served; the daemon keeps running and answers with this reason."""
        self.error = error
        if self.state is State.LOADING:
            self.state = State.FAILED
        log.error("%s", error)

    def start(self, core: Core | None) -> None:
        """Start the engine, if the model generates, and the embedder, if the flags enable it."""
        settings = self.settings
        if core is not None:
            self.engine = Engine(
                core, n_slots=settings.n_parallel, queue_max=settings.queue_max, trace=self._trace
            )
            self.engine.start()
            self.states = self._states(self.engine)
        vectors = self.computer()
        if vectors is not None:
            self.embedder = Embedder(vectors, jobs_max=settings.n_parallel + settings.queue_max)
            self.embedder.start()
        if self.state is State.LOADING:
            self.state = State.READY

    def computer(self) -> Computer | None:
        """The embedder, if the flags enable it."""
        return self.loaded.vectors if self.loaded is not None else None

    def drain(self) -> None:
        """No new requests from now on; cancels a load."""
        self.state = State.DRAINING
        self._loading.cancel()

    async def close(self) -> None:
        """Stop engine and embedder. The model is not freed: a worker may still use it, and the process exits."""
        if self.engine is not None:
            await self.engine.stop()
            self.engine = None
        if self.states is not None:
            self.states.close()
        if self.embedder is not None:
            await self.embedder.stop()
            self.embedder = None

    async def _show_progress(self) -> None:
        shown = -1
        while True:
            await asyncio.sleep(PROGRESS_SECONDS)
            percent = self._loading.permille // 10
            if percent != shown:
                log.info("loading model: %d %%", percent)
                shown = percent

    def _load_in_thread(
        self, loop: asyncio.AbstractEventLoop, future: asyncio.Future[tuple[LoadedModel, Core | None]]
    ) -> None:
        try:
            result = self._load()
        except BaseException as error:
            outcome: BaseException | tuple[LoadedModel, Core | None] = error
        else:
            outcome = result

        def settle() -> None:
            if future.done():
                return
            if isinstance(outcome, BaseException):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)

        try:
            loop.call_soon_threadsafe(settle)
        except RuntimeError:
            pass  # the event loop has ended

    def _load(self) -> tuple[LoadedModel, Core | None]:
        settings = self.settings
        loaded = load(settings, compute_threads(settings.n_threads), self._loading, self._opening)
        try:
            if self.prepare is not None:
                self.prepare(loaded.model)
            self._warm_up_vectors(loaded)
            core = self._core(loaded) if loaded.model.can_generate else None
            if self._loading.is_cancelled:
                raise LoadCancelled
        except BaseException:
            loaded.close()
            raise
        return loaded, core

    def _warm_up_vectors(self, loaded: LoadedModel) -> None:
        if loaded.vectors is None:
            return
        info = loaded.vectors.info
        if info.pooling == "rank" and not info.has_head:
            log.warning("the model has no classification head: /rerank and /classify will answer 501")
        if self.settings.warmup:
            try:
                loaded.vectors.compute([max(0, loaded.model.info.bos).to_bytes(4, "little")])
            except ComputeFailed as error:
                raise LoadError(
                    f"the model was loaded but cannot compute embeddings (llama.cpp returned {error.code})"
                ) from None

    def _core(self, loaded: LoadedModel) -> Core:
        settings, model = self.settings, loaded.model
        core = Core(
            model.vocab,
            loaded.context_address,
            n_slots=settings.n_parallel,
            n_ctx=model.n_ctx_slot,
            n_cells=model.n_ctx if settings.kv_unified else 0,
            n_batch=loaded.n_batch,
            n_ubatch=loaded.n_ubatch,
            n_swa=loaded.n_swa,
            add_bos=model.info.add_bos,
            similarity_min=settings.slot_prompt_similarity,
            step_tokens_max=settings.step_tokens_max,
            n_sampler_threads=sampler_threads(
                settings.n_threads_sampling, settings.n_parallel, loaded.has_device
            ),
            cont_batching=settings.cont_batching,
            tracing=settings.step_trace is not None,
            can_share=loaded.can_share,
            group_n=settings.grp_attn_n,
            group_w=settings.grp_attn_w,
            has_device=loaded.has_device,
            api_only=settings.llama_api_only,
            cache_bytes=cache_ram_bytes(settings),
            n_text_max=max(model.info.n_ctx_train, model.n_ctx_slot),
        )
        if settings.warmup:
            code = core.warm_up(max(0, model.info.bos))
            if code != 0:
                raise LoadError(f"the model was loaded but cannot decode (llama.cpp returned {code})")
        if wants_states(settings):
            try:
                self._layout = learn_layout(core, max(0, model.info.bos), loaded.n_swa)
            except StateError as error:
                self._no_layout = str(error)
                log.warning("slots cannot be saved: %s", error)
        return core

    def _states(self, engine: Engine) -> States | None:
        if not wants_states(self.settings) or self.model is None:
            return None
        layout, refusal = self._layout, self._no_layout
        if self.settings.grp_attn_n > 1:
            layout, refusal = None, "with --grp-attn-n its positions are grouped"
        n_vocab, n_ctx = self.model.info.n_vocab, self.model.n_ctx_slot
        return States(engine, layout, refusal, n_vocab=n_vocab, n_ctx=n_ctx)
