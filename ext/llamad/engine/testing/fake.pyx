# Owns: a fake table and its model, and the values of it that tests set and read. Each byte is a token.
# A call that would make llama.cpp abort is counted in bad_calls.
from libc.stdint cimport int32_t, uint8_t, uintptr_t
from libc.stdlib cimport calloc, free, malloc

from llamad.base.system cimport fetch_add_int, load_int, store_int, store_time
from llamad.base.function_table cimport LLAMAD_TABLE_VERSION, llamad_adapter_use, llamad_table
from llamad.engine.testing.fake_cells cimport FakeCell, FakeCells, FakeStream, cells_free, cells_init, cells_used
from llamad.engine.testing.fake_decode cimport fake_decode, fake_decode_rows, fake_logits, fake_rows
from llamad.engine.testing.fake_memory cimport (
    fake_can_shift, fake_seq_add, fake_seq_cp, fake_seq_div, fake_seq_pos_min, fake_seq_rm, memory_clear, memory_held,
    memory_order, memory_pos_max,
)
from llamad.engine.testing.fake_model cimport FAKE_IDLE_MAX, FAKE_VOCAB, FakeModel
from llamad.engine.testing.fake_owners cimport FAKE_SEQS_MAX, FakeOwners, owners_has
from llamad.engine.testing.fake_recurrent cimport FakeSeen, recurrent_clear, recurrent_init, recurrent_seen
from llamad.engine.testing.fake_split cimport FakeUbatch
from llamad.engine.testing.fake_states cimport (
    fake_copies_bytes, fake_copies_clear, fake_device_free, fake_state_get, fake_state_set, fake_state_size,
)
from llamad.engine.testing.fake_text cimport (
    fake_detokenize, fake_is_eog, fake_order, fake_piece, fake_sampler_accept, fake_sampler_close, fake_sampler_open,
    fake_sampler_sample, fake_sort, fake_sort_front, fake_tokenize,
)

cdef enum:
    CELLS_STEP = 256  # llama.cpp rounds numbers of cells up to multiples of this
    ROOM_MAX = 1 << 20  # cells of a unified cache that was given no number


cdef int32_t _rebuild(void *ctx) noexcept nogil:
    cdef FakeModel *model = <FakeModel *>ctx
    if model.n_rebuild_failures > 0:
        model.n_rebuild_failures -= 1
        return -1
    model.n_rebuilds += 1
    model.adapters = 0
    memory_clear(model)
    fake_copies_clear(model)
    return 0


cdef int32_t _set_adapters(void *ctx, const llamad_adapter_use *uses, int32_t n) noexcept nogil:
    """Set the adapters. A set is identified by the sum of its scales, each times ten to the power of its number."""
    cdef FakeModel *model = <FakeModel *>ctx
    cdef float adapters = 0, power
    cdef int32_t i, _
    for i in range(n):
        if uses[i].id + 1 == load_int(&model.lost_adapter):
            return -1
        power = 1
        for _ in range(uses[i].id):
            power *= 10
        adapters += power * uses[i].scale
    model.n_changes += adapters != model.adapters
    model.adapters = adapters
    return 0


cdef void _close_adapter(void *ctx, int32_t id) noexcept nogil:
    (<FakeModel *>ctx).n_closed += 1


cdef void _set_threads(void *ctx, int32_t n_threads, int32_t n_threads_batch) noexcept nogil:
    cdef FakeModel *model = <FakeModel *>ctx
    model.n_threads = n_threads or model.n_threads
    model.n_threads_batch = n_threads_batch or model.n_threads_batch


cdef int32_t _lock_pages(void *ctx, uint8_t *data, size_t n) noexcept nogil:
    fetch_add_int(&(<FakeModel *>ctx).n_locked, 1)
    return 1


cdef void _unlock_pages(void *ctx, uint8_t *data) noexcept nogil:
    fetch_add_int(&(<FakeModel *>ctx).n_locked, -1)


cdef uint8_t *_alloc_pages(void *ctx, size_t n, void **buffer) noexcept nogil:
    cdef FakeModel *model = <FakeModel *>ctx
    model.n_page_requests += 1
    if load_int(&model.refuses_pages):
        return NULL
    model.n_page_buffers += 1
    buffer[0] = malloc(n)
    return <uint8_t *>buffer[0]


cdef void _free_pages(void *ctx, void *buffer) noexcept nogil:
    (<FakeModel *>ctx).n_page_buffers -= 1
    free(buffer)


cdef llamad_table _table
_table.version = LLAMAD_TABLE_VERSION
_table.size = sizeof(llamad_table)
_table.decode = fake_decode
_table.decode_rows = fake_decode_rows
_table.logits = fake_logits
_table.rows = fake_rows
_table.rebuild = _rebuild
_table.set_adapters = _set_adapters
_table.close_adapter = _close_adapter
_table.set_threads = _set_threads
_table.seq_rm = fake_seq_rm
_table.seq_add = fake_seq_add
_table.seq_div = fake_seq_div
_table.seq_cp = fake_seq_cp
_table.seq_pos_min = fake_seq_pos_min
_table.can_shift = fake_can_shift
_table.state_size = fake_state_size
_table.state_get = fake_state_get
_table.state_set = fake_state_set
_table.device_free = fake_device_free
_table.lock_pages = _lock_pages
_table.unlock_pages = _unlock_pages
_table.alloc_pages = _alloc_pages
_table.free_pages = _free_pages
_table.tokenize = fake_tokenize
_table.piece = fake_piece
_table.detokenize = fake_detokenize
_table.is_eog = fake_is_eog
_table.sampler_open = fake_sampler_open
_table.sampler_accept = fake_sampler_accept
_table.sampler_sample = fake_sampler_sample
_table.sampler_close = fake_sampler_close
_table.sort = fake_sort
_table.sort_front = fake_sort_front
_table.order = fake_order


cdef int32_t _padded(int32_t n) noexcept nogil:
    return (n + CELLS_STEP - 1) // CELLS_STEP * CELLS_STEP


cdef void _make_memory(FakeModel *model, int32_t n_cells, int32_t n_swa, int is_full, int has_base,
                       int has_states, int32_t n_rollback) noexcept nogil:
    """Make the caches as large as llama.cpp does, or with room for everything if no number of cells is given."""
    cdef int32_t n_streams = 1 if model.is_unified else model.n_seqs, n_window
    if n_cells == 0:
        n_cells = _padded(model.n_ctx)
        if model.is_unified:
            n_cells = min(n_cells * model.n_seqs, max(n_cells, ROOM_MAX))
    n_window = _padded(min(n_cells, n_swa * (model.n_seqs if model.is_unified else 1) + model.n_ubatch))
    cells_init(&model.base, n_streams if has_base else 0, n_cells, 0)
    cells_init(&model.window, n_streams if has_base and n_swa else 0, n_cells if is_full else n_window, n_swa)
    recurrent_init(&model.recurrent, model.n_seqs if has_states else 0, n_rollback)


cdef list _owners(const FakeOwners *owners):
    return [seq for seq in range(FAKE_SEQS_MAX) if owners_has(owners, seq)]


cdef class Fake:
    """A fake model. `table`, `ctx` and `vocab` replace those of the real binding.

    Its memory is a KV cache with n_ctx cells for each sequence, or with n_cells for all of them if it is `unified`. With
    n_swa it has a second KV cache for layers with a sliding window, which is smaller unless `swa_full`. With `recurrent`
    it has recurrent states instead, with `hybrid` (or can_cut=False) both; of those the last n_rollback tokens can be
    removed again. n_seqs is the number of sequences, and of
    streams in states. With `chaos`, a seed, logits are random numbers that depend on each token and its position; at a
    share of `astray` of the places they are others."""
    cdef FakeModel *model
    cdef bytes kept_script

    def __cinit__(self, *, n_ctx: int = 512, n_batch: int = 64, script: bytes = b"", decode_us: int = 0, state_us: int = 0,
                  token_us: int = 0, depth_us: int = 0, device_us: int = 0, shape_us: int = 0,
                  can_shift: bool = True, can_cut: bool = True, unified: bool = False, n_seqs: int = 0,
                  n_cells: int = 0, n_ubatch: int = 0, n_swa: int = 0, swa_full: bool = False,
                  recurrent: bool = False, hybrid: bool = False, chaos: int = 0, astray: float = 0.0,
                  n_rollback: int = 0, n_vocab: int = FAKE_VOCAB) -> None:
        if n_rollback and (n_ubatch or n_batch) < n_rollback + 2:
            raise ValueError("llama.cpp would abort: the last tokens of a sequence must fit into a ubatch")
        self.model = <FakeModel *>calloc(1, sizeof(FakeModel) + <size_t>n_batch * <size_t>n_vocab * sizeof(float))
        if self.model == NULL:
            raise MemoryError()
        self.model.n_vocab = n_vocab
        self.model.n_ctx = n_ctx
        self.model.n_batch = n_batch
        self.model.n_ubatch = n_ubatch or n_batch
        self.model.n_seqs = n_seqs or FAKE_SEQS_MAX
        self.model.n_streams_told = n_seqs if n_seqs and not unified else 1
        self.model.decode_us = decode_us
        self.model.state_us = state_us
        self.model.token_us = token_us
        self.model.depth_us = depth_us
        self.model.device_us = device_us
        self.model.shape_us = shape_us
        self.model.refuse_above = -1
        self.model.chaos = chaos
        self.model.astray = astray
        self.model.can_shift = can_shift
        self.model.is_unified = unified
        self.model.batch.token = <int32_t *>malloc(<size_t>n_batch * sizeof(int32_t))
        self.model.batch.pos = <int32_t *>malloc(<size_t>n_batch * sizeof(int32_t))
        self.model.batch.seq = <int32_t *>malloc(<size_t>n_batch * sizeof(int32_t))
        self.model.batch.adapters = <float *>malloc(<size_t>n_batch * sizeof(float))
        self.model.split.order = <int32_t *>malloc(<size_t>n_batch * sizeof(int32_t))
        self.model.split.ubatches = <FakeUbatch *>malloc(<size_t>n_batch * sizeof(FakeUbatch))
        self.model.base_slots = <int32_t *>malloc(<size_t>n_batch * sizeof(int32_t))
        self.model.window_slots = <int32_t *>malloc(<size_t>n_batch * sizeof(int32_t))
        self.model.batch_row = <int32_t *>malloc(<size_t>n_batch * sizeof(int32_t))
        self.model.batch_at = <int32_t *>malloc(<size_t>n_batch * sizeof(int32_t))
        self.model.batch_arrives = <int32_t *>malloc(<size_t>n_batch * sizeof(int32_t))
        _make_memory(self.model, n_cells, n_swa, swa_full, not recurrent, recurrent or hybrid or not can_cut,
                     n_rollback)
        self.script = script

    def __dealloc__(self) -> None:
        if self.model != NULL:
            cells_free(&self.model.base)
            cells_free(&self.model.window)
            recurrent_clear(&self.model.recurrent)
            fake_copies_clear(self.model)
            free(self.model.batch.token)
            free(self.model.batch.pos)
            free(self.model.batch.seq)
            free(self.model.batch.adapters)
            free(self.model.split.order)
            free(self.model.split.ubatches)
            free(self.model.base_slots)
            free(self.model.window_slots)
            free(self.model.batch_row)
            free(self.model.batch_at)
            free(self.model.batch_arrives)
            free(self.model)

    @property
    def table(self) -> int:
        return <uintptr_t>&_table

    @property
    def ctx(self) -> int:
        return <uintptr_t>self.model

    @property
    def vocab(self) -> int:
        return <uintptr_t>self.model

    @property
    def n_vocab(self) -> int:
        return self.model.n_vocab

    @property
    def idle_us(self) -> list[float]:
        """Return the times between rows of logits and the next decodes, in which a device would have had nothing to do.
        The last few thousand, oldest first. Read them while no decode runs."""
        cdef int32_t i, n = self.model.n_idle
        return [self.model.idle_ns[i % FAKE_IDLE_MAX] / 1000.0 for i in range(max(0, n - FAKE_IDLE_MAX), n)]

    @property
    def script(self) -> bytes:
        return self.kept_script

    @script.setter
    def script(self, script: bytes) -> None:
        self.kept_script = script
        self.model.script = <const unsigned char *>self.kept_script
        self.model.n_script = <int32_t>len(script)

    def block(self, is_blocked: bool) -> None:
        """Make every decode wait, or let them go on."""
        store_int(&self.model.is_blocked, is_blocked)

    def block_removals(self, is_blocked: bool) -> None:
        """Make every removal of tokens from a sequence wait, or let them go on."""
        store_int(&self.model.is_keeping, is_blocked)

    @property
    def is_waiting(self) -> bool:
        """Return whether a decode or a removal waits. Nothing else happens on the engine's thread meanwhile."""
        return load_int(&self.model.is_waiting) != 0

    def take(self, token_us: int) -> None:
        """Set how long the decode of a token takes from now on."""
        store_time(&self.model.token_us, token_us)

    def lose(self, n: int) -> None:
        """Let all sequences report that their window begins no earlier than at position n."""
        store_int(&self.model.n_lost, n)

    def fail_state(self) -> None:
        """Make the next restore of a state fail in the middle."""
        store_int(&self.model.fail_state, 1)

    def row(self, at: int) -> list[float]:
        """Return a row of the logits' buffer as it is now."""
        cdef int32_t n = self.model.n_vocab
        cdef const float *row = <const float *>(<char *>self.model + sizeof(FakeModel)) + <size_t>at * <size_t>n
        return [row[i] for i in range(n)]

    def fail_row(self) -> None:
        """Return NULL for the next single row of logits that is requested."""
        store_int(&self.model.fail_row, 1)

    def fail_rows(self) -> None:
        """Return no logits for the next step."""
        store_int(&self.model.fail_rows, 1)

    def fail_next(self, code: int, n_rebuild_failures: int = 0, n_times: int = 1) -> None:
        """Make the next n_times decodes return `code`, and the next n_rebuild_failures rebuilds fail."""
        self.model.n_rebuild_failures = n_rebuild_failures
        self.model.n_failures = n_times
        store_int(&self.model.fail_code, code)

    def fail_sequence(self, seq: int, code: int) -> None:
        """Make every decode with a token of this sequence return `code`."""
        store_int(&self.model.fail_seq_code, code)
        store_int(&self.model.fail_seq, seq + 1)

    def fail_media(self, code: int) -> None:
        """Make the next decode of embedding rows return `code`."""
        store_int(&self.model.fail_media, code)

    def refuse_more_than(self, n: int) -> None:
        """Let decodes of more than n tokens find no room; -1: any number fits."""
        store_int(&self.model.refuse_above, n)

    def refuse_decoding_beside_prompts(self, n: int) -> None:
        """Let the next n short decodes that follow a decode of prompts find no room."""
        store_int(&self.model.n_refusals, n)

    def lose_adapter(self, number: int) -> None:
        """Behave as if the model did not have this adapter."""
        store_int(&self.model.lost_adapter, number + 1)

    def set_device_bytes(self, n: int) -> None:
        """The device has so much memory for copies of sequences."""
        store_time(&self.model.device_bytes, n)

    @property
    def copies_bytes(self) -> int:
        """The size of the copies on the device."""
        return fake_copies_bytes(self.model)

    @property
    def n_locked(self) -> int:
        """Return the number of memory areas that are locked. All are unlocked before they are freed."""
        return self.model.n_locked

    def refuse_pages(self) -> None:
        """Allocate no more host memory that a device copies to fast."""
        store_int(&self.model.refuses_pages, 1)

    @property
    def n_page_requests(self) -> int:
        """Return how often such memory was requested."""
        return self.model.n_page_requests

    @property
    def n_page_buffers(self) -> int:
        """Return how many buffers of such memory are not freed yet."""
        return self.model.n_page_buffers

    @property
    def n_decodes(self) -> int:
        return self.model.n_decodes

    @property
    def n_tokens_decoded(self) -> int:
        return self.model.n_tokens_decoded

    @property
    def n_graphs(self) -> int:
        """Return the number of graphs of all decodes together."""
        return self.model.n_graphs

    @property
    def n_silent(self) -> int:
        """Return the number of decodes without any output."""
        return self.model.n_silent

    @property
    def n_rebuilds(self) -> int:
        return self.model.n_rebuilds

    @property
    def n_samplers(self) -> int:
        return self.model.n_samplers

    @property
    def bad_calls(self) -> int:
        return self.model.bad_calls

    @property
    def n_refused(self) -> int:
        """Return the number of decodes that returned 1, because a cache had no room."""
        return self.model.n_refused

    @property
    def n_wrong(self) -> int:
        """Return how often llama.cpp would have silently computed wrong logits: a part of a sequence's window was gone,
        its recurrent state was that of other tokens, or cells of another text were left."""
        return self.model.n_wrong

    def held(self, seq: int) -> int:
        """Return how many tokens a sequence holds."""
        return memory_held(self.model, seq)

    @property
    def held_max(self) -> int:
        """Return how many tokens all sequences held at most, after a decode."""
        return self.model.n_held_max

    def pos_max(self, seq: int) -> int:
        """Return the last position that a sequence holds; -1 if it holds nothing."""
        return memory_pos_max(self.model, seq)

    def cells(self, seq: int) -> list[tuple[int, int]]:
        """Return the sequence's cells as (position, token), sorted by position and then by the time they were written."""
        return [(pos, token) for pos, token, _ in self._held(seq)]

    def adapters(self, seq: int) -> list[float]:
        """Return the adapters that computed each token of a sequence, as _set_adapters() identifies them."""
        return [adapters for _, _, adapters in self._held(seq)]

    def _held(self, seq: int) -> list[tuple[int, int, float]]:
        cdef const FakeSeen *seen
        cdef FakeCell **cells
        cdef int32_t first
        if self.model.base.n_streams == 0:
            seen = recurrent_seen(&self.model.recurrent, seq)
            if seen == NULL:
                return []
            first = memory_pos_max(self.model, seq) + 1 - seen.n
            return [(first + i, seen.tokens[i], seen.adapters[i]) for i in range(seen.n)]
        cells = memory_order(self.model, seq)
        held = [(cells[i].pos, cells[i].token, cells[i].adapters) for i in range(memory_held(self.model, seq))]
        free(cells)
        return held

    def used(self, cache: str = "base") -> int:
        """Return how many cells of a cache are used: "base" is the KV cache, "window" that of layers with a sliding
        window, "states" the recurrent memory."""
        if cache == "states":
            return self.model.recurrent.n_used
        return cells_used(self._cache(cache))

    def size(self, cache: str = "base") -> int:
        """Return how many cells a cache has, in each stream."""
        return self.model.recurrent.n_states if cache == "states" else self._cache(cache).n_cells

    def owned(self, seq: int, cache: str = "base") -> list[tuple[int, int, list[int]]]:
        """Return a sequence's cells in a cache as (position, token, owners), in the cache's order. The token of a
        recurrent state is the last one that it has seen."""
        cdef FakeStream *stream
        cdef int32_t i
        if cache == "states":
            return [(self.model.recurrent.states[i].pos, recurrent_seen(&self.model.recurrent, seq).tokens[
                        recurrent_seen(&self.model.recurrent, seq).n - 1], _owners(&self.model.recurrent.states[i].owners))
                    for i in range(self.model.recurrent.n_states)
                    if owners_has(&self.model.recurrent.states[i].owners, seq)]
        stream = &self._cache(cache).streams[seq if self._cache(cache).n_streams > 1 else 0]
        return [(stream.cells[i].pos, stream.cells[i].token, _owners(&stream.cells[i].owners))
                for i in range(stream.n_touched) if owners_has(&stream.cells[i].owners, seq)]

    cdef FakeCells *_cache(self, str name) except NULL:
        if name not in ("base", "window"):
            raise ValueError(f"no cache is called {name}")
        return &self.model.base if name == "base" else &self.model.window

    @property
    def n_adapter_changes(self) -> int:
        return self.model.n_changes

    @property
    def threads(self) -> tuple[int, int]:
        return self.model.n_threads, self.model.n_threads_batch

    @property
    def n_adapters_closed(self) -> int:
        return self.model.n_closed

    @property
    def n_copies(self) -> int:
        return self.model.n_copies
