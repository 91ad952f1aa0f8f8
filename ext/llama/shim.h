/* What Python sees of llama.cpp beside its own headers: the cold path (loading, logs), with all exceptions caught.
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

/* A context, and everything that is needed to make it again after a failed decode. */
typedef struct llamad_context llamad_context;

typedef struct llamad_load_state {
    int32_t permille;  /* progress; the loading thread writes it atomically */
    int32_t cancel;    /* set to 1 to stop loading */
    int32_t n_threads; /* threads that may rearrange weights */
    int32_t api_only;  /* between special tokens, llama.cpp tokenizes all text: no word cache, no merges here */
} llamad_load_state;

const llamad_table *llamad_llama_table(void);
const char *llamad_last_error(void); /* the last error of this thread */
void llamad_remember_error(const char *what);

/* Opens llama.cpp's backends, once in a process. Whatever touches a device needs them. Returns 0, or -1 if there is none
 * for this CPU. */
int32_t llamad_backends_open(void);

struct llama_model *llamad_model_open(const char *path, struct llama_model_params params, llamad_load_state *state);
/* Opens the vocabulary only: this touches no device and no backend. */
struct llama_model *llamad_vocab_open(const char *path, const struct llama_model_kv_override *overrides, bool api_only);
void llamad_model_close(struct llama_model *model);
llamad_context *llamad_context_open(struct llama_model *model, struct llama_context_params params);
void llamad_context_close(llamad_context *ctx);
struct llama_context *llamad_context_get(llamad_context *ctx);
int32_t llamad_can_shift(llamad_context *ctx);
int32_t llamad_context_rebuild(llamad_context *ctx); /* 0; or an error: no context until a later call works */
/* Gives the context thread pools; call it once, a rebuilt context keeps them. `decode` is for steps of one token,
 * `batch` for all others (NULL: the same pool). Each must have as many threads as the context's parameters say, because
 * ggml reads beyond the end of a smaller pool. Returns 0 or -1. */
int32_t llamad_context_pools(llamad_context *ctx, struct ggml_threadpool_params *decode,
                             struct ggml_threadpool_params *batch);
/* Does what set_threads of the table does. */
void llamad_context_threads(llamad_context *ctx, int32_t n_threads, int32_t n_threads_batch);
/* Sets a control vector: a row of n_embd floats for each layer from the second on, which is added to the layers from
 * `first` to `last`. A rebuilt context keeps it. Returns 0 or an error. */
int32_t llamad_context_control(llamad_context *ctx, const float *rows, int32_t n_rows, int32_t first, int32_t last);
/* Returns the first token from `first` on whose texts differ in two vocabularies, or -1 if there is none. */
int32_t llamad_vocab_difference(const struct llama_vocab *one, const struct llama_vocab *other, int32_t first);
int32_t llamad_has_openmp(void); /* 1: llama.cpp uses OpenMP's threads, which have no poll setting */

/* Embeddings (embed.cpp). The context must have embeddings on; one thread at a time. */
#define LLAMAD_E_REFUSED (-101)    /* llama.cpp would abort on this */
#define LLAMAD_E_NO_ROW (-102)     /* the decode worked, but llama.cpp has no embedding for a text */
#define LLAMAD_E_NO_CONTEXT (-103) /* the last rebuild failed */

/* Decodes `n_texts` token lists, which follow each other in `tokens`, as separate sequences, and empties the KV cache
 * again. `out` gets a row of n_row floats for each text, or for each token if the context does not pool. */
int32_t llamad_embed(llamad_context *ctx, const int32_t *tokens, const int32_t *lengths, int32_t n_texts, int32_t n_row,
                     float *out);
/* The embedding rows of an image or a sound within a text. */
typedef struct llamad_run {
    const float *data;   /* rows of llama_model_n_embd_inp() floats */
    const int32_t *grid; /* as in llamad_rows, with a stride of n; or NULL */
    int32_t first;       /* index in the text */
    int32_t n;
    int32_t n_pos;         /* positions that all rows together take */
    int32_t is_non_causal; /* 1: every row sees all the others */
} llamad_run;
/* Does the same as llamad_embed for one text of n_ids tokens and rows; ids within a run are ignored. The context must
 * have causal attention and a pooling other than "rank". A mean over several decodes counts all tokens and rows. */
int32_t llamad_embed_mixed(llamad_context *ctx, const int32_t *ids, int32_t n_ids, const llamad_run *runs,
                           int32_t n_runs, int32_t n_row, float *out);
/* Sets the adapters for the next texts. Returns 0 or an error. */
int32_t llamad_embed_with(llamad_context *ctx, const llamad_adapter_use *uses, int32_t n);

/* Facts from a GGUF file before it is loaded (gguf.cpp). */
/* Returns 1 if the file has a tensor of this name, 0 if not, or -1 if that is unknown. */
int32_t llamad_gguf_has_tensor(const char *path, const char *name);

/* The shape of a model, and whether a device can look its tokens up. */
typedef struct llamad_gguf_shape {
    int64_t n_layer, n_embd, n_head, n_head_kv, n_ctx_train, n_vocab;
    int64_t n_k, n_v;        /* of one head; 0 if the file does not say */
    int64_t bytes;           /* of all tensors */
    int32_t device_looks_up; /* 1: the device can look tokens up in every input tensor */
} llamad_gguf_shape;
/* Returns 0, or -1 if the file is missing, is one of several files of a model, or has no token embedding table. */
int32_t llamad_gguf_shape_of(const char *path, ggml_backend_dev_t device, llamad_gguf_shape *shape);

/* The memory that a model and a context use on a device, in bytes (memory_use.cpp). If they were loaded without
 * allocation (no_alloc), it is what they would use. */
typedef struct llamad_memory_use {
    ggml_backend_dev_t device; /* NULL: host memory */
    int64_t weights, cache, compute;
    int64_t repacked; /* the part of the weights in a layout of the CPU's own, which their file does not have */
} llamad_memory_use;
/* These return the number of entries, or -1. They write at most n_max of them. */
int32_t llamad_context_memory(llamad_context *ctx, llamad_memory_use *uses, int32_t n_max);
int32_t llamad_projector_memory(const char *path, const llamad_media_params *params, llamad_memory_use *uses,
                                int32_t n_max);
int32_t llamad_model_devices(const struct llama_model *model, ggml_backend_dev_t *devices, int32_t n_max);
int32_t llamad_model_n_expert(const struct llama_model *model);
/* Return the bytes that can be allocated at once on the fullest of the model's devices, and the largest alignment of
 * their buffers. Without devices that is the CPU's. */
int64_t llamad_model_free(const struct llama_model *model);
int64_t llamad_model_alignment(const struct llama_model *model);

/* Adds the devices of an RPC worker to this process (rpc.cpp). Returns their number, or -1 if llama.cpp was built
 * without RPC or threw. llama.cpp aborts if there is no worker at the endpoint. */
int32_t llamad_rpc_add(const char *endpoint);

/* The result of a check of a string array in an untrusted GGUF head (gguf_strings.cpp). */
typedef struct llamad_strings {
    uint64_t end;       /* offset after the last string */
    uint64_t n_longest; /* bytes */
    int64_t unsplit;    /* the first string that is not two words with a space between; -1: none */
    int64_t twice;      /* the first string that repeats an earlier one, if `is_set`; -1: none */
} llamad_strings;
/* Checks the n strings at offset `at`. Returns 0, -1 if they reach beyond n_bytes, or -2 if memory ran out. */
int32_t llamad_gguf_strings(const uint8_t *data, uint64_t n_bytes, uint64_t at, uint64_t n, int32_t is_set,
                            llamad_strings *strings);

/* llamad_tokenize: the table's tokenize(), or with `whole` llama.cpp's own for the whole text at once.
 * llamad_knows_words: whether texts of this vocabulary are tokenized word by word (words.cpp). llamad_knows_merges:
 * whether its merges have been read. llamad_words_asked: how many bytes of this thread's last text went to
 * llama.cpp. */
int32_t llamad_tokenize(const struct llama_vocab *vocab, const char *text, int32_t n_text, int32_t *tokens,
                        int32_t n_max, bool add_special, bool parse_special, bool whole);
int32_t llamad_knows_words(const struct llama_vocab *vocab);
int32_t llamad_knows_merges(const struct llama_vocab *vocab);
int64_t llamad_words_asked(void);

/* Writes [1,0.5,...] and returns its length. `out` needs LLAMAD_FLOAT_CHARS for each value and two more bytes. */
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
