# Tasks in the engine, and the queue of tasks that wait for a slot.
from libc.stdint cimport int32_t, uint64_t

from llamad.base.function_table cimport llamad_adapter_use, llamad_bias
from llamad.protocol.messages cimport RowRun, TaskCommand, TokenProb

ctypedef struct Task:
    TaskCommand command
    const int32_t *prompt
    const int32_t *penalty     # the tokens that penalties consider: the prompt, unless the request names others
    int32_t n_penalty
    const llamad_bias *bias
    const char *stops
    const int32_t *breakers
    const int32_t *drawn       # tokens that an earlier engine drew
    const TokenProb *probs     # of those that were held back
    RowRun *runs               # runs of rows in the prompt
    llamad_adapter_use *adapters
    int32_t is_paused
    int32_t is_suspect         # a decode with it failed, so it is decoded alone (decode_faults.pyx)
    int32_t n_faults           # how many decodes with it have failed
    uint64_t round             # its round in the queue
    # Set while it waits for another slot to prefill a common prefix (prefix/sharing.pyx); held_n is 0 otherwise.
    int32_t held_slot
    int32_t held_n
    uint64_t held_task
    Task *next

ctypedef struct Queue:
    Task *first
    int32_t n
    uint64_t round             # the round of the task that left it last

cdef Task *task_open(const TaskCommand *command) noexcept nogil
cdef int task_has_rows(const Task *task, size_t n_row_bytes) noexcept nogil
cdef const RowRun *task_run(const Task *task, int32_t i) noexcept nogil
cdef void task_close(Task *task) noexcept nogil
cdef void queue_add(Queue *queue, Task *task) noexcept nogil
cdef void queue_take(Queue *queue, Task *task) noexcept nogil
cdef void queue_remove(Queue *queue, Task *task) noexcept nogil
cdef Task *queue_find(Queue *queue, uint64_t id) noexcept nogil
cdef int queue_has_group(const Queue *queue, uint64_t group) noexcept nogil
