# The engine's whole state in one struct. The step loop (loop.pyx) owns it while the engine thread runs; core.pyx makes
# it available to Python.
from libc.stdint cimport int32_t, int64_t, uint64_t

from llamad.base.function_table cimport llamad_table
from llamad.base.thread_pool cimport THREADS_MAX
from llamad.engine.cache.host_cache cimport Cache
from llamad.engine.drafts.drafts cimport Drafts
from llamad.engine.kv.slots cimport Slots
from llamad.engine.kv.task_queue cimport Queue
from llamad.engine.scheduler.plan cimport Plan
from llamad.engine.threads.grammar_pool cimport GrammarPool
from llamad.engine.threads.logits_arrival cimport LogitsArrival
from llamad.engine.threads.sampler_pool cimport SamplerPool
from llamad.protocol.board cimport Stats
from llamad.protocol.channel cimport Channel
from llamad.protocol.messages cimport ActionCommand
from llamad.tokenizer.vocab cimport Pieces

# An action on a slot, which waits until the slot is idle.
ctypedef struct Action:
    ActionCommand command
    Action *next

# The logits at the end of a prompt, for the other completions of its request (prefix/prompt_ends.pyx).
ctypedef struct PromptEnd:
    uint64_t group
    float *row
    PromptEnd *next

# The share of the machine that the front has given to this engine, if it has changed; 0: it has not. The control thread
# writes it, the engine thread takes it (shares.pyx).
ctypedef struct Share:
    int32_t is_new
    int32_t n_threads
    int32_t n_threads_batch
    int64_t cache_bytes

ctypedef struct State:
    const llamad_table *table
    void *ctx
    const void *vocab
    const Pieces *pieces
    const Pieces *marked       # for tasks that ask for markers
    int32_t n_vocab
    int32_t n_row            # floats per embedding row; 0: prompts have only tokens
    int32_t n_text_max       # limit of prompt and text together, for tasks without their own limit; 0: none
    int32_t add_bos
    Slots slots
    Queue queue
    Cache cache                # the prompt cache in host memory
    Action *actions            # actions that wait for their slot, oldest first
    PromptEnd *prompt_ends
    Plan plan
    Drafts drafts
    Channel *channel           # the connection to the front
    Share share
    int32_t is_trimming        # the prompt cache has more than its share
    int32_t awaited_row        # the front is woken when this row or a later one arrives, counted from 1; 0: off
    SamplerPool *sampler_pool
    GrammarPool *grammar_pool
    char *scratch              # scratch memory, a part for each worker
    size_t scratch_bytes
    int32_t sampled_rows[THREADS_MAX + 1]  # the last row that each sampler thread has read
    LogitsArrival arrival      # the arrival of the logits of a step's outputs
    int32_t *outputs           # slots that get a token in this step
    uint64_t n_released        # how often a slot has become free
    int32_t n_outputs
    int32_t tracing
    int32_t stopping
    double keep_credit_us      # time that saving prefixes may take while slots run (parking.pyx)
    double keep_needed_us      # nothing is tried before there is so much of it
    int32_t has_faults         # there are suspects or smaller batches (decode_faults.pyx)
    int32_t is_refused         # a decode found no room when n_released was refused_at
    uint64_t refused_at
    int32_t is_lost            # the context could not be rebuilt: the engine ends
    int32_t has_adapters       # the context computes with adapters
    int32_t is_dirty           # events were written since the last wake-up
    Stats stats                # published once per turn (publish.pyx)
