# Owns: the recurrent memory of the fake, with the rules of llama-memory-recurrent.cpp. Runs on the engine thread. It
# stores only which tokens a state has seen, and does not know other caches.
#
# A state cannot be truncated: it can be removed completely, or a range before its last position is "removed" without
# any effect. Only with n_rollback, the last tokens can be taken back once, as far as they came in one ubatch. The
# states that a ubatch continues must be adjacent, so they are exchanged with others before.
from libc.stdint cimport INT32_MAX, int32_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset

from llamad.engine.testing.fake_owners cimport (
    FAKE_SEQS_MAX, FakeOwners, owners_add, owners_clear, owners_has, owners_remove,
)


# --- data -------------------------------------------------------------------------------------------------------

cdef FakeSeen *seen_new(int32_t n_max) noexcept nogil:
    """Return a new list of seen tokens, without a reference."""
    cdef FakeSeen *seen = <FakeSeen *>calloc(1, sizeof(FakeSeen))
    seen.n_max = max(16, n_max)
    seen.tokens = <int32_t *>malloc(<size_t>seen.n_max * sizeof(int32_t))
    seen.adapters = <float *>malloc(<size_t>seen.n_max * sizeof(float))
    return seen


cdef void seen_append(FakeSeen *seen, int32_t token, float adapters) noexcept nogil:
    cdef FakeSeen *larger
    if seen.n == seen.n_max:
        larger = seen_new(2 * seen.n_max)
        memcpy(larger.tokens, seen.tokens, <size_t>seen.n * sizeof(int32_t))
        memcpy(larger.adapters, seen.adapters, <size_t>seen.n * sizeof(float))
        seen.tokens, larger.tokens = larger.tokens, seen.tokens
        seen.adapters, larger.adapters = larger.adapters, seen.adapters
        seen.n_max = larger.n_max
        _free(larger)
    seen.tokens[seen.n] = token
    seen.adapters[seen.n] = adapters
    seen.n += 1


cdef void _free(FakeSeen *seen) noexcept nogil:
    free(seen.tokens)
    free(seen.adapters)
    free(seen)


cdef void _set_row(FakeRecurrent *memory, int32_t row, FakeSeen *seen) noexcept nogil:
    if seen != NULL:
        seen.n_refs += 1
    if memory.rows[row] != NULL:
        memory.rows[row].n_refs -= 1
        if memory.rows[row].n_refs == 0:
            _free(memory.rows[row])
    memory.rows[row] = seen


cdef FakeSeen *_own_row(FakeRecurrent *memory, int32_t row) noexcept nogil:
    """Return the row's data, copied if another row shares it."""
    cdef FakeSeen *old = memory.rows[row]
    cdef FakeSeen *own
    cdef int32_t i
    if old != NULL and old.n_refs == 1:
        return old
    own = seen_new(old.n + 16 if old != NULL else 16)
    for i in range(old.n if old != NULL else 0):
        seen_append(own, old.tokens[i], old.adapters[i])
    _set_row(memory, row, own)
    return own


# --- reading ----------------------------------------------------------------------------------------------------

cdef void recurrent_init(FakeRecurrent *memory, int32_t n_states, int32_t n_rollback) noexcept nogil:
    memset(memory, 0, sizeof(FakeRecurrent))
    memory.n_states = n_states
    memory.n_rollback = n_rollback
    recurrent_clear(memory)


cdef void recurrent_clear(FakeRecurrent *memory) noexcept nogil:
    cdef int32_t i
    for i in range(FAKE_SEQS_MAX):
        memory.states[i].pos = memory.states[i].src = memory.states[i].next_src = memory.states[i].tail = -1
        owners_clear(&memory.states[i].owners)
        _set_row(memory, i, NULL)
        memory.n_last[i] = 0
        memory.rollbacks[i] = ROLLBACK_NONE
    memory.head = memory.n_used = 0


cdef const FakeState *_state_of(const FakeRecurrent *memory, int32_t seq) noexcept nogil:
    return &memory.states[memory.states[seq].tail] if memory.states[seq].tail >= 0 else NULL


cdef int32_t recurrent_pos(const FakeRecurrent *memory, int32_t seq) noexcept nogil:
    """Return the position of the sequence's state, or -1 if it has none."""
    cdef const FakeState *state = _state_of(memory, seq)
    return state.pos if state != NULL else -1


cdef const FakeSeen *recurrent_seen(const FakeRecurrent *memory, int32_t seq) noexcept nogil:
    """Return what the sequence's state has seen, or NULL if it has none."""
    cdef const FakeState *state = _state_of(memory, seq)
    if state == NULL:
        return NULL
    return memory.rows[state.src if state.src >= 0 else memory.states[seq].tail]


cdef void recurrent_learn(FakeRecurrent *memory, int32_t seq, FakeSeen *seen) noexcept nogil:
    """Set what the sequence's state has seen; it must have a state."""
    cdef int32_t tail = memory.states[seq].tail
    _set_row(memory, memory.states[tail].src if memory.states[tail].src >= 0 else tail, seen)


# --- edits ------------------------------------------------------------------------------------------------------

cdef int _disown(FakeRecurrent *memory, FakeState *state, int32_t seq) noexcept nogil:
    """Remove the owner. Return whether the state is empty now."""
    owners_remove(&state.owners, seq)
    if state.owners.n:
        return 0
    memory.n_used -= 1
    state.pos = state.src = -1
    return 1


cdef int _roll_back(FakeRecurrent *memory, int32_t seq, int32_t n) noexcept nogil:
    """Take back the sequence's last n tokens. Return 0 if that is refused."""
    cdef FakeState *state = &memory.states[memory.states[seq].tail]
    if memory.rollbacks[seq] != ROLLBACK_NONE or n > memory.n_rollback:
        return 0
    memory.n_aborts += n >= memory.n_last[seq]  # llama.cpp would go on from some older state
    memory.rollbacks[seq] = ROLLBACK_PENDING
    state.pos -= n
    _own_row(memory, state.src if state.src >= 0 else memory.states[seq].tail).n -= n
    return 1


cdef int recurrent_rm(FakeRecurrent *memory, int32_t seq, int32_t p0, int32_t p1) noexcept nogil:
    """Remove a range. Return 0 if that is refused; then nothing has changed."""
    cdef int32_t i, pos = recurrent_pos(memory, seq), first = memory.n_states
    if 0 < p0 <= pos < p1:
        return _roll_back(memory, seq, pos + 1 - p0)
    if p0 == 0 and p1 == INT32_MAX:
        memory.rollbacks[seq] = ROLLBACK_NONE
    if p0 <= pos < p1:
        memory.states[seq].tail = -1
    for i in range(memory.n_states):
        if p0 <= memory.states[i].pos < p1 and owners_has(&memory.states[i].owners, seq):
            if _disown(memory, &memory.states[i], seq):
                first = min(first, i)
    memory.head = min(memory.head, first)
    return 1


cdef void recurrent_cp(FakeRecurrent *memory, int32_t src, int32_t dst) noexcept nogil:
    cdef int32_t tail = memory.states[dst].tail
    if tail >= 0:
        _disown(memory, &memory.states[tail], dst)
        memory.states[dst].tail = -1
    tail = memory.states[src].tail
    if tail >= 0:
        owners_add(&memory.states[tail].owners, dst)
        memory.states[dst].tail = tail
        memory.rollbacks[dst] = ROLLBACK_LOST if memory.rollbacks[src] != ROLLBACK_NONE else ROLLBACK_NONE


cdef void recurrent_add(FakeRecurrent *memory, int32_t seq, int32_t p0, int32_t p1, int32_t delta) noexcept nogil:
    if memory.states[seq].tail >= 0 and p0 <= recurrent_pos(memory, seq) < p1:
        memory.states[memory.states[seq].tail].pos += delta


cdef void recurrent_div(FakeRecurrent *memory, int32_t seq, int32_t p0, int32_t p1, int32_t divisor) noexcept nogil:
    if memory.states[seq].tail >= 0 and p0 <= recurrent_pos(memory, seq) < p1:
        memory.states[memory.states[seq].tail].pos //= divisor


# --- room -------------------------------------------------------------------------------------------------------

cdef int32_t _next_empty(const FakeRecurrent *memory, int32_t i) noexcept nogil:
    """Return the first empty state from i on; i if there is none."""
    cdef int32_t _
    for _ in range(memory.n_states):
        i = i % memory.n_states
        if memory.states[i].owners.n == 0:
            break
        i += 1
    return i % memory.n_states


cdef void _detach(FakeRecurrent *memory, int32_t seq, int32_t to) noexcept nogil:
    """Give a sequence that has no state, or shares one, a copy in the empty state with this number."""
    cdef FakeState *state = &memory.states[to]
    cdef FakeState *old
    memory.n_aborts += state.owners.n != 0
    if memory.states[seq].tail >= 0:
        old = &memory.states[memory.states[seq].tail]
        state.pos = old.pos
        state.src = old.src
        owners_remove(&old.owners, seq)
        owners_add(&state.owners, seq)
    memory.states[seq].tail = to


cdef void _exchange(FakeRecurrent *memory, int32_t a, int32_t b) noexcept nogil:
    cdef FakeState *one = &memory.states[a]
    cdef FakeState *other = &memory.states[b]
    cdef FakeOwners owners = one.owners
    cdef int32_t i
    one.owners = other.owners
    other.owners = owners
    one.pos, other.pos = other.pos, one.pos
    one.src, other.src = other.src, one.src
    for i in range(memory.n_states):
        if memory.states[i].tail == a:
            memory.states[i].tail = b
        elif memory.states[i].tail == b:
            memory.states[i].tail = a


cdef void _place(FakeRecurrent *memory, const int32_t *seqs, const int32_t *last_pos, int32_t n) noexcept nogil:
    """Give the n sequences adjacent states of their own, and set their positions to last_pos."""
    cdef int32_t s, i, to, lowest = memory.n_states - 1, highest = 0
    cdef FakeState *state
    if memory.head > memory.n_used + 2 * n:
        memory.head = 0
    to = _next_empty(memory, memory.head)
    for s in range(n):
        i = memory.states[seqs[s]].tail
        if i < 0 or memory.states[i].owners.n != 1:
            _detach(memory, seqs[s], to)
            i = to
            if s + 1 < n:
                to = _next_empty(memory, to + 1)
        lowest = min(lowest, i)
        highest = max(highest, i)
    for s in range(n):
        if memory.states[seqs[s]].tail != lowest + s:
            _exchange(memory, lowest + s, memory.states[seqs[s]].tail)
    for s in range(n):
        state = &memory.states[lowest + s]
        state.pos = last_pos[s]
        owners_clear(&state.owners)
        owners_add(&state.owners, seqs[s])
        memory.states[seqs[s]].tail = lowest + s
    for i in range(lowest, highest + 1):
        memory.states[i].next_src = memory.states[i].src
        memory.states[i].src = i
    memory.head = lowest
    memory.n = highest - lowest + 1
    memory.n_used = 0
    for i in range(memory.n_states):
        memory.n_used += memory.states[i].owners.n > 0


cdef void _place_ubatch(FakeRecurrent *memory, const FakeBatch *batch, const FakeSplit *split,
                        const FakeUbatch *ubatch) noexcept nogil:
    cdef int32_t seqs[FAKE_SEQS_MAX]
    cdef int32_t last_pos[FAKE_SEQS_MAX]
    cdef int32_t s, n_each = ubatch.n // ubatch.n_seqs
    for s in range(ubatch.n_seqs):
        seqs[s] = batch.seq[split.order[ubatch.first + s * n_each]]
        last_pos[s] = batch.pos[split.order[ubatch.first + (s + 1) * n_each - 1]]
    _place(memory, seqs, last_pos, ubatch.n_seqs)


cdef int recurrent_prepare(FakeRecurrent *memory, const FakeBatch *batch, const FakeSplit *split) noexcept nogil:
    """Return whether every sequence of the batch has a state or can get one. Changes nothing."""
    cdef FakeState *old
    cdef int32_t head = memory.head, n_used = memory.n_used, u, i
    for i in range(batch.n):
        if batch.seq[i] >= memory.n_states:
            return 0
    old = <FakeState *>malloc(sizeof(memory.states))
    memcpy(old, memory.states, sizeof(memory.states))
    for u in range(split.n):
        _place_ubatch(memory, batch, split, &split.ubatches[u])
    memcpy(memory.states, old, sizeof(memory.states))
    free(old)
    memory.head = head
    memory.n_used = n_used
    return 1


cdef void recurrent_place(FakeRecurrent *memory, const FakeBatch *batch, const FakeSplit *split,
                          const FakeUbatch *ubatch) noexcept nogil:
    """Continue the states of the ubatch's sequences with its tokens."""
    cdef FakeSeen *rows[FAKE_SEQS_MAX]
    cdef int32_t i, k, src
    _place_ubatch(memory, batch, split, ubatch)
    for i in range(memory.n):
        src = memory.states[memory.head + i].next_src
        rows[i] = memory.rows[src] if src >= 0 else NULL
        if rows[i] != NULL:
            rows[i].n_refs += 1
    for i in range(memory.n):
        _set_row(memory, memory.head + i, rows[i])
        if rows[i] != NULL:
            rows[i].n_refs -= 1
    for i in range(memory.n_states):
        k = memory.states[i].tail
        if memory.head <= k < memory.head + memory.n:
            memory.n_aborts += memory.rollbacks[i] == ROLLBACK_LOST
            memory.rollbacks[i] = ROLLBACK_NONE
    for k in range(ubatch.first, ubatch.first + ubatch.n):
        i = split.order[k]
        memory.n_last[batch.seq[i]] = ubatch.n // ubatch.n_seqs
        seen_append(_own_row(memory, memory.states[batch.seq[i]].tail), batch.token[i], batch.adapters[i])


cdef int recurrent_restore(FakeRecurrent *memory, int32_t seq, int32_t pos, FakeSeen *seen) noexcept nogil:
    """Give the sequence a state that has seen this, at this position; none if `seen` is NULL. Return 0 without room."""
    recurrent_rm(memory, seq, 0, INT32_MAX)
    if seen == NULL:
        return 1
    if seq >= memory.n_states:
        return 0
    _place(memory, &seq, &pos, 1)
    _set_row(memory, memory.head, seen)
    memory.n_last[seq] = 0
    return 1
