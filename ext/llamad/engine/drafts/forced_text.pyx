# Owns: what a slot's grammar forces, and whether that is its draft. Runs on the engine thread. The thread that samples a
# token finds what must follow it (threads/slot_sample.pyx), because it uses the matcher.
#
# Forced text is certain, but not its tokens: the model may divide it in another way.
from libc.stdint cimport int32_t
from libc.string cimport memcpy, memmove

from llamad.engine.kv.slots cimport Slot
from llamad.tokenizer.vocab cimport Pieces


cdef void forced_follow(Slot *slot, int32_t token, int32_t is_last) noexcept nogil:
    """Note the slot's new token. If it is the last that was sampled, what must follow it was found. Otherwise the
    matcher was further already, and what follows is the rest of what was forced before."""
    if is_last:
        slot.n_forced = slot.n_found
        memcpy(slot.forced, slot.found, <size_t>slot.n_forced * sizeof(int32_t))
    elif slot.n_forced and slot.forced[0] == token:
        slot.n_forced -= 1
        memmove(slot.forced, slot.forced + 1, <size_t>slot.n_forced * sizeof(int32_t))
    else:
        slot.n_forced = 0


cdef int _begins_with(const Pieces *pieces, const int32_t *text, int32_t n_text, const int32_t *begin,
                      int32_t n_begin) noexcept nogil:
    """Return whether the tokens of a text spell those of its beginning first."""
    cdef int32_t i, k = 0
    cdef const char *at = NULL
    cdef const char *end = NULL
    cdef const char *byte
    for i in range(n_begin):
        byte = pieces.bytes + pieces.offsets[begin[i]]
        while byte < pieces.bytes + pieces.offsets[begin[i] + 1]:
            while at == end:
                if k == n_text:
                    return 0
                at = pieces.bytes + pieces.offsets[text[k]]
                end = pieces.bytes + pieces.offsets[text[k] + 1]
                k += 1
            if at[0] != byte[0]:
                return 0
            at += 1
            byte += 1
    return 1


cdef void forced_draft(Slot *slot, const Pieces *pieces, int32_t n_max) noexcept nogil:
    """Replace the slot's draft by the forced text, unless it says the same and goes on: how a text was divided before is
    more likely."""
    cdef int32_t n = min(n_max, slot.n_forced)
    if n == 0 or _begins_with(pieces, slot.draft, slot.n_guessed, slot.forced, n):
        return
    memcpy(slot.draft, slot.forced, <size_t>n * sizeof(int32_t))
    slot.n_guessed = n
