# The state of the fake: a model of bytes with llama.cpp's kinds of memory. Only data.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from llamad.engine.testing.fake_cells cimport FakeCells
from llamad.engine.testing.fake_owners cimport FAKE_SEQS_MAX
from llamad.engine.testing.fake_recurrent cimport FakeRecurrent
from llamad.engine.testing.fake_split cimport FakeBatch, FakeSplit

cdef enum:
    FAKE_VOCAB = 259       # BOS, EOS, UNK, then the 256 bytes; more tokens are letters
    FAKE_IDLE_MAX = 4096
    FAKE_ROW = -2          # the token of a cell that holds a row of embeddings

ctypedef struct FakeSeq:
    int32_t n_outputs          # outputs since its last token was removed: the position in its script
    int32_t n_told             # number of tokens up to the last one with an output
    int32_t is_written_later   # the next decode writes to it (a copy or a move): no state may be read before
    int32_t is_read_later      # the next decode copies from it: no state may be written before

# A sequence's state on the device.
ctypedef struct FakeCopy:
    uint8_t *data              # NULL: none
    size_t n
    uint32_t number            # of the save; an earlier state of the sequence is gone

ctypedef struct FakeModel:
    int32_t n_ctx
    int32_t n_batch
    int32_t n_ubatch
    int32_t n_seqs
    int32_t n_streams_told     # number of streams in states
    int64_t decode_us          # how long a decode takes
    int64_t state_us           # how long saving or restoring a state takes
    int64_t token_us           # how long each of its tokens takes
    int64_t depth_us           # how much longer at position 10,000
    int64_t shape_us           # how much longer the first two decodes with another number of tokens take, as on a GPU
    int32_t n_tokens_last
    int32_t n_same             # decodes in a row with as many tokens
    int32_t is_blocked         # decode waits while set
    int32_t is_waiting         # a decode or a removal waits
    int32_t is_keeping         # seq_rm waits while set
    int32_t fail_code          # the next decodes return this code
    int32_t n_failures         # how many of them
    int32_t fail_media         # the next decode of rows returns this code
    int32_t n_locked           # number of locked states
    int32_t n_page_requests    # for host memory that a device copies to fast,
    int32_t n_page_buffers     # and how many such buffers there are
    int32_t refuses_pages      # there is no more of it
    int32_t fail_seq           # decodes with this sequence return fail_seq_code, counted from 1; 0: none
    int32_t fail_seq_code
    int32_t refuse_above       # a decode with more tokens finds no room; -1: any number fits
    int32_t n_refusals         # so many short decodes after one of prompts find no room
    int32_t is_after_prompts   # the last decode was of prompts
    int32_t lost_adapter       # an adapter that is missing, counted from 1; 0: none
    int32_t fail_row           # the next single row that is requested is NULL
    int32_t fail_rows          # the next request for all rows returns NULL
    int32_t n_rebuild_failures  # so many rebuilds fail
    int32_t can_shift
    int64_t device_us          # how long after a decode the logits arrive
    int64_t t_ready_us
    int32_t n_vocab            # floats of a row
    int64_t t_rows_ns          # time at which the rows were handed out; 0: they were not since the last decode
    int32_t n_idle             # decodes whose idle time is known
    int64_t idle_ns[FAKE_IDLE_MAX]  # times between the rows and the next decode, the last ones
    float adapters             # the adapters of the next decodes; 0: none
    uint64_t n_changes         # changes of adapters
    uint64_t n_decodes
    uint64_t n_refused         # decodes that found no room
    uint64_t n_graphs
    uint64_t n_silent        # decodes without any output
    uint64_t n_rebuilds
    uint64_t n_closed          # adapters that were closed
    int32_t n_threads          # as set_threads() set them; 0: it was not called
    int32_t n_threads_batch
    uint64_t n_copies
    uint64_t n_tokens_decoded
    int32_t n_held_max         # the most tokens of all sequences after a decode
    int32_t n_samplers         # open samplers, to detect leaks
    int32_t is_unified         # a copied sequence shares its cells
    FakeSeq seqs[FAKE_SEQS_MAX]
    FakeCopy copies[FAKE_SEQS_MAX]
    uint32_t last_copy
    int64_t device_bytes       # memory of the device for copies
    FakeCells base             # the cache of all layers, or of those without a window
    FakeCells window           # the cache of layers with a sliding window
    FakeRecurrent recurrent    # the memory of recurrent layers
    uint64_t chaos             # a seed: logits are random numbers that depend on the token and its position; 0: off
    double astray              # the share of places where chaos has another seed, as in a draft model's
    const unsigned char *script
    int32_t n_script
    FakeBatch batch            # the last batch
    FakeSplit split            # its ubatches
    int32_t *base_slots        # cells for its tokens, in the order of the split
    int32_t *window_slots
    int32_t *batch_at          # the position in the script of a token's row
    int32_t *batch_row         # the row of logits of a token; -1: none
    int32_t *batch_arrives     # the order in which that row arrives
    int32_t fail_state         # the next restore fails
    int32_t n_lost             # positions below this have left every sequence's window
    int32_t bad_calls          # how often a caller broke a rule of llama.cpp
    int32_t n_wrong            # ubatches that were computed from wrong or incomplete memory
