# Owns: the texts of earlier answers, for a few owners (API keys), and the order in which owners are dropped. Runs on the
# engine thread.
#
# An owner's drafts come from its own answers only, so that nobody can find out by timing what others were answered. The
# memory is allocated at the start: 16 bytes for each of n_owners_max times n_tokens_max tokens. The system provides a
# quarter of it then, and the rest as it is used.
from libc.stdint cimport int32_t, uint64_t
from libc.stdlib cimport calloc, free

from llamad.engine.drafts.match_finder cimport (
    matches_append, matches_clear, matches_draft_other, matches_free, matches_index, matches_init,
)

cdef int32_t BORDER = -1


cdef int answers_init(Answers *answers, int32_t n_owners_max, int32_t n_tokens_max) noexcept nogil:
    """Return 0, or -1 if memory ran out; answers_free() is needed then, too."""
    cdef int32_t i
    answers.n_owners_max = 0
    answers.last_used = 0
    answers.owned = <OwnedAnswers *>calloc(<size_t>n_owners_max, sizeof(OwnedAnswers))
    if answers.owned == NULL:
        return -1
    answers.n_owners_max = n_owners_max
    for i in range(n_owners_max):
        if matches_init(&answers.owned[i].matches, n_tokens_max) != 0:
            return -1
    return 0


cdef void answers_free(Answers *answers) noexcept nogil:
    cdef int32_t i
    for i in range(answers.n_owners_max):
        matches_free(&answers.owned[i].matches)
    free(answers.owned)
    answers.owned = NULL
    answers.n_owners_max = 0


cdef OwnedAnswers *_find(Answers *answers, uint64_t owner) noexcept nogil:
    """Return the owner's answers, or NULL."""
    cdef int32_t i
    for i in range(answers.n_owners_max):
        if answers.owned[i].used and answers.owned[i].owner == owner:
            return &answers.owned[i]
    return NULL


cdef OwnedAnswers *_make(Answers *answers, uint64_t owner) noexcept nogil:
    """Return a place for the owner's answers. If there is none left, the owner that used its own least recently loses
    them."""
    cdef OwnedAnswers *oldest = &answers.owned[0]
    cdef int32_t i
    for i in range(1, answers.n_owners_max):
        if answers.owned[i].used < oldest.used:
            oldest = &answers.owned[i]
    matches_clear(&oldest.matches)
    oldest.owner = owner
    return oldest


cdef void _use(Answers *answers, OwnedAnswers *owned) noexcept nogil:
    answers.last_used += 1
    owned.used = answers.last_used


cdef void answers_add(Answers *answers, uint64_t owner, const int32_t *tokens, int32_t n) noexcept nogil:
    """Add an answer; the owner's oldest tokens make room for it. A few tokens of the prompt before it help to draft how
    an answer begins."""
    cdef OwnedAnswers *owned = _find(answers, owner)
    if answers.n_owners_max == 0:
        return
    if owned == NULL:
        owned = _make(answers, owner)
    _use(answers, owned)
    matches_append(&owned.matches, &BORDER, 1)
    matches_append(&owned.matches, tokens, n)


cdef Drafted answers_draft(Answers *answers, uint64_t owner, const int32_t *tokens, int32_t n, const DraftRules *rules,
                           int32_t *draft) noexcept nogil:
    """Draft a continuation of n tokens from the owner's answers."""
    cdef OwnedAnswers *owned = _find(answers, owner)
    cdef Drafted drafted
    if owned == NULL:
        drafted.n = drafted.n_match = drafted.n_places = 0
        return drafted
    _use(answers, owned)
    matches_index(&owned.matches)
    return matches_draft_other(&owned.matches, tokens, n, rules, draft)
