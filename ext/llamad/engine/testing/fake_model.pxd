# The fake's state: a model of bytes over memories such as llama.cpp has. Data alone.
from libc.stdint cimport int32_t, int64_t, uint64_t

from llamad.engine.testing.fake_cells cimport FakeCells
from llamad.engine.testing.fake_owners cimport FAKE_SEQS_MAX
from llamad.engine.testing.fake_recurrent cimport FakeRecurrent
from llamad.engine.testing.fake_split cimport FakeBatch, FakeSplit

cdef enum:
    FAKE_VOCAB = 259       # BOS, EOS, UNK, then the 256 bytes
    FAKE_ROW = -2          # the token of a cell that holds a row of embeddings

ctypedef struct FakeSeq:
    int32_t n_outputs          # since its last token was cut off: where its script stands
    int32_t n_told             # tokens up to the last one with an output
    int32_t is_written_later   # by a copy or a move that the next decode does: no state may be read before
    int32_t is_read_later      # by such a copy: none may be written

ctypedef struct FakeModel:
    int32_t n_ctx
    int32_t n_batch
    int32_t n_ubatch
    int32_t n_seqs
    int32_t n_streams_told     # in states
    int64_t decode_us          # how long a decode takes
    int64_t token_us           # and each of its tokens
    int32_t is_blocked         # decode waits while set
    int32_t is_waiting         # it does
    int32_t fail_code          # the next decodes return it,
    int32_t n_failures         # so many
    int32_t fail_media         # the next decode of rows returns it
    int32_t n_locked           # pages of states
    int32_t fail_seq           # decodes with this sequence return fail_seq_code, counted from 1; 0: none
    int32_t fail_seq_code
    int32_t refuse_above       # more tokens than these find no room; -1: any number fits
    int32_t n_refusals         # short decodes behind one of prompts that find no room
    int32_t is_after_prompts   # the last decode was of prompts
    int32_t lost_adapter       # is not there, counted from 1; 0: none
    int32_t fail_row           # the next row asked for by itself is NULL
    int32_t fail_rows          # all rows are, the next time
    int32_t n_rebuild_failures  # so many rebuilds fail first
    int32_t can_shift
    int64_t device_us          # and how long after it the logits are there
    int64_t t_ready_us
    float adapters             # what the next decodes compute with; 0: none
    uint64_t n_changes         # of them
    uint64_t n_decodes
    uint64_t n_refused         # decodes that found no room
    uint64_t n_graphs
    uint64_t n_silent        # decodes without any output
    uint64_t n_rebuilds
    uint64_t n_closed          # adapters
    uint64_t n_copies
    int32_t n_held_max         # tokens of all sequences after a decode, at most
    int32_t n_samplers         # open ones: a leak shows here
    int32_t is_unified         # a copied sequence shares its cells
    FakeSeq seqs[FAKE_SEQS_MAX]
    FakeCells base             # of all layers, or of those without a window
    FakeCells window           # of layers with a sliding window
    FakeRecurrent recurrent    # of recurrent layers
    const unsigned char *script
    int32_t n_script
    FakeBatch batch            # the last one
    FakeSplit split            # of it
    int32_t *base_slots        # cells for its tokens, in the order of the split
    int32_t *window_slots
    int32_t *batch_at          # where in the script a token's row stands
    int32_t *batch_row         # which row of logits is a token's; -1: none
    int32_t *batch_arrives     # and as which it comes
    int32_t fail_state         # the next restore fails
    int32_t n_lost             # positions below it have left every sequence's window
    int32_t bad_calls          # rules of llama.cpp that a caller broke
    int32_t n_wrong            # ubatches that a sequence computed from a memory that is not its own, or not all of it
