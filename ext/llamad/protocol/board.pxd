# What an engine publishes in shared memory: its counters, its slots, and whether it makes progress. The engine thread
# writes it once a turn (engine/publish.pyx), and the front reads it at any time (client/port.pyx). Every field is one
# aligned word. Plain data.
from libc.stdint cimport int32_t, int64_t, uint64_t

# Counters since the engine's start; times in microseconds.
ctypedef struct Stats:
    int64_t t_last_step_us
    uint64_t n_steps
    uint64_t n_landed          # steps that were sampled while their logits arrived
    uint64_t n_decodes         # calls of decode(); a step has one or two
    uint64_t n_busy            # slots with a task, summed over all decodes
    uint64_t n_tokens_max      # the most that a slot ever held
    uint64_t n_prompt_tokens
    uint64_t n_predicted
    uint64_t n_drafts          # drafts that were verified
    uint64_t n_drafted         # tokens in them
    uint64_t n_accepted        # those that were right
    uint64_t n_accepted_at[63]  # the same by their position in the draft (DRAFT_MAX)
    uint64_t n_decode_failures
    uint64_t n_refused         # decodes that found no room
    uint64_t n_aborted
    uint64_t n_loops           # tasks that the loop guard has ended
    int64_t prompt_us
    int64_t predict_us
    int64_t plan_us
    int64_t decode_us          # until decode() returned
    int64_t wait_us            # until its logits were there
    int64_t sample_us
    int64_t emit_us
    uint64_t n_saves
    uint64_t n_restores
    int64_t state_us           # time in which the engine did nothing but save and restore
    int64_t state_us_max
    int64_t n_waiting
    uint64_t n_suspensions     # of running tasks
    uint64_t n_recomputed      # tokens of suspended tasks that were computed again
    int64_t n_suspended        # tasks that are suspended now
    int64_t turn_us_max        # the longest turn, which is the longest step
    # Copies of the counters of the slots, the prompt cache and the grammar threads.
    uint64_t n_evicted
    uint64_t n_reused
    uint64_t n_copied
    uint64_t n_moved
    uint64_t cache_entries
    uint64_t cache_bytes
    uint64_t cache_buffer      # of whole states, which parts are cut out of
    uint64_t cache_saves
    uint64_t cache_hits
    uint64_t cache_restored
    uint64_t cache_dropped
    int64_t cache_us
    int64_t cache_us_max
    int64_t device_bytes       # copies of states on the devices
    uint64_t device_hits
    uint64_t checkpoints
    uint64_t checkpoint_bytes
    uint64_t checkpoint_made
    uint64_t checkpoint_used
    uint64_t checkpoint_dropped
    int64_t checkpoint_us
    int64_t checkpoint_us_max
    uint64_t n_deferred
    int64_t deferred_us

ctypedef struct SlotView:
    int32_t is_busy
    int32_t is_suspended
    int32_t n_tokens
    int32_t n_decoded
    int32_t n_drafted          # tokens that were drafted for its task, or its last one
    int32_t n_accepted         # those that were right
    int32_t n_cached
    int32_t n_processed        # prompt tokens that its task, or its last one, has prefilled
    int32_t has_new_line       # in that task's text

# Followed by: SlotView[n_slots].
ctypedef struct Board:
    int64_t t_turn_us          # when the engine thread began its turn, or went to rest
    int32_t is_resting         # it waits for commands, with nothing to compute
    uint64_t task_in_hand      # the task that is taken from the ring or admitted right now; 0: none
    Stats stats
