# Owns: a task's sampler: which samplers it has, in which order, and their state. It is opened on the engine thread, and
# samples on sampler threads (one task on one thread at a time). Must not touch slots or events.
#
# A chain begins on the row of logits itself: penalties, DRY and biases change only a few tokens of it, and most cuts
# find their result by scanning it (logits_row.pyx). From the first cut on, the samplers work on the list of candidates
# that is left (candidates.pyx). A list of the whole vocabulary is made only for samplers that need everything sorted,
# and if equal logits make the result depend on the order in which llama.cpp's sort leaves them.
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset

from llamad.engine.sampler.adaptive cimport adaptive_accept, adaptive_draw, adaptive_open, mirostat_draw, mirostat_open
from llamad.engine.sampler.candidates cimport (
    Candidates, candidates_check, candidates_draw, candidates_finish, candidates_min_p, candidates_tail_free,
    candidates_temperature, candidates_top_k, candidates_top_n_sigma, candidates_top_p, candidates_typical,
    candidates_xtc,
)
from llamad.engine.sampler.dry cimport dry_accept, dry_close, dry_find, dry_forget, dry_open, dry_to_list, dry_to_row
from llamad.engine.sampler.infill cimport infill_apply, infill_close
from llamad.engine.sampler.penalties cimport (
    penalties_accept, penalties_close, penalties_open, penalties_to_list, penalties_to_row,
)
from llamad.engine.sampler.random cimport Random, random_float, random_seed, random_skip
from llamad.engine.sampler.logits_row cimport (
    Row, row_close, row_divide, row_draw, row_largest, row_list, row_min_p, row_open, row_resolve, row_set, row_top_k,
    row_top_n_sigma, row_top_p, scratch_bytes,
)
from llamad.engine.sampler.topk cimport TOPK_OPEN
from llamad.base.function_table cimport (
    LLAMAD_SAMPLER_ADAPTIVE_P, LLAMAD_SAMPLER_DRY, LLAMAD_SAMPLER_INFILL, LLAMAD_SAMPLER_MIN_P,
    LLAMAD_SAMPLER_PENALTIES, LLAMAD_SAMPLER_TEMPERATURE, LLAMAD_SAMPLER_TFS_Z, LLAMAD_SAMPLER_TOP_K,
    LLAMAD_SAMPLER_TOP_N_SIGMA, LLAMAD_SAMPLER_TOP_P, LLAMAD_SAMPLER_TYPICAL, LLAMAD_SAMPLER_XTC, llamad_bias,
    llamad_candidate, llamad_sampling, llamad_table,
)

cdef enum:
    AGAIN = -2           # the incomplete list was not enough: start again with the whole list
    DRAWS_MAX = 8        # a token takes fewer random numbers, even if a grammar has it sampled again


# --- what a chain does ----------------------------------------------------------------------------------------

cdef int _is_neutral(const llamad_sampling *s, unsigned char kind) noexcept nogil:
    """Return whether llama.cpp's sampler of this kind would change nothing."""
    if kind == LLAMAD_SAMPLER_PENALTIES:
        return s.repeat_last_n <= 0 or (s.repeat_penalty == 1 and s.presence_penalty == 0 and s.frequency_penalty == 0)
    if kind == LLAMAD_SAMPLER_DRY:
        return s.dry_multiplier == 0 or s.dry_base < 1 or s.dry_penalty_last_n <= 0
    if kind == LLAMAD_SAMPLER_TOP_N_SIGMA:
        return s.top_n_sigma <= 0
    if kind == LLAMAD_SAMPLER_TOP_K:
        return s.top_k <= 0
    if kind == LLAMAD_SAMPLER_TFS_Z:
        return s.tfs_z >= 1
    if kind == LLAMAD_SAMPLER_TYPICAL:
        return s.typical_p >= 1
    if kind == LLAMAD_SAMPLER_TOP_P:
        return s.top_p >= 1
    if kind == LLAMAD_SAMPLER_MIN_P:
        return s.min_p <= 0
    if kind == LLAMAD_SAMPLER_XTC:
        return s.xtc_probability <= 0 or s.xtc_threshold > 0.5
    if kind == LLAMAD_SAMPLER_INFILL:
        return 0
    return s.temperature == 1 and s.dynatemp_range <= 0


cdef int _looks_at_ids(unsigned char kind) noexcept nogil:
    """Return whether the sampler looks at the ids of candidates, or changes the row's scratch memory."""
    return (kind == LLAMAD_SAMPLER_PENALTIES or kind == LLAMAD_SAMPLER_DRY or kind == LLAMAD_SAMPLER_INFILL
            or kind == LLAMAD_SAMPLER_TYPICAL)


cdef int _has(const llamad_sampling *s, unsigned char kind) noexcept nogil:
    cdef int32_t i
    for i in range(s.n_samplers):
        if s.samplers[i] == kind:
            return not _is_neutral(s, kind)
    return 0


# --- opening and closing --------------------------------------------------------------------------------------

cdef Sampler *_open(const llamad_table *table, int32_t n_vocab, const llamad_sampling *sampling) noexcept nogil:
    cdef Sampler *sampler = <Sampler *>calloc(1, sizeof(Sampler))
    if sampler != NULL:
        sampler.table = table
        sampler.n_vocab = n_vocab
        sampler.sampling = sampling[0]
    return sampler


cdef Sampler *sampler_open_chain(const llamad_table *table, const void *vocab, int32_t n_vocab,
                                 const llamad_sampling *sampling, const llamad_bias *bias, int32_t n_bias,
                                 const char *breakers, int32_t n_breakers) noexcept nogil:
    """Open llama.cpp's chain with any samplers, or return NULL. `breakers` are concatenated NUL-terminated strings."""
    cdef Sampler *sampler = _open(table, n_vocab, sampling)
    if sampler == NULL:
        return NULL
    sampler.chain = table.sampler_open(vocab, sampling, bias, n_bias, breakers, n_breakers)
    if sampler.chain == NULL:
        free(sampler)
        return NULL
    return sampler


cdef int _open_state(Sampler *sampler, const llamad_bias *bias, int32_t n_bias, const int32_t *breakers,
                     int32_t n_breakers) noexcept nogil:
    """Set up the state that the chain keeps between tokens. Return 0, or -1 if memory ran out."""
    cdef const llamad_sampling *s = &sampler.sampling
    cdef int32_t i
    sampler.bias = <llamad_bias *>malloc(<size_t>(n_bias + 1) * sizeof(llamad_bias))
    sampler.xtc = <Random *>malloc(<size_t>(2 * sampler.n_xtc + 1) * sizeof(Random))
    if sampler.bias == NULL or sampler.xtc == NULL:
        return -1
    if n_bias > 0:
        memcpy(sampler.bias, bias, <size_t>n_bias * sizeof(llamad_bias))
    sampler.n_bias = n_bias
    random_seed(&sampler.random, s.seed)
    for i in range(sampler.n_xtc):
        random_seed(&sampler.xtc[i], s.seed)
    if _has(s, LLAMAD_SAMPLER_PENALTIES) and penalties_open(&sampler.penalties, s, sampler.n_vocab) < 0:
        return -1
    if _has(s, LLAMAD_SAMPLER_DRY) and dry_open(&sampler.dry, s, sampler.n_vocab, breakers, n_breakers) < 0:
        return -1
    return 0


cdef Sampler *sampler_open(const llamad_table *table, const void *vocab, int32_t n_vocab,
                           const llamad_sampling *sampling, const llamad_bias *bias, int32_t n_bias,
                           const int32_t *breakers, int32_t n_breakers) noexcept nogil:
    """Return a sampler without history, or NULL. `breakers` is DRY's table of n_breakers numbers (dry_breakers.pyx)."""
    cdef Sampler *sampler = _open(table, n_vocab, sampling)
    cdef int32_t i, is_cut = 0
    if sampler == NULL:
        return NULL
    sampler.vocab = vocab
    sampler.leaves_open = 1
    if sampling.mirostat:  # it has no other samplers, except for a plain temperature
        mirostat_open(&sampler.mirostat, sampling)
        sampler.sampling.dynatemp_range = 0
        sampler.sampling.n_samplers = 1
        sampler.sampling.samplers[0] = LLAMAD_SAMPLER_TEMPERATURE
        sampling = &sampler.sampling
    for i in range(sampling.n_samplers):
        if sampling.samplers[i] == LLAMAD_SAMPLER_ADAPTIVE_P:
            adaptive_open(&sampler.adaptive, sampling)
        elif not _is_neutral(sampling, sampling.samplers[i]):
            sampler.steps[sampler.n_steps] = sampling.samplers[i]
            sampler.n_steps += 1
            sampler.n_xtc += sampling.samplers[i] == LLAMAD_SAMPLER_XTC
            is_cut = is_cut or sampling.samplers[i] == LLAMAD_SAMPLER_TOP_K
            if is_cut and _looks_at_ids(sampling.samplers[i]):
                sampler.leaves_open = 0
    if sampler.adaptive.is_on or sampler.mirostat.version:
        sampler.leaves_open = 0
    if _open_state(sampler, bias, n_bias, breakers, n_breakers) < 0:
        sampler_close(sampler)
        return NULL
    return sampler


cdef void sampler_close(Sampler *sampler) noexcept nogil:
    if sampler == NULL:
        return
    if sampler.chain != NULL:
        sampler.table.sampler_close(sampler.chain)
    penalties_close(&sampler.penalties)
    dry_close(&sampler.dry)
    infill_close(&sampler.infill)
    free(sampler.bias)
    free(sampler.xtc)
    free(sampler)


cdef size_t sampler_scratch_bytes(int32_t n_vocab) noexcept nogil:
    return scratch_bytes(n_vocab)


# --- history --------------------------------------------------------------------------------------------------

cdef int32_t sampler_history_wanted(const llamad_sampling *sampling) noexcept nogil:
    """Return how many of the prompt's last tokens can matter: penalties and DRY look back no further."""
    cdef int32_t n = 0
    if sampling.mirostat:
        return 0
    if _has(sampling, LLAMAD_SAMPLER_PENALTIES):
        n = sampling.repeat_last_n
    if _has(sampling, LLAMAD_SAMPLER_DRY):
        n = max(n, sampling.dry_penalty_last_n)
    return n


cdef void sampler_accept(Sampler *sampler, int32_t token) noexcept nogil:
    """Add the token to the history."""
    if sampler.chain != NULL:
        sampler.table.sampler_accept(sampler.chain, token)
        return
    penalties_accept(&sampler.penalties, token)
    dry_accept(&sampler.dry, token)
    adaptive_accept(&sampler.adaptive, token)


cdef void sampler_mark(const Sampler *sampler, SamplerMark *mark) noexcept nogil:
    """Note what accepting the same tokens again cannot restore: the random numbers drawn, and what was learned from the
    probabilities of tokens."""
    cdef int32_t i
    mark.head.n_drawn = sampler.random.n_drawn
    mark.head.n_xtc = sampler.n_xtc
    mark.head.learned = sampler.mirostat.limit if sampler.mirostat.version else sampler.adaptive.weighted
    mark.head.weight = sampler.adaptive.weight
    for i in range(sampler.n_xtc):
        mark.xtc[i] = sampler.xtc[i].n_drawn


cdef int sampler_return_to(Sampler *sampler, const SamplerMark *mark, int64_t n_tokens) noexcept nogil:
    """Continue from a mark that a sampler with the same parameters made after n_tokens. Call it after those were
    accepted, and nothing was sampled. Return 0, or -1 if no such sampler can have made the mark."""
    cdef int64_t n_max = DRAWS_MAX * (n_tokens + 1)
    cdef int32_t i
    if mark.head.n_xtc != sampler.n_xtc or mark.head.n_drawn > n_max:
        return -1
    for i in range(sampler.n_xtc):
        if mark.xtc[i] > n_max:
            return -1
        random_skip(&sampler.xtc[i], mark.xtc[i])
    random_skip(&sampler.random, mark.head.n_drawn)
    if sampler.mirostat.version:
        sampler.mirostat.limit = mark.head.learned
    elif sampler.adaptive.is_on:
        sampler.adaptive.weighted = mark.head.learned
        sampler.adaptive.weight = mark.head.weight
    return 0


# --- sampling -------------------------------------------------------------------------------------------------

cdef int _step_on_row(Sampler *sampler, unsigned char kind, Row *row, Candidates *c, int has_dry,
                      int exact) noexcept nogil:
    """Return 1 if `c` is the list from now on, 0 if still on the row, -1 if this sampler needs the whole list."""
    cdef const llamad_sampling *s = &sampler.sampling
    if kind == LLAMAD_SAMPLER_PENALTIES:
        penalties_to_row(&sampler.penalties, s, row)
        return 0
    if kind == LLAMAD_SAMPLER_DRY:
        if has_dry:
            dry_to_row(&sampler.dry, s, row)
        return 0
    if exact:
        return -1
    if kind == LLAMAD_SAMPLER_TOP_K:
        return 1 if row_top_k(row, s.top_k, c, sampler.leaves_open and not sampler.keeps_candidates) else -1
    if kind == LLAMAD_SAMPLER_TOP_P:
        return 1 if row_top_p(row, s, c) else -1
    if kind == LLAMAD_SAMPLER_MIN_P:
        return 1 if row_min_p(row, s, c) else -1
    if kind == LLAMAD_SAMPLER_TOP_N_SIGMA:
        return 1 if row_top_n_sigma(row, s, c) else -1
    if kind == LLAMAD_SAMPLER_TEMPERATURE and s.dynatemp_range <= 0:
        if s.temperature > 0:
            row_divide(row, s.temperature)
            return 0
        return 1 if row_largest(row, c) else -1
    return -1


cdef int _step_on_list(Sampler *sampler, unsigned char kind, Candidates *c, int has_dry) noexcept nogil:
    """Apply a sampler to the list. Return 0, or -1 if memory ran out."""
    cdef const llamad_sampling *s = &sampler.sampling
    if kind == LLAMAD_SAMPLER_TOP_K:
        candidates_top_k(c, s.top_k)
    elif kind == LLAMAD_SAMPLER_TOP_P:
        candidates_top_p(c, s)
    elif kind == LLAMAD_SAMPLER_MIN_P:
        candidates_min_p(c, s)
    elif kind == LLAMAD_SAMPLER_TYPICAL:
        candidates_typical(c, s)
    elif kind == LLAMAD_SAMPLER_XTC:
        candidates_xtc(c, s)
    elif kind == LLAMAD_SAMPLER_TEMPERATURE:
        candidates_temperature(c, s)
    elif kind == LLAMAD_SAMPLER_TOP_N_SIGMA:
        candidates_top_n_sigma(c, s)
    elif kind == LLAMAD_SAMPLER_TFS_Z:
        candidates_tail_free(c, s)
    elif kind == LLAMAD_SAMPLER_PENALTIES:
        penalties_to_list(&sampler.penalties, s, c)
    elif kind == LLAMAD_SAMPLER_DRY and has_dry:
        dry_to_list(&sampler.dry, s, c)
    elif kind == LLAMAD_SAMPLER_INFILL:
        return infill_apply(&sampler.infill, c, sampler.vocab, s.end_token)
    return 0


cdef int32_t _draw(Sampler *sampler, Row *row, Candidates *c, int on_row) noexcept nogil:
    cdef int32_t token
    if sampler.adaptive.is_on or sampler.mirostat.version:
        if on_row:
            row_list(row, c)
        sampler.sampled_from = FROM_LIST
        if sampler.adaptive.is_on:
            token = adaptive_draw(&sampler.adaptive, &sampler.sampling, c, &sampler.random)
        else:
            token = mirostat_draw(&sampler.mirostat, &sampler.sampling, sampler.n_vocab, c, &sampler.random)
        return AGAIN if c.redo else token
    if on_row:
        sampler.sampled_from = FROM_ROW
        token = row_draw(row, &sampler.random, &c.total)
        if token >= 0:
            return token
        row_list(row, c)
    sampler.sampled_from = FROM_LIST
    token = candidates_draw(c, &sampler.random)
    if c.redo:
        return AGAIN
    return row_resolve(row, c, token) if token <= TOPK_OPEN else token


cdef int32_t _sample(Sampler *sampler, Row *row, Candidates *c, int has_dry, int exact) noexcept nogil:
    """Run the chain from its first sampler to the draw. With `exact`, the list is complete from the first cut on."""
    cdef int32_t i, n, i_xtc = 0, state
    cdef unsigned char kind
    cdef int on_row = 1
    for i in range(sampler.n_bias):
        row_set(row, sampler.bias[i].token, row.logits[sampler.bias[i].token] + sampler.bias[i].bias)
    for i in range(sampler.n_steps):
        kind = sampler.steps[i]
        if kind == LLAMAD_SAMPLER_XTC:
            i_xtc += 1
            n = row.n if on_row else c.n_full
            if n < 2 or random_float(&sampler.xtc[i_xtc - 1]) > sampler.sampling.xtc_probability:
                continue
        if on_row:
            state = _step_on_row(sampler, kind, row, c, has_dry, exact)
            if state >= 0:
                on_row = state == 0
                continue
            row_list(row, c)
            on_row = 0
        if _step_on_list(sampler, kind, c, has_dry) < 0:
            return -1
        candidates_check(c)
        if c.redo:
            return AGAIN
    return _draw(sampler, row, c, on_row)


cdef void _begin(Sampler *sampler, float *logits, void *scratch, int32_t has_maxima) noexcept nogil:
    cdef Candidates *c = &sampler.candidates
    row_open(&sampler.row, logits, sampler.n_vocab, scratch, has_maxima)
    memset(c, 0, sizeof(Candidates))
    c.table = sampler.table
    c.data = sampler.row.m.data
    c.spare = sampler.row.m.spare
    c.scores = sampler.row.m.exps
    c.order = <int32_t *>sampler.row.m.own
    c.places = sampler.row.m.places


cdef int32_t sampler_sample(Sampler *sampler, float *logits, void *scratch) noexcept nogil:
    """Return the next token, or a negative code. The row is unchanged afterwards, and the token is not part of the
    history before sampler_accept(): a grammar may have another token sampled for the same place, with the next random
    number."""
    cdef Candidates *c = &sampler.candidates
    cdef size_t n_xtc_bytes = <size_t>sampler.n_xtc * sizeof(Random)
    cdef int32_t token, has_maxima = sampler.has_maxima
    cdef int has_dry = 0
    sampler.has_maxima = 0
    if sampler.chain != NULL:
        sampler.sampled_from = FROM_CHAIN
        c.table = sampler.table
        return sampler.table.sampler_sample(sampler.chain, logits, sampler.n_vocab, scratch, &c.data, &c.n)
    if sampler.dry.tokens != NULL:
        has_dry = dry_find(&sampler.dry, &sampler.sampling)
    memcpy(sampler.xtc + sampler.n_xtc, sampler.xtc, n_xtc_bytes)
    _begin(sampler, logits, scratch, has_maxima)
    token = _sample(sampler, &sampler.row, c, has_dry, 0)
    row_close(&sampler.row)
    if token == AGAIN:
        memcpy(sampler.xtc, sampler.xtc + sampler.n_xtc, n_xtc_bytes)
        _begin(sampler, logits, scratch, 0)
        token = _sample(sampler, &sampler.row, c, has_dry, 1)
        row_close(&sampler.row)
    if has_dry:
        dry_forget(&sampler.dry)
    return token


cdef void sampler_candidates(Sampler *sampler, llamad_candidate **data, int32_t *n) noexcept nogil:
    """Return the candidates of the last draw with their final probabilities, largest first. Those without any
    probability may be missing. keeps_candidates must be set before the draw, and this must be called before the scratch
    memory is used again."""
    cdef Candidates *c = &sampler.candidates
    cdef int32_t i
    if sampler.sampled_from == FROM_ROW:
        for i in range(sampler.n_vocab):
            c.data[i].id = i
            c.data[i].p = sampler.row.m.exps[i]
            c.data[i].logit = c.data[i].p
        c.n = sampler.n_vocab
        c.is_sorted = 0
        sampler.sampled_from = FROM_LIST
    if sampler.sampled_from == FROM_CHAIN:
        for i in range(c.n):
            c.data[i].p = c.data[i].p if c.data[i].p >= 0 else 0  # no NaN may be reported
        c.table.sort(c.data, c.n)
    else:
        candidates_finish(c)
    data[0] = c.data
    n[0] = c.n
