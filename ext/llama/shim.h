/* What Python sees of llama.cpp beside its own headers: the cold path (loading, logs) with exceptions caught.
 *
 * Owns: the C side of `llamad._llama`. Called from Python threads; the hot path goes through function_table.h instead.
 */
#ifndef LLAMAD_SHIM_H
#define LLAMAD_SHIM_H

#include "adapters.h"
#include "function_table.h"
#include "ggml-rpc.h"
#include "llama.h"
#include "media.h"
#include "mtmd.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A context and what is needed to make it again after a failed decode. */
typedef struct llamad_context llamad_context;

typedef struct llamad_load_state {
    int32_t permille;  /* of the loading; written by the loading thread, atomically */
    int32_t cancel;    /* set to 1 to stop loading */
    int32_t n_threads; /* that may rearrange weights */
    int32_t api_only;  /* llama.cpp alone tokenizes what lies between special tokens: no words and merges of our own */
} llamad_load_state;

const llamad_table *llamad_llama_table(void);
const char *llamad_last_error(void); /* of this thread */
void llamad_remember_error(const char *what);

struct llama_model *llamad_model_open(const char *path, struct llama_model_params params, llamad_load_state *state);
/* The vocabulary alone: touches no device and no backend. */
struct llama_model *llamad_vocab_open(const char *path, const struct llama_model_kv_override *overrides, bool api_only);
void llamad_model_close(struct llama_model *model);
llamad_context *llamad_context_open(struct llama_model *model, struct llama_context_params params);
void llamad_context_close(llamad_context *ctx);
struct llama_context *llamad_context_get(llamad_context *ctx);
int32_t llamad_can_shift(llamad_context *ctx);
int32_t llamad_context_rebuild(llamad_context *ctx); /* 0, or there is no context until it works again */
/* Gives it thread pools, once; a rebuilt one too. `decode` serves steps of one token, `batch` all others (NULL: the same
 * pool). Each must have the threads that the context's parameters name: ggml reads beyond a smaller one. 0 or -1. */
int32_t llamad_context_pools(llamad_context *ctx, struct ggml_threadpool_params *decode,
                             struct ggml_threadpool_params *batch);
/* A control vector: rows of n_embd floats, one for each layer from the second on, added to the layers from `first` to
 * `last`. A rebuilt context has it too. 0 or an error. */
int32_t llamad_context_control(llamad_context *ctx, const float *rows, int32_t n_rows, int32_t first, int32_t last);
int32_t llamad_has_openmp(void); /* whose threads know no polling */

/* Vectors (embed.cpp). A context with embeddings on, one thread. */
#define LLAMAD_E_REFUSED (-101)    /* llama.cpp would abort on this */
#define LLAMAD_E_NO_ROW (-102)     /* decoded, but llama.cpp has no vector for a text */
#define LLAMAD_E_NO_CONTEXT (-103) /* the last rebuild failed */

/* Decode `n_texts` token lists, one behind the other, as sequences of their own, and empty the memory again. `out`
 * takes a row of n_row floats for each text, or for each token where the context does not pool. */
int32_t llamad_embed(llamad_context *ctx, const int32_t *tokens, const int32_t *lengths, int32_t n_texts, int32_t n_row,
                     float *out);
/* Rows of an image or a sound within a text. */
typedef struct llamad_run {
    const float *data;   /* of llama_model_n_embd_inp() each */
    const int32_t *grid; /* as in llamad_rows, y after n numbers; or NULL */
    int32_t first;       /* index in the text */
    int32_t n;
    int32_t n_pos;         /* positions that all of them take */
    int32_t is_non_causal; /* they see each other */
} llamad_run;
/* As llamad_embed for one text of n_ids tokens and rows; ids within a run are not looked at. Only contexts with causal
 * attention, and not the pooling "rank"; of several decodes a mean is that of all tokens and rows. */
int32_t llamad_embed_mixed(llamad_context *ctx, const int32_t *ids, int32_t n_ids, const llamad_run *runs,
                           int32_t n_runs, int32_t n_row, float *out);
/* What the next texts are computed with. 0, or an error. */
int32_t llamad_embed_with(llamad_context *ctx, const llamad_adapter_use *uses, int32_t n);

/* What a GGUF file tells before it is loaded (gguf.cpp). */
/* Whether it holds a tensor of this name: 1, 0, or -1 where it cannot be told. */
int32_t llamad_gguf_has_tensor(const char *path, const char *name);

/* The shape of a whole model, and whether a device could look its tokens up. */
typedef struct llamad_gguf_shape {
    int64_t n_layer, n_embd, n_head, n_head_kv, n_ctx_train, n_vocab;
    int64_t n_k, n_v;        /* of one head; 0 where the file does not say */
    int64_t bytes;           /* of all tensors */
    int32_t device_looks_up; /* the device can take rows out of every tensor that tokens are looked up in */
} llamad_gguf_shape;
/* 0, or -1 where it cannot be told: no such file, a part of a model, or one without a table of tokens. */
int32_t llamad_gguf_shape_of(const char *path, ggml_backend_dev_t device, llamad_gguf_shape *shape);

/* What a model and a context take of a device's memory, in bytes (memory_use.cpp). Without allocation (no_alloc) it is
 * what they would take. */
typedef struct llamad_memory_use {
    ggml_backend_dev_t device; /* NULL: host memory */
    int64_t weights, cache, compute;
} llamad_memory_use;
/* These return the number of entries, of which at most n_max are written, or -1. */
int32_t llamad_context_memory(llamad_context *ctx, llamad_memory_use *uses, int32_t n_max);
int32_t llamad_projector_memory(const char *path, const llamad_media_params *params, llamad_memory_use *uses,
                                int32_t n_max);
int32_t llamad_model_devices(const struct llama_model *model, ggml_backend_dev_t *devices, int32_t n_max);
int32_t llamad_model_n_expert(const struct llama_model *model);

/* Adds the devices of an RPC worker to this process's (rpc.cpp). llama.cpp aborts if there is no worker. Their number, or
 * -1: this llama.cpp was built without RPC, or it threw. */
int32_t llamad_rpc_add(const char *endpoint);

/* An array of strings in an untrusted head (gguf_strings.cpp). */
typedef struct llamad_strings {
    uint64_t end;       /* behind the last one */
    uint64_t n_longest; /* bytes */
    int64_t unsplit;    /* the first one that is no two words with a space between; -1: none */
    int64_t twice;      /* the first one that came before, where they should be different; -1: none */
} llamad_strings;
/* The n strings at `at`. 0; -1 where they are not within n_bytes; -2 without memory. */
int32_t llamad_gguf_strings(const uint8_t *data, uint64_t n_bytes, uint64_t at, uint64_t n, int32_t is_set,
                            llamad_strings *found);

/* The table's tokenize(), or llama.cpp's for the whole text at once; whether they differ (words.cpp); whether the
 * vocabulary's merges have been read; and for how many bytes of this thread's last text llama.cpp was asked. */
int32_t llamad_tokenize(const struct llama_vocab *vocab, const char *text, int32_t n_text, int32_t *tokens,
                        int32_t n_max, bool add_special, bool parse_special, bool whole);
int32_t llamad_knows_words(const struct llama_vocab *vocab);
int32_t llamad_knows_merges(const struct llama_vocab *vocab);
int64_t llamad_words_asked(void);

/* Writes [1,0.5,...] and returns its length; `out` has LLAMAD_FLOAT_CHARS for each value and two more. */
#define LLAMAD_FLOAT_CHARS 16
int64_t llamad_floats_json(const float *values, int64_t n, char *out);

/* The log ring. Callbacks of any thread write lines into it; one reader drains it. */
void llamad_log_open(int32_t event_fd); /* event_fd: an eventfd that becomes readable when a line waits; -1: none */
int32_t llamad_log_read(char *buf, int32_t n_buf, int32_t *level); /* bytes of the next line, -1 when empty */
int64_t llamad_log_dropped(void);

#ifdef __cplusplus
}
#endif
#endif
