# A draft model: a smaller model whose most likely tokens are the drafts.
from libc.stdint cimport int8_t, int32_t

from llamad.base.function_table cimport llamad_batch, llamad_candidate, llamad_table
from llamad.engine.kv.slots cimport Slot, Slots

ctypedef struct ModelDrafts:
    const llamad_table *table
    void *ctx                # its context: a sequence for each slot
    int32_t shares_threads   # its threads are those of the served model; else a flag sets them
    int32_t n_slots
    int32_t n_ctx            # tokens of a sequence
    int32_t n_vocab          # tokens below this are the same in both models
    int32_t n_max            # most tokens of a draft
    int32_t n_min            # shorter drafts are dropped
    float p_min              # a draft ends before the first token that is less likely
    int32_t *held            # the tokens of each sequence: n_ctx for each
    int32_t *n_held
    int8_t *is_read          # for each slot: the model reads what it gets
    int8_t *is_drafting      # this step's draft is the model's
    int8_t *is_tried         # the draft is compared with what is sampled, but no step verifies it
    int8_t *is_asked         # scratch memory of model_step.pyx
    int32_t *drafts          # the last draft of each slot: DRAFT_MAX tokens
    int32_t *n_drafts
    int32_t *n_right         # tokens of a draft that is tried which were right so far
    int32_t n_settling       # so many decodes of a new shape are slower: those of a GPU
    int32_t n_rows           # tokens of the last decode
    int32_t n_same           # decodes in a row that had as many
    llamad_batch batch
    int32_t n_batch          # llama.cpp's n_batch
    int32_t *seq_ids
    float *maxima            # scratch memory of topk_select()
    llamad_candidate *top
    int32_t n_failures       # decodes in a row that failed
    double draft_us          # what a decode for one token of each slot takes; 0: unknown
    double read_us           # what reading a token takes; 0: unknown

cdef class DraftModel:
    cdef ModelDrafts drafts

cdef int32_t model_n_max(const ModelDrafts *model, const Slot *slot) noexcept nogil
cdef int model_works(const ModelDrafts *model) noexcept nogil
cdef int32_t model_behind(ModelDrafts *model, const Slot *slot, int32_t n) noexcept nogil
cdef int32_t model_follow(ModelDrafts *model, const Slots *slots, int32_t n_max) noexcept nogil
cdef int model_is_ready(const ModelDrafts *model, const Slot *slot) noexcept nogil
cdef void model_forget_cost(ModelDrafts *model, double expected_us) noexcept nogil
cdef void model_draft(ModelDrafts *model, const Slots *slots, const int8_t *is_asked, int32_t n, int32_t has_last,
                      int32_t learns) noexcept nogil
