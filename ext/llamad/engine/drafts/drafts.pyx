# Owns: the memory of drafting, and the class of all drafters. draft_step.pyx uses it on the engine thread.
from libc.stdint cimport int32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from llamad.base.system cimport load_int
from llamad.engine.drafts.acceptance cimport Acceptance
from llamad.engine.drafts.widths cimport Clocks, clocks_average, clocks_expect, widths_init
from llamad.engine.kv.slots cimport SLOT_DECODING, Slot


cdef class Drafter:
    """Guesses tokens. Core.draft_with() takes it."""


cdef int drafts_init(Drafts *drafts, int32_t n_slots, int32_t has_device) noexcept nogil:
    """Return 0, or -1 if memory ran out. Nothing is drafted until there is a drafter."""
    memset(drafts, 0, sizeof(Drafts))
    drafts.n_fixed = -1
    widths_init(&drafts.widths, has_device)
    drafts.clocks = <Clocks *>calloc(<size_t>n_slots, sizeof(Clocks))
    drafts.tasks = <uint64_t *>calloc(<size_t>n_slots, sizeof(uint64_t))
    drafts.accepted_of = <Acceptance *>calloc(<size_t>n_slots, sizeof(Acceptance))
    return 0 if drafts.clocks != NULL and drafts.tasks != NULL and drafts.accepted_of != NULL else -1


cdef void drafts_free(Drafts *drafts) noexcept nogil:
    free(drafts.clocks)
    free(drafts.tasks)
    free(drafts.accepted_of)
    memset(drafts, 0, sizeof(Drafts))


cdef int drafts_decodes(const Slot *slot) noexcept nogil:
    """Return whether the slot decodes in the next step."""
    return (slot.state == SLOT_DECODING and not slot.sits_out and not slot.task.is_paused
            and not load_int(&slot.deferral))


cdef int drafts_can_verify(const Slot *slot) noexcept nogil:
    """Return whether the slot's drafts can be verified. With both a grammar and probabilities, a row of the latter may
    still be open when earlier ones are sent."""
    return slot.matcher == NULL or slot.probs.n_top == 0


cdef void drafts_expect(const Drafts *drafts, const Slot *slot, int32_t has_device, double *tokens) noexcept nogil:
    """Add how many tokens steps of each width are expected to give the slot, with drafts from text."""
    if has_device:
        clocks_average(&drafts.clocks[slot.id], &drafts.habit, tokens)
    else:
        clocks_expect(&drafts.clocks[slot.id], &drafts.habit, slot.n_guessed, tokens)
