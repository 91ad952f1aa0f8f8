# Drafts from tables of n-grams, by llama.cpp's rules.
from libc.stdint cimport int32_t

from llamad.engine.drafts.draft_rules cimport Drafted
from llamad.engine.drafts.ngram_table cimport NgramTable

cdef enum:
    NGRAM_DRAFT_MAX = 8      # llama-server's

# Each may be NULL.
ctypedef struct NgramTables:
    NgramTable *context      # of the slot's own text
    NgramTable *dynamic      # of earlier texts (-lcd)
    NgramTable *fixed        # of a large collection of texts (-lcs); its n-grams have two tokens

cdef Drafted ngrams_draft(const NgramTables *tables, const int32_t *tokens, int32_t n, int32_t n_draft_max,
                          int32_t *draft) noexcept nogil
