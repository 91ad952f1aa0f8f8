# Owns: the context of a draft model, and what its sequences hold. Runs on the engine thread.
#
# The sequence of a slot is compared with the slot's tokens whenever it is used, cut where they differ, and continued. So
# it follows whatever happens to the slot (another prompt, a prefix that is used again, a shifted context, suspension, a
# restored state, a draft that was wrong), and no token is decoded twice that is still there.
from libc.math cimport expf
from libc.stdint cimport int8_t, int32_t, int64_t, uintptr_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy

from llamad.base.function_table cimport llamad_candidate
from llamad.base.system cimport now_us
from llamad.engine.costs.drafts cimport (
    ACCEPTANCE_DECAY, ADOPT_TOKENS_MIN, BEHIND_MAX, COST_LEARN_RATE, DRAFT_OUTLIER, READ_LEARN_MIN, SETTLING_STEPS_GPU,
)
from llamad.engine.costs.sampler cimport TOPK_COLLECT_MAX
from llamad.engine.kv.slots cimport (
    DRAFT_MAX, SLOT_DECODING, SLOT_PREFILLING, Slot, Slots, common_prefix,
)
from llamad.engine.sampler.topk cimport topk_n_maxima, topk_select

cdef enum:
    NO_ROOM = 1              # llama.cpp's code
    FAILURES_MAX = 3         # after so many failed decodes in a row nothing is drafted any more
    TOP = 10                 # a token's probability is its share among so many, as in llama.cpp


# --- what the sequences hold --------------------------------------------------------------------------------------

cdef int32_t *_held(const ModelDrafts *model, int32_t seq) noexcept nogil:
    return model.held + <size_t>seq * <size_t>model.n_ctx


cdef void _cut(ModelDrafts *model, int32_t seq, int32_t n) noexcept nogil:
    """Keep only the first n tokens of a sequence."""
    if n < model.n_held[seq]:
        model.table.seq_rm(model.ctx, seq, n if n else -1, -1)
        model.n_held[seq] = n


cdef int _is_in_batch(const ModelDrafts *model, int32_t seq) noexcept nogil:
    """Return whether some of the tokens that the sequence holds are not decoded yet."""
    cdef int32_t i
    for i in range(model.batch.n_tokens):
        if model.seq_ids[i] == seq:
            return 1
    return 0


cdef void _adopt(ModelDrafts *model, const Slot *slot, int32_t n) noexcept nogil:
    """Copy the sequence of another slot if it has more of the slot's first n tokens."""
    cdef int32_t i, n_common, best = -1, n_best = model.n_held[slot.id] + ADOPT_TOKENS_MIN
    for i in range(model.n_slots):
        n_common = common_prefix(_held(model, i), slot.tokens, min(n, model.n_held[i]))
        if i != slot.id and n_common >= n_best and not _is_in_batch(model, i):
            best = i
            n_best = n_common
    if best < 0:
        return
    _cut(model, slot.id, 0)
    if model.table.seq_cp(model.ctx, best, slot.id, -1, -1) == 0:
        return
    model.n_held[slot.id] = model.n_held[best]
    memcpy(_held(model, slot.id), _held(model, best), <size_t>model.n_held[best] * sizeof(int32_t))
    _cut(model, slot.id, n_best)


cdef int model_works(const ModelDrafts *model) noexcept nogil:
    return model.n_failures < FAILURES_MAX


cdef int32_t model_behind(ModelDrafts *model, const Slot *slot, int32_t n) noexcept nogil:
    """Cut the slot's sequence to what it has in common with the first n tokens of the slot. Return how many of them it
    lacks; -1: they cannot be drafted from, because there are images or sound among them, or too many."""
    cdef int32_t i
    n = min(n, model.n_ctx)
    _cut(model, slot.id, common_prefix(_held(model, slot.id), slot.tokens, min(n, model.n_held[slot.id])))
    if n - model.n_held[slot.id] >= ADOPT_TOKENS_MIN:
        _adopt(model, slot, n)
    for i in range(model.n_held[slot.id], n):
        if not 0 <= slot.tokens[i] < model.n_vocab:
            return -1
    return n - model.n_held[slot.id]


# --- decoding -----------------------------------------------------------------------------------------------------

cdef void _add(ModelDrafts *model, int32_t seq, int32_t token, int8_t output) noexcept nogil:
    """Add a token behind those of the sequence."""
    cdef int32_t i = model.batch.n_tokens
    model.batch.token[i] = token
    model.batch.pos[i] = model.n_held[seq]
    model.seq_ids[i] = seq
    model.batch.output[i] = output
    model.batch.n_tokens += 1
    _held(model, seq)[model.n_held[seq]] = token
    model.n_held[seq] += 1


cdef int _decode(ModelDrafts *model, const Slots *slots) noexcept nogil:
    """Decode the batch. Return 0, or -1 if that failed: then its sequences are dropped. If there is no room, slots that
    have no task give theirs."""
    cdef int32_t code, i
    model.n_same = model.n_same + 1 if model.batch.n_tokens == model.n_rows else 0
    model.n_rows = model.batch.n_tokens
    code = model.table.decode(model.ctx, &model.batch)
    if code == NO_ROOM:
        for i in range(model.n_slots):
            if slots.items[i].task == NULL:
                _cut(model, i, 0)
        code = model.table.decode(model.ctx, &model.batch)
    if code == 0:
        model.n_failures = 0
        return 0
    model.n_failures += code != NO_ROOM
    for i in range(model.batch.n_tokens):
        _cut(model, model.seq_ids[i], 0)
    return -1


cdef int _is_read(const ModelDrafts *model, const Slot *slot) noexcept nogil:
    """Return whether the model reads what the slot gets."""
    return (model.is_read[slot.id] and slot.task != NULL and slot.state in (SLOT_PREFILLING, SLOT_DECODING)
            and slot.task.command.options.speculative_n_max != 0)


cdef void _learn_read(ModelDrafts *model, double us, int32_t n) noexcept nogil:
    """Learn from a decode of n tokens how long one takes. Each of a few takes longer than each of many."""
    us /= n
    if model.read_us == 0 or us < model.read_us:
        model.read_us = us
    elif n >= READ_LEARN_MIN:
        model.read_us += (us - model.read_us) * COST_LEARN_RATE


cdef int32_t model_follow(ModelDrafts *model, const Slots *slots, int32_t n_max) noexcept nogil:
    """Read at most n_max of the tokens that slots hold and the model lacks. Return how many were read. It waits until
    they are, so that the time is known."""
    cdef const Slot *slot
    cdef int32_t i, k, n, n_behind, n_begun
    cdef int64_t t_begin = now_us()
    n_max = min(n_max, model.n_batch)
    model.batch.n_tokens = 0
    for i in range(model.n_slots):
        slot = &slots.items[i]
        if not _is_read(model, slot):
            continue
        n = slot.n_tokens
        n_behind = model_behind(model, slot, n)
        # A few tokens are read with the next draft.
        if n_behind <= BEHIND_MAX:
            continue
        n_begun = model.n_held[i]
        for k in range(min(n_behind, n_max - model.batch.n_tokens)):
            _add(model, i, slot.tokens[n_begun + k], 0)
    n = model.batch.n_tokens
    if n:
        model.batch.output[n - 1] = 1  # as in batch.pyx: a decode without any output is another graph
        if _decode(model, slots) == 0:
            model.table.logits(model.ctx, n - 1)
            _learn_read(model, <double>(now_us() - t_begin), n)
    return n


cdef int model_is_ready(const ModelDrafts *model, const Slot *slot) noexcept nogil:
    """Return whether it has read what the slot holds, but for a few tokens. True for slots that were followed."""
    return slot.n_tokens - model.n_held[slot.id] <= BEHIND_MAX


# --- drafting -----------------------------------------------------------------------------------------------------

cdef int32_t _largest(const float *row, int32_t n) noexcept nogil:
    cdef int32_t i, best = 0
    for i in range(1, n):
        if row[i] > row[best]:
            best = i
    return best


cdef int32_t model_n_max(const ModelDrafts *model, const Slot *slot) noexcept nogil:
    """Return how many tokens may be drafted for the slot's task."""
    cdef int32_t n_max = slot.task.command.options.speculative_n_max
    return model.n_max if n_max < 0 else min(model.n_max, n_max)


cdef int32_t _n_min(const ModelDrafts *model, const Slot *slot) noexcept nogil:
    """Return how many tokens a draft for the slot's task must have."""
    cdef int32_t n_min = slot.task.command.options.speculative_n_min
    return min(model_n_max(model, slot), model.n_min if n_min < 0 else n_min)


cdef float _p_min(const ModelDrafts *model, const Slot *slot) noexcept nogil:
    cdef float p_min = slot.task.command.options.speculative_p_min
    return model.p_min if p_min < 0 else p_min


cdef int32_t _likeliest(ModelDrafts *model, int32_t i_batch, float p_min) noexcept nogil:
    """Return the most likely token after one of the batch, or -1 if its probability is below p_min."""
    cdef const float *row = model.table.logits(model.ctx, i_batch)
    cdef float sum = 0
    cdef int32_t i, n
    if row == NULL:
        return -1
    n = topk_select(row, model.n_vocab, min(<int32_t>TOP, model.n_vocab), model.top, model.maxima, 0, 0)
    if n <= 0:
        return _largest(row, model.n_vocab) if p_min <= <float>1 / TOP else -1  # many are equally likely
    for i in range(n):
        sum += expf(model.top[i].logit - model.top[0].logit)
    return model.top[0].id if 1 >= p_min * sum else -1


cdef int _begin(ModelDrafts *model, const Slots *slots, const int8_t *is_asked) noexcept nogil:
    """Read what the slots have sampled since their last drafts. Return 0, or -1 if that failed."""
    cdef const Slot *slot
    cdef int32_t i, k, n_behind, n_begun
    model.batch.n_tokens = 0
    for i in range(model.n_slots):
        slot = &slots.items[i]
        if not is_asked[i]:
            continue
        model.n_drafts[i] = model.n_right[i] = 0
        # The next token, which the slot does not hold yet, is behind the others.
        n_behind = model_behind(model, slot, slot.n_tokens + 1)
        if 0 < n_behind <= BEHIND_MAX + 1 and n_behind <= model.n_batch - model.batch.n_tokens:
            n_begun = model.n_held[i]
            for k in range(n_behind):
                _add(model, i, slot.tokens[n_begun + k], k == n_behind - 1)
    return _decode(model, slots) if model.batch.n_tokens else -1


cdef int32_t _take(ModelDrafts *model, const Slots *slots, int32_t n_max, int32_t has_last) noexcept nogil:
    """Append the likeliest tokens to the drafts, and add those that another one may follow to the next batch. Return
    how many were added. The batch before is overwritten behind where it is read.

    With has_last the others are added, too: if all of a draft is right, the next one begins with one token then, as
    always, and not with two, which would be another shape for a GPU."""
    cdef int32_t i, token, n_tokens = model.batch.n_tokens, seq, n_left, n_more = 0
    cdef int8_t output
    model.batch.n_tokens = 0
    for i in range(n_tokens):
        seq, output = model.seq_ids[i], model.batch.output[i]
        if not output:
            continue
        n_left = min(n_max, model_n_max(model, &slots.items[seq])) - model.n_drafts[seq]
        token = _likeliest(model, i, _p_min(model, &slots.items[seq])) if n_left > 0 else -1
        if token < 0:
            continue
        model.drafts[seq * DRAFT_MAX + model.n_drafts[seq]] = token
        model.n_drafts[seq] += 1
        if (n_left > 1 or has_last) and model.n_held[seq] < model.n_ctx:
            _add(model, seq, token, 1)
            n_more += n_left > 1
    return n_more


cdef void model_draft(ModelDrafts *model, const Slots *slots, const int8_t *is_asked, int32_t n, int32_t has_last,
                      int32_t learns) noexcept nogil:
    """Draft at most n tokens for the slots that are asked for: n_drafts are those that it has for each. has_last: decode
    the last token of each draft, too. learns: the time of these decodes is what drafts usually take."""
    cdef int64_t t_begin = now_us(), t_end
    cdef int32_t i, n_more
    if _begin(model, slots, is_asked) < 0:
        return
    n_more = _take(model, slots, n, has_last)
    while True:
        t_end = now_us()
        if learns and model.n_same >= model.n_settling:
            _learn(model, <double>(t_end - t_begin))
        t_begin = t_end
        if n_more == 0 or _decode(model, slots) < 0:
            break
        n_more = _take(model, slots, n, has_last)
    if has_last and model.batch.n_tokens and n_more == 0:
        _decode(model, slots)  # the last tokens; nobody waits for it
    for i in range(model.n_slots):
        if is_asked[i] and model.n_drafts[i] < min(n, _n_min(model, &slots.items[i])):
            model.n_drafts[i] = 0


cdef void _learn(ModelDrafts *model, double us) noexcept nogil:
    """Learn what a decode takes. What takes longer may have another reason, so that less is believed sooner."""
    if model.draft_us == 0:
        model.draft_us = us
    elif us < model.draft_us:
        model.draft_us += (us - model.draft_us) / 2
    else:
        model.draft_us += (min(us, DRAFT_OUTLIER * model.draft_us) - model.draft_us) * COST_LEARN_RATE


cdef void model_forget_cost(ModelDrafts *model, double expected_us) noexcept nogil:
    """Let what was learned come closer to what is expected, so that a model that seemed slow is tried again."""
    if model.draft_us > expected_us > 0:
        model.draft_us += (expected_us - model.draft_us) * (1 - ACCEPTANCE_DECAY)


# --- memory -------------------------------------------------------------------------------------------------------

cdef int _allocate(ModelDrafts *model) noexcept nogil:
    cdef size_t n = <size_t>model.n_batch, n_slots = <size_t>model.n_slots, i
    model.held = <int32_t *>malloc(n_slots * <size_t>model.n_ctx * sizeof(int32_t))
    model.n_held = <int32_t *>calloc(n_slots, sizeof(int32_t))
    model.is_read = <int8_t *>calloc(n_slots, 1)
    model.is_drafting = <int8_t *>calloc(n_slots, 1)
    model.is_tried = <int8_t *>calloc(n_slots, 1)
    model.is_asked = <int8_t *>calloc(n_slots, 1)
    model.drafts = <int32_t *>calloc(n_slots * DRAFT_MAX, sizeof(int32_t))
    model.n_drafts = <int32_t *>calloc(n_slots, sizeof(int32_t))
    model.n_right = <int32_t *>calloc(n_slots, sizeof(int32_t))
    model.batch.token = <int32_t *>malloc(n * sizeof(int32_t))
    model.batch.pos = <int32_t *>malloc(n * sizeof(int32_t))
    model.batch.n_seq_id = <int32_t *>malloc(n * sizeof(int32_t))
    model.batch.seq_id = <int32_t **>malloc(n * sizeof(int32_t *))
    model.batch.output = <int8_t *>calloc(n, 1)
    model.seq_ids = <int32_t *>malloc(n * sizeof(int32_t))
    model.maxima = <float *>malloc(<size_t>topk_n_maxima(model.n_vocab) * sizeof(float))
    model.top = <llamad_candidate *>malloc(TOPK_COLLECT_MAX * sizeof(llamad_candidate))
    if (model.held == NULL or model.n_held == NULL or model.is_read == NULL or model.is_drafting == NULL
            or model.is_tried == NULL or model.is_asked == NULL or model.drafts == NULL or model.n_drafts == NULL
            or model.n_right == NULL or model.batch.token == NULL or model.batch.pos == NULL
            or model.batch.n_seq_id == NULL or model.batch.seq_id == NULL or model.batch.output == NULL
            or model.seq_ids == NULL or model.maxima == NULL or model.top == NULL):
        return -1
    for i in range(n):
        model.batch.n_seq_id[i] = 1
        model.batch.seq_id[i] = &model.seq_ids[i]
    return 0


cdef class DraftModel:
    """Drafts with another model. `ctx` is its context, a handle like that of the core, with n_slots sequences of n_ctx
    tokens and batches of n_batch tokens; tokens below n_vocab are the same in both models. A draft has at most n_max
    tokens (-1: as many as pay), at least n_min, and ends before a token that is less likely than p_min. has_device: a
    GPU computes it."""

    def __cinit__(self, ctx: int, *, n_slots: int, n_ctx: int, n_batch: int, n_vocab: int, n_max: int, n_min: int,
                  p_min: float, has_device: bool = False) -> None:
        cdef ModelDrafts *model = &self.drafts
        model.ctx = <void *><uintptr_t>ctx
        model.n_slots = n_slots
        model.n_ctx = n_ctx
        model.n_batch = n_batch
        model.n_vocab = n_vocab
        model.n_max = DRAFT_MAX if n_max < 0 else min(<int32_t>DRAFT_MAX, <int32_t>n_max)
        model.n_min = n_min
        model.p_min = p_min
        model.n_settling = SETTLING_STEPS_GPU if has_device else 0
        if n_slots > n_batch:
            raise ValueError("a batch needs a token for every slot")
        if _allocate(model) < 0:
            raise MemoryError()

    def __dealloc__(self) -> None:
        cdef ModelDrafts *model = &self.drafts
        free(model.held)
        free(model.n_held)
        free(model.is_read)
        free(model.is_drafting)
        free(model.is_tried)
        free(model.is_asked)
        free(model.drafts)
        free(model.n_drafts)
        free(model.n_right)
        free(model.batch.token)
        free(model.batch.pos)
        free(model.batch.n_seq_id)
        free(model.batch.seq_id)
        free(model.batch.output)
        free(model.seq_ids)
        free(model.maxima)
        free(model.top)

    def warm_up(self, token: int) -> int:
        """Decode one token and forget it, as Core.warm_up() does. Call only after Core.draft_model() and before run().
        Return llama.cpp's code."""
        cdef ModelDrafts *model = &self.drafts
        cdef int32_t code
        model.batch.n_tokens = 0
        _add(model, 0, token, 1)
        with nogil:
            code = model.table.decode(model.ctx, &model.batch)
            if code == 0:
                model.table.logits(model.ctx, 0)
            _cut(model, 0, 0)
        return code

    @property
    def n_failures(self) -> int:
        return self.drafts.n_failures
