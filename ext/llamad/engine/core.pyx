# Owns: the engine's memory and the event loop's side of the rings. Everything here but run() is called by the
# event loop's thread; run() is the engine thread's and leaves the GIL at once.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t, uintptr_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE

from llamad.engine.kv.host_cache cimport cache_free, cache_init
from llamad.protocol.command cimport Command
from llamad.engine.threads.grammar_pool cimport defer_start, defer_stop
from llamad.engine.threads.logits_arrival cimport landing_free, landing_init
from llamad.engine.scheduler.plan cimport plan_free, plan_init
from llamad.protocol.ring cimport ring_commit, ring_free, ring_init, ring_peek, ring_record_max, ring_release, ring_reserve
from llamad.engine.wakeup cimport rouse_await_events, rouse_engine
from llamad.engine.sampler.sampler cimport sampler_scratch_bytes
from llamad.engine.kv.slots cimport SLOT_IDLE, Slot, slots_check_integrity, slots_free, slots_init
from llamad.engine.loop cimport engine_run
from llamad.engine.state cimport State, Taken
from llamad.base.system cimport be_brief, close, now_us, store_int, take_time, wake_clear, wake_open, wake_send
from llamad.tokenizer.vocab cimport Vocab
from llamad.protocol.messages cimport (
    COMMAND_ABORT, COMMAND_ACTION, COMMAND_PAUSE, COMMAND_RESUME, COMMAND_STOP, COMMAND_TASK, EVENT_ACTION,
    EVENT_ADMITTED, EVENT_DONE, EVENT_FAILED, EVENT_PROMPT, EVENT_STEP, EVENT_TEXT, ActionCommand, ActionEvent,
    AdmittedEvent, DoneEvent, FailedEvent, StepEvent, StepSlot, TaskCommand, TaskRef, TextEvent, TokenProb,
)
from llamad.engine.threads.sampler_pool cimport AWAITED_MAX, workers_count, workers_start, workers_stop

cdef enum:
    EVENT_RING_BYTES = 4 << 20
    POLL_MAX = 1024
    COMMAND_RING_BYTES = 4 << 20
    # What a command may carry beside its prompt: stop strings, biases, breakers.
    COMMAND_EXTRA_BYTES = 4 << 20


def be_brief_here() -> None:
    """The calling thread works for a moment each time that it is woken, and wants its turn at once."""
    be_brief()


def clock_us() -> int:
    """The engine's clock, for deadlines and waits."""
    return now_us()


cdef class Core:
    cdef State state
    cdef Taken taken
    cdef Vocab vocab

    def __cinit__(self, vocab: Vocab, ctx: int, *, n_slots: int, n_ctx: int, n_cells: int, n_batch: int, n_ubatch: int,
                  n_swa: int, add_bos: bool, similarity_min: float, step_tokens_max: int, n_sampler_threads: int,
                  cont_batching: bool, tracing: bool, can_share: bool = True, group_n: int = 1, group_w: int = 1,
                  grammar_work: int = -1, has_device: bool = False, cache_bytes: int = 0) -> None:
        cdef State *state = &self.state
        memset(state, 0, sizeof(State))
        state.command_fd = state.event_fd = -1
        self.vocab = vocab
        state.table = vocab.table
        state.vocab = vocab.handle
        state.pieces = &vocab.pieces
        state.marked = &vocab.marked if vocab.marked.bytes != NULL else &vocab.pieces
        state.ctx = <void *><uintptr_t>ctx
        state.n_vocab = vocab.n_vocab
        state.add_bos = add_bos
        state.tracing = tracing
        if n_slots > n_batch:
            raise ValueError("a step needs a token for every slot")
        if n_slots > AWAITED_MAX:
            raise ValueError(f"at most {AWAITED_MAX} slots")
        if slots_init(&state.slots, state.table, state.ctx, n_slots, n_ctx) < 0:
            raise MemoryError()
        state.slots.n_cells = n_cells
        state.slots.n_swa = n_swa
        state.slots.n_swa_spare = n_ubatch
        state.slots.can_share = can_share
        state.slots.can_fill = can_share and n_swa == 0 and n_cells == 0 and group_n == 1
        state.slots.group_n = group_n
        state.slots.group_w = group_w
        state.slots.similarity_min = similarity_min
        if plan_init(&state.plan, n_batch, n_ubatch, step_tokens_max, cont_batching, has_device) < 0:
            raise MemoryError()
        if landing_init(&state.landing, n_slots if has_device and can_share else 0, state.n_vocab) < 0:
            raise MemoryError()
        if cache_init(&state.cache, <size_t>cache_bytes) < 0:
            raise MemoryError()
        state.workers = workers_start(max(1, n_sampler_threads))
        if state.workers == NULL:
            raise MemoryError()
        state.scratch_bytes = (sampler_scratch_bytes(state.n_vocab) + 63) & ~<size_t>63
        state.scratch = <char *>malloc(state.scratch_bytes * <size_t>workers_count(state.workers))
        state.outputs = <int32_t *>calloc(<size_t>n_slots, sizeof(int32_t))
        if state.scratch == NULL or state.outputs == NULL:
            raise MemoryError()
        cdef uint64_t n_command = 4 * (<uint64_t>n_ctx * 4 + COMMAND_EXTRA_BYTES) + COMMAND_RING_BYTES
        if ring_init(&state.commands, n_command) < 0 or ring_init(&state.events, EVENT_RING_BYTES) < 0:
            raise MemoryError()
        state.command_fd = wake_open()
        state.event_fd = wake_open()
        if state.command_fd < 0 or state.event_fd < 0:
            raise OSError("eventfd: no descriptors left")
        state.defer = defer_start(state.n_vocab, state.command_fd, grammar_work)
        if state.defer == NULL:
            raise MemoryError()
        state.stats.t_last_step_us = now_us()

    def __dealloc__(self) -> None:
        cdef State *state = &self.state
        defer_stop(state.defer)
        workers_stop(state.workers)
        slots_free(&state.slots)
        cache_free(&state.cache)
        plan_free(&state.plan)
        landing_free(&state.landing)
        ring_free(&state.commands)
        ring_free(&state.events)
        free(state.scratch)
        free(state.outputs)
        if state.command_fd >= 0:
            close(state.command_fd)
        if state.event_fd >= 0:
            close(state.event_fd)

    @property
    def event_fd(self) -> int:
        """Readable when poll() has something."""
        return self.state.event_fd

    @property
    def is_failed(self) -> bool:
        """Whether the context could not be rebuilt after a failed decode."""
        return self.state.stats.is_failed != 0

    @property
    def n_sampler_threads(self) -> int:
        return workers_count(self.state.workers)

    @property
    def n_ubatch(self) -> int:
        return self.state.plan.ubatch

    def warm_up(self, token: int) -> int:
        """Decodes one token and forgets it, so that the first request meets warm caches. Before run() only.
        llama.cpp's code: anything but 0 means that this context cannot decode."""
        cdef State *state = &self.state
        cdef int32_t code
        state.plan.batch.n_tokens = 1
        state.plan.batch.token[0] = token
        state.plan.batch.pos[0] = 0
        state.plan.batch.output[0] = 1
        state.plan.seq_ids[0] = 0
        with nogil:
            code = state.table.decode(state.ctx, &state.plan.batch)
            if code == 0:
                state.table.logits(state.ctx, 0)
                state.table.seq_rm(state.ctx, 0, -1, -1)
        return code

    def probe(self, token: int) -> list[bytes]:
        """The states of a sequence of one token and of two, for ses1.Layout; then it is forgotten. Before run() only.
        Empty where this memory has none."""
        cdef State *state = &self.state
        cdef size_t n
        cdef int32_t code, i
        out = []
        for i in range(2):
            state.plan.batch.n_tokens = 1
            state.plan.batch.token[0] = token
            state.plan.batch.pos[0] = i
            state.plan.batch.output[0] = 1
            state.plan.seq_ids[0] = 0
            with nogil:
                code = state.table.decode(state.ctx, &state.plan.batch)
                n = state.table.state_size(state.ctx, 0) if code == 0 else 0
            if n == 0:
                break
            one = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>n)
            if state.table.state_get(state.ctx, 0, <uint8_t *>PyBytes_AS_STRING(one), n) != n:
                break
            out.append(one)
        state.table.seq_rm(state.ctx, 0, -1, -1)
        return out if len(out) == 2 else []

    def run(self) -> None:
        """The engine thread: returns after stop()."""
        with nogil:
            engine_run(&self.state)

    # --- commands: False means that the ring is full and the caller should try again after the next poll() -----

    def submit(self, id: int, task: Command, prompt: bytes, *, request_id: bytes, key_name: bytes, deadline_us: int = 0,
               wake: bool = True) -> bool:
        """Without `wake` an engine that sleeps is not told: wake() must follow."""
        cdef uint64_t n_prompt = <uint64_t>PyBytes_GET_SIZE(prompt), n_tail = <uint64_t>PyBytes_GET_SIZE(task.tail)
        cdef uint64_t n_payload = sizeof(TaskCommand) + n_prompt + n_tail
        cdef TaskCommand *command
        if n_payload > ring_record_max(&self.state.commands):
            raise ValueError("the request is too large for the engine")
        if not 0 < n_prompt // 4 < <uint64_t>self.state.slots.n_ctx or task.head.id_slot >= self.state.slots.n:
            raise ValueError("the prompt or the slot is outside what the engine has")
        command = <TaskCommand *>ring_reserve(&self.state.commands, COMMAND_TASK, n_payload)
        if command == NULL:
            return False
        memcpy(command, &task.head, sizeof(TaskCommand))
        command.id = id
        command.deadline_us = deadline_us
        command.t_submit_us = now_us()
        command.n_prompt = <int32_t>(n_prompt // 4)
        memcpy(command.request_id, PyBytes_AS_STRING(request_id), <size_t>min(63, PyBytes_GET_SIZE(request_id)))
        memcpy(command.key_name, PyBytes_AS_STRING(key_name), <size_t>min(31, PyBytes_GET_SIZE(key_name)))
        memcpy(command + 1, PyBytes_AS_STRING(prompt), n_prompt)
        memcpy(<char *>(command + 1) + n_prompt, PyBytes_AS_STRING(task.tail), n_tail)
        ring_commit(&self.state.commands)
        if wake:
            wake_send(self.state.command_fd)
        return True

    def rouse(self) -> None:
        """Tasks are about to be submitted without a wake-up: wake() follows the last."""
        rouse_engine(&self.state)

    def wake(self) -> None:
        store_int(&self.state.is_gathering, 0)
        wake_send(self.state.command_fd)

    cdef bint _send_ref(self, uint32_t kind, uint64_t id):
        cdef TaskRef *ref = <TaskRef *>ring_reserve(&self.state.commands, kind, sizeof(TaskRef))
        if ref == NULL:
            return False
        ref.id = id
        ring_commit(&self.state.commands)
        wake_send(self.state.command_fd)
        return True

    def abort(self, id: int) -> bool:
        return self._send_ref(COMMAND_ABORT, id)

    def pause(self, id: int) -> bool:
        return self._send_ref(COMMAND_PAUSE, id)

    def resume(self, id: int) -> bool:
        return self._send_ref(COMMAND_RESUME, id)

    def act(self, id: int, kind: int, slot: int, blob: int, *, nowait: bool, n_tokens: int = 0, n_keep: int = 0,
            n_discard: int = 0) -> bool:
        """An action on a slot (messages.pxd), answered by exactly one event. Keep the blob until then."""
        cdef ActionCommand *command
        if not 0 <= slot < self.state.slots.n:
            raise ValueError("there is no such slot")
        command = <ActionCommand *>ring_reserve(&self.state.commands, COMMAND_ACTION, sizeof(ActionCommand))
        if command == NULL:
            return False
        memset(command, 0, sizeof(ActionCommand))
        command.id = id
        command.kind = kind
        command.slot = slot
        command.blob = blob
        command.nowait = nowait
        command.n_tokens = n_tokens
        command.n_keep = n_keep
        command.n_discard = n_discard
        ring_commit(&self.state.commands)
        wake_send(self.state.command_fd)
        return True

    def stop(self) -> bool:
        return self._send_ref(COMMAND_STOP, 0)

    # --- events ------------------------------------------------------------------------------------------------

    def poll(self) -> list[tuple]:
        """What the engine has said since the last call; each a tuple of (kind, task id, ...). Bounded, so that
        an engine that writes faster than this reads cannot keep the event loop here; event_fd then stays readable."""
        cdef uint32_t kind = 0
        cdef int32_t n_left = POLL_MAX
        cdef int64_t t_wake
        cdef void *payload
        out = []
        wake_clear(self.state.event_fd)
        with nogil:
            rouse_await_events(&self.state)
        t_wake = take_time(&self.state.t_wake_us)
        self.taken.t_us = now_us()
        payload = ring_peek(&self.state.events, &kind)
        while payload != NULL:
            if kind == EVENT_TEXT:
                out.append(_text_event(<TextEvent *>payload))
            elif kind == EVENT_PROMPT:
                out.append(_prompt_event(<TextEvent *>payload))
            elif kind == EVENT_ADMITTED:
                out.append(_admitted_event(<AdmittedEvent *>payload))
            elif kind == EVENT_DONE:
                out.append(_done_event(<DoneEvent *>payload))
            elif kind == EVENT_FAILED:
                out.append((EVENT_FAILED, (<FailedEvent *>payload).id, (<FailedEvent *>payload).failure,
                            (<FailedEvent *>payload).code))
            elif kind == EVENT_ACTION:
                out.append(_action_event(<ActionEvent *>payload))
            elif kind == EVENT_STEP:
                out.append(_step_event(<StepEvent *>payload))
            ring_release(&self.state.events)
            n_left -= 1
            if n_left == 0:
                wake_send(self.state.event_fd)
                break
            payload = ring_peek(&self.state.events, &kind)
        if t_wake and out:  # the turn before may have taken what this wake-up was for
            self.taken.n_wakes += 1
            self.taken.wake_us += self.taken.t_us - t_wake
        return out

    def written(self) -> None:
        """The sockets have what the last poll() gave, for the sums of where time goes."""
        if self.taken.t_us:
            self.taken.write_us += now_us() - self.taken.t_us
        self.taken.t_us = 0

    def parts(self) -> tuple[int, int, int]:
        """Wake-ups that were answered, and the sums of their microseconds: wake, write."""
        return self.taken.n_wakes, self.taken.wake_us, self.taken.write_us

    # --- what anyone may look at while the engine runs ------------------------------------------------------------

    def stats(self) -> dict[str, int]:
        """Counters and times (µs) of the engine, read without asking it."""
        values = dict(self.state.stats)
        values["n_wakes"], values["wake_us"], values["write_us"] = self.parts()
        values["n_evicted"] = self.state.slots.n_evicted
        values["n_reused"] = self.state.slots.n_reused
        values["n_copied"] = self.state.slots.n_copied
        values["cache_entries"] = self.state.cache.n_entries
        values["cache_bytes"] = self.state.cache.n_bytes
        values["cache_saves"] = self.state.cache.n_saves
        values["cache_hits"] = self.state.cache.n_hits
        values["cache_restored"] = self.state.cache.n_restored
        values["cache_dropped"] = self.state.cache.n_dropped
        values["cache_us"] = self.state.cache.state_us
        values["cache_us_max"] = self.state.cache.state_us_max
        values["n_deferred"] = self.state.defer.n_deferred
        values["deferred_us"] = self.state.defer.deferred_us
        return values

    def slots(self) -> list[tuple[int, int, int, int]]:
        """(state, tokens held, tokens decoded, prompt tokens taken from the cache) of every slot."""
        cdef int32_t i
        cdef Slot *slot
        out = []
        for i in range(self.state.slots.n):
            slot = &self.state.slots.items[i]
            out.append((slot.state, slot.n_tokens, slot.n_decoded, slot.n_cached))
        return out

    def n_idle(self) -> int:
        cdef int32_t i, n = 0
        for i in range(self.state.slots.n):
            n += self.state.slots.items[i].state == SLOT_IDLE
        return n

    def check_integrity(self) -> int:
        """0, or the number of a broken rule. Only meaningful while the engine rests."""
        return slots_check_integrity(&self.state.slots)

    def slot_tokens(self, index: int) -> list[int]:
        """What a slot's sequence holds. Only meaningful while the engine rests."""
        cdef Slot *slot = &self.state.slots.items[index]
        return [slot.tokens[i] for i in range(slot.n_tokens)]


cdef list _probs(const TextEvent *event, const TokenProb *rows):
    """For each token its own value and those of the top tokens."""
    cdef int32_t i, k
    cdef const TokenProb *row
    out = []
    for i in range(event.n_prob_tokens):
        row = rows + <size_t>i * <size_t>(1 + event.n_top)
        out.append((row.value, [(row[1 + k].id, row[1 + k].value) for k in range(row.id)]))
    return out


cdef tuple _text_event(const TextEvent *event):
    cdef const int32_t *tokens = <const int32_t *>(event + 1)
    cdef const TokenProb *rows = <const TokenProb *>(tokens + event.n_tokens)
    cdef const char *text = <const char *>(rows + <size_t>event.n_prob_tokens * <size_t>(1 + event.n_top))
    cdef int32_t i
    return (EVENT_TEXT, event.id, [tokens[i] for i in range(event.n_tokens)],
            PyBytes_FromStringAndSize(text, event.n_bytes), event.n_decoded, event.t_us, event.t_prompt_us,
            event.t_predict_us, _probs(event, rows) if event.n_top else [])


cdef tuple _prompt_event(const TextEvent *event):
    cdef const int32_t *tokens = <const int32_t *>(event + 1)
    cdef int32_t i
    return (EVENT_PROMPT, event.id, [tokens[i] for i in range(event.n_tokens)],
            _probs(event, <const TokenProb *>(tokens + event.n_tokens)))


cdef tuple _admitted_event(const AdmittedEvent *event):
    return (EVENT_ADMITTED, event.id, event.slot, event.n_cached, event.t_us)


cdef tuple _done_event(const DoneEvent *event):
    return (EVENT_DONE, event.id, event.stop_type, event.stop_word, event.slot, event.n_prompt, event.n_cached,
            event.n_decoded, event.n_slot_tokens, bool(event.truncated), bool(event.has_new_line), event.t_us,
            event.t_prompt_us, event.t_predict_us)


cdef tuple _action_event(const ActionEvent *event):
    return (EVENT_ACTION, event.id, event.result, event.n_tokens, event.n_bytes, event.stall_us, event.n_processed)


cdef tuple _step_event(const StepEvent *event):
    cdef const StepSlot *rows = <const StepSlot *>(event + 1)
    cdef int32_t i
    return (EVENT_STEP, 0, event.step, event.t_us, event.plan_us, event.decode_us, event.sample_us, event.emit_us,
            event.budget, event.n_tokens, event.n_writing,
            [(rows[i].slot, rows[i].n_tokens, bool(rows[i].is_writing)) for i in range(event.n_slots)],
            event.wait_us, event.n_fillers)
