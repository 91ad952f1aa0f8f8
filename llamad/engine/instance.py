"""A model that serves: its contexts, the core that generates, and the grammars of its tasks.

The engine's main thread makes and uses it; methods that any thread may call say so. It knows nothing of the socket to
the front.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING

import msgspec

from llamad.engine.core import Core
from llamad.engine.drafts.draft_model import DraftModel
from llamad.engine.drafts.lookup_files import LookupWriter, open_dynamic, open_static
from llamad.engine.drafts.spec_types import DRAFT_MODEL, NGRAM_CACHE, WITH_ANSWERS, rules_of
from llamad.engine.drafts.text_drafter import TextDrafter
from llamad.engine.fit.bound import MIB, surely_fits
from llamad.engine.fit.measure import draft_usage, loaded_usage
from llamad.engine.loading import adapters, memory
from llamad.engine.loading.draft import LoadedDraft, draft_part, load_draft, vet_draft
from llamad.engine.loading.fingerprint import fingerprint
from llamad.engine.loading.memory import cache_ram_bytes, checkpoint_bytes
from llamad.engine.loading.model import LoadedModel, load
from llamad.engine.loading.opening import Loading, vet
from llamad.engine.loading.thread_pools import restored
from llamad.engine.loading.threads import compute_threads, sampler_threads
from llamad.grammar.grammar import Grammar, GrammarError, Pieces
from llamad.protocol import control_messages as messages
from llamad.protocol.cache_memory import CacheMemory
from llamad.protocol.channel import Descriptors
from llamad.protocol.errors import FileRefused, LoadError
from llamad.ses1.ses1 import Layout, StateError

if TYPE_CHECKING:
    from llamad.engine.fit.planned import Plan
    from llamad.flags.settings import ModelSettings

log = logging.getLogger("llamad.engine")


def _fitted(settings: ModelSettings, n_threads: int, kept: bytes, budget: messages.Budget | None) -> Plan:
    """Return the plan with which the model fits. Raises LoadError."""
    # These modules are rarely needed.
    from llamad.engine.fit import plan as fit
    from llamad.engine.fit.planned import Kept, summary

    plan = fit.plan(settings, n_threads, msgspec.json.decode(kept, type=Kept) if kept else None, budget)
    for warning in plan.warnings:
        log.warning("%s", warning)
    if line := summary(plan):
        log.info("%s", line)
    return plan


class Instance:
    """An open model. Before it opens the weights, it calls `on_planned` with the memory that it will take; if it has a
    budget, that call returns when they may be opened. Raises LoadError."""

    def __init__(
        self,
        settings: ModelSettings,
        descriptors: Descriptors,
        loading: Loading,
        on_planned: Callable[[messages.Planned], None] = lambda _: None,
        kept: bytes = b"",
        budget: messages.Budget | None = None,
        cache_memory: CacheMemory | None = None,
    ) -> None:
        self._descriptors = descriptors
        self._cache_memory = cache_memory or CacheMemory()
        n_threads = compute_threads(settings.n_threads)
        vet(settings, loading)
        vet_draft(settings)
        self._plan: Plan | None = None  # None: the model surely fits
        planned = messages.Planned(kept)
        if kept or budget is not None or not surely_fits(settings):
            self._plan = plan = _fitted(settings, n_threads, kept, budget)
            settings = plan.settings
            next_kept = msgspec.json.encode(plan.kept) if plan.kept is not None else b""
            assert plan.usage is not None
            capacity = plan.available.capacity if plan.available is not None else {}
            planned = messages.Planned(next_kept, plan.need(plan.usage), capacity)
        self._settings = settings
        on_planned(planned)
        if budget is not None:
            self._await_memory()
        loading_draft = loading.followed_by(draft_part(settings))
        self.loaded = load(settings, n_threads, loading)
        try:
            self._drafting = load_draft(settings, self.loaded, loading_draft)  # the draft model, or None
        except BaseException:
            self.loaded.close()
            raise
        self.core: Core | None = None  # set by prepare(), if the model generates
        self._lookup_writer: LookupWriter | None = None
        self._grammars: dict[int, Grammar] = {}
        self._pieces: Pieces | None = None
        self._pieces_lock = threading.Lock()

    def _await_memory(self) -> None:
        """Wait until the memory of the plan is free. Raises LoadError."""
        from llamad.engine.fit import budget

        assert self._plan is not None
        assert self._plan.usage is not None
        budget.wait(self._plan.usage, memory.is_mapped(self._settings))

    def _measured(self) -> dict[str, int]:
        """Return the bytes that the model holds by device, if it has a budget."""
        if self._plan is None or self._plan.available is None:
            return {}
        from llamad.engine.fit import budget

        assert self._plan.usage is not None
        usage = loaded_usage(self.loaded.contexts) + budget.beside(self._plan.usage)
        if self._drafting is not None:
            usage += draft_usage(self._drafting.context)
        return self._plan.need(usage)

    def description(self) -> messages.Loaded:
        """Return what the front must know to serve the model."""
        return self.loaded.description()

    def prepare(self) -> messages.Ready:
        """Compute once, so that the first request finds warm caches, and a model that cannot compute fails now."""
        models: list[LoadedModel | LoadedDraft] = [self.loaded]
        models += [self._drafting] if self._drafting is not None else []
        for warning in (one for model in models for one in model.warnings):
            log.warning("%s", warning)
        with restored() if any(model.pools is not None for model in models) else nullcontext():
            return self._prepare()

    def _prepare(self) -> messages.Ready:
        self._warm_up_vectors()
        states: list[bytes] = []
        spec_types, takes_parts = "", False
        if self.loaded.can_generate:
            self.core = core = self._core()
            spec_types = self._draft(core)
            token = max(0, self.loaded.info.bos)
            if self._settings.warmup:
                code = core.warm_up(token, bool(spec_types) and self.loaded.has_device)
                if code != 0:
                    raise LoadError(f"the model was loaded but cannot decode (llama.cpp returned {code})")
            if self._settings.wants_states or self.loaded.has_device or cache_ram_bytes(self._settings):
                states = core.probe(token)
            self._adopt(core, states)
            takes_parts = core.takes_parts
            if self.loaded.can_copy(self._settings, states):
                core.allow_copies(states[0], max(self._settings.fit_target) * MIB)
        elif self._settings.model_draft is not None:
            log.warning("nothing is drafted: this model does not generate text")
        return messages.Ready(
            states, self.loaded.n_swa, spec_types, self._measured(), self.loaded.has_device, takes_parts
        )

    def _adopt(self, core: Core, states: list[bytes]) -> None:
        """Take over the prompts that the model's last engine has left, if they fit this one."""
        try:
            layout = Layout(states[0], states[1], self.loaded.n_swa) if states else None
        except StateError as error:
            layout = None
            log.info("the prompts of this model do not outlive its engine: %s", error)
        n_prompts = core.adopt(layout, fingerprint(self._settings, self.loaded.n_ctx_slot))
        if n_prompts:
            log.info("the prompts of the last engine are kept: %d", n_prompts)

    def tend_cache(self) -> None:
        """Compute checksums of saved prompts, and check those of the last engine, until the core ends. Runs in a thread
        of its own."""
        assert self.core is not None
        core, n_known = self.core, 0
        while (n_bad := core.tend()) >= 0:
            log.warning(
                "%d saved prompts of the last engine were damaged and are computed again; if that repeats, check the"
                " machine's memory",
                n_bad - n_known,
            )
            n_known = n_bad

    def compile(self, request: messages.Compile) -> messages.Compiled | messages.Refused:
        """Compile a grammar; any thread. It may take long."""
        with self._pieces_lock:
            if self._pieces is None:
                self._pieces = Pieces(self.loaded.vocab)
        try:
            grammar = Grammar(request.text, self._pieces, time_max_us=request.time_max_us)
        except GrammarError as error:
            return messages.Refused(request.id, error.line, error.column, error.reason)
        except MemoryError:
            return messages.Refused(request.id, 0, 0, "there is not enough memory to compile it")
        self._grammars[grammar.id] = grammar
        return messages.Compiled(request.id, grammar.id, grammar.n_bytes)

    def drop_grammar(self, number: int) -> None:
        """Forget a grammar; any thread. Tasks that use it go on."""
        self._grammars.pop(number, None)

    def open_adapter(self, request: messages.OpenAdapter) -> messages.AdapterOpened | messages.AdapterRefused:
        """Open a LoRA adapter; any thread. Checking it takes as long as reading the file; decodes wait only while
        llama.cpp copies it."""
        try:
            info = self.loaded.open_adapter(request.path, request.adapter)
        except FileRefused as error:
            return messages.AdapterRefused(request.id, str(error))
        except MemoryError:
            return messages.AdapterRefused(request.id, f"there is not enough memory for {request.path}")
        except Exception as error:  # the front waits for a reply
            log.exception("opening an adapter failed")
            return messages.AdapterRefused(request.id, f"{request.path}: {type(error).__name__}: {error}")
        return messages.AdapterOpened(request.id, info)

    def close_adapter(self, number: int) -> None:
        """Close an adapter that no batch of texts uses any more; any thread. The core closes its own
        (COMMAND_FORGET)."""
        adapters.close_adapter(number)

    def save(self) -> None:
        """Write what was learned; the engine thread must have ended."""
        if self._lookup_writer is not None:
            self._lookup_writer.stop()
            self._lookup_writer = None

    def close(self) -> None:
        """Free everything; its threads must have ended."""
        self.save()
        self._grammars.clear()
        self.core = None
        if self._drafting is not None:
            self._drafting.close()
        self.loaded.close()

    def _warm_up_vectors(self) -> None:
        vectors = self.loaded.vectors
        if vectors is None:
            return
        if vectors.info.pooling == "rank" and not vectors.info.has_head:
            log.warning("the model has no classification head: /rerank and /classify will answer 501")
        if self._settings.warmup:
            data = bytearray(4 + 4 * vectors.info.n_out)
            data[:4] = max(0, self.loaded.info.bos).to_bytes(4, "little")
            code = vectors.compute(memoryview(data), [1])
            if code != 0:
                raise LoadError(
                    f"the model was loaded but cannot compute embeddings (llama.cpp returned {code})"
                )

    def _core(self) -> Core:
        settings, loaded = self._settings, self.loaded
        n_held = self._cache_memory.n_bytes
        return Core(
            loaded.vocab,
            loaded.context_address,
            descriptors=self._descriptors,
            n_slots=settings.n_parallel,
            n_ctx=loaded.n_ctx_slot,
            n_cells=loaded.n_cells,
            n_batch=loaded.n_batch,
            n_ubatch=loaded.n_ubatch,
            n_swa=loaded.n_swa,
            n_window=loaded.n_window,
            add_bos=loaded.info.add_bos,
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
            cache_bytes=cache_ram_bytes(settings, n_held),
            n_checkpoints=settings.ctx_checkpoints if loaded.needs_checkpoints else 0,
            checkpoint_min_step=settings.checkpoint_min_step,
            checkpoint_bytes=checkpoint_bytes(settings, n_held),
            cache_idle=settings.cache_idle_slots,
            n_row=loaded.n_row if settings.mmproj is not None else 0,
            n_text_max=max(loaded.info.n_ctx_train, loaded.n_ctx_slot),
            memory=self._cache_memory,
            spare_seq=loaded.spare_seq,
        )

    def _draft(self, core: Core) -> str:
        """Let the core draft as the flags say. Return the names of the types, or "" if nothing is drafted."""
        settings, rules = self._settings, rules_of(self._settings)
        if not rules and settings.model_draft is None:
            return ""
        n_vocab = self.loaded.vocab.n_vocab
        static, dynamic = open_static(settings, n_vocab), open_dynamic(settings, n_vocab)
        if settings.llama_api_only:
            log.warning("nothing is drafted: --llama-api-only is given")
            return ""
        drafter = None
        if rules:
            drafter = TextDrafter(
                n_slots=settings.n_parallel,
                n_ctx=self.loaded.n_ctx_slot,
                rules=list(rules.values()),
                answers=not WITH_ANSWERS.isdisjoint(rules),
                dynamic=dynamic,
                fixed=static,
            )
        n_fixed = -1 if settings.spec_fixed is None else settings.spec_fixed
        if not core.draft_with(drafter, n_fixed, self.loaded.n_rollback, is_named=bool(settings.spec_types)):
            log.warning(
                "nothing is drafted: this model's memory cannot remove tokens that were drafted wrongly"
            )
            return ""
        names = [*rules]
        if dynamic is not None:
            self._lookup_writer = LookupWriter(dynamic)
            self._lookup_writer.start()
        if static is not None or dynamic is not None:
            names.append(NGRAM_CACHE)
        if self._drafting is not None:
            self._draft_with_model(core, self._drafting)
            names.append(DRAFT_MODEL)
        return ",".join(dict.fromkeys(names))

    def _draft_with_model(self, core: Core, drafting: LoadedDraft) -> None:
        settings = self._settings
        n_max = -1 if settings.spec_draft_n_max is None else settings.spec_draft_n_max
        model = DraftModel(
            drafting.context_address,
            n_slots=settings.n_parallel,
            n_ctx=min(self.loaded.n_ctx_slot, drafting.n_ctx_max),
            n_batch=drafting.n_batch,
            n_vocab=drafting.n_vocab,
            n_max=n_max,
            n_min=settings.spec_draft_n_min if n_max < 0 else min(settings.spec_draft_n_min, n_max),
            p_min=settings.spec_draft_p_min,
            has_device=self.loaded.has_device,
        )
        core.draft_model(model, shares_threads=not settings.n_threads_draft)
        if settings.warmup and (code := model.warm_up(max(0, self.loaded.info.bos))) != 0:
            raise LoadError(f"the draft model was loaded but cannot decode (llama.cpp returned {code})")
