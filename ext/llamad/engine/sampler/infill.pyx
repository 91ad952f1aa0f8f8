# Owns: the infill sampler. Runs on sampler threads; its buffers belong to one task.
#
# A token whose text begins with that of another one is merged with it, so that a text that continues in the same way
# with several tokens counts as one. llama.cpp compares every candidate with every other. Here the pieces are sorted, so
# that those with a common prefix are adjacent: the merges and their order are the same, and a list of the whole
# vocabulary takes milliseconds.
from libc.math cimport INFINITY
from libc.stddef cimport size_t
from libc.stdint cimport int32_t
from libc.stdlib cimport free, qsort, realloc
from libc.string cimport memcmp

from llamad.base.function_table cimport llamad_candidate
from llamad.engine.sampler.candidates cimport candidates_softmax, candidates_sort

cdef enum:
    PIECE_ROOM = 512         # bytes that are enough for most pieces


cdef void infill_close(Infill *infill) noexcept nogil:
    free(infill.pieces)
    free(infill.ranks)
    free(infill.longer)
    free(infill.bytes)


cdef int _by_text(const void *a, const void *b) noexcept nogil:
    cdef const Piece *one = <const Piece *>a
    cdef const Piece *other = <const Piece *>b
    cdef int order = memcmp(one.text, other.text, <size_t>min(one.n, other.n))
    return order if order else one.n - other.n


cdef int _by_place(const void *a, const void *b) noexcept nogil:
    return (<const int32_t *>a)[0] - (<const int32_t *>b)[0]


cdef int _make_room(Infill *infill, int32_t n) noexcept nogil:
    """Make room for a list of n. Return 0, or -1 if memory ran out."""
    cdef void *pieces
    cdef void *ranks
    cdef void *longer
    if n <= infill.n_max:
        return 0
    pieces = realloc(infill.pieces, <size_t>n * sizeof(Piece))
    if pieces != NULL:
        infill.pieces = <Piece *>pieces
    ranks = realloc(infill.ranks, <size_t>n * sizeof(int32_t))
    if ranks != NULL:
        infill.ranks = <int32_t *>ranks
    longer = realloc(infill.longer, <size_t>n * sizeof(int32_t))
    if longer != NULL:
        infill.longer = <int32_t *>longer
    if pieces == NULL or ranks == NULL or longer == NULL:
        return -1
    infill.n_max = n
    return 0


cdef int32_t _write_piece(Infill *infill, Candidates *c, const void *vocab, int32_t token, size_t at) noexcept nogil:
    """Write the token's text to this place of the bytes. Return its length, or -1 if memory ran out."""
    cdef void *bytes
    cdef int32_t n, room = PIECE_ROOM
    while True:
        if at + <size_t>room > infill.n_bytes_max:
            bytes = realloc(infill.bytes, 2 * (at + <size_t>room))
            if bytes == NULL:
                return -1
            infill.bytes = <char *>bytes
            infill.n_bytes_max = 2 * (at + <size_t>room)
        n = c.table.piece(vocab, token, infill.bytes + at, room, 0)
        if n >= 0 or -n <= room:
            return max(n, 0)
        room = -n


cdef int32_t _sort_pieces(Infill *infill, Candidates *c, const void *vocab) noexcept nogil:
    """Sort the texts of the candidates. Return how many have one, or -1 if memory ran out."""
    cdef int32_t i, length, n = 0
    cdef size_t at = 0
    if _make_room(infill, c.n) < 0:
        return -1
    for i in range(c.n):
        infill.ranks[i] = -1
        if c.data[i].logit == -INFINITY:
            continue
        length = _write_piece(infill, c, vocab, c.data[i].id, at)
        if length < 0:
            return -1
        if length > 0:
            infill.pieces[n].offset = at
            infill.pieces[n].n = length
            infill.pieces[n].candidate = i
            at += <size_t>length
            n += 1
    for i in range(n):
        infill.pieces[i].text = infill.bytes + infill.pieces[i].offset
    qsort(infill.pieces, <size_t>n, sizeof(Piece), _by_text)
    for i in range(n):
        infill.ranks[infill.pieces[i].candidate] = i
    return n


cdef int _begins_with(const Piece *piece, const Piece *prefix) noexcept nogil:
    return piece.n >= prefix.n and memcmp(piece.text, prefix.text, <size_t>prefix.n) == 0


cdef int32_t _find_longer(Infill *infill, int32_t rank, int32_t n) noexcept nogil:
    """Find the candidates whose text begins with this one's, in list order. Return how many there are."""
    cdef const Piece *prefix = &infill.pieces[rank]
    cdef int32_t at = rank - 1, n_found = 0
    while at >= 0 and infill.pieces[at].n == prefix.n and _begins_with(&infill.pieces[at], prefix):
        infill.longer[n_found] = infill.pieces[at].candidate
        n_found += 1
        at -= 1
    at = rank + 1
    while at < n and _begins_with(&infill.pieces[at], prefix):
        infill.longer[n_found] = infill.pieces[at].candidate
        n_found += 1
        at += 1
    qsort(infill.longer, <size_t>n_found, sizeof(int32_t), _by_place)
    return n_found


cdef int _merge_prefixes(Infill *infill, Candidates *c, const void *vocab) noexcept nogil:
    """Add the probability of the less likely of two tokens to the other, if one begins with the other's text."""
    cdef int32_t i, k, n_longer, n = _sort_pieces(infill, c, vocab)
    cdef llamad_candidate *one
    cdef llamad_candidate *other
    if n < 0:
        return -1
    for i in range(c.n):
        one = &c.data[i]
        if infill.ranks[i] < 0 or one.logit == -INFINITY:
            continue
        n_longer = _find_longer(infill, infill.ranks[i], n)
        for k in range(n_longer):
            other = &c.data[infill.longer[k]]
            if other.logit == -INFINITY:
                continue
            if other.p > one.p:
                other.p += one.p
                one.logit = -INFINITY
                one.p = 0
                break
            one.p += other.p
            other.logit = -INFINITY
            other.p = 0
    return 0


cdef int32_t _keep(Candidates *c, const void *vocab, float least) noexcept nogil:
    """Drop the texts below `least` and renormalize the rest. Return how many texts are left, not counting ends."""
    cdef float total = 0
    cdef int32_t i, is_end, n = 0, n_texts = 0
    for i in range(c.n):
        is_end = c.table.is_eog(vocab, c.data[i].id)
        if c.data[i].p < least and not is_end:
            continue
        n_texts += not is_end
        total += c.data[i].p
        c.data[n] = c.data[i]
        n += 1
    c.n = c.n_full = n
    if n_texts > 0:
        for i in range(n):
            c.data[i].p /= total
    return n_texts


cdef int infill_apply(Infill *infill, Candidates *c, const void *vocab, int32_t end_token) noexcept nogil:
    """Apply the sampler. Return 0, or -1 if memory ran out."""
    cdef float p_text = 0, p_end = 0
    cdef int32_t i, n = 0, n_texts
    if c.n < c.n_full:
        c.redo = 1  # the number of candidates decides when an end is likely enough
        return 0
    candidates_sort(c)
    candidates_softmax(c)
    for i in range(c.n):
        if c.table.is_eog(vocab, c.data[i].id):
            p_end += c.data[i].p
        else:
            p_text += c.data[i].p
    if <float>3 * p_end * <float>c.n > p_text:
        for i in range(c.n):
            if c.table.is_eog(vocab, c.data[i].id):
                c.data[n] = c.data[i]
                n += 1
        c.n = c.n_full = n
        return 0
    if _merge_prefixes(infill, c, vocab) < 0:
        return -1
    n_texts = _keep(c, vocab, <float>0.2)
    if n_texts > 0:
        _keep(c, vocab, <float>(1.0 / (n_texts + 1)))
        return 0
    c.n = c.n_full = 1
    c.data[0].logit = 1
    c.data[0].id = end_token if end_token >= 0 else c.data[0].id
    return 0
