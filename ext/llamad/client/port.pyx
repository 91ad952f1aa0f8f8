# Owns: the front's end of a channel: commands into one ring, events out of the other, and what the engine's board says.
# Called on the event loop alone; never waits but for events that are announced (protocol/wakeup.pyx), and knows nothing of
# who is at the other end. That may crash in the middle of anything or be taken over, so every record is copied, and the
# copy is checked before it is read.
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE

from llamad.client.events import Acted, Admitted, Done, Failed, Progress, PromptTokens, SlotCounts, SlotStep, Step

from llamad.base.system cimport (
    copy_once, load_acquire, load_int, load_time, now_us, store_int, take_time, wake_clear, wake_send,
)
from llamad.base.function_table cimport LLAMAD_SAMPLERS_MAX
from llamad.client.command cimport Command
from llamad.client.text_event cimport TextEvent as Text
from llamad.protocol.adapter_span cimport AdapterSpan
from llamad.protocol.board cimport SlotView, Stats
from llamad.protocol.channel cimport Channel, Link
from llamad.protocol.messages cimport (
    COMMAND_ABORT, COMMAND_ACTION, COMMAND_FORGET, COMMAND_PAUSE, COMMAND_RESUME, COMMAND_STOP, COMMAND_TASK, EVENT_ACTION,
    EVENT_ADMITTED, EVENT_DONE, EVENT_FAILED, EVENT_PROGRESS, EVENT_PROMPT, EVENT_STEP, EVENT_TEXT, ActionCommand,
    ActionEvent, PROBS_MAX, AdmittedEvent, DoneEvent, FailedEvent, ProgressEvent, StepEvent, StepSlot, TaskCommand,
    TaskRef, TextEvent, TokenProb,
)
from llamad.protocol.ring cimport (
    ring_commit, ring_is_taken, ring_peek, ring_record_max, ring_release, ring_reserve,
)
from llamad.protocol.wakeup cimport wakeup_await_events, wakeup_engine

cdef enum:
    POLL_MAX = 1024


class ChannelBroken(Exception):
    """The engine wrote invalid data and must be ended."""


# What the event loop did with the engine's wake-ups.
ctypedef struct Taken:
    uint64_t n_wakes
    int64_t wake_us            # time from a wake-up until the loop began to take its events
    int64_t write_us           # time from then until the responses were written to the sockets
    int64_t t_us               # when the loop began to take the current events; 0: they are written


cdef class Port:
    cdef Link link
    cdef Channel *channel
    cdef Taken taken
    cdef void *record          # this process's copy of the record that is read
    cdef int64_t t_made_us     # silence is counted from here until the engine's first turn

    def __cinit__(self, link: Link) -> None:
        self.t_made_us = now_us()
        self.link = link
        self.channel = &link.channel
        self.record = malloc(self.channel.events.capacity)  # pages are allocated when they are first used
        if self.record == NULL:
            raise MemoryError("no memory for the events of an engine")

    def __dealloc__(self) -> None:
        free(self.record)

    @property
    def event_fd(self) -> int:
        """The descriptor that is readable when there are events for poll()."""
        return self.channel.event_fd

    @property
    def n_ubatch(self) -> int:
        return self.channel.n_ubatch

    # --- commands: False means that the ring is full and the caller should try again after the next poll() -----

    def submit(self, id: int, task: Command, *, wake: bool = True) -> bool:
        """Write a task into the ring. Without `wake` a sleeping engine is not woken, so wake() must follow."""
        cdef uint64_t n_prompt = <uint64_t>PyBytes_GET_SIZE(task.prompt)
        cdef uint64_t n_tail = <uint64_t>PyBytes_GET_SIZE(task.tail)
        cdef uint64_t n_payload = sizeof(TaskCommand) + n_prompt + n_tail
        cdef TaskCommand *command
        if n_payload > ring_record_max(&self.channel.commands):
            raise ValueError("the request is too large for the engine")
        if not 0 < task.head.n_prompt < self.channel.n_ctx or task.head.options.id_slot >= self.channel.n_slots:
            raise ValueError("the prompt or the slot is outside what the engine has")
        command = <TaskCommand *>ring_reserve(&self.channel.commands, COMMAND_TASK, n_payload)
        if command == NULL:
            return False
        memcpy(command, &task.head, sizeof(TaskCommand))
        command.id = id
        command.t_submit_us = now_us()
        memcpy(command + 1, PyBytes_AS_STRING(task.prompt), n_prompt)
        memcpy(<char *>(command + 1) + n_prompt, PyBytes_AS_STRING(task.tail), n_tail)
        ring_commit(&self.channel.commands)
        if wake:
            wake_send(self.channel.command_fd)
        return True

    def announce(self) -> None:
        """Announce tasks that will be submitted without a wake-up; wake() must follow the last one."""
        wakeup_engine(self.channel)

    def wake(self) -> None:
        store_int(&self.channel.head.is_gathering, 0)
        wake_send(self.channel.command_fd)

    cdef bint _send_ref(self, uint32_t kind, uint64_t id):
        cdef TaskRef *ref = <TaskRef *>ring_reserve(&self.channel.commands, kind, sizeof(TaskRef))
        if ref == NULL:
            return False
        ref.id = id
        ring_commit(&self.channel.commands)
        wake_send(self.channel.command_fd)
        return True

    def abort(self, id: int) -> bool:
        return self._send_ref(COMMAND_ABORT, id)

    def pause(self, id: int) -> bool:
        return self._send_ref(COMMAND_PAUSE, id)

    def resume(self, id: int) -> bool:
        return self._send_ref(COMMAND_RESUME, id)

    def act(self, id: int, action) -> bool:
        """Send an Action (client/task.py), which is answered by exactly one event. Keep its blob until then."""
        cdef ActionCommand *command
        cdef int32_t slot = action.slot
        cdef AdapterSpan adapters
        adapters.set, adapters.base, adapters.n_base = action.adapters
        if not 0 <= slot < self.channel.n_slots:
            raise ValueError("there is no such slot")
        command = <ActionCommand *>ring_reserve(&self.channel.commands, COMMAND_ACTION, sizeof(ActionCommand))
        if command == NULL:
            return False
        memset(command, 0, sizeof(ActionCommand))
        command.id = id
        command.kind = action.kind
        command.slot = slot
        if action.blob is not None:
            command.blob = action.blob.id
            command.n_bytes = action.n_bytes or action.blob.size
        command.owner = action.owner
        command.session = action.session
        command.retention_s = action.retention_s
        command.nowait = action.nowait
        command.n_tokens = action.n_tokens
        command.n_begin = action.n_begin
        command.n_keep = action.n_keep
        command.n_discard = action.n_discard
        command.adapters = adapters
        ring_commit(&self.channel.commands)
        wake_send(self.channel.command_fd)
        return True

    def forget(self, adapter: int) -> bool:
        """Tell the engine to close an adapter that no task uses or will use."""
        return self._send_ref(COMMAND_FORGET, adapter)

    def stop(self) -> bool:
        return self._send_ref(COMMAND_STOP, 0)

    # --- events ------------------------------------------------------------------------------------------------

    def poll(self) -> list[tuple[int, int, object]]:
        """Return the events since the last call: kind, id of the task or action, and the struct of client/events.py.
        Their number is limited, so that a fast engine cannot block the event loop; event_fd then stays readable. Raises
        ChannelBroken."""
        cdef uint32_t kind = 0
        cdef uint64_t n = 0
        cdef int32_t n_left = POLL_MAX
        cdef int64_t t_wake
        cdef void *payload
        cdef Text text = None  # the last event of a task, if it is a text
        cdef uint64_t text_id = 0
        cdef tuple event
        out = []
        wake_clear(self.channel.event_fd)
        with nogil:
            wakeup_await_events(self.channel)
        t_wake = take_time(&self.channel.head.t_wake_us)
        self.taken.t_us = now_us()
        payload = ring_peek(&self.channel.events, &kind, &n)
        while payload != NULL:
            copy_once(self.record, payload, n)
            event = _event(kind, self.record, n, self.channel.n_slots)
            if text is not None and kind == EVENT_TEXT and event[1] == text_id:
                text.is_followed = True
            if kind != EVENT_STEP:
                text = event[2] if kind == EVENT_TEXT else None
                text_id = event[1]
            out.append(event)
            ring_release(&self.channel.events)
            n_left -= 1
            if n_left == 0:
                wake_send(self.channel.event_fd)
                break
            payload = ring_peek(&self.channel.events, &kind, &n)
        if self.channel.events.is_broken:
            raise ChannelBroken("the ring of events")
        if t_wake and out:  # the last poll() may have taken the events of this wake-up
            self.taken.n_wakes += 1
            self.taken.wake_us += self.taken.t_us - t_wake
        return out

    def written(self) -> None:
        """Count the time since the last poll(), whose responses are now written to the sockets."""
        if self.taken.t_us:
            self.taken.write_us += now_us() - self.taken.t_us
        self.taken.t_us = 0

    def wakes(self) -> dict[str, int]:
        """Return the number of wake-ups that were handled, and the sums of their times in microseconds."""
        return {"n_wakes": self.taken.n_wakes, "wake_us": self.taken.wake_us, "write_us": self.taken.write_us}

    # --- the engine's board: read without asking the engine -------------------------------------------------------

    def stats(self) -> dict[str, int]:
        """Return the engine's counters and times (µs). An array's entries that are not 0 have its name and their
        position: n_accepted_at_0."""
        cdef Stats stats = self.channel.board.stats
        counts = stats
        accepted = counts.pop("n_accepted_at")
        counts |= {f"n_accepted_at_{i}": n for i, n in enumerate(accepted) if n}
        return counts

    def slots(self) -> list[SlotCounts]:
        """Return the counts of every slot."""
        cdef int32_t i
        cdef const SlotView *views = self.channel.slots
        return [SlotCounts(bool(views[i].is_busy), bool(views[i].is_suspended), views[i].n_tokens, views[i].n_decoded,
                           views[i].n_cached, views[i].n_processed, bool(views[i].has_new_line), views[i].n_drafted,
                           views[i].n_accepted)
                for i in range(self.channel.n_slots)]

    def n_idle(self) -> int:
        cdef int32_t i, n = 0
        for i in range(self.channel.n_slots):
            n += not self.channel.slots[i].is_busy
        return n

    def turn(self) -> tuple[int, bool]:
        """Return when the engine began its turn, and whether it has nothing to do."""
        return load_time(&self.channel.board.t_turn_us), load_int(&self.channel.board.is_resting) != 0

    def task_in_hand(self) -> int:
        """Return the id of the task that the engine is taking or admitting; 0 if there is none."""
        return load_acquire(&self.channel.board.task_in_hand)

    def silent_us(self) -> int:
        """Return for how long the engine has made no progress although it has work; 0 if it has none."""
        if load_int(&self.channel.board.is_resting) and ring_is_taken(&self.channel.commands):
            return 0
        return max(0, now_us() - max(self.t_made_us, load_time(&self.channel.board.t_turn_us)))


cdef tuple _event(uint32_t kind, const void *payload, uint64_t n, int32_t n_slots):
    """Return the event of a record with a payload of n bytes. Raises ChannelBroken."""
    if kind == EVENT_TEXT and n >= sizeof(TextEvent):
        return _text_event(<const TextEvent *>payload, n - sizeof(TextEvent))
    if kind == EVENT_PROMPT and n >= sizeof(TextEvent):
        return _prompt_event(<const TextEvent *>payload, n - sizeof(TextEvent))
    if kind == EVENT_ADMITTED and n >= sizeof(AdmittedEvent):
        return _admitted_event(<const AdmittedEvent *>payload, n_slots)
    if kind == EVENT_DONE and n >= sizeof(DoneEvent):
        return _done_event(<const DoneEvent *>payload, n_slots)
    if kind == EVENT_FAILED and n >= sizeof(FailedEvent):
        return _failed_event(<const FailedEvent *>payload)
    if kind == EVENT_PROGRESS and n >= sizeof(ProgressEvent):
        return _progress_event(<const ProgressEvent *>payload)
    if kind == EVENT_ACTION and n >= sizeof(ActionEvent):
        return _action_event(<const ActionEvent *>payload)
    if kind == EVENT_STEP and n >= sizeof(StepEvent):
        return _step_event(<const StepEvent *>payload, n - sizeof(StepEvent))
    raise ChannelBroken(f"an event of kind {kind} with {n} bytes")


cdef int64_t _ahead_bytes(int64_t n_ahead, int64_t n_top):
    """Return the size of the tokens that are held back, and of their probabilities."""
    return n_ahead * (4 + ((1 + n_top) * <int64_t>sizeof(TokenProb) if n_top else 0))


cdef int _check_text(const TextEvent *event, uint64_t n) except -1:
    """Raise ChannelBroken unless the data after the event fits into n bytes."""
    cdef int64_t n_tokens = event.n_tokens, n_rows = event.n_prob_tokens, n_top = event.n_top, n_bytes = event.n_bytes
    cdef int64_t n_most = <int64_t>n, n_ahead = max(event.n_ahead, 0), n_xtc = event.mark.n_xtc
    if (not 0 <= n_tokens <= n_most or not 0 <= n_rows <= n_tokens or not 0 <= n_top <= PROBS_MAX
            or not 0 <= n_bytes <= n_most or n_ahead > n_most or not 0 <= n_xtc <= LLAMAD_SAMPLERS_MAX
            or ((n_tokens + n_xtc) * 4 + n_rows * (1 + n_top) * <int64_t>sizeof(TokenProb) + n_bytes
                + _ahead_bytes(n_ahead, n_top)) > n_most):
        raise ChannelBroken("a text that does not fit its record")
    return 0


cdef list _probs(const TextEvent *event, const TokenProb *rows):
    """Return for each token its own value and those of the top tokens."""
    cdef int32_t i, k
    cdef const TokenProb *row
    out = []
    for i in range(event.n_prob_tokens):
        row = rows + <size_t>i * <size_t>(1 + event.n_top)
        out.append((row.value, [(row[1 + k].id, row[1 + k].value) for k in range(min(row.id, event.n_top))]))
    return out


cdef tuple _text_event(const TextEvent *event, uint64_t n):
    _check_text(event, n)
    cdef const int32_t *tokens = <const int32_t *>(event + 1) + event.mark.n_xtc
    cdef const TokenProb *rows = <const TokenProb *>(tokens + event.n_tokens)
    cdef const char *text = <const char *>(rows + <size_t>event.n_prob_tokens * <size_t>(1 + event.n_top))
    cdef const char *point = <const char *>&event.n_ahead
    cdef bytes ahead = b""
    cdef int32_t i
    if event.n_ahead > 0:
        ahead = PyBytes_FromStringAndSize(text + event.n_bytes, _ahead_bytes(event.n_ahead, event.n_top))
    return (EVENT_TEXT, event.id, Text(
        [tokens[i] for i in range(event.n_tokens)], PyBytes_FromStringAndSize(text, event.n_bytes), event.n_decoded,
        event.t_us, event.t_prompt_us, event.t_predict_us, _probs(event, rows) if event.n_top else [], event.n_drafted,
        event.n_accepted, PyBytes_FromStringAndSize(point, <const char *>tokens - point), ahead))


cdef tuple _prompt_event(const TextEvent *event, uint64_t n):
    _check_text(event, n)
    cdef const int32_t *tokens = <const int32_t *>(event + 1)
    cdef int32_t i
    return (EVENT_PROMPT, event.id, PromptTokens(
        [tokens[i] for i in range(event.n_tokens)], _probs(event, <const TokenProb *>(tokens + event.n_tokens))))


cdef int _check_slot(int32_t slot, int32_t n_slots) except -1:
    if not 0 <= slot < n_slots:
        raise ChannelBroken(f"an event of slot {slot}, of {n_slots}")
    return 0


cdef tuple _admitted_event(const AdmittedEvent *event, int32_t n_slots):
    _check_slot(event.slot, n_slots)
    return (EVENT_ADMITTED, event.id, Admitted(event.slot, event.n_cached, event.t_us))


cdef tuple _failed_event(const FailedEvent *event):
    return (EVENT_FAILED, event.id, Failed(event.failure, event.code))


cdef tuple _progress_event(const ProgressEvent *event):
    return (EVENT_PROGRESS, event.id, Progress(event.n_processed, event.t_prompt_us))


cdef tuple _done_event(const DoneEvent *event, int32_t n_slots):
    _check_slot(event.slot, n_slots)
    return (EVENT_DONE, event.id, Done(
        event.stop_type, event.stop_word, event.slot, event.n_prompt, event.n_cached, event.n_decoded,
        event.n_slot_tokens, bool(event.truncated), bool(event.has_new_line), event.t_us, event.t_prompt_us,
        event.t_predict_us, event.n_drafted, event.n_accepted))


cdef tuple _action_event(const ActionEvent *event):
    return (EVENT_ACTION, event.id, Acted(
        event.result, event.n_tokens, event.n_bytes, event.stall_us, event.n_processed,
        (event.adapters.set, event.adapters.base, event.adapters.n_base)))


cdef tuple _step_event(const StepEvent *event, uint64_t n):
    cdef const StepSlot *rows = <const StepSlot *>(event + 1)
    cdef int32_t i
    if not 0 <= <int64_t>event.n_slots * <int64_t>sizeof(StepSlot) <= <int64_t>n:
        raise ChannelBroken("a step that does not fit its record")
    return (EVENT_STEP, 0, Step(
        event.step, event.t_us, event.plan_us, event.decode_us, event.sample_us, event.emit_us, event.budget,
        event.n_tokens, event.n_decoding,
        [SlotStep(rows[i].slot, rows[i].n_tokens, bool(rows[i].is_decoding)) for i in range(event.n_slots)],
        event.wait_us, event.n_fillers, event.n_media))
