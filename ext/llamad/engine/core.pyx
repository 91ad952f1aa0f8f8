# Owns: the engine's memory, allocated before the engine thread starts. The engine thread calls run(), which releases
# the GIL at once; the thread that made the core calls everything else, before or after.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uintptr_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memset

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize

from llamad.base.system cimport fetch_add_int, futex_wait, futex_wake_all, load_int, now_us, store_int, wake_send
from llamad.engine.cache.adoption cimport adoption_run
from llamad.engine.cache.host_cache cimport cache_free, cache_init
from llamad.engine.cache.spare_pages cimport spare_prepare
from llamad.engine.drafts.draft_model cimport DraftModel
from llamad.engine.drafts.drafts cimport Drafter, drafts_free, drafts_init
from llamad.engine.kv.cells cimport cells_used
from llamad.engine.kv.device_copies cimport copies_init
from llamad.engine.kv.slots cimport (
    DRAFT_MAX, SLOT_IDLE, Slot, Slots, slots_check_integrity, slots_free, slots_init, slots_init_checkpoints,
)
from llamad.engine.kv.trust cimport trust_next
from llamad.engine.loop cimport engine_run
from llamad.engine.sampler.sampler cimport sampler_scratch_bytes
from llamad.engine.scheduler.batch cimport batch_free, batch_init
from llamad.engine.shares cimport shares_set
from llamad.engine.state.engine_state cimport State
from llamad.engine.threads.grammar_pool cimport grammar_pool_start, grammar_pool_stop
from llamad.engine.threads.logits_arrival cimport arrival_free, arrival_init
from llamad.engine.threads.sampler_pool cimport AWAITED_MAX, sampler_pool_count, sampler_pool_start, sampler_pool_stop
from llamad.protocol.cache_memory cimport (
    LLAMAD_CACHE_FINGERPRINT, CacheMemory, llamad_cache, memory_sign,
)
from llamad.protocol.channel cimport Link
from llamad.ses1.ses1 cimport Layout, layout_has_cells, layout_has_end, layout_has_ranges
from llamad.tokenizer.vocab cimport Vocab


from llamad.protocol.channel import Descriptors


cdef class Core:
    cdef State state
    cdef Vocab vocab
    cdef Link own_link  # the engine's side of the channel
    cdef Drafter drafter  # None: there is none
    cdef DraftModel model
    cdef CacheMemory memory
    cdef Layout layout  # of states, if they can be adopted
    cdef int32_t is_ending  # atomic
    cdef int32_t n_bad  # damaged entries that tend() has reported
    cdef readonly object descriptors  # from these the front opens its Link

    def __cinit__(self, vocab: Vocab, ctx: int, *, descriptors: Descriptors | None = None, n_slots: int,
                  n_ctx: int, n_cells: int, n_batch: int, n_ubatch: int,
                  n_swa: int, add_bos: bool, similarity_min: float, step_tokens_max: int, n_sampler_threads: int,
                  cont_batching: bool, tracing: bool, can_share: bool = True, group_n: int = 1, group_w: int = 1,
                  grammar_work: int = -1, has_device: bool = False, api_only: bool = False,
                  cache_bytes: int = 0, n_text_max: int = 0, n_checkpoints: int = 0, checkpoint_min_step: int = 0,
                  checkpoint_bytes: int = 0, cache_idle: bool = True, n_row: int = 0,
                  n_window: int = 0, memory: CacheMemory | None = None, spare_seq: int = -1) -> None:
        cdef State *state = &self.state
        memset(state, 0, sizeof(State))
        self.descriptors = descriptors = descriptors or Descriptors.create()
        self.own_link = Link(descriptors.memory, descriptors.command, descriptors.event, n_slots=n_slots, n_ctx=n_ctx,
                             n_ubatch=n_ubatch, has_device=has_device)
        state.channel = &self.own_link.channel
        self.vocab = vocab
        state.table = vocab.table
        state.vocab = vocab.handle
        state.pieces = &vocab.pieces
        state.ctx = <void *><uintptr_t>ctx
        state.n_vocab = vocab.n_vocab
        state.n_text_max = n_text_max
        state.add_bos = add_bos
        state.tracing = tracing
        if n_slots > n_batch:
            raise ValueError("a step needs a token for every slot")
        if n_slots > AWAITED_MAX:
            raise ValueError(f"at most {AWAITED_MAX} slots")
        if slots_init(&state.slots, state.table, state.ctx, n_slots, n_ctx) < 0:
            raise MemoryError()
        if slots_init_checkpoints(&state.slots, n_checkpoints, checkpoint_min_step, <size_t>checkpoint_bytes) < 0:
            raise MemoryError()
        state.n_row = n_row
        state.slots.takes_rows = n_row > 0
        state.slots.n_cells = n_cells
        state.slots.n_swa = n_swa
        state.slots.n_swa_spare = n_ubatch
        state.slots.n_window = n_window
        state.slots.can_share = can_share
        state.slots.can_fill = can_share and n_swa == 0 and n_cells == 0 and group_n == 1 and not api_only
        state.slots.group_n = group_n
        state.slots.group_w = group_w
        state.slots.similarity_min = similarity_min
        if n_swa > 0:
            # When llama.cpp searches room for a second ubatch, it drops cells that the first one still needs.
            n_batch = min(n_batch, max(n_ubatch, n_slots))
        if batch_init(&state.plan, n_slots, n_batch, n_ubatch, step_tokens_max, cont_batching, has_device,
                      has_device and not api_only) < 0:
            raise MemoryError()
        if arrival_init(&state.arrival, n_slots if has_device and can_share and not api_only else 0, state.n_vocab) < 0:
            raise MemoryError()
        self.memory = CacheMemory() if memory is None else memory
        if cache_init(&state.cache, <size_t>cache_bytes, &state.slots.checkpoints, state.table, state.ctx,
                      &self.memory.cache, has_device) < 0:
            raise MemoryError()
        state.cache.drops_idle = not cache_idle
        state.cache.spare_seq = spare_seq
        if drafts_init(&state.drafts, n_slots, has_device) < 0:
            raise MemoryError()
        self._start_threads(n_slots, n_sampler_threads, grammar_work)
        state.stats.t_last_step_us = now_us()

    cdef int _start_threads(self, int32_t n_slots, int32_t n_sampler_threads, int64_t grammar_work) except -1:
        """Start the sampler and grammar threads, and allocate the memory for sampling."""
        cdef State *state = &self.state
        state.sampler_pool = sampler_pool_start(max(1, n_sampler_threads))
        if state.sampler_pool == NULL:
            raise MemoryError()
        state.scratch_bytes = (sampler_scratch_bytes(state.n_vocab) + 63) & ~<size_t>63
        state.scratch = <char *>malloc(state.scratch_bytes * <size_t>sampler_pool_count(state.sampler_pool))
        state.outputs = <int32_t *>calloc(<size_t>n_slots, sizeof(int32_t))
        if state.scratch == NULL or state.outputs == NULL:
            raise MemoryError()
        state.grammar_pool = grammar_pool_start(state.n_vocab, state.channel.command_fd, grammar_work)
        if state.grammar_pool == NULL:
            raise MemoryError()
        return 0

    def __dealloc__(self) -> None:
        cdef State *state = &self.state
        grammar_pool_stop(state.grammar_pool)
        sampler_pool_stop(state.sampler_pool)
        state.slots.checkpoints.leaves_rows = 1
        slots_free(&state.slots)
        cache_free(&state.cache)
        batch_free(&state.plan)
        drafts_free(&state.drafts)
        arrival_free(&state.arrival)
        free(state.scratch)
        free(state.outputs)

    @property
    def n_sampler_threads(self) -> int:
        return sampler_pool_count(self.state.sampler_pool)

    @property
    def takes_parts(self) -> bool:
        """Whether states can be inserted in parts. Known after adopt()."""
        return self.state.cache.has_ranges != 0

    @property
    def link(self) -> Link:
        """The front's side of the channel, for tests with a front in this process."""
        return Link(self.descriptors.memory, self.descriptors.command, self.descriptors.event)

    def warm_up(self, token: int, has_drafts: bool = False) -> int:
        """Decode a token and forget it, so that the first request finds warm caches. With has_drafts decode also 2, 4, ...
        tokens at once, as drafts are verified: a device loads kernels when it first needs them. Call only before run().
        Return llama.cpp's code: anything but 0 means that this context cannot decode."""
        cdef State *state = &self.state
        cdef int32_t code = 0, i, n = 1, n_max = min(DRAFT_MAX + 1 if has_drafts else 1, state.plan.batch_max)
        while code == 0 and n <= max(1, n_max):
            state.plan.batch.n_tokens = n
            for i in range(n):
                state.plan.batch.token[i] = token
                state.plan.batch.pos[i] = i
                state.plan.batch.output[i] = 1
                state.plan.seq_ids[i] = 0
            with nogil:
                code = state.table.decode(state.ctx, &state.plan.batch)
                if code == 0:
                    state.table.logits(state.ctx, 0)
                    state.table.seq_rm(state.ctx, 0, -1, -1)
            n *= 2
        return code

    def probe(self, token: int) -> list[bytes]:
        """Return the states of a sequence of one token and of two, for ses1.Layout; then forget them. Call only before
        run(). The list is empty if this kind of memory has no states."""
        cdef State *state = &self.state
        cdef size_t n
        cdef int32_t code, i
        out = []
        for i in range(2):
            state.plan.batch.n_tokens = 1
            state.plan.batch.token[0] = token
            state.plan.batch.pos[0] = i
            state.plan.batch.output[0] = 1
            state.plan.seq_ids[0] = 0
            with nogil:
                code = state.table.decode(state.ctx, &state.plan.batch)
                n = state.table.state_size(state.ctx, 0, 0) if code == 0 else 0
            if n == 0:
                break
            one = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>n)
            if state.table.state_get(state.ctx, 0, <uint8_t *>PyBytes_AS_STRING(one), n, 0) != n:
                break
            out.append(one)
        state.table.seq_rm(state.ctx, 0, -1, -1)
        return out if len(out) == 2 else []

    def allow_copies(self, smallest: bytes, margin: int) -> None:
        """Let states of slots stay on the devices while each has `margin` bytes free; `smallest` is the state of one
        token. Call only before run()."""
        cdef State *state = &self.state
        if copies_init(&state.cache.copies, state.table, state.ctx, state.slots.n,
                       <const uint8_t *>PyBytes_AS_STRING(smallest), <size_t>len(smallest), margin) < 0:
            raise MemoryError()

    def adopt(self, layout: Layout | None, fingerprint: bytes) -> int:
        """Take over the prompts that an earlier engine with the same fingerprint has left in the cache memory, if their
        layout is known. Return how many there are. Call once, before run(); without it, a memory must be empty."""
        cdef State *state = &self.state
        cdef const uint8_t *data = <const uint8_t *>PyBytes_AS_STRING(fingerprint)
        if len(fingerprint) != LLAMAD_CACHE_FINGERPRINT:
            raise ValueError(f"a fingerprint has {LLAMAD_CACHE_FINGERPRINT} bytes")
        self.layout = layout
        state.cache.trust.layout = NULL if layout is None else layout.layout
        state.cache.has_ranges = (
            layout is not None and layout_has_ranges(layout.layout) and state.cache.spare_seq >= 0
            and (state.slots.n_cells > 0 or state.slots.n == 1) and state.slots.can_share and state.slots.n_swa == 0
            and state.slots.group_n == 1)
        # A memory that keeps all cells has no end, and any other has one; else it is of a kind that is not known here.
        state.cache.has_cuts = (
            layout is not None and not state.cache.has_ranges and layout_has_cells(layout.layout)
            and state.slots.group_n == 1
            and layout_has_end(layout.layout) != (state.slots.can_share and state.slots.n_swa == 0))
        state.cache.needs_ends = state.cache.has_cuts and layout_has_end(layout.layout)
        state.cache.trust.n_vocab = <uint32_t>state.n_vocab
        state.cache.trust.n_ctx = <uint32_t>state.slots.n_ctx
        state.is_trimming = 1  # they may take more memory than this engine may use
        return adoption_run(&state.cache, &state.slots, data)

    def tend(self) -> int:
        """Work on the cache memory beside the engine thread: compute checksums, check what was adopted, allocate pages.
        Return the number of entries found damaged so far, when there are more; -1 after end_tending(). One thread."""
        cdef State *state = &self.state
        cdef llamad_cache *memory = &self.memory.cache
        cdef int32_t news, n_bad = self.n_bad
        with nogil:
            store_int(&memory.is_tended, 1)
            while not load_int(&self.is_ending) and load_int(&memory.n_bad) == n_bad:
                news = load_int(&memory.news)
                if spare_prepare(&state.cache):
                    wake_send(state.channel.command_fd)
                elif not memory_sign(memory) and not trust_next(&state.cache.trust):
                    futex_wait(&memory.news, news, -1)
            if load_int(&self.is_ending):
                store_int(&memory.is_tended, 0)
        self.n_bad = load_int(&memory.n_bad)
        return -1 if load_int(&self.is_ending) else self.n_bad

    def prepare_pages(self) -> None:
        """Allocate pages beside tend(), until end_tending(): for more threads, because one alone writes to new pages more
        slowly than a disk is read."""
        cdef State *state = &self.state
        cdef llamad_cache *memory = &self.memory.cache
        cdef int32_t news
        with nogil:
            while not load_int(&self.is_ending):
                news = load_int(&memory.news)
                if spare_prepare(&state.cache):
                    wake_send(state.channel.command_fd)
                else:
                    futex_wait(&memory.news, news, -1)

    def end_tending(self) -> None:
        """Make tend() and prepare_pages() return. Any thread."""
        store_int(&self.is_ending, 1)
        fetch_add_int(&self.memory.cache.news, 1)
        futex_wake_all(&self.memory.cache.news)

    def run(self) -> bool:
        """Run the engine thread until stop(). Return False if its context is lost and the process should end."""
        cdef State *state = &self.state
        state.marked = &self.vocab.marked if self.vocab.marked.bytes != NULL else &self.vocab.pieces
        with nogil:
            engine_run(state)
        return state.is_lost == 0

    def share(self, n_threads: int, n_threads_batch: int, cache_bytes: int) -> None:
        """Set the share of CPU threads, and of the bytes for prompts in host memory; 0 changes nothing. Any thread. The
        engine thread applies it before its next step."""
        shares_set(&self.state, n_threads, n_threads_batch, cache_bytes)

    def n_idle(self) -> int:
        """Return the number of idle slots now; the board has the number of the last turn."""
        cdef int32_t i, n = 0
        for i in range(self.state.slots.n):
            n += self.state.slots.items[i].state == SLOT_IDLE
        return n

    def draft_with(self, drafter: Drafter | None, n_fixed: int, n_rollback: int = 0, *, is_named: bool = False) -> bool:
        """Let a drafter guess the next tokens; None: there is only a draft model. Every step verifies n_fixed of them;
        -1: as many as pay, and if is_named, at least one in each task that has a draft. A memory that cannot be truncated
        can remove the last n_rollback tokens. Call only before run(). Return False if this memory could not remove again
        what was drafted wrongly."""
        cdef State *state = &self.state
        if not state.slots.can_share and n_rollback == 0 or state.slots.group_n > 1:
            return False
        state.drafts.n_rollback = n_rollback
        state.drafts.n_fixed = n_fixed
        state.drafts.is_named = is_named
        if drafter is not None:
            self.drafter = drafter
            state.drafts.fn = drafter.fn
            state.drafts.follow = drafter.follow
            state.drafts.end = drafter.end
            state.drafts.arg = drafter.arg
        return True

    def draft_model(self, model: DraftModel, shares_threads: bool = True) -> None:
        """Let a draft model guess tokens, too, where the drafter has no better guess. It gets the threads of share(), if
        it shares_threads. Call after draft_with()."""
        self.model = model
        model.drafts.shares_threads = shares_threads
        model.drafts.table = self.state.table
        self.state.drafts.model = &model.drafts

    # --- for tests ------------------------------------------------------------------------------------------------

    def check_integrity(self) -> int:
        """Return 0, or the number of a broken rule. Only meaningful while the engine is idle."""
        cdef const Slots *slots = &self.state.slots
        if slots.n_cells and cells_used(slots) > slots.n_cells:
            return 15
        return slots_check_integrity(slots)

    def slot_tokens(self, index: int) -> list[int]:
        """Return the tokens of a slot's sequence. Only meaningful while the engine is idle."""
        cdef Slot *slot = &self.state.slots.items[index]
        return [slot.tokens[i] for i in range(slot.n_tokens)]
