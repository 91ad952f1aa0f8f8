# Constants of the scheduler, admission and the prompt cache, each with the measurement it comes from. "Chosen" means
# that it was not measured. What depends on the machine (what a step, a prompt token or a saved state costs) is
# learned while the engine runs, into scheduler/plan.pxd and kv/host_cache.pxd; these say how.
#
# H200: one of them, CUDA 13, a 1B-shaped model in F16 unless another is named. CPU: 2 cores, SmolLM2-135M.

# --- where the CPU computes (prefill_cpu.pyx) -------------------------------------------------------------------

cdef enum:
    # llama.cpp's flash attention works in tiles of 64 queries of one sequence; below that a token costs many times as
    # much (CPU, 800 tokens of context: 64 in 0.3 s, 63 in 2.5 s).
    FLASH_TILE = 64
    # Shortest gap between a decoding slot's tokens worth keeping. Chosen: 50 tokens/s.
    CPU_GAP_US_MIN = 20000
    # Longest prefill step while no slot decodes, so that an abort or a new request is noticed. Chosen.
    CPU_PREFILL_US_MAX = 400000
    # Decoding slots stall for at most this long while short prompts are prefilled, and such a prompt takes no longer.
    # (CPU, 8 prompts of 64 and of 512 tokens: mean first token 0.80 -> 0.56-0.61 and 1.30 -> 0.61-0.65 of
    # llama-server's.)
    CPU_STALL_US_MAX = 2000000
    SHORT_PROMPT_US_MAX = 2000000
    SHORT_PROMPT_TOKENS_MAX = 1024
    # One first token is worth as much as this many others. Chosen.
    FIRST_TOKEN_WEIGHT = 16
    # A prompt token that costs more means slow compute, where a graph for each prompt costs nothing extra. Chosen:
    # between the H200 (11 to 14 µs) and the CPU (1,300 µs).
    SLOW_TOKEN_US = 150

# --- where a GPU computes (prefill_gpu.pyx, padding.pyx, fillers.pyx) -------------------------------------------

cdef enum:
    # Smallest chunk while other slots decode: a prefill step of the H200 takes 4.5 ms for one token and 7 ms for 512.
    GPU_CHUNK_TOKENS_MIN = 128
    # Shortest gap worth keeping: one prefill step of the H200.
    GPU_GAP_US_MIN = 5000
    # Weight of one prefilling slot against the decoding ones. Chosen.
    PREFILL_WEIGHT = 4
    # Prompts are soon done if their prefill takes no more than this many decoding steps. Chosen.
    SOON_STEPS = 6
    # Decoding slots may stall this long at a stretch and for a tenth of the time, so that such gaps are few and the p99
    # gap stays below 2.5 medians (H200, 8 and 32 streams beside prompts of 4,000 tokens: 2.08 and 1.68).
    STALL_CREDIT_US_MAX = 150000
    STALL_CREDIT_PART = 10
    # Building and launching one graph: 4,500 µs on the H200, taken lower for smaller models. At least a decoding step,
    # which reads all weights as well.
    GRAPH_US = 3000
    # The same in tokens: bounds, and the value while the cost of a token is not known. Chosen.
    GRAPH_TOKENS_MIN = 16
    GRAPH_TOKENS_MAX = 512
    GRAPH_TOKENS_UNKNOWN = 64
    # Lengths that prompts are padded to where equal lengths cost too much. Chosen.
    PADDING_UNIT_COARSE = 128
    PADDING_UNIT_FINE = 32
    # Removing padding makes llama.cpp look at each cell of the slot: this many in the time of a token. Chosen.
    CELLS_PER_TOKEN = 10000
    # Widest hole between decoding slots that is filled: one more graph costs as much as thirty more streams (H200).
    FILL_GAP_MAX = 24
    # A changed shape is captured anew, which costs about a quarter more streams for this many steps (H200, 64 streams).
    SHAPE_KEEP_STEPS = 12
    # Up to here the number of streams is not rounded up: each one more costs something, and llama.cpp uses other
    # kernels for more.
    EXACT_STREAMS_MAX = 8
    # A wait after decode() that says that a device computes, whatever the flags say. Chosen; see DEVICE_WAIT_PART.
    DEVICE_WAIT_US_MIN = 100

# --- adapters (adapter_turns.pyx) ---------------------------------------------------------------------------------

cdef enum:
    # How long a task waits while others with other adapters have their turns, if turns are not longer for what a change
    # of adapters costs. Chosen: a reader hardly sees the gap.
    ADAPTER_GAP_US = 120000
    # A turn takes at least this many changes, so that four fifths of the time stay for tokens. Chosen: a change costs
    # some 15 ms on the CPU and 20 on the H200, where four sets in turns of 40 ms had half their time for tokens.
    ADAPTER_TURN_FACTOR = 5
    # A change that took longer did something else as well: it loaded code, or the machine was busy. Chosen.
    ADAPTER_CHANGE_US_MAX = 100000

# --- admission and prefixes (admission.pyx, prefix/sharing.pyx, suspension.pyx, kv/host_cache.pyx) ---------------

cdef enum:
    # Fewest tokens for which a prefix is copied from another slot, and this part of a slot's context: llama.cpp copies
    # the whole buffer. Chosen.
    COPY_TOKENS_MIN = 32
    COPY_CONTEXT_PART = 256
    # The same for a sliding window, which goes through host memory: this part of the window. Chosen.
    COPY_WINDOW_PART = 4
    # Waiting for a prefix costs a step at least, in which this many tokens are prefilled as well: a tile.
    WAIT_TOKENS_MIN = 64
    # Fewest tokens worth an entry of the prompt cache. An entry and a prompt that share less share nothing of use, so
    # that a hash of half as many tells most of them apart.
    CACHE_TOKENS_MIN = 64
    # The same with a GPU, which prefills 512 tokens in 7 ms (H200).
    GPU_SAVE_TOKENS_MIN = 512
    # Prefilling must take this many times as long as saving (H200: prompts waited 40 ms for states that are prefilled
    # again in 8).
    SAVE_GAIN = 2
    # What would be lost is at least this part of the saved state, and what is gained this part of the restored one.
    # Chosen.
    SAVE_PART = 4
    RESTORE_PART = 8
    # Decoding slots wait for no more saving and restoring than this in one turn, and the state that passes it.
    # Chosen: one gap of the CPU.
    STATES_US_MAX = 20000
    # An idle prefix of a unified cache is saved to host memory once nothing has run for this long, and if it has so many
    # tokens: three of 512 take less than 2 % of a stream's speed (H200: 24,000 take 19 %). The time is chosen: a client
    # that answers at once should not meet a save.
    PARK_IDLE_US = 100000
    PARK_TOKENS_MIN = 512
    # A task is admitted to a unified cache, or goes on in it, if this part stays free: moving a state costs as much as
    # many tokens. Chosen.
    SPARE_PART = 16
    # Tokens compared to find chunks that moved: 10 ms. Chosen.
    REUSE_WORK_MAX = 1 << 24
    # Each is compared with every new prompt. Chosen.
    CACHE_ENTRIES_MAX = 1024

# --- checkpoints (prefix/checkpointing.pyx) ----------------------------------------------------------------------------

cdef enum:
    # Fewest tokens since the one before. Chosen.
    CHECKPOINT_TOKENS_MIN = 16
    # The same where a prompt is cut for it, which costs a graph. Chosen: within 3 % of a conversation of 1,000 tokens.
    CHECKPOINT_CUT_MIN = 32
    # Tokens left to prefill after the last one of a prompt: the same prompt again needs some.
    CHECKPOINT_TAIL = 4
    # A template's opening of the answer takes no more. Chosen.
    CHECKPOINT_OPENING_MAX = 64
    # The last message is looked for in this many tokens. Chosen.
    CHECKPOINT_MESSAGE_MAX = 16384

# --- waking up (loop.pyx, sample_step.pyx) --------------------------------------------------------------------------

cdef enum:
    # The engine spins this long for the rest of a burst of requests: reading eight takes the event loop 1,050 µs
    # (H200's host). Then it sleeps, to look again after GATHER_SLEEP_MS at the latest.
    GATHER_SPIN_US = 1000
    GATHER_SLEEP_MS = 1000
    # Waking a thread on a sleeping core takes 50 to 100 µs: the event loop is woken this long before the last logits.
    LOOP_WAKE_US = 100

# --- learning -------------------------------------------------------------------------------------------------------

cdef extern from *:
    """
    /* Target gap between a decoding slot's tokens while prompts are prefilled, in decoding steps: the p99 gap may be
     * 2.5 times the median. */
    #define GAP_FACTOR 2.5
    /* Cost of the last step against what was known. Chosen. */
    #define LEARN_RATE 0.2
    /* The same for a GPU's chunks and for saved states, of which there are fewer. Chosen. */
    #define RARE_LEARN_RATE 0.3
    /* The cost of a prompt token on a GPU falls fast, because the first steps load code, and its least rises slowly
     * (H200: before, states were saved that are prefilled again in half the time). */
    #define FALL_RATE 0.5
    #define RISE_RATE 0.05
    /* A chunk may cost this much more than the smallest one: smaller chunks would only make more steps. Chosen. */
    #define LEAST_CHUNK_FACTOR 1.5
    /* A chunk that cost more than this many limits counts as that: the first of its kind loads code. Chosen. */
    #define OUTLIER_FACTOR 3.0
    /* A chunk size that was too dear is believed less with every step, and tried again after some hundred. Chosen. */
    #define UNTRIED_DECAY 0.995
    /* Least part of a decoding step spent waiting after decode() where a device computes. Chosen. */
    #define DEVICE_WAIT_PART 0.3
    """
    const double GAP_FACTOR
    const double LEARN_RATE
    const double RARE_LEARN_RATE
    const double FALL_RATE
    const double RISE_RATE
    const double LEAST_CHUNK_FACTOR
    const double OUTLIER_FACTOR
    const double UNTRIED_DECAY
    const double DEVICE_WAIT_PART
