# Owns: the way from a task's options to the record that crosses the ring. Made on the event loop, then only read.
# Core.submit() adds the prompt, the id and what else is the request's own.
from libc.stdint cimport int32_t
from libc.string cimport memcpy, memset

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE

from llamad.protocol.sampling_params cimport Sampling
from llamad.base.function_table cimport llamad_bias
from llamad.protocol.messages cimport (
    PROBS_MAX, TASK_CACHE_PROMPT, TASK_CONTEXT_SHIFT, TASK_MARKERS, TASK_POST_PROBS, TASK_PROGRESS, TASK_PROMPT_PROBS,
    TASK_STREAM, RowRun, TaskCommand,
)


cdef bytes _packed_pairs(list pairs):
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


cdef class Command:
    """Raises ValueError for what the engine has no room for."""

    def __cinit__(self, sampling: Sampling, *, stops: list[bytes], bias: bytes, breakers: bytes,
                  priority: int, adapter_set: int, id_slot: int, n_predict: int, n_keep: int, n_discard: int,
                  t_max_predict_us: int, stream: bool, cache_prompt: bool, context_shift: bool, group: int = 0,
                  n_indent: int = 0, n_probs: int = 0, post_sampling_probs: bool = False, penalty: bytes | None = None,
                  grammar: int = 0, markers: bool = False, prompt_probs: bool = False,
                  answer_bytes_max: int = 0, progress: bool = False, n_cache_reuse: int = 0, runs: bytes = b"",
                  adapters: list[tuple[int, float]] | None = None, base_set: int = 0, n_base: int = 0,
                  n_base_adapters: int = 0) -> None:
        cdef TaskCommand *head = &self.head
        cdef bytes packed = _packed_stops(stops)
        if not 0 <= n_probs <= PROBS_MAX or (prompt_probs and n_probs == 0):
            raise ValueError("n_probs is outside what the engine has")
        memset(head, 0, sizeof(TaskCommand))
        head.adapters.set = adapter_set
        head.adapters.base = base_set
        head.adapters.n_base = n_base
        head.n_adapters = <int32_t>len(adapters or ())
        head.n_base_adapters = n_base_adapters
        head.group = group
        head.grammar = grammar
        head.t_max_predict_us = t_max_predict_us
        head.answer_bytes_max = answer_bytes_max
        head.priority = priority
        head.id_slot = id_slot
        head.n_penalty = <int32_t>(PyBytes_GET_SIZE(penalty) // 4) if penalty is not None else -1
        head.n_predict = n_predict
        head.n_keep = n_keep
        head.n_discard = n_discard
        head.n_cache_reuse = n_cache_reuse
        head.n_indent = n_indent
        head.n_probs = n_probs
        head.flags = ((TASK_STREAM if stream else 0) | (TASK_CACHE_PROMPT if cache_prompt and not prompt_probs else 0)
                      | (TASK_CONTEXT_SHIFT if context_shift else 0) | (TASK_POST_PROBS if post_sampling_probs else 0)
                      | (TASK_MARKERS if markers else 0) | (TASK_PROMPT_PROBS if prompt_probs else 0)
                      | (TASK_PROGRESS if progress else 0))
        head.n_bias = <int32_t>(PyBytes_GET_SIZE(bias) // <Py_ssize_t>sizeof(llamad_bias))
        head.n_stop = <int32_t>len(stops)
        head.n_stop_bytes = <int32_t>PyBytes_GET_SIZE(packed)
        head.n_breakers = <int32_t>(PyBytes_GET_SIZE(breakers) // 4)
        head.n_runs = <int32_t>(PyBytes_GET_SIZE(runs) // <Py_ssize_t>sizeof(RowRun))
        head.sampling = sampling.values
        self.tail = b"".join((penalty or b"", bias, breakers, packed, runs,
                              _packed_pairs(adapters or [])))


def packed_run(blob: int, rows_at: int, grid_at: int, first: int, n_rows: int) -> bytes:
    """A run of rows, for Command's `runs`."""
    cdef RowRun run
    run.blob = blob
    run.rows_at = rows_at
    run.grid_at = grid_at
    run.first = first
    run.n_rows = n_rows
    return (<char *>&run)[:sizeof(RowRun)]
