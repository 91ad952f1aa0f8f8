# Owns: a fake table and its model. Each byte is a token; the model's answer is a script, byte by byte, counted
# from a sequence's first output, then EOS; without a script it counts upwards from the last byte.
# It is as strict as llama.cpp is fatal: what would abort there is counted in bad_calls here.
from libc.stdint cimport int32_t, uint8_t, uint64_t, uintptr_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memchr, memcpy, memset

from llamad.base.system cimport load_int, load_time, now_us, sleep_us, store_int, store_time
from llamad.base.function_table cimport LLAMAD_TABLE_VERSION, llamad_adapter_use, llamad_batch, llamad_rows, llamad_table
from llamad.engine.testing.fake_cells cimport FakeCell, FakeCells, FakeStream, cells_free, cells_init, cells_used
from llamad.engine.testing.fake_memory cimport (
    fake_can_shift, fake_seq_add, fake_seq_cp, fake_seq_div, fake_seq_pos_min, fake_seq_rm, memory_clear, memory_decode,
    memory_ends_with_row, memory_held, memory_order, memory_pos_max,
)
from llamad.engine.testing.fake_model cimport FAKE_ROW, FAKE_VOCAB, FakeModel, FakeSeq
from llamad.engine.testing.fake_owners cimport FAKE_SEQS_MAX, FakeOwners, owners_has
from llamad.engine.testing.fake_recurrent cimport FakeSeen, recurrent_clear, recurrent_init, recurrent_seen
from llamad.engine.testing.fake_split cimport FakeUbatch, split_arrivals
from llamad.engine.testing.fake_states cimport fake_state_get, fake_state_set, fake_state_size
from llamad.engine.testing.fake_text cimport (
    EOS, FIRST_BYTE, fake_detokenize, fake_is_eog, fake_order, fake_piece, fake_sampler_accept, fake_sampler_close,
    fake_sampler_open, fake_sampler_sample, fake_sort, fake_sort_front, fake_tokenize,
)

cdef enum:
    NO_ROOM = 1
    SORTING_US = 100         # before rows that came in another order are in the batch's
    CELLS_STEP = 256         # llama.cpp rounds numbers of cells up to multiples of this
    ROOM_MAX = 1 << 20       # cells of a unified cache that was given no number


cdef int _check_batch(FakeModel *model, const llamad_batch *batch) noexcept nogil:
    """Counts broken rules. 0: llama.cpp would not take the batch."""
    cdef int32_t i, seq, is_first, is_taken = 1
    cdef int32_t expected[FAKE_SEQS_MAX]
    for i in range(FAKE_SEQS_MAX):
        expected[i] = -1
    if batch.n_tokens <= 0 or batch.n_tokens > model.n_batch:
        model.bad_calls += 1
        return 0
    for i in range(batch.n_tokens):
        seq = batch.seq_id[i][0]
        if batch.n_seq_id[i] != 1 or not 0 <= seq < model.n_seqs or not 0 <= batch.token[i] < FAKE_VOCAB:
            model.bad_calls += 1
            return 0
        is_first = expected[seq] < 0 and memory_pos_max(model, seq) < 0
        if expected[seq] < 0:
            expected[seq] = memory_pos_max(model, seq) + 1
            if memory_ends_with_row(model, seq):
                expected[seq] = max(expected[seq], batch.pos[i])  # a grid takes as many positions as it likes
        if batch.pos[i] != expected[seq] or batch.pos[i] >= model.n_ctx:
            model.bad_calls += 1
        if not is_first and batch.pos[i] != expected[seq]:
            is_taken = 0
        expected[seq] = batch.pos[i] + 1
    return is_taken


cdef int32_t _failure(FakeModel *model, const llamad_batch *batch) noexcept nogil:
    """What a test wants this decode to return; 0: it works."""
    cdef int32_t code = load_int(&model.fail_code), i, n_max = load_int(&model.refuse_above)
    if code:
        model.n_failures -= 1
        if model.n_failures <= 0:
            store_int(&model.fail_code, 0)
        return code
    if batch == NULL:
        return 0
    if n_max >= 0 and batch.n_tokens > n_max:
        return NO_ROOM
    if load_int(&model.n_refusals) > 0 and model.is_after_prompts and batch.n_tokens <= 2:
        store_int(&model.n_refusals, load_int(&model.n_refusals) - 1)
        model.is_after_prompts = 0
        return NO_ROOM
    model.is_after_prompts = batch.n_tokens > 2
    for i in range(batch.n_tokens):
        if load_int(&model.fail_seq) == batch.seq_id[i][0] + 1:
            return load_int(&model.fail_seq_code)
    return 0


cdef int32_t _begin(FakeModel *model, const llamad_batch *batch) noexcept nogil:
    """What a decode does before it looks at its memory. The code with which it is to fail, or 0."""
    cdef int32_t i
    for i in range(FAKE_SEQS_MAX):
        model.seqs[i].is_written_later = model.seqs[i].is_read_later = 0
    model.n_decodes += 1
    return _failure(model, batch)


cdef int32_t _count_held(FakeModel *model) noexcept nogil:
    cdef int32_t i, n_held = 0
    for i in range(model.n_seqs):
        n_held += memory_held(model, i)
    return n_held


cdef void _plan_rows(FakeModel *model, const llamad_batch *batch) noexcept nogil:
    """Which token has which row of logits, and where in its script the row stands."""
    cdef int32_t n_told[FAKE_SEQS_MAX]
    cdef FakeSeq *seq
    cdef int32_t i, n_rows = 0
    for i in range(batch.n_tokens):
        n_told[model.batch.seq[i]] = memory_held(model, model.batch.seq[i])
    for i in range(batch.n_tokens - 1, -1, -1):
        seq = &model.seqs[model.batch.seq[i]]
        if batch.output[i] and n_told[model.batch.seq[i]] > 0:
            seq.n_told = n_told[model.batch.seq[i]]
            n_told[model.batch.seq[i]] = 0  # the last one counts
        n_told[model.batch.seq[i]] -= 1
    for i in range(batch.n_tokens):
        seq = &model.seqs[model.batch.seq[i]]
        model.batch_at[i] = seq.n_outputs
        model.batch_row[i] = n_rows if batch.output[i] else -1
        if batch.output[i]:
            seq.n_outputs += 1
            n_rows += 1
    split_arrivals(&model.split, model.batch_row, model.batch_arrives)


cdef int32_t _decode(void *ctx, const llamad_batch *batch) noexcept nogil:
    cdef FakeModel *model = <FakeModel *>ctx
    cdef int32_t i, code
    cdef int is_taken
    while load_int(&model.is_blocked):
        store_int(&model.is_waiting, 1)
        sleep_us(1000)
    store_int(&model.is_waiting, 0)
    is_taken = _check_batch(model, batch)
    code = _begin(model, batch)
    if code or not is_taken:
        return code if code else -1
    model.batch.n = batch.n_tokens
    for i in range(batch.n_tokens):
        model.batch.token[i] = batch.token[i]
        model.batch.pos[i] = batch.pos[i]
        model.batch.seq[i] = batch.seq_id[i][0]
        model.batch.adapters[i] = model.adapters
    if not memory_decode(model):
        model.n_refused += 1
        return NO_ROOM
    if model.decode_us or load_time(&model.token_us):
        sleep_us(model.decode_us + load_time(&model.token_us) * batch.n_tokens)
    model.t_ready_us = now_us() + model.device_us
    model.n_graphs += <uint64_t>model.split.n
    model.n_silent += memchr(batch.output, 1, <size_t>batch.n_tokens) == NULL
    _plan_rows(model, batch)
    model.n_held_max = max(model.n_held_max, _count_held(model))
    return 0


cdef int32_t _decode_rows(void *ctx, const llamad_rows *rows) noexcept nogil:
    cdef FakeModel *model = <FakeModel *>ctx
    cdef int32_t i, code
    if rows.n < 1 or rows.n > model.n_batch or not 0 <= rows.seq < model.n_seqs:
        model.bad_calls += 1
        return -1
    model.bad_calls += rows.pos + rows.n > model.n_ctx
    model.bad_calls += rows.pos != memory_pos_max(model, rows.seq) + 1 and not memory_ends_with_row(model, rows.seq)
    code = _begin(model, NULL)
    if code == 0:
        code = load_int(&model.fail_media)
        store_int(&model.fail_media, 0)
    if code:
        return code
    model.batch.n = rows.n
    for i in range(rows.n):
        model.batch.token[i] = FAKE_ROW
        model.batch.pos[i] = rows.pos + (rows.grid[i] if rows.grid != NULL else i)
        model.batch.seq[i] = rows.seq
        model.batch.adapters[i] = model.adapters
        model.batch_row[i] = -1
    if not memory_decode(model):
        model.n_refused += 1
        return NO_ROOM
    return 0


cdef int32_t _answer(const FakeModel *model, int32_t i_batch) noexcept nogil:
    cdef int32_t at = model.batch_at[i_batch], token = model.batch.token[i_batch]
    if model.n_script:
        return FIRST_BYTE + model.script[at] if at < model.n_script else EOS
    return FIRST_BYTE + (token - FIRST_BYTE + 1) % 256 if token >= FIRST_BYTE else FIRST_BYTE + 65


cdef float *_write_row(FakeModel *model, int32_t i_batch, int32_t at) noexcept nogil:
    # Each output has a row of its own, behind the model's struct.
    cdef float made[FAKE_VOCAB]
    cdef float *row = <float *>(<char *>model + sizeof(FakeModel)) + <size_t>at * FAKE_VOCAB
    memset(made, 0, sizeof(made))
    made[FIRST_BYTE + 46] = 5  # a full stop, where the answer is banned
    made[_answer(model, i_batch)] = 10
    memcpy(row, made, sizeof(made))  # as a device does: no number is written twice
    return row


cdef void _await_device(const FakeModel *model) noexcept nogil:
    if model.t_ready_us > now_us():
        sleep_us(model.t_ready_us - now_us())


cdef float *_logits(void *ctx, int32_t i_batch) noexcept nogil:
    cdef FakeModel *model = <FakeModel *>ctx
    if load_int(&model.fail_row):
        store_int(&model.fail_row, 0)
        return NULL
    if i_batch < 0 or i_batch >= model.batch.n or model.batch_row[i_batch] < 0:
        return NULL
    _await_device(model)
    return _write_row(model, i_batch, model.batch_row[i_batch])


cdef float *_rows(void *ctx) noexcept nogil:
    cdef FakeModel *model = <FakeModel *>ctx
    cdef int32_t i, is_sorted = 1
    if load_int(&model.fail_rows):
        store_int(&model.fail_rows, 0)
        return NULL
    _await_device(model)
    for i in range(model.batch.n):
        if model.batch_row[i] >= 0:
            _write_row(model, i, model.batch_arrives[i])
            is_sorted &= model.batch_arrives[i] == model.batch_row[i]
    if not is_sorted:
        sleep_us(SORTING_US)
        for i in range(model.batch.n):
            if model.batch_row[i] >= 0:
                _write_row(model, i, model.batch_row[i])
    return <float *>(<char *>model + sizeof(FakeModel))


cdef int32_t _rebuild(void *ctx) noexcept nogil:
    cdef FakeModel *model = <FakeModel *>ctx
    if model.n_rebuild_failures > 0:
        model.n_rebuild_failures -= 1
        return -1
    model.n_rebuilds += 1
    model.adapters = 0
    memory_clear(model)
    return 0


cdef int32_t _set_adapters(void *ctx, const llamad_adapter_use *uses, int32_t n) noexcept nogil:
    """A set is told by the sum of its scales times ten to the power of their numbers."""
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


cdef int32_t _lock_pages(void *ctx, uint8_t *data, size_t n) noexcept nogil:
    (<FakeModel *>ctx).n_locked += 1
    return 1


cdef void _unlock_pages(void *ctx, uint8_t *data) noexcept nogil:
    (<FakeModel *>ctx).n_locked -= 1


cdef llamad_table _table
_table.version = LLAMAD_TABLE_VERSION
_table.size = sizeof(llamad_table)
_table.decode = _decode
_table.decode_rows = _decode_rows
_table.logits = _logits
_table.rows = _rows
_table.rebuild = _rebuild
_table.set_adapters = _set_adapters
_table.close_adapter = _close_adapter
_table.seq_rm = fake_seq_rm
_table.seq_add = fake_seq_add
_table.seq_div = fake_seq_div
_table.seq_cp = fake_seq_cp
_table.seq_pos_min = fake_seq_pos_min
_table.can_shift = fake_can_shift
_table.state_size = fake_state_size
_table.state_get = fake_state_get
_table.state_set = fake_state_set
_table.lock_pages = _lock_pages
_table.unlock_pages = _unlock_pages
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
                       int has_states) noexcept nogil:
    """Makes the caches as large as llama.cpp does, or with room for everything if no number of cells is given."""
    cdef int32_t n_streams = 1 if model.is_unified else model.n_seqs, n_window
    if n_cells == 0:
        n_cells = _padded(model.n_ctx)
        if model.is_unified:
            n_cells = min(n_cells * model.n_seqs, max(n_cells, ROOM_MAX))
    n_window = _padded(min(n_cells, n_swa * (model.n_seqs if model.is_unified else 1) + model.n_ubatch))
    cells_init(&model.base, n_streams if has_base else 0, n_cells, 0)
    cells_init(&model.window, n_streams if has_base and n_swa else 0, n_cells if is_full else n_window, n_swa)
    recurrent_init(&model.recurrent, model.n_seqs if has_states else 0)


cdef list _owners(const FakeOwners *owners):
    return [seq for seq in range(FAKE_SEQS_MAX) if owners_has(owners, seq)]


cdef class Fake:
    """A fake model: `table`, `ctx` and `vocab` are what the real binding would give.

    Its memory is a KV cache with n_ctx cells for each sequence, or with n_cells for all of them if it is `unified`. With
    n_swa it has a second one for layers with a sliding window, which is smaller unless `swa_full`. It is `recurrent`, or
    `hybrid`: both. can_cut=False is another word for hybrid. n_seqs: sequences, and streams in states."""
    cdef FakeModel *model
    cdef bytes kept_script

    def __cinit__(self, *, n_ctx: int = 512, n_batch: int = 64, script: bytes = b"", decode_us: int = 0,
                  token_us: int = 0, device_us: int = 0, can_shift: bool = True, can_cut: bool = True,
                  unified: bool = False, n_seqs: int = 0, n_cells: int = 0, n_ubatch: int = 0, n_swa: int = 0,
                  swa_full: bool = False, recurrent: bool = False, hybrid: bool = False) -> None:
        self.model = <FakeModel *>calloc(1, sizeof(FakeModel) + <size_t>n_batch * FAKE_VOCAB * sizeof(float))
        if self.model == NULL:
            raise MemoryError()
        self.model.n_ctx = n_ctx
        self.model.n_batch = n_batch
        self.model.n_ubatch = n_ubatch or n_batch
        self.model.n_seqs = n_seqs or FAKE_SEQS_MAX
        self.model.n_streams_told = n_seqs if n_seqs and not unified else 1
        self.model.decode_us = decode_us
        self.model.token_us = token_us
        self.model.device_us = device_us
        self.model.refuse_above = -1
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
        _make_memory(self.model, n_cells, n_swa, swa_full, not recurrent, recurrent or hybrid or not can_cut)
        self.script = script

    def __dealloc__(self) -> None:
        if self.model != NULL:
            cells_free(&self.model.base)
            cells_free(&self.model.window)
            recurrent_clear(&self.model.recurrent)
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
        return FAKE_VOCAB

    @property
    def script(self) -> bytes:
        return self.kept_script

    @script.setter
    def script(self, script: bytes) -> None:
        self.kept_script = script
        self.model.script = <const unsigned char *>self.kept_script
        self.model.n_script = <int32_t>len(script)

    def block(self, is_blocked: bool) -> None:
        """Every decode waits while blocked."""
        store_int(&self.model.is_blocked, is_blocked)

    @property
    def is_waiting(self) -> bool:
        """A decode waits: nothing else happens on the engine's thread."""
        return load_int(&self.model.is_waiting) != 0

    def take(self, token_us: int) -> None:
        """A token takes so long from now on."""
        store_time(&self.model.token_us, token_us)

    def lose(self, n: int) -> None:
        """Sequences say that their window begins no earlier than here."""
        store_int(&self.model.n_lost, n)

    def fail_state(self) -> None:
        """The next restore fails in the middle."""
        store_int(&self.model.fail_state, 1)

    def fail_row(self) -> None:
        """The next row of logits that is asked for by itself is none."""
        store_int(&self.model.fail_row, 1)

    def fail_rows(self) -> None:
        """The next step has no logits at all."""
        store_int(&self.model.fail_rows, 1)

    def fail_next(self, code: int, n_rebuild_failures: int = 0, n_times: int = 1) -> None:
        """The next decode, or so many, return `code`, and so many rebuilds fail before one works."""
        self.model.n_rebuild_failures = n_rebuild_failures
        self.model.n_failures = n_times
        store_int(&self.model.fail_code, code)

    def fail_sequence(self, seq: int, code: int) -> None:
        """Every decode with a token of this sequence returns `code`."""
        store_int(&self.model.fail_seq_code, code)
        store_int(&self.model.fail_seq, seq + 1)

    def fail_media(self, code: int) -> None:
        """The next decode of rows returns `code`."""
        store_int(&self.model.fail_media, code)

    def refuse_more_than(self, n: int) -> None:
        """A decode of more tokens finds no room; -1: any number fits."""
        store_int(&self.model.refuse_above, n)

    def refuse_decoding_beside_prompts(self, n: int) -> None:
        """So many short decodes that follow one of prompts find no room."""
        store_int(&self.model.n_refusals, n)

    def lose_adapter(self, number: int) -> None:
        """The model does not have this adapter."""
        store_int(&self.model.lost_adapter, number + 1)

    @property
    def n_locked(self) -> int:
        """Pages that are locked: all are unlocked before they are freed."""
        return self.model.n_locked

    @property
    def n_decodes(self) -> int:
        return self.model.n_decodes

    @property
    def n_graphs(self) -> int:
        """Of all decodes together."""
        return self.model.n_graphs

    @property
    def n_silent(self) -> int:
        """Decodes without any output."""
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
        """Decodes that returned 1, because a cache had no room."""
        return self.model.n_refused

    @property
    def n_wrong(self) -> int:
        """How often llama.cpp would have computed wrong logits without a word: a part of a sequence's window was gone, its
        recurrent state was that of other tokens, or cells of another text were left."""
        return self.model.n_wrong

    def held(self, seq: int) -> int:
        """How many tokens a sequence holds."""
        return memory_held(self.model, seq)

    @property
    def held_max(self) -> int:
        """How many tokens all sequences held at most, after a decode."""
        return self.model.n_held_max

    def pos_max(self, seq: int) -> int:
        """The last position that a sequence holds; -1 if it holds nothing."""
        return memory_pos_max(self.model, seq)

    def cells(self, seq: int) -> list[tuple[int, int]]:
        """(position, token) of what a sequence holds, by position; those of one position as they were written."""
        return [(pos, token) for pos, token, _ in self._held(seq)]

    def adapters(self, seq: int) -> list[float]:
        """What computed each token that a sequence holds: the sum of scales times ten to the power of numbers."""
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
        """How many cells of a cache are used: "base" is the KV cache, "window" that of layers with a sliding window,
        "states" the recurrent memory."""
        if cache == "states":
            return self.model.recurrent.n_used
        return cells_used(self._cache(cache))

    def size(self, cache: str = "base") -> int:
        """How many cells a cache has, in each stream."""
        return self.model.recurrent.n_states if cache == "states" else self._cache(cache).n_cells

    def owned(self, seq: int, cache: str = "base") -> list[tuple[int, int, list[int]]]:
        """(position, token, owners) of a sequence's cells in a cache, as they lie there. The token of a recurrent state is
        the last one that it has seen."""
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
    def n_adapters_closed(self) -> int:
        return self.model.n_closed

    @property
    def n_copies(self) -> int:
        return self.model.n_copies
