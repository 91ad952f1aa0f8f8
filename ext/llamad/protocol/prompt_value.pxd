# What a cached prompt is worth: the one function that decides which prompts stay, in slots, in host memory and on disk.
from libc.stdint cimport int32_t, uint64_t

# The seconds after which a client means to come back, as far as its request says; what it says about a prompt.
cdef enum:
    RETENTION_ONCE = -1      # it will not use the prompt again
    RETENTION_UNKNOWN = 0
    OWNERS_MAX = 256

ctypedef struct PromptUse:
    int32_t n_end            # tokens from the prompt's beginning to the end of this entry
    int32_t n_tokens         # how many of them the entry itself has; the others are in entries that it needs
    double n_bytes
    double idle_s            # seconds since its last use
    int32_t n_returns        # how often its conversation went on
    int32_t retention_s
    int32_t is_named         # the client names its conversation
    int32_t is_superseded    # other entries make it unnecessary in most cases

# What each owner has of those entries whose clients have said something about them.
ctypedef struct HintShares:
    uint64_t owners[OWNERS_MAX]
    double hinted[OWNERS_MAX]
    int32_t n

cdef double prompt_value(const PromptUse *use) noexcept nogil
cdef void shares_add(HintShares *shares, uint64_t owner, double n_hinted) noexcept nogil
cdef int shares_allow(const HintShares *shares, uint64_t owner, double n_max) noexcept nogil
