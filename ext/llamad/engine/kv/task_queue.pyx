# Owns: a task's memory (one block, copied from its command) and the order of the queue.
# Runs on the engine thread.
from libc.stdint cimport int32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from llamad.base.function_table cimport llamad_adapter_use, llamad_bias
from llamad.protocol.blobs cimport blob_find, llamad_blob
from llamad.protocol.messages cimport RowRun, TaskCommand, TokenProb


cdef size_t _probs_bytes(const TaskCommand *command) noexcept nogil:
    """Return the size of the probabilities of tokens that were drawn before and held back."""
    cdef size_t n_ahead = <size_t>(command.resume.n_drawn - command.resume.n_sent)
    return n_ahead * <size_t>(1 + command.options.n_probs) * sizeof(TokenProb) if command.options.n_probs else 0


cdef Task *task_open(const TaskCommand *command) noexcept nogil:
    """Return a task with its own copy of the command and its payload, or NULL if memory ran out."""
    cdef size_t n_prompt = <size_t>command.n_prompt * sizeof(int32_t)
    cdef size_t n_penalty = <size_t>max(command.n_penalty, 0) * sizeof(int32_t)
    cdef size_t n_bias = <size_t>command.n_bias * sizeof(llamad_bias)
    cdef size_t n_breakers = <size_t>command.n_breakers * sizeof(int32_t)
    cdef size_t n_drawn = <size_t>command.resume.n_drawn * sizeof(int32_t)
    cdef size_t n_probs = _probs_bytes(command)
    cdef size_t n_payload = n_prompt + n_penalty + n_bias + n_breakers + n_drawn + n_probs + <size_t>command.n_stop_bytes
    cdef size_t n_runs = <size_t>command.n_runs * sizeof(RowRun)
    cdef size_t n_adapters = <size_t>command.n_adapters * sizeof(llamad_adapter_use)
    cdef Task *task = <Task *>malloc(sizeof(Task) + n_runs + n_adapters + n_payload)
    cdef char *payload
    if task == NULL:
        return NULL
    memcpy(&task.command, command, sizeof(TaskCommand))
    task.runs = <RowRun *>(task + 1)
    task.adapters = <llamad_adapter_use *>(<char *>task.runs + n_runs)
    payload = <char *>task.adapters + n_adapters
    memcpy(payload, command + 1, n_payload)
    memcpy(task.runs, <const char *>(command + 1) + n_payload, n_runs + n_adapters)
    task.prompt = <const int32_t *>payload
    task.penalty = task.prompt
    task.n_penalty = command.n_asked
    if command.n_penalty >= 0:
        task.penalty = task.prompt + command.n_prompt
        task.n_penalty = command.n_penalty
    task.bias = <const llamad_bias *>(payload + n_prompt + n_penalty)
    task.breakers = <const int32_t *>(payload + n_prompt + n_penalty + n_bias)
    task.drawn = task.breakers + command.n_breakers
    task.probs = <const TokenProb *>(task.drawn + command.resume.n_drawn)
    task.stops = <const char *>task.probs + n_probs
    task.is_paused = task.held_n = task.is_suspect = task.n_faults = 0
    task.next = NULL
    return task


cdef int task_has_rows(const Task *task, size_t n_row_bytes) noexcept nogil:
    """Return whether this process has the memory of all rows of the task."""
    cdef const RowRun *run
    cdef const llamad_blob *blob
    cdef int32_t i
    for i in range(task.command.n_runs):
        run = &task.runs[i]
        blob = blob_find(run.blob)
        if blob == NULL or <size_t>run.rows_at + <size_t>run.n_rows * n_row_bytes > blob.capacity:
            return 0
        if run.grid_at >= 0 and <size_t>run.grid_at + <size_t>run.n_rows * 3 * sizeof(int32_t) > blob.capacity:
            return 0
        if run.first < 0 or run.n_rows < 1 or run.first + run.n_rows > task.command.n_prompt:
            return 0
    return 1


cdef const RowRun *task_run(const Task *task, int32_t i) noexcept nogil:
    """Return the run of rows that contains token i of the prompt, or NULL."""
    cdef int32_t k
    for k in range(task.command.n_runs):
        if task.runs[k].first <= i < task.runs[k].first + task.runs[k].n_rows:
            return &task.runs[k]
    return NULL


cdef void task_close(Task *task) noexcept nogil:
    free(task)


cdef void queue_add(Queue *queue, Task *task) noexcept nogil:
    """Add a task, ordered by priority. Within a priority, clients take turns: the first task of each, then the second
    of each, and so on, so that a client with many tasks delays only its own."""
    cdef Task **link = &queue.first
    cdef const Task *other = queue.first
    task.round = queue.round
    while other != NULL:
        if other.command.client == task.command.client and other.command.priority == task.command.priority:
            task.round = max(task.round, other.round + 1)
        other = other.next
    while link[0] != NULL and (link[0].command.priority > task.command.priority or (
            link[0].command.priority == task.command.priority and link[0].round <= task.round)):
        link = &link[0].next
    task.next = link[0]
    link[0] = task
    queue.n += 1


cdef void queue_take(Queue *queue, Task *task) noexcept nogil:
    """Remove a task that has got a slot, and make its round the current one."""
    queue_remove(queue, task)
    queue.round = max(queue.round, task.round) if queue.first != NULL else 0


cdef void queue_remove(Queue *queue, Task *task) noexcept nogil:
    cdef Task **link = &queue.first
    while link[0] != task:
        link = &link[0].next
    link[0] = task.next
    task.next = NULL
    queue.n -= 1


cdef Task *queue_find(Queue *queue, uint64_t id) noexcept nogil:
    cdef Task *task = queue.first
    while task != NULL and task.command.id != id:
        task = task.next
    return task


cdef int queue_has_group(const Queue *queue, uint64_t group) noexcept nogil:
    """Return whether a task of this group waits."""
    cdef const Task *task = queue.first
    while task != NULL and task.command.group != group:
        task = task.next
    return task != NULL
