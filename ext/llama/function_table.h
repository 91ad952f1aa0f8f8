/* The one table of function pointers through which compiled code reaches llama.cpp.
 *
 * Owns: the layout of the table and of the structs that are passed through it. The cffi module `llamad._llama` fills it
 * from the real headers (shim.cpp); the fake model in ext/llamad/engine/testing/fake.pyx fills another one for tests.
 * Any thread may read it. It must not mention a llama.cpp type: the engine is compiled without its headers.
 *
 * No function here lets a C++ exception out. Functions that can fail return one of the codes below.
 */
#ifndef LLAMAD_FUNCTION_TABLE_H
#define LLAMAD_FUNCTION_TABLE_H

#include <stddef.h>
#include <stdint.h>

#define LLAMAD_TABLE_VERSION 13

/* decode(): llama.cpp's own codes are 0 (done), 1 (no room), 2 (aborted) and negative ones. */
#define LLAMAD_E_THROWN (-1000) /* a C++ exception was caught; llamad_last_error() has its text */

/* Flags of states. Their numbers are llama.cpp's. */
#define LLAMAD_STATE_PARTIAL 1   /* only what cannot be truncated: a recurrent state or a sliding window */
#define LLAMAD_STATE_ON_DEVICE 2 /* the data stays on the devices; the bytes only describe it */

/* tokenize() returns these when it gave up a text. No token count comes near them. */
#define LLAMAD_TOKENIZE_STOPPED (INT32_MIN + 1)
#define LLAMAD_TOKENIZE_TOO_MANY (INT32_MIN + 2)

#define LLAMAD_SAMPLERS_MAX 33 /* 32 that a request may name, and the penalties before them */

typedef struct llamad_batch {
    int32_t n_tokens;
    int32_t *token;
    int32_t *pos;
    int32_t *n_seq_id; /* always 1 for each token: 0 crashes llama.cpp */
    int32_t **seq_id;
    int8_t *output;
} llamad_batch;

typedef struct llamad_rows {
    const float *data;
    const int32_t *grid; /* positions relative to `pos`: t of each row; y after `stride` numbers, then x. NULL: the rows
                            have consecutive positions */
    int32_t stride;
    int32_t n;
    int32_t pos;
    int32_t seq;
    int32_t output;        /* 1: the last row has an output */
    int32_t is_non_causal; /* 1: every row sees all the others */
} llamad_rows;

/* When to give a text up. A long text is checked between its parts, never within a part. */
typedef struct llamad_tokenize_limits {
    const int32_t *is_stopped; /* another thread sets it to 1 when nobody needs the tokens any more; may be NULL */
    int32_t n_tokens_max;      /* give up a text with more tokens; 0: no limit */
} llamad_tokenize_limits;

typedef struct llamad_adapter_use {
    int32_t id;
    float scale;
} llamad_adapter_use;

typedef struct llamad_bias {
    int32_t token;
    float bias;
} llamad_bias;

typedef struct llamad_candidate { /* the layout of llama_token_data */
    int32_t id;
    float logit;
    float p;
} llamad_candidate;

/* Kinds of samplers. The numbers cross the command ring. */
enum llamad_sampler_kind {
    LLAMAD_SAMPLER_PENALTIES = 1,
    LLAMAD_SAMPLER_DRY = 2,
    LLAMAD_SAMPLER_TOP_N_SIGMA = 3,
    LLAMAD_SAMPLER_TOP_K = 4,
    LLAMAD_SAMPLER_TYPICAL = 5,
    LLAMAD_SAMPLER_TOP_P = 6,
    LLAMAD_SAMPLER_MIN_P = 7,
    LLAMAD_SAMPLER_XTC = 8,
    LLAMAD_SAMPLER_TEMPERATURE = 9,
    LLAMAD_SAMPLER_TFS_Z = 10,
    LLAMAD_SAMPLER_INFILL = 11,
    LLAMAD_SAMPLER_ADAPTIVE_P = 12 /* draws the token, whatever its place in the list */
};

/* Everything that decides the next token, given logits and history. Plain data: it is copied through the ring. */
typedef struct llamad_sampling {
    uint32_t seed;
    int32_t top_k;
    float top_p;
    float min_p;
    float typical_p;
    float tfs_z;
    float top_n_sigma;
    float temperature;
    float dynatemp_range;
    float dynatemp_exponent;
    float xtc_probability;
    float xtc_threshold;
    int32_t repeat_last_n;
    float repeat_penalty;
    float presence_penalty;
    float frequency_penalty;
    float dry_multiplier;
    float dry_base;
    int32_t dry_allowed_length;
    int32_t dry_penalty_last_n;
    int32_t mirostat;
    float mirostat_tau;
    float mirostat_eta;
    int32_t min_keep;
    int32_t penalize_nl;   /* 0: penalties leave the newline token alone */
    int32_t newline_token; /* -1: none */
    int32_t end_token;     /* the token that the infill sampler ends a text with; -1: none */
    float adaptive_target; /* below 0: no target, any probability is accepted */
    float adaptive_decay;
    int32_t n_samplers;
    uint8_t samplers[LLAMAD_SAMPLERS_MAX];
} llamad_sampling;

typedef struct llamad_table {
    uint32_t version;
    uint32_t size; /* sizeof(llamad_table), so that a stale build is noticed */

    /* The context. `ctx` is the handle from llamad_context_open. One thread at a time. */
    int32_t (*decode)(void *ctx, const llamad_batch *batch);
    /* Decodes rows of embeddings instead of tokens, for one sequence. */
    int32_t (*decode_rows)(void *ctx, const llamad_rows *rows);
    float *(*logits)(void *ctx, int32_t i_batch); /* waits for the device; NULL if that token had no output */
    float *(*rows)(void *ctx);                    /* waits too: the logits of all outputs, in batch order; or NULL */
    int32_t (*rebuild)(void *ctx);                /* makes a new context with the same parameters; 0 or an error */
    /* Sets the adapters for the next decodes: numbers (adapters.h) with a scale each. Returns 0 or an error. Setting
     * the same ones again costs nothing; others make llama.cpp build a new graph. */
    int32_t (*set_adapters)(void *ctx, const llamad_adapter_use *uses, int32_t n);
    void (*close_adapter)(void *ctx, int32_t id); /* call between two decodes */
    /* Sets the threads for steps of one token, and for all others; 0 changes nothing. A context with thread pools uses
     * no more than their threads. */
    void (*set_threads)(void *ctx, int32_t n_threads, int32_t n_threads_batch);

    /* The KV cache of that context. Positions below 0 mean "from the start" / "to the end". */
    int32_t (*seq_rm)(void *ctx, int32_t seq, int32_t p0, int32_t p1); /* 1: done; 0: refused, nothing changed */
    int32_t (*seq_add)(void *ctx, int32_t seq, int32_t p0, int32_t p1, int32_t delta);
    int32_t (*seq_div)(void *ctx, int32_t seq, int32_t p0, int32_t p1, int32_t divisor);
    /* Copies the positions of src from p0 to p1 - 1 to dst, which must be empty. Between streams llama.cpp copies the
     * data at the next decode, and aborts on a range. In a unified cache it marks cells, so there dst may hold other
     * positions. */
    int32_t (*seq_cp)(void *ctx, int32_t src, int32_t dst, int32_t p0, int32_t p1);
    int32_t (*seq_pos_min)(void *ctx, int32_t seq);
    int32_t (*can_shift)(void *ctx);
    /* A sequence as bytes. Work that seq_cp and seq_add left for the next decode must be flushed before. state_get
     * returns the bytes written, or 0 on an error. state_set returns the bytes read, or 0 on an error; then the
     * sequence may hold anything and must be removed. A partial state is restored into a sequence whose first tokens are
     * still those of the state, and a seq_rm of everything after them must follow.
     *
     * On the devices the context has one state of each sequence: the last one that was saved with that flag. Any
     * sequence can be restored from it, but an earlier state of the same sequence aborts the process. So does a lack of
     * memory, and a memory with quantized rows (kv/device_copies.pyx). */
    size_t (*state_size)(void *ctx, int32_t seq, int32_t flags);
    size_t (*state_get)(void *ctx, int32_t seq, uint8_t *data, size_t n, int32_t flags);
    size_t (*state_set)(void *ctx, int32_t seq, const uint8_t *data, size_t n, int32_t flags);
    /* Returns the bytes that can be allocated at once on the model's fullest device. It may take a millisecond. */
    int64_t (*device_free)(void *ctx);
    /* Locks pages that state_set will read, because a device reads locked pages faster. Returns 1, or 0 if they cannot
     * be locked. Nothing may write to them until they are unlocked, and they must be unlocked before they are freed. */
    int32_t (*lock_pages)(void *ctx, uint8_t *data, size_t n);
    void (*unlock_pages)(void *ctx, uint8_t *data);
    /* Allocates host memory from which and to which a device copies at full speed. It may take 0.3 ms for each MB. Returns
     * NULL if the KV cache is on no device with such memory, or if there is not enough. `buffer` becomes what free_pages
     * needs. */
    uint8_t *(*alloc_pages)(void *ctx, size_t n, void **buffer);
    void (*free_pages)(void *ctx, void *buffer);

    /* The vocabulary: constant, any thread. tokenize returns the number of tokens, -n if n_max is less than n,
     * INT32_MIN on an error, or one of the codes above; `limits` may be NULL. */
    int32_t (*tokenize)(const void *vocab, const char *text, int32_t n_text, int32_t *tokens, int32_t n_max,
                        int32_t add_special, int32_t parse_special, const llamad_tokenize_limits *limits);
    int32_t (*piece)(const void *vocab, int32_t token, char *buf, int32_t n_buf, int32_t special);
    int32_t (*detokenize)(const void *vocab, const int32_t *tokens, int32_t n_tokens, char *text, int32_t n_max,
                          int32_t remove_special, int32_t unparse_special);
    int32_t (*is_eog)(const void *vocab, int32_t token);

    /* A sampler chain of llama.cpp. `breakers` are n_breakers NUL-terminated strings laid end to end. */
    void *(*sampler_open)(const void *vocab, const llamad_sampling *sampling, const llamad_bias *bias, int32_t n_bias,
                          const char *breakers, int32_t n_breakers);
    void (*sampler_accept)(void *sampler, int32_t token);
    /* Samples a token from the row, without accepting it. `scratch` has room for n_vocab candidates; `data` and `n`
     * become the candidates that were left for the draw. A negative result is an error code. */
    int32_t (*sampler_sample)(void *sampler, const float *logits, int32_t n_vocab, void *scratch,
                              llamad_candidate **data, int32_t *n);
    void (*sampler_close)(void *sampler);
    /* The sorts of llama.cpp's C++ library, so that equal values end up in the same order. sort: by falling logit, with
     * a NaN as -inf. sort_front: the k largest go to the front, the largest first. order: sorts the indices in `order`
     * (0 to n - 1 before the call) by rising score. */
    void (*sort)(llamad_candidate *data, int32_t n);
    void (*sort_front)(llamad_candidate *data, int32_t n, int32_t k);
    void (*order)(const float *scores, int32_t *order, int32_t n);
} llamad_table;

#endif
