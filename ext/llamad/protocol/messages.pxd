# What crosses between the front and an engine: commands down, events up. Plain data, no pointers.
# Variable parts follow the struct inside the same ring record, in the order the comments give.
# Python imports the numbers of the `cpdef` enums from llamad.protocol.messages: nothing else may spell them.
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t

from llamad.base.function_table cimport llamad_sampling
from llamad.protocol.adapter_span cimport AdapterSpan

cdef enum CommandKind:
    COMMAND_TASK = 1     # TaskCommand
    COMMAND_ABORT = 2    # TaskRef
    COMMAND_PAUSE = 3    # TaskRef: its reader is slow, do not decode for it
    COMMAND_RESUME = 4   # TaskRef
    COMMAND_STOP = 5     # the engine thread returns
    COMMAND_ACTION = 6   # ActionCommand
    COMMAND_FORGET = 7   # TaskRef: the number of an adapter that no task uses any more

cpdef enum:
    EVENT_ADMITTED = 1   # AdmittedEvent
    EVENT_TEXT = 2       # TextEvent
    EVENT_DONE = 3       # DoneEvent
    EVENT_FAILED = 4     # FailedEvent
    EVENT_STEP = 5       # StepEvent, only while tracing
    EVENT_ACTION = 6     # ActionEvent, exactly one for each action
    EVENT_PROMPT = 7     # TextEvent without text: the prompt's tokens from the second on, in order
    EVENT_PROGRESS = 8   # ProgressEvent

cdef enum TaskFlag:
    TASK_STREAM = 1          # an event for every token that has text
    TASK_CONTEXT_SHIFT = 2
    TASK_MARKERS = 4         # the text includes the special tokens that mark tool calls and reasoning
    TASK_PROMPT_PROBS = 8    # report the prompt's tokens, too; the whole prompt is prefilled for that
    TASK_PROGRESS = 16       # an event for every step that prefills some of its prompt

cpdef enum:
    STOP_NONE = 0
    STOP_EOS = 1
    STOP_LIMIT = 2
    STOP_WORD = 3
    STOP_LOOP = 4

cpdef enum:
    FAILURE_DECODE = 1     # llama.cpp could not decode this task
    FAILURE_DEADLINE = 2
    FAILURE_MEMORY = 3
    FAILURE_SAMPLER = 4
    FAILURE_ENGINE = 5     # the engine ended, or is about to: its context could not be rebuilt
    FAILURE_ABORTED = 6    # by command; answers an abort so that both sides forget the task
    FAILURE_GRAMMAR = 7    # the code is SAMPLED_STUCK or SAMPLED_TOO_MUCH
    FAILURE_ROOM = 8       # it does not fit into the cache alone
    FAILURE_LOST = 9       # the engine does not have an adapter of it, or the rows of its images or sound

# Results of sampling that are not tokens.
cpdef enum:
    SAMPLED_NOTHING = -1      # llama.cpp has no logits
    SAMPLED_END = -2000       # the grammar's text is complete, and no end token may be sampled: the task is done
    SAMPLED_STUCK = -2001     # the grammar allows no token of the vocabulary
    SAMPLED_TOO_MUCH = -2002  # the grammar needs more memory or work than it is given

cpdef enum:
    PROBS_MAX = 1024       # maximum top tokens that are reported with each sampled token
    TOKEN_JSON_BYTES = 8   # approximate size of a token in a response without its text
    PROB_JSON_BYTES = 128  # approximate size of each probability in a response

ctypedef struct TaskRef:
    uint64_t id

# A run of rows in a prompt (row_ids.pxd), which lie in a blob that was lent.
ctypedef struct RowRun:
    uint64_t blob
    int64_t rows_at            # offset of the rows in bytes
    # Offset in bytes of their positions t[n], y[n] and x[n], int32 each, relative to the first one; -1: none.
    int64_t grid_at
    int32_t first              # index in the prompt
    int32_t n_rows

# Options of a request as the engine uses them: options/table.py says what each means, and client/command.pyx copies them
# by their names. Those of the samplers are in llamad_sampling.
ctypedef struct TaskOptions:
    int32_t cache_prompt
    int32_t n_cache_reuse
    int32_t id_slot
    int32_t n_predict
    int32_t n_discard
    int32_t t_max_predict_ms
    int32_t loop_guard
    int32_t n_indent
    int32_t n_probs
    int32_t post_sampling_probs
    int32_t speculative_n_max  # tokens of a draft; negative: no limit
    int32_t speculative_n_min  # shorter drafts are dropped
    float speculative_p_min    # a draft model's draft ends before a less likely token; negative: as the flags say

# What a sampler has beside the tokens that it accepted: how many random numbers its generators have drawn, and what it has
# learned. The first `n_xtc` of `xtc` count; a TextEvent has only those.
ctypedef struct MarkHead:
    uint32_t n_drawn
    int32_t n_xtc
    float learned              # Mirostat's limit, or the weighted sum of adaptive-p
    float weight               # the sum of weights of adaptive-p

ctypedef struct SamplerMark:
    MarkHead head
    uint32_t xtc[33]           # LLAMAD_SAMPLERS_MAX

# Where a task goes on that an earlier engine began. Its prompt then ends with the tokens that were drawn, except for the
# last one, and lacks those that a shift has discarded; n_drawn is 0 for a new task.
ctypedef struct ResumePoint:
    int64_t n_bytes_sent       # text that the front has
    int64_t t_prompt_us        # as in a TextEvent
    int64_t t_predict_us
    int32_t n_drawn
    int32_t n_sent             # how many of them the front's sink has; it lacks the rest, which was held back
    int32_t n_cached           # prompt tokens that the first engine took from its cache
    int32_t n_drafted
    int32_t n_accepted
    int32_t n_kept             # as in a TextEvent
    int32_t n_discarded
    SamplerMark mark           # after the last token that was drawn

# Followed by: prompt int32[n_prompt], what the penalties see instead of it int32[n_penalty], bias llamad_bias[n_bias],
# DRY's breakers int32[n_breakers] (dry_breakers.pyx), tokens drawn int32[n_drawn], with n_probs TokenProb[1 + n_probs] for
# each of those that were held back, stop strings (int32 length, bytes)[n_stop] in n_stop_bytes, RowRun[n_runs] in the
# prompt's order, llamad_adapter_use[n_adapters]. The last two are not aligned.
ctypedef struct TaskCommand:
    uint64_t id
    AdapterSpan adapters
    uint64_t owner             # tasks of one owner share cached prefixes; 0: all share them
    uint64_t client            # clients take turns in the queue and in prefill
    uint64_t session           # its conversation, a hint for the choice of a slot; 0: none
    uint64_t group             # tasks that share the prefill of one prompt; 0: none
    uint64_t grammar           # its number (grammar_api.h); 0: none
    int64_t deadline_us        # on now_us()'s clock; 0: none
    int64_t t_submit_us
    int64_t answer_bytes_max   # about what it may become as JSON; 0: no limit
    int32_t priority           # higher goes first
    int32_t retention_s        # what the client says about its prompt (prompt_value.pxd)
    int32_t n_prompt           # tokens to prefill
    int32_t n_asked            # tokens of the request's own prompt: n_prompt, unless the task goes on
    int32_t n_penalty          # -1: the penalties see the request's prompt, with which the prompt begins
    int32_t n_keep             # prompt tokens that a shift keeps, those of the system prompt among them; -1: all
    uint32_t flags
    int32_t n_bias
    int32_t n_stop
    int32_t n_stop_bytes
    int32_t n_breakers         # numbers in their table
    int32_t n_runs
    int32_t n_adapters         # of the set; those of its base come first
    int32_t n_base_adapters
    TaskOptions options
    llamad_sampling sampling
    ResumePoint resume
    char request_id[64]
    char key_name[32]

# What is done to an idle slot itself, between two steps.
cpdef enum:
    ACTION_SAVE = 1        # the slot's state into the blob, as SES1
    ACTION_RESTORE = 2     # from a blob that was checked
    ACTION_ERASE = 3
    ACTION_SHIFT = 4
    ACTION_TOKENS = 5      # its tokens into the blob
    ACTION_LOOK = 6        # the same of a busy slot too
    ACTION_INSERT = 7      # a state from a blob that was checked, into the prompt cache; its slot is not touched

cpdef enum:
    RESULT_DONE = 0
    RESULT_BUSY = 1        # the slot is busy, and the action had `nowait`
    RESULT_ABORTED = 2
    RESULT_TOO_SMALL = 3   # the blob is too small; n_bytes is the size that is needed
    RESULT_NO_ROOM = 4     # the cache that all slots share, or the prompt cache, has no room
    RESULT_OUTSIDE = 5     # n_keep and n_discard are outside the slot's tokens
    RESULT_CANNOT = 6      # this memory, or tokens that a busy slot shares, cannot be moved
    RESULT_FAILED = 7      # llama.cpp refused
    RESULT_NOT_YOURS = 8   # another owner's task used the slot last
    RESULT_ENGINE = 9      # the engine ended, or is about to
    RESULT_ROWS = 10       # the slot holds images or sound, which a saved state cannot store

ctypedef struct ActionCommand:
    uint64_t id
    uint64_t blob              # its number (blobs.h)
    uint64_t n_bytes           # of a state to restore
    uint64_t owner             # as of a task
    uint64_t session           # likewise, of an inserted state
    int32_t retention_s        # likewise
    int32_t kind
    int32_t slot
    int32_t nowait
    AdapterSpan adapters       # likewise
    int32_t n_tokens           # likewise
    int32_t n_begin            # of an inserted state: it lacks the cells of so many first tokens, which another entry has
    int32_t n_keep
    int32_t n_discard

ctypedef struct ActionEvent:
    uint64_t id
    uint64_t n_bytes
    int64_t stall_us           # how long the engine did nothing else
    int32_t result
    int32_t n_tokens           # in the slot, or erased
    int32_t n_processed        # prompt tokens that the slot's last task prefilled
    AdapterSpan adapters       # the adapter sets that computed the slot's tokens

ctypedef struct AdmittedEvent:
    uint64_t id
    int32_t slot
    int32_t n_cached
    int64_t t_us

ctypedef struct ProgressEvent:
    uint64_t id
    int64_t t_prompt_us        # since it was admitted
    int32_t n_processed        # prompt tokens in the slot, those from the cache included

# A token and its logprob, or its probability with post_sampling_probs.
ctypedef struct TokenProb:
    int32_t id
    float value

# Followed by: the mark's uint32[n_xtc]; tokens int32[n_tokens]; TokenProb[1 + n_top] for each of the first n_prob_tokens,
# where the first of them is the token itself and its id says how many of the n_top behind it count; text bytes[n_bytes];
# the tokens that are held back int32[n_ahead], and TokenProb[1 + n_top] for each if n_top is not 0. The last two are not
# aligned. With them and the mark the task can go on in another engine.
ctypedef struct TextEvent:
    uint64_t id
    int64_t t_us
    int64_t t_prompt_us        # time of the prefill
    int64_t t_predict_us       # since the first token
    int32_t n_decoded
    int32_t n_drafted          # tokens that were drafted and verified, and
    int32_t n_accepted         # those of them that were right
    int32_t n_tokens
    int32_t n_prob_tokens
    int32_t n_top
    int32_t n_bytes
    int32_t n_ahead            # tokens drawn, but held back; -1: too many, so the task cannot go on from here
    int32_t n_kept             # the context's first tokens that shifts have kept, and
    int32_t n_discarded        # the tokens behind them that they have discarded
    MarkHead mark              # after the last token that was drawn; must be last

ctypedef struct DoneEvent:
    uint64_t id
    int64_t t_us
    int64_t t_prompt_us
    int64_t t_predict_us
    int32_t slot
    int32_t n_prompt
    int32_t n_cached           # prompt tokens taken from the cache
    int32_t n_decoded
    int32_t n_drafted          # as in a TextEvent
    int32_t n_accepted
    int32_t n_slot_tokens      # all tokens in the slot at the end
    int32_t stop_type
    int32_t stop_word          # index into the stop strings, -1: none
    int32_t truncated
    int32_t has_new_line

ctypedef struct FailedEvent:
    uint64_t id
    int32_t failure
    int32_t code               # llama.cpp's, for the log

ctypedef struct StepSlot:
    int32_t slot
    int32_t n_tokens
    int32_t is_decoding

# Followed by: StepSlot[n_slots].
ctypedef struct StepEvent:
    uint64_t step
    int64_t t_us
    int32_t plan_us
    int32_t decode_us          # until decode() returned
    int32_t wait_us            # until its logits were there
    int32_t sample_us
    int32_t emit_us
    int32_t budget
    int32_t n_tokens
    int32_t n_decoding         # slots that decode
    int32_t n_fillers          # slots that joined others
    int32_t n_media            # rows of embeddings, decoded before the tokens
    int32_t n_slots
