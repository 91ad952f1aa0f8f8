# Owns: how the fake model decodes a batch and which token its logits favour. It answers with the bytes of a script,
# which begins at a sequence's first output, then with EOS; without a script each byte is the last one plus 1.
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.string cimport memchr, memcpy, memset

from llamad.base.system cimport load_int, load_time, now_us, sleep_us, store_int
from llamad.base.function_table cimport llamad_batch, llamad_rows
from llamad.engine.scheduler.plan cimport PROMPT_OUTPUTS_MAX
from llamad.engine.testing.fake_memory cimport (
    memory_decode, memory_ends_with_row, memory_held, memory_pos_max, memory_wait,
)
from llamad.engine.testing.fake_model cimport FAKE_IDLE_MAX, FAKE_ROW, FAKE_VOCAB, FakeModel, FakeSeq
from llamad.engine.testing.fake_owners cimport FAKE_SEQS_MAX
from llamad.engine.testing.fake_split cimport split_arrivals
from llamad.engine.testing.fake_text cimport EOS, FIRST_BYTE

cdef enum:
    NO_ROOM = 1
    SORTING_US = 100  # before rows that came in another order are in the batch's

cdef extern from "llamad/engine/testing/fake_bus.h" nogil:
    void bus_fill(float *row, int32_t n, float least, uint32_t seed) noexcept
    void bus_flush(const float *row, int32_t n) noexcept
    int64_t now_ns() noexcept


cdef int _check_batch(FakeModel *model, const llamad_batch *batch) noexcept nogil:
    """Check a batch and count broken rules. Return 0 if llama.cpp would reject the batch."""
    cdef int32_t i, seq, is_first, is_taken = 1, n_outputs = 0
    cdef int32_t expected[FAKE_SEQS_MAX]
    for i in range(FAKE_SEQS_MAX):
        expected[i] = -1
    if batch.n_tokens <= 0 or batch.n_tokens > model.n_batch:
        model.bad_calls += 1
        return 0
    for i in range(batch.n_tokens):
        seq = batch.seq_id[i][0]
        if batch.n_seq_id[i] != 1 or not 0 <= seq < model.n_seqs or not 0 <= batch.token[i] < model.n_vocab:
            model.bad_calls += 1
            return 0
        is_first = expected[seq] < 0 and memory_pos_max(model, seq) < 0
        if expected[seq] < 0:
            expected[seq] = memory_pos_max(model, seq) + 1
            if memory_ends_with_row(model, seq):
                expected[seq] = max(expected[seq], batch.pos[i])  # a grid may take any number of positions
        if batch.pos[i] != expected[seq] or batch.pos[i] >= model.n_ctx:
            model.bad_calls += 1
        if not is_first and batch.pos[i] != expected[seq]:
            is_taken = 0
        expected[seq] = batch.pos[i] + 1
        n_outputs += batch.output[i]
    if n_outputs > model.n_seqs + <int32_t>PROMPT_OUTPUTS_MAX:
        model.bad_calls += 1  # llama.cpp aborts: n_outputs_max
        return 0
    return is_taken


cdef int32_t _failure(FakeModel *model, const llamad_batch *batch) noexcept nogil:
    """Return the code that a test has set for this decode, or 0."""
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
    """Do what a decode does before it looks at its memory. Return the code with which it fails, or 0."""
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
    """Assign each output a row of logits, and the row its position in the script."""
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


cdef int64_t _depth_us(const FakeModel *model, const llamad_batch *batch) noexcept nogil:
    """Return how much longer the tokens take because of those before them."""
    cdef int64_t n = 0
    cdef int32_t i
    for i in range(batch.n_tokens):
        n += batch.pos[i]
    return n * model.depth_us // 10_000


cdef int32_t fake_decode(void *ctx, const llamad_batch *batch) noexcept nogil:
    cdef FakeModel *model = <FakeModel *>ctx
    cdef int32_t i, code
    cdef int is_taken
    if model.t_rows_ns:
        model.idle_ns[model.n_idle % FAKE_IDLE_MAX] = now_ns() - model.t_rows_ns
        model.n_idle += 1
        model.t_rows_ns = 0
    memory_wait(model, &model.is_blocked)
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
    model.n_same = model.n_same + 1 if batch.n_tokens == model.n_tokens_last else 0
    model.n_tokens_last = batch.n_tokens
    if model.shape_us and model.n_same < 2:
        sleep_us(model.shape_us)
    if model.decode_us or load_time(&model.token_us) or model.depth_us:
        sleep_us(model.decode_us + load_time(&model.token_us) * batch.n_tokens + _depth_us(model, batch))
    model.t_ready_us = now_us() + model.device_us
    model.n_graphs += <uint64_t>model.split.n
    model.n_tokens_decoded += <uint64_t>batch.n_tokens
    model.n_silent += memchr(batch.output, 1, <size_t>batch.n_tokens) == NULL
    _plan_rows(model, batch)
    model.n_held_max = max(model.n_held_max, _count_held(model))
    return 0


cdef int32_t fake_decode_rows(void *ctx, const llamad_rows *rows) noexcept nogil:
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


cdef float _chaos(uint64_t seed, int32_t token, int32_t pos, int32_t candidate) noexcept nogil:
    """Return a number below 8 that looks random."""
    cdef uint64_t x = seed + <uint64_t>token * 0x9E3779B97F4A7C15ull + <uint64_t>pos * 0xC2B2AE3D27D4EB4Full
    x = (x ^ <uint64_t>candidate * 0x165667B19E3779F9ull) * 0xBF58476D1CE4E5B9ull
    x = (x ^ (x >> 31)) * 0x94D049BB133111EBull
    return <float>((x >> 40) & 0xFFFF) / 8192


cdef int32_t chaos_answer(const FakeModel *model, int32_t token, int32_t pos) noexcept nogil:
    """Return the most likely token after this one."""
    cdef int32_t i, best = FIRST_BYTE
    for i in range(FIRST_BYTE, FAKE_VOCAB):
        if _chaos(model.chaos, token, pos, i) > _chaos(model.chaos, token, pos, best):
            best = i
    return best


cdef float *_write_row(FakeModel *model, int32_t i_batch, int32_t at) noexcept nogil:
    # Each output has a row of its own, behind the model's struct.
    cdef float made[FAKE_VOCAB]
    cdef float *row = <float *>(<char *>model + sizeof(FakeModel)) + <size_t>at * <size_t>model.n_vocab
    cdef int32_t i
    cdef uint64_t seed = model.chaos
    memset(made, 0, sizeof(made))
    if seed:
        seed += _chaos(~seed, 0, model.batch.pos[i_batch], 0) < 8 * model.astray
        for i in range(FIRST_BYTE, FAKE_VOCAB):
            made[i] = _chaos(seed, model.batch.token[i_batch], model.batch.pos[i_batch], i)
    else:
        made[FIRST_BYTE + 46] = 5  # a full stop, where the answer is banned
        made[_answer(model, i_batch)] = 10
    memcpy(row, made, sizeof(made))  # as a device does: no number is written twice
    if model.n_vocab > FAKE_VOCAB:
        bus_fill(row + FAKE_VOCAB, model.n_vocab - FAKE_VOCAB, 0 if seed else -8,
                 <uint32_t>(seed + <uint64_t>model.batch.pos[i_batch] * 131 + <uint64_t>model.batch.token[i_batch]))
        bus_flush(row, model.n_vocab)
    return row


cdef void _await_device(const FakeModel *model) noexcept nogil:
    if model.t_ready_us > now_us():
        sleep_us(model.t_ready_us - now_us())


cdef float *fake_logits(void *ctx, int32_t i_batch) noexcept nogil:
    cdef FakeModel *model = <FakeModel *>ctx
    if load_int(&model.fail_row):
        store_int(&model.fail_row, 0)
        return NULL
    if i_batch < 0 or i_batch >= model.batch.n or model.batch_row[i_batch] < 0:
        return NULL
    _await_device(model)
    return _write_row(model, i_batch, model.batch_row[i_batch])


cdef float *fake_rows(void *ctx) noexcept nogil:
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
    model.t_rows_ns = now_ns()
    return <float *>(<char *>model + sizeof(FakeModel))
