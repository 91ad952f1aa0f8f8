# Owns: a fake table and its model. Each byte is a token; the model's answer is a script, byte by byte, counted
# from a sequence's first output, then EOS; without a script it counts upwards from the last byte.
# It is as strict as llama.cpp is fatal: what would abort there is counted in bad_calls here.
from libc.stdint cimport int32_t, uint64_t, uintptr_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memchr, memcpy, memset

from llamad.base.system cimport load_int, load_time, now_us, sleep_us, store_int, store_time
from llamad.base.table cimport (
    LLAMAD_TABLE_VERSION, llamad_adapter_use, llamad_batch, llamad_bias, llamad_candidate, llamad_rows,
    llamad_sampling, llamad_table, llamad_tokenize_limits,
)
from llamad.engine.testing.fake_graphs cimport fake_graphs
from llamad.engine.testing.fake_memory cimport (
    fake_can_shift, fake_empty, fake_ends_with_row, fake_hold, fake_new_cell, fake_next_pos, fake_seq_add,
    fake_seq_cp, fake_seq_div, fake_seq_pos_min, fake_seq_rm, fake_state_get, fake_state_set, fake_state_size,
)
from llamad.engine.testing.fake_model cimport FAKE_ROW, FAKE_SEQS_MAX, FAKE_VOCAB, FakeModel, FakeSeq

cdef enum:
    BOS = 0
    EOS = 1
    FIRST_BYTE = 3
    NO_ROOM = 1
    SORTING_US = 100         # before rows that came in another order are in the batch's

ctypedef struct FakeSampler:
    int32_t ban_eos
    FakeModel *model


cdef void _check_batch(FakeModel *model, const llamad_batch *batch) noexcept nogil:
    cdef int32_t i, seq
    cdef int32_t expected[FAKE_SEQS_MAX]
    for i in range(FAKE_SEQS_MAX):
        expected[i] = fake_next_pos(&model.seqs[i])
    if batch.n_tokens <= 0 or batch.n_tokens > model.n_batch:
        model.bad_calls += 1
    for i in range(batch.n_tokens):
        seq = batch.seq_id[i][0]
        if fake_ends_with_row(&model.seqs[seq]):
            expected[seq] = max(expected[seq], batch.pos[i])  # a grid takes as many positions as it likes
        if batch.n_seq_id[i] != 1 or batch.pos[i] != expected[seq] or batch.pos[i] >= model.n_ctx:
            model.bad_calls += 1
        model.bad_calls += model.seqs[seq].n_rewound != 0
        if not 0 <= batch.token[i] < FAKE_VOCAB:
            model.bad_calls += 1
        expected[seq] = batch.pos[i] + 1


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


cdef int32_t _decode(void *ctx, const llamad_batch *batch) noexcept nogil:
    cdef FakeModel *model = <FakeModel *>ctx
    cdef FakeSeq *seq
    cdef int32_t i, code, n_rows = 0, n_held = 0
    while load_int(&model.is_blocked):
        store_int(&model.is_waiting, 1)
        sleep_us(1000)
    store_int(&model.is_waiting, 0)
    _check_batch(model, batch)
    for i in range(FAKE_SEQS_MAX):
        model.seqs[i].is_written_later = model.seqs[i].is_read_later = 0
    model.n_decodes += 1
    code = _failure(model, batch)
    if code:
        return code
    if model.decode_us or load_time(&model.token_us):
        sleep_us(model.decode_us + load_time(&model.token_us) * batch.n_tokens)
    model.t_ready_us = now_us() + model.device_us
    model.n_graphs += <uint64_t>fake_graphs(batch, model.batch_arrives)
    model.n_silent += memchr(batch.output, 1, <size_t>batch.n_tokens) == NULL
    model.n_tokens = batch.n_tokens
    for i in range(batch.n_tokens):
        seq = &model.seqs[batch.seq_id[i][0]]
        model.batch_token[i] = batch.token[i]
        model.batch_at[i] = seq.n_outputs
        model.batch_row[i] = n_rows if batch.output[i] else -1
        if model.is_unified:
            model.batch_arrives[i] = model.batch_row[i]  # all sequences are one stream
        if batch.output[i]:
            seq.n_outputs += 1
            n_rows += 1
        fake_hold(model, seq, fake_new_cell(batch.pos[i], batch.token[i], model.adapters))
        if batch.output[i]:
            seq.n_told = seq.n_held
    for i in range(FAKE_SEQS_MAX):
        n_held += model.seqs[i].n_held
    model.n_held_max = max(model.n_held_max, n_held)
    return 0


cdef int32_t _decode_rows(void *ctx, const llamad_rows *rows) noexcept nogil:
    cdef FakeModel *model = <FakeModel *>ctx
    cdef FakeSeq *seq = &model.seqs[rows.seq]
    cdef int32_t i, code
    model.bad_calls += rows.n < 1 or rows.n > model.n_batch or rows.pos + rows.n > model.n_ctx
    model.bad_calls += rows.pos != fake_next_pos(seq) and not fake_ends_with_row(seq)
    for i in range(FAKE_SEQS_MAX):
        model.seqs[i].is_written_later = model.seqs[i].is_read_later = 0
    model.n_decodes += 1
    code = _failure(model, NULL)
    if code:
        return code
    for i in range(rows.n):
        fake_hold(model, seq, fake_new_cell(rows.pos + (rows.grid[i] if rows.grid != NULL else i), FAKE_ROW,
                                            model.adapters))
    return 0


cdef int32_t _answer(const FakeModel *model, int32_t i_batch) noexcept nogil:
    cdef int32_t at = model.batch_at[i_batch], token = model.batch_token[i_batch]
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
    if i_batch < 0 or i_batch >= model.n_tokens or model.batch_row[i_batch] < 0:
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
    for i in range(model.n_tokens):
        if model.batch_row[i] >= 0:
            _write_row(model, i, model.batch_arrives[i])
            is_sorted &= model.batch_arrives[i] == model.batch_row[i]
    if not is_sorted:
        sleep_us(SORTING_US)
        for i in range(model.n_tokens):
            if model.batch_row[i] >= 0:
                _write_row(model, i, model.batch_row[i])
    return <float *>(<char *>model + sizeof(FakeModel))


cdef int32_t _rebuild(void *ctx) noexcept nogil:
    cdef FakeModel *model = <FakeModel *>ctx
    cdef int32_t i
    if model.n_rebuild_failures > 0:
        model.n_rebuild_failures -= 1
        return -1
    model.n_rebuilds += 1
    model.adapters = 0
    for i in range(FAKE_SEQS_MAX):
        fake_empty(&model.seqs[i])
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


cdef int32_t _tokenize(const void *vocab, const char *text, int32_t n_text, int32_t *tokens, int32_t n_max,
                       int32_t add_special, int32_t parse_special,
                       const llamad_tokenize_limits *limits) noexcept nogil:
    cdef int32_t n = n_text + (1 if add_special else 0), i, at = 0
    if n > n_max:
        return -n
    if add_special:
        tokens[0] = BOS
        at = 1
    for i in range(n_text):
        tokens[at + i] = FIRST_BYTE + <unsigned char>text[i]
    return n


cdef int32_t _piece(const void *vocab, int32_t token, char *buf, int32_t n_buf, int32_t special) noexcept nogil:
    if token < FIRST_BYTE:
        return 0
    if n_buf < 1:
        return -1
    buf[0] = <char>(token - FIRST_BYTE)
    return 1


cdef int32_t _detokenize(const void *vocab, const int32_t *tokens, int32_t n_tokens, char *text, int32_t n_max,
                         int32_t remove_special, int32_t unparse_special) noexcept nogil:
    cdef int32_t i, n = 0
    for i in range(n_tokens):
        if tokens[i] >= FIRST_BYTE:
            if n < n_max:
                text[n] = <char>(tokens[i] - FIRST_BYTE)
            n += 1
    return n if n <= n_max else -n


cdef int32_t _is_eog(const void *vocab, int32_t token) noexcept nogil:
    return token == EOS


cdef void *_sampler_open(const void *vocab, const llamad_sampling *sampling, const llamad_bias *bias, int32_t n_bias,
                         const char *breakers, int32_t n_breakers) noexcept nogil:
    cdef FakeSampler *sampler = <FakeSampler *>calloc(1, sizeof(FakeSampler))
    cdef int32_t i
    sampler.model = <FakeModel *>vocab
    sampler.model.n_samplers += 1
    for i in range(n_bias):
        if bias[i].token == EOS and bias[i].bias < -1e9:
            sampler.ban_eos = 1
    return sampler


cdef void _sampler_accept(void *sampler, int32_t token) noexcept nogil:
    pass


cdef int32_t _sampler_sample(void *sampler, const float *logits, int32_t n_vocab, void *scratch,
                             llamad_candidate **data, int32_t *n) noexcept nogil:
    cdef int32_t i, best = FIRST_BYTE + 46  # a full stop, where EOS is banned
    data[0] = <llamad_candidate *>scratch
    n[0] = 1
    for i in range(n_vocab):
        if logits[i] > 5 and not (i == EOS and (<FakeSampler *>sampler).ban_eos):
            best = i
    data[0].id = best
    data[0].logit = logits[best]
    data[0].p = 1
    return best


cdef void _sampler_close(void *sampler) noexcept nogil:
    (<FakeSampler *>sampler).model.n_samplers -= 1
    free(sampler)


cdef void _sort(llamad_candidate *data, int32_t n) noexcept nogil:
    cdef llamad_candidate one
    cdef int32_t i, j
    for i in range(1, n):
        one = data[i]
        j = i
        while j > 0 and data[j - 1].logit < one.logit:
            data[j] = data[j - 1]
            j -= 1
        data[j] = one


cdef void _sort_front(llamad_candidate *data, int32_t n, int32_t k) noexcept nogil:
    _sort(data, n)


cdef void _order(const float *scores, int32_t *order, int32_t n) noexcept nogil:
    cdef int32_t i, j, one
    for i in range(1, n):
        one = order[i]
        j = i
        while j > 0 and scores[order[j - 1]] > scores[one]:
            order[j] = order[j - 1]
            j -= 1
        order[j] = one


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
_table.tokenize = _tokenize
_table.piece = _piece
_table.detokenize = _detokenize
_table.is_eog = _is_eog
_table.sampler_open = _sampler_open
_table.sampler_accept = _sampler_accept
_table.sampler_sample = _sampler_sample
_table.sampler_close = _sampler_close
_table.sort = _sort
_table.sort_front = _sort_front
_table.order = _order


cdef class Fake:
    """A fake model: `table`, `ctx` and `vocab` are what the real binding would give."""
    cdef FakeModel *model
    cdef bytes kept_script

    def __cinit__(self, *, n_ctx: int = 512, n_batch: int = 64, script: bytes = b"", decode_us: int = 0,
                  token_us: int = 0, device_us: int = 0, can_shift: bool = True, can_cut: bool = True,
                  unified: bool = False) -> None:
        self.model = <FakeModel *>calloc(1, sizeof(FakeModel) + <size_t>n_batch * FAKE_VOCAB * sizeof(float))
        if self.model == NULL:
            raise MemoryError()
        self.model.n_ctx = n_ctx
        self.model.n_batch = n_batch
        self.model.decode_us = decode_us
        self.model.token_us = token_us
        self.model.device_us = device_us
        self.model.can_shift = can_shift
        self.model.can_cut = can_cut
        self.model.is_unified = unified
        self.model.refuse_above = -1
        self.model.batch_token = <int32_t *>malloc(<size_t>n_batch * sizeof(int32_t))
        self.model.batch_pos = <int32_t *>malloc(<size_t>n_batch * sizeof(int32_t))
        self.model.batch_row = <int32_t *>malloc(<size_t>n_batch * sizeof(int32_t))
        self.model.batch_at = <int32_t *>malloc(<size_t>n_batch * sizeof(int32_t))
        self.model.batch_arrives = <int32_t *>malloc(<size_t>n_batch * sizeof(int32_t))
        self.script = script

    def __dealloc__(self) -> None:
        if self.model != NULL:
            free(self.model.batch_token)
            free(self.model.batch_pos)
            free(self.model.batch_at)
            free(self.model.batch_arrives)
            free(self.model.batch_row)
            for i in range(FAKE_SEQS_MAX):
                fake_empty(&self.model.seqs[i])
                free(self.model.seqs[i].cells)
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

    def held(self, seq: int) -> int:
        """How many tokens a sequence holds."""
        return self.model.seqs[seq].n_held

    @property
    def held_max(self) -> int:
        """How many tokens all sequences held at most, after a decode."""
        return self.model.n_held_max

    def cells(self, seq: int) -> list[tuple[int, int]]:
        """(position, token) of what a sequence holds, as it was written."""
        return [(self.model.seqs[seq].cells[i].pos, self.model.seqs[seq].cells[i].token)
                for i in range(self.model.seqs[seq].n_held)]

    def adapters(self, seq: int) -> list[float]:
        """What computed each token that a sequence holds: the sum of scales times ten to the power of numbers."""
        return [self.model.seqs[seq].cells[i].adapters for i in range(self.model.seqs[seq].n_held)]

    @property
    def n_adapter_changes(self) -> int:
        return self.model.n_changes

    @property
    def n_adapters_closed(self) -> int:
        return self.model.n_closed

    @property
    def n_copies(self) -> int:
        return self.model.n_copies
