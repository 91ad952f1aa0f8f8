# The table of function pointers for Cython. Declarations only; ext/llama/function_table.h describes each function.
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint32_t

cdef extern from "llama/function_table.h" nogil:
    enum:
        LLAMAD_TABLE_VERSION
        LLAMAD_E_THROWN
        LLAMAD_STATE_PARTIAL
        LLAMAD_STATE_ON_DEVICE
        LLAMAD_TOKENIZE_STOPPED
        LLAMAD_TOKENIZE_TOO_MANY
        LLAMAD_SAMPLERS_MAX
        LLAMAD_SAMPLER_PENALTIES
        LLAMAD_SAMPLER_DRY
        LLAMAD_SAMPLER_TOP_N_SIGMA
        LLAMAD_SAMPLER_TOP_K
        LLAMAD_SAMPLER_TYPICAL
        LLAMAD_SAMPLER_TOP_P
        LLAMAD_SAMPLER_MIN_P
        LLAMAD_SAMPLER_XTC
        LLAMAD_SAMPLER_TEMPERATURE
        LLAMAD_SAMPLER_TFS_Z
        LLAMAD_SAMPLER_INFILL
        LLAMAD_SAMPLER_ADAPTIVE_P

    ctypedef struct llamad_rows:
        const float *data
        const int32_t *grid
        int32_t stride
        int32_t n
        int32_t pos
        int32_t seq
        int32_t output
        int32_t is_non_causal

    ctypedef struct llamad_tokenize_limits:
        const int32_t *is_stopped
        int32_t n_tokens_max

    ctypedef struct llamad_batch:
        int32_t n_tokens
        int32_t *token
        int32_t *pos
        int32_t *n_seq_id
        int32_t **seq_id
        int8_t *output

    ctypedef struct llamad_adapter_use:
        int32_t id
        float scale

    ctypedef struct llamad_bias:
        int32_t token
        float bias

    ctypedef struct llamad_candidate:
        int32_t id
        float logit
        float p

    ctypedef struct llamad_sampling:
        uint32_t seed
        int32_t top_k
        float top_p
        float min_p
        float typical_p
        float tfs_z
        float top_n_sigma
        float temperature
        float dynatemp_range
        float dynatemp_exponent
        float xtc_probability
        float xtc_threshold
        int32_t repeat_last_n
        float repeat_penalty
        float presence_penalty
        float frequency_penalty
        float dry_multiplier
        float dry_base
        int32_t dry_allowed_length
        int32_t dry_penalty_last_n
        int32_t mirostat
        float mirostat_tau
        float mirostat_eta
        int32_t min_keep
        int32_t penalize_nl
        int32_t newline_token
        int32_t end_token
        float adaptive_target
        float adaptive_decay
        int32_t n_samplers
        uint8_t samplers[33]

    ctypedef struct llamad_table:
        uint32_t version
        uint32_t size
        int32_t (*decode)(void *ctx, const llamad_batch *batch) noexcept nogil
        int32_t (*decode_rows)(void *ctx, const llamad_rows *rows) noexcept nogil
        float *(*logits)(void *ctx, int32_t i_batch) noexcept nogil
        float *(*rows)(void *ctx) noexcept nogil
        int32_t (*rebuild)(void *ctx) noexcept nogil
        int32_t (*set_adapters)(void *ctx, const llamad_adapter_use *uses, int32_t n) noexcept nogil
        void (*close_adapter)(void *ctx, int32_t id) noexcept nogil
        void (*set_threads)(void *ctx, int32_t n_threads, int32_t n_threads_batch) noexcept nogil
        int32_t (*seq_rm)(void *ctx, int32_t seq, int32_t p0, int32_t p1) noexcept nogil
        int32_t (*seq_add)(void *ctx, int32_t seq, int32_t p0, int32_t p1, int32_t delta) noexcept nogil
        int32_t (*seq_div)(void *ctx, int32_t seq, int32_t p0, int32_t p1, int32_t divisor) noexcept nogil
        int32_t (*seq_cp)(void *ctx, int32_t src, int32_t dst, int32_t p0, int32_t p1) noexcept nogil
        int32_t (*seq_pos_min)(void *ctx, int32_t seq) noexcept nogil
        int32_t (*can_shift)(void *ctx) noexcept nogil
        size_t (*state_size)(void *ctx, int32_t seq, int32_t flags) noexcept nogil
        size_t (*state_get)(void *ctx, int32_t seq, uint8_t *data, size_t n, int32_t flags) noexcept nogil
        size_t (*state_set)(void *ctx, int32_t seq, const uint8_t *data, size_t n, int32_t flags) noexcept nogil
        int64_t (*device_free)(void *ctx) noexcept nogil
        int32_t (*lock_pages)(void *ctx, uint8_t *data, size_t n) noexcept nogil
        void (*unlock_pages)(void *ctx, uint8_t *data) noexcept nogil
        uint8_t *(*alloc_pages)(void *ctx, size_t n, void **buffer) noexcept nogil
        void (*free_pages)(void *ctx, void *buffer) noexcept nogil
        int32_t (*tokenize)(const void *vocab, const char *text, int32_t n_text, int32_t *tokens, int32_t n_max,
                            int32_t add_special, int32_t parse_special,
                            const llamad_tokenize_limits *limits) noexcept nogil
        int32_t (*piece)(const void *vocab, int32_t token, char *buf, int32_t n_buf, int32_t special) noexcept nogil
        int32_t (*detokenize)(const void *vocab, const int32_t *tokens, int32_t n_tokens, char *text, int32_t n_max,
                              int32_t remove_special, int32_t unparse_special) noexcept nogil
        int32_t (*is_eog)(const void *vocab, int32_t token) noexcept nogil
        void *(*sampler_open)(const void *vocab, const llamad_sampling *sampling, const llamad_bias *bias,
                              int32_t n_bias, const char *breakers, int32_t n_breakers) noexcept nogil
        void (*sampler_accept)(void *sampler, int32_t token) noexcept nogil
        int32_t (*sampler_sample)(void *sampler, const float *logits, int32_t n_vocab, void *scratch,
                                  llamad_candidate **data, int32_t *n) noexcept nogil
        void (*sampler_close)(void *sampler) noexcept nogil
        void (*sort)(llamad_candidate *data, int32_t n) noexcept nogil
        void (*sort_front)(llamad_candidate *data, int32_t n, int32_t k) noexcept nogil
        void (*order)(const float *scores, int32_t *order, int32_t n) noexcept nogil
