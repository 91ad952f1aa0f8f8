# Constants of the scheduler, admission and the prompt cache, each with the measurement it comes from. "Chosen" means
# that it was not measured. Costs that depend on the machine (of a step, a prompt token or a saved state) are learned
# while the engine runs, into scheduler/plan.pxd and cache/host_cache.pxd; these constants say how.
#
# H200: one GPU, CUDA 13, a 1B-shaped model in F16 unless another is named. CPU: 2 cores, SmolLM2-135M.

# --- decoding on the CPU (prefill_cpu.pyx) ----------------------------------------------------------------------

cdef enum:
    # llama.cpp's flash attention works in tiles of 64 queries of one sequence; in a smaller batch a token costs many
    # times as much (CPU, 800 tokens of context: 64 in 0.3 s, 63 in 2.5 s).
    FLASH_TILE = 64
    # Gaps between a decoding slot's tokens need not be shorter than this. Chosen: 50 tokens/s.
    CPU_GAP_US_MIN = 20000
    # Longest prefill step while no slot decodes, so that an abort or a new request is noticed soon. Chosen.
    CPU_PREFILL_US_MAX = 400000
    # Decoding slots stall for at most this long while short prompts are prefilled, and a prompt counts as short up to
    # this time. (CPU, 8 prompts of 64 and of 512 tokens: the mean time to the first token fell from 80 % to 56-61 %,
    # and from 130 % to 61-65 %, of llama-server's.)
    CPU_STALL_US_MAX = 2000000
    SHORT_PROMPT_US_MAX = 2000000
    SHORT_PROMPT_TOKENS_MAX = 1024
    # One first token is worth as much as this many later ones. Chosen.
    FIRST_TOKEN_WEIGHT = 16
    # A prompt token that costs more than this means slow compute, where a separate graph for each prompt costs nothing
    # extra. Chosen: between the H200 (11 to 14 µs) and the CPU (1,300 µs).
    SLOW_TOKEN_US = 150

# --- decoding on a GPU (prefill_gpu.pyx, padding.pyx, fillers.pyx) ----------------------------------------------

cdef enum:
    # Smallest chunk while other slots decode: a prefill step of the H200 takes 4.5 ms for one token and 7 ms for 512.
    GPU_CHUNK_TOKENS_MIN = 128
    # Gaps need not be shorter than this: one prefill step of the H200.
    GPU_GAP_US_MIN = 5000
    # Weight of one prefilling slot against the decoding ones. Chosen.
    PREFILL_WEIGHT = 4
    # Prompts count as nearly done if their prefill takes at most this many decoding steps. Chosen.
    SOON_STEPS = 6
    # Decoding slots may stall this long at a stretch, and for 1/STALL_CREDIT_PART of the time, so that such gaps are
    # rare and the p99 gap stays below 2.5 medians (H200, 8 and 32 streams beside prompts of 4,000 tokens: 2.08 and
    # 1.68).
    STALL_CREDIT_US_MAX = 150000
    STALL_CREDIT_PART = 10
    # Cost of building and launching one graph: 4,500 µs on the H200, set lower for smaller models. It is at least that
    # of a decoding step, which reads all weights too.
    GRAPH_US = 3000
    # The same cost in tokens: its bounds, and the value while the cost of a token is unknown. Chosen.
    GRAPH_TOKENS_MIN = 16
    GRAPH_TOKENS_MAX = 512
    GRAPH_TOKENS_UNKNOWN = 64
    # Prompts are padded to multiples of these lengths if equal lengths cost too much. Chosen.
    PADDING_UNIT_COARSE = 128
    PADDING_UNIT_FINE = 32
    # Removing padding makes llama.cpp visit each cell of the slot: this many in the time of a token. Chosen.
    CELLS_PER_TOKEN = 10000
    # Widest gap between decoding slots that is filled: one more graph costs as much as thirty more streams (H200).
    FILL_GAP_MAX = 24
    # A changed shape is captured again, which costs as much as a quarter more streams for this many steps (H200, 64
    # streams).
    SHAPE_KEEP_STEPS = 12
    # Up to here the number of streams is not rounded up: each additional one costs something, and llama.cpp uses other
    # kernels for more.
    EXACT_STREAMS_MAX = 8
    # A longer wait after decode() shows that a device computes, whatever the flags say. Chosen; see DEVICE_WAIT_PART.
    DEVICE_WAIT_US_MIN = 100

# --- adapters (adapter_turns.pyx) ---------------------------------------------------------------------------------

cdef enum:
    # How long a task waits while tasks with other adapters have their turns, unless the cost of changing adapters makes
    # turns longer. Chosen: a reader hardly notices the gap.
    ADAPTER_GAP_US = 120000
    # A turn lasts at least as long as this many changes, so that four fifths of the time remain for tokens. Chosen: a
    # change costs about 15 ms on the CPU and 20 ms on the H200, where four sets in turns of 40 ms had half their time
    # for tokens.
    ADAPTER_TURN_FACTOR = 5
    # A change that took longer included something else: it loaded code, or the machine was busy. Chosen.
    ADAPTER_CHANGE_US_MAX = 100000

# --- admission and prefixes (admission.pyx, prefix/sharing.pyx, suspension.pyx, cache/host_cache.pyx) ---------------

cdef enum:
    # Fewest tokens for which a prefix is copied from another slot; it must also be 1/COPY_CONTEXT_PART of a slot's
    # context, because llama.cpp copies the whole buffer. Chosen.
    COPY_TOKENS_MIN = 32
    COPY_CONTEXT_PART = 256
    # A copied sliding window, which goes through host memory, must save 1/COPY_WINDOW_PART of the window. Chosen.
    COPY_WINDOW_PART = 4
    # Waiting for a prefix costs at least a step, in which this many tokens could be prefilled: a tile.
    WAIT_TOKENS_MIN = 64
    # Fewest tokens worth an entry of the prompt cache. A shorter common prefix of an entry and a prompt is useless, so
    # a hash of half as many tokens tells most entries apart.
    CACHE_TOKENS_MIN = 64
    # Fewest tokens that are saved because they would be computed again. Chosen: a short turn of a conversation.
    SAVE_TOKENS_MIN = 16
    # The same for a GPU, which prefills 512 tokens in 7 ms (H200). If as many are saved already, the prompt is a
    # conversation, of which every turn is saved that has CACHE_TOKENS_MIN.
    GPU_SAVE_TOKENS_MIN = 512
    # A state is saved or restored if prefilling takes this many times as long as saving (H200: prompts waited 40 ms for
    # states that could be prefilled again in 8 ms).
    SAVE_GAIN = 2
    # So many parts are saved to learn what that takes, because the first takes several times as long (H200: 67 ms instead
    # of 4).
    SAVE_TRIALS = 4
    # A CPU saves a state in any case if 1/SAVE_PART of it would be lost otherwise. A state is restored in any case if
    # 1/RESTORE_PART of it is gained. Chosen.
    SAVE_PART = 4
    RESTORE_PART = 8
    # Decoding slots wait at most this long for saving and restoring in one turn; the state that exceeds it is finished.
    # Chosen: one gap of the CPU.
    STATES_US_MAX = 20000
    # An idle prefix of a unified cache is saved to host memory once nothing has run for this long, and if it has at
    # least this many tokens: three of 512 cost less than 2 % of a stream's speed (H200: 24,000 cost 19 %). The time is
    # chosen, so that a client that answers at once does not wait for a save.
    PARK_IDLE_US = 100000
    PARK_TOKENS_MIN = 512
    # Where nothing is parked, idle prefixes are saved for the next engine, should this one end. Nobody waits for that, so
    # it begins later: a client that takes part in a conversation has answered by then. Chosen: well below the 5 s within
    # which a finished turn should be safe.
    KEEP_IDLE_US = 1000000
    # While other slots run, saving idle prefixes takes at most 1/KEEP_PART of the time of their steps. Looking for one
    # counts as at least KEEP_LOOK_US, so that it is not done in every step. Chosen.
    KEEP_PART = 100
    KEEP_LOOK_US = 1000
    # An engine that was asked to end saves idle prefixes for at most this long. The front waits for a second.
    KEEP_LAST_US = 400000
    # Pages that are prepared for what will be saved take at most 1/STOCK_PART of the prompt cache. Chosen.
    STOCK_PART = 8
    # A task is admitted to a unified cache, or resumed in it, only if 1/SPARE_PART stays free, because moving a state
    # costs as much as many tokens. Chosen.
    SPARE_PART = 16
    # Most tokens that are compared to find moved chunks: 10 ms. Chosen.
    REUSE_WORK_MAX = 1 << 24
    # Most entries: each is compared with every new prompt. Chosen.
    CACHE_ENTRIES_MAX = 4096
    # A part of a prompt that was inserted waits this long for the next one, and goes last meanwhile. Chosen: a slow disk
    # reads 64 MiB in a second.
    ARRIVAL_US = 2000000
    # Longest part of a state that is saved to an entry of its own, and the shortest that is not replaced when its
    # conversation grows. Chosen: restoring many small parts costs a device many small copies.
    SEGMENT_TOKENS = 512
    SEGMENT_TOKENS_MIN = 256
    # Most ends of states (of windows, recurrent ones) that are kept of one conversation. Chosen: the last one, and some to
    # which it may return.
    ENDS_MAX = 4
    # A buffer for whole states keeps its pages after use if it is at most this large, and until it was not used for so
    # long. Chosen: most states of small models, and the time between two turns of busy conversations.
    STAGING_BYTES_KEPT = 67108864
    STAGING_IDLE_US = 10000000
    # The same for a buffer that a device copies to and from fast, whatever its size, because allocating half a gigabyte
    # takes 150 ms. Chosen: the time in which a user reads an answer.
    STAGING_FAST_IDLE_US = 30000000
    # Which idle slot gives up its prefix: among those with fewer tokens, the age alone decides. A neighbour of busy slots
    # comes before a slot that is worth up to this many times less. Chosen.
    VALUED_TOKENS_MIN = 256
    NEIGHBOUR_LOSS = 4

# --- checkpoints (prefix/checkpointing.pyx) ---------------------------------------------------------------------------

cdef enum:
    # Fewest tokens since the previous checkpoint. Chosen.
    CHECKPOINT_TOKENS_MIN = 16
    # The same if a prompt is split for it, which costs a graph. Chosen: within 3 % of a conversation of 1,000 tokens.
    CHECKPOINT_CUT_MIN = 32
    # Tokens left to prefill after the last checkpoint of a prompt, because the same prompt needs some tokens again.
    CHECKPOINT_TAIL = 4
    # The longest opening of the assistant's message that a template adds. Chosen.
    CHECKPOINT_OPENING_MAX = 64
    # The start of the last message is searched in this many tokens. Chosen.
    CHECKPOINT_MESSAGE_MAX = 16384

# --- waking up (loop.pyx, sample_step.pyx) --------------------------------------------------------------------------

cdef enum:
    # The engine spins this long for the rest of a burst of requests: the event loop needs 1,050 µs to read eight
    # (H200's host). Then it sleeps, and checks again after GATHER_SLEEP_MS at the latest.
    GATHER_SPIN_US = 1000
    GATHER_SLEEP_MS = 1000
    # Waking a thread on a sleeping core takes 50 to 100 µs, so the event loop is woken this long before the last
    # logits.
    LOOP_WAKE_US = 100

# --- learning -------------------------------------------------------------------------------------------------------

cdef extern from *:
    """
    /* Target gap between a decoding slot's tokens while prompts are prefilled, in decoding steps: the p99 gap may be
     * 2.5 times the median. */
    #define GAP_FACTOR 2.5
    /* What SAVE_GAIN is for saving in parts, also if these are cut out of the whole state. A part is saved once and serves
     * every later turn; what is not saved is computed again in each of them, and competes with all other prompts (H200,
     * a 1B in F16, 12 agents with 16,000 tokens over 4 slots: both took 10 to 15 µs a token, and with 1.0 77 % of the
     * tokens were computed again). */
    #define SAVE_PARTS_GAIN 0.5
    /* The weight of one prompt in the share of those that come back. Where none does, saving must pay at once. Chosen: the
     * first prompts of some dozens of conversations say little. */
    #define RETURN_LEARN_RATE 0.01
    /* Weight of the last step against the learned cost. Chosen. */
    #define LEARN_RATE 0.2
    /* The same for changes of adapters, of which there are fewer. Chosen. */
    #define RARE_LEARN_RATE 0.3
    /* The learned cost of a prompt token on a GPU falls fast, because the first steps load code, and its minimum, like that
     * of saving, rises slowly (H200: before, states were saved that could be prefilled again in half the time). */
    #define FALL_RATE 0.5
    /* Each time saving a state does not pay, its learned cost becomes lower by this: a high one is tried again some time.
     * Chosen. */
    #define SAVE_DOUBT 0.995
    #define RISE_RATE 0.05
    /* A chunk may cost this much more than the smallest one: smaller chunks would only make more steps. Chosen. */
    #define LEAST_CHUNK_FACTOR 1.5
    /* A chunk that cost more than this many times the limit counts as that: the first of its kind loads code.
     * Chosen. */
    #define OUTLIER_FACTOR 3.0
    /* The belief that a chunk size is too expensive decays with every step; it is tried again after some hundred steps.
     * Chosen. */
    #define UNTRIED_DECAY 0.995
    /* If a device computes, at least this fraction of a decoding step is waiting after decode(). Chosen. */
    #define DEVICE_WAIT_PART 0.3
    """
    const double GAP_FACTOR
    const double SAVE_PARTS_GAIN
    const double RETURN_LEARN_RATE
    const double LEARN_RATE
    const double RARE_LEARN_RATE
    const double FALL_RATE
    const double SAVE_DOUBT
    const double RISE_RATE
    const double LEAST_CHUNK_FACTOR
    const double OUTLIER_FACTOR
    const double UNTRIED_DECAY
    const double DEVICE_WAIT_PART
