# Packs a task (client/task.py) into the record that crosses the ring. Made on the event loop, then only read.
# Port.submit() adds the id and the time.
from libc.stdint cimport int32_t, uint32_t
from libc.string cimport memcpy, memset

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE

from llamad.base.function_table cimport llamad_bias
from llamad.client.history cimport History
from llamad.protocol.messages cimport (
    PROBS_MAX, TASK_CONTEXT_SHIFT, TASK_MARKERS, TASK_PROGRESS, TASK_PROMPT_PROBS, TASK_STREAM, RowRun, TaskCommand,
)
from llamad.protocol.sampling_params cimport ByName, Sampling


cdef bytes _packed_pairs(tuple pairs):
    """Return the pairs as C structs, an int32 and a float each: llamad_bias and llamad_adapter_use are alike."""
    cdef bytes out = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>(len(pairs) * sizeof(llamad_bias)))
    cdef char *at = PyBytes_AS_STRING(out)
    cdef llamad_bias one
    for number, value in pairs:
        one.token = number
        one.bias = value
        memcpy(at, &one, sizeof(llamad_bias))
        at += sizeof(llamad_bias)
    return out


def packed_biases(tokens: bytes, values: bytes) -> bytes:
    """Return an array of llamad_bias, made of as many int32 tokens and float64 values."""
    cdef Py_ssize_t i, n = PyBytes_GET_SIZE(tokens) // 4
    cdef bytes out = PyBytes_FromStringAndSize(NULL, n * <Py_ssize_t>sizeof(llamad_bias))
    cdef char *at = PyBytes_AS_STRING(out)
    cdef const char *from_tokens = PyBytes_AS_STRING(tokens)
    cdef const char *from_values = PyBytes_AS_STRING(values)
    cdef llamad_bias one
    cdef double value
    if PyBytes_GET_SIZE(values) != n * 8:
        raise ValueError("each token needs a bias")
    for i in range(n):
        memcpy(&one.token, from_tokens + i * 4, 4)
        memcpy(&value, from_values + i * 8, 8)
        one.bias = <float>value
        memcpy(at + i * <Py_ssize_t>sizeof(llamad_bias), &one, sizeof(llamad_bias))
    return out


cdef bytes _packed_stops(list stops):
    cdef int32_t n
    out = []
    for stop in stops:
        n = <int32_t>len(stop)
        out += (<char *>&n)[:sizeof(int32_t)], stop
    return b"".join(out)


cdef void _copy_text(char *room, size_t n_room, str text):
    """Copy the text, or as much of it as there is room for before a NUL."""
    cdef bytes data = text.encode("utf-8", "replace")
    memcpy(room, PyBytes_AS_STRING(data), min(n_room - 1, <size_t>PyBytes_GET_SIZE(data)))


cdef class Command:
    """A packed task, which goes on where its history ends, if it has one. Raises ValueError if a value is outside the
    engine's limits, or if the history is not one of this task."""

    def __cinit__(self, task, History history=None) -> None:
        cdef TaskCommand *head = &self.head
        cdef bint is_resumed = history is not None and history.n_drawn > 0
        cdef bytes stops = _packed_stops(task.stops), bias = task.bias, breakers = task.breakers
        cdef bytes penalty = task.penalty, drawn = b"", runs = task.rows.packed if task.rows is not None else b""
        context, adapters = task.context, task.adapters
        memset(head, 0, sizeof(TaskCommand))
        head.options = ByName(task.options, {})
        if not 0 <= head.options.n_probs <= PROBS_MAX or (task.prompt_probs and head.options.n_probs == 0):
            raise ValueError("n_probs is outside what the engine has")
        if task.prompt_probs and not is_resumed:
            head.options.cache_prompt = False
        head.sampling = (<Sampling?>task.sampling).values
        head.adapters.set = adapters.number
        head.adapters.base = adapters.base
        head.adapters.n_base = adapters.n_base
        head.n_adapters = <int32_t>len(adapters.uses)
        head.n_base_adapters = adapters.n_base_uses
        head.owner = context.owner
        head.client = context.client
        head.session = context.session
        head.retention_s = context.retention_s
        head.priority = context.priority
        head.deadline_us = context.deadline_us
        head.group = task.group
        head.grammar = task.grammar.id if task.grammar is not None else 0
        head.answer_bytes_max = task.answer_bytes_max
        head.flags = ((TASK_STREAM if task.stream else 0) | (TASK_CONTEXT_SHIFT if task.context_shift else 0)
                      | (TASK_MARKERS if task.markers else 0) | (TASK_PROMPT_PROBS if task.prompt_probs else 0)
                      | (TASK_PROGRESS if task.progress else 0))
        head.n_asked = head.n_prompt = <int32_t>(len(task.prompt) // 4)
        self.prompt = task.prompt
        if is_resumed:
            # Other completions of its group have drawn other tokens. The sink has had the prompt's events.
            head.group = 0
            head.flags &= ~<uint32_t>(TASK_PROMPT_PROBS | TASK_PROGRESS)
            drawn = history.fill(&head.resume, head.options.n_probs)
            self.prompt = history.context(task.prompt)
            head.n_prompt = <int32_t>(len(self.prompt) // 4)
            if head.resume.n_discarded:
                penalty = task.prompt if penalty is None else penalty
                head.adapters.n_base -= max(0, min(head.adapters.n_base - head.resume.n_kept, head.resume.n_discarded))
        head.n_penalty = <int32_t>(len(penalty) // 4) if penalty is not None else -1
        head.n_keep = task.n_keep
        head.n_bias = <int32_t>(PyBytes_GET_SIZE(bias) // <Py_ssize_t>sizeof(llamad_bias))
        head.n_stop = <int32_t>len(task.stops)
        head.n_stop_bytes = <int32_t>PyBytes_GET_SIZE(stops)
        head.n_breakers = <int32_t>(PyBytes_GET_SIZE(breakers) // 4)
        head.n_runs = <int32_t>(PyBytes_GET_SIZE(runs) // <Py_ssize_t>sizeof(RowRun))
        _copy_text(head.request_id, sizeof(head.request_id), context.request_id)
        _copy_text(head.key_name, sizeof(head.key_name), context.key_name)
        self.tail = b"".join((penalty or b"", bias, breakers, drawn, stops, runs, _packed_pairs(adapters.uses)))


def packed_run(blob: int, rows_at: int, grid_at: int, first: int, n_rows: int) -> bytes:
    """Return a RowRun as bytes, for MediaEmbeddings.packed."""
    cdef RowRun run
    run.blob = blob
    run.rows_at = rows_at
    run.grid_at = grid_at
    run.first = first
    run.n_rows = n_rows
    return (<char *>&run)[:sizeof(RowRun)]
