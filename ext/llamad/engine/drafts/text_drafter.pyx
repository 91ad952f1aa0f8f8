# Owns: drafts from text: what followed the text's end before, in the slot itself, in earlier answers of the same owner,
# or else in tables of n-grams, one of which learns what is generated. Runs on the engine thread.
from libc.stdint cimport int32_t, uint64_t
from libc.stdlib cimport calloc, free

from llamad.engine.drafts.draft_rules cimport Drafted, DraftRules
from llamad.engine.drafts.drafts cimport Drafter
from llamad.engine.drafts.earlier_answers cimport (
    ANSWER_OWNERS_MAX, ANSWER_TOKENS_MAX, Answers, answers_add, answers_draft, answers_free, answers_init,
)
from llamad.engine.drafts.lookup_file cimport LookupFile
from llamad.engine.drafts.match_finder cimport (
    Matches, matches_agree, matches_draft, matches_follow, matches_free, matches_init,
)
from llamad.engine.drafts.ngram_draft cimport NGRAM_DRAFT_MAX, NgramTables, ngrams_draft
from llamad.engine.drafts.ngram_table cimport LEARNED_NOTHING, table_learn
from llamad.engine.kv.slots cimport DRAFT_MAX, Slot

cdef enum:
    RULES_MAX = 8
    BEFORE_ANSWER = 8        # tokens of the prompt that are kept with an answer, so that its beginning is found
    LEARN_TOKENS_MAX = 64    # generated tokens that one call adds to the table of n-grams: 4 look-ups each

ctypedef struct TextDrafts:
    int32_t n_rules
    DraftRules rules[RULES_MAX]  # the first that has a draft counts
    int32_t n_slots
    Matches *own             # the text of each slot
    uint64_t *tasks          # whose text that is
    int32_t has_answers
    Answers answers
    NgramTables tables       # those of the files
    int32_t *n_learned       # tokens of each slot's answer that the dynamic table has


cdef void _learn(TextDrafts *drafts, const Slot *slot, int32_t n) noexcept nogil:
    """Add the slot's new tokens to the dynamic table, or later if another thread writes it. The last slot.n_decoded of
    its n tokens were generated."""
    cdef int32_t *n_learned = &drafts.n_learned[slot.id]
    cdef int32_t n_left = min(n, slot.n_decoded - n_learned[0])
    cdef int32_t n_new = min(n_left, <int32_t>LEARN_TOKENS_MAX)
    if n_new > 0 and table_learn(drafts.tables.dynamic, slot.tokens, n - n_left + n_new, n_new) != LEARNED_NOTHING:
        n_learned[0] = slot.n_decoded - n_left + n_new


cdef void _begin(TextDrafts *drafts, const Slot *slot, int32_t n) noexcept nogil:
    """Keep only what the slot's text has in common with its first n tokens, if its task is new."""
    if drafts.tasks[slot.id] != slot.task.command.id:
        drafts.tasks[slot.id] = slot.task.command.id
        drafts.n_learned[slot.id] = 0
        matches_agree(&drafts.own[slot.id], slot.tokens, n)


cdef int32_t _follow(void *arg, const Slot *slot, int32_t n_max) noexcept nogil:
    cdef TextDrafts *drafts = <TextDrafts *>arg
    cdef int32_t n = 0, n_left = 1
    _begin(drafts, slot, slot.n_tokens)
    while n < n_max and n_left:
        n_left = matches_follow(&drafts.own[slot.id], slot.tokens, slot.n_tokens)
        n += 1
    return n


cdef int32_t _draft(void *arg, const Slot *slot, int32_t n, int32_t *draft, int32_t n_max) noexcept nogil:
    cdef TextDrafts *drafts = <TextDrafts *>arg
    cdef Matches *own = &drafts.own[slot.id]
    cdef DraftRules rules
    cdef Drafted drafted, other
    cdef int32_t i, k
    cdef int32_t more[DRAFT_MAX]
    _begin(drafts, slot, n)
    matches_follow(own, slot.tokens, n)
    if drafts.tables.dynamic != NULL:
        _learn(drafts, slot, n)
    for i in range(drafts.n_rules):
        rules = drafts.rules[i]
        rules.n_draft_max = min(rules.n_draft_max, n_max)
        rules.n_draft_min = min(rules.n_draft_min, rules.n_draft_max)
        drafted = matches_draft(own, slot.tokens, n, &rules, draft)
        if drafts.has_answers:
            other = answers_draft(&drafts.answers, slot.owner, slot.tokens, n, &rules, more)
            if other.n and (drafted.n == 0 or other.n_match > drafted.n_match):
                drafted = other
                for k in range(other.n):
                    draft[k] = more[k]
        if drafted.n:
            return drafted.n
    return ngrams_draft(&drafts.tables, slot.tokens, n, min(n_max, <int32_t>NGRAM_DRAFT_MAX), draft).n


cdef void _end(void *arg, const Slot *slot) noexcept nogil:
    cdef TextDrafts *drafts = <TextDrafts *>arg
    cdef int32_t n = min(slot.n_tokens, slot.n_decoded + <int32_t>BEFORE_ANSWER)
    if drafts.has_answers and slot.n_decoded:
        answers_add(&drafts.answers, slot.owner, slot.tokens + slot.n_tokens - n, n)


cdef class TextDrafter(Drafter):
    """Drafts from the text of each slot and, if `answers` are kept, from those of the same owner. `rules` are those of
    spec_types.py, in the order in which they are tried. If none has a draft, it is from the files: `dynamic` learns
    what is generated, `fixed` is only read."""
    cdef TextDrafts drafts
    cdef LookupFile dynamic, fixed  # they own the tables

    def __cinit__(self, *, n_slots: int, n_ctx: int, rules: list[tuple[int, ...]], answers: bool,
                  dynamic: LookupFile | None = None, fixed: LookupFile | None = None) -> None:
        cdef int32_t i
        if not 0 < len(rules) <= RULES_MAX:
            raise ValueError(f"from 1 to {RULES_MAX} rules")
        self.drafts.n_rules = len(rules)
        for i, one in enumerate(rules):
            (self.drafts.rules[i].n_match_min, self.drafts.rules[i].n_draft_min, self.drafts.rules[i].n_draft_max,
             self.drafts.rules[i].n_per_match, self.drafts.rules[i].n_places_min, self.drafts.rules[i].n_places_max,
             self.drafts.rules[i].percent_min) = one
        self.drafts.own = <Matches *>calloc(<size_t>n_slots, sizeof(Matches))
        self.drafts.tasks = <uint64_t *>calloc(<size_t>n_slots, sizeof(uint64_t))
        self.drafts.n_learned = <int32_t *>calloc(<size_t>n_slots, sizeof(int32_t))
        if self.drafts.own == NULL or self.drafts.tasks == NULL or self.drafts.n_learned == NULL:
            raise MemoryError()
        self.dynamic, self.fixed = dynamic, fixed
        if self.dynamic is not None:
            self.drafts.tables.dynamic = &self.dynamic.table
        if self.fixed is not None:
            self.drafts.tables.fixed = &self.fixed.table
        self.drafts.n_slots = n_slots
        for i in range(n_slots):
            if matches_init(&self.drafts.own[i], n_ctx) < 0:
                raise MemoryError()
        self.drafts.has_answers = answers
        if answers and answers_init(&self.drafts.answers, ANSWER_OWNERS_MAX, ANSWER_TOKENS_MAX) < 0:
            raise MemoryError()
        self.fn = _draft
        self.follow = _follow
        self.end = _end
        self.arg = &self.drafts

    def __dealloc__(self) -> None:
        cdef int32_t i
        for i in range(self.drafts.n_slots):
            matches_free(&self.drafts.own[i])
        free(self.drafts.own)
        free(self.drafts.tasks)
        free(self.drafts.n_learned)
        if self.drafts.has_answers:
            answers_free(&self.drafts.answers)
