/* What cffi declares to Python of llama.cpp. Structs end in `...`, so the compiler takes layouts from the real headers
   and a changed name or signature fails the build. The functions of llamad follow from adapters.h, media.h and shim.h. */

typedef int32_t llama_token;
typedef int32_t llama_pos;
typedef int32_t llama_seq_id;
typedef struct ggml_backend_device *ggml_backend_dev_t;
typedef struct ggml_backend_buffer_type *ggml_backend_buffer_type_t;

typedef struct llama_memory_i *llama_memory_t;
struct llama_model;
struct llama_vocab;
struct llama_context;

enum llama_model_kv_override_type {
    LLAMA_KV_OVERRIDE_TYPE_INT, LLAMA_KV_OVERRIDE_TYPE_FLOAT, LLAMA_KV_OVERRIDE_TYPE_BOOL,
    LLAMA_KV_OVERRIDE_TYPE_STR, ...
};
enum llama_split_mode { LLAMA_SPLIT_MODE_NONE, LLAMA_SPLIT_MODE_LAYER, LLAMA_SPLIT_MODE_ROW, LLAMA_SPLIT_MODE_TENSOR, ... };
enum llama_load_mode {
    LLAMA_LOAD_MODE_AUTO, LLAMA_LOAD_MODE_NONE, LLAMA_LOAD_MODE_MMAP, LLAMA_LOAD_MODE_MLOCK,
    LLAMA_LOAD_MODE_MMAP_MLOCK, LLAMA_LOAD_MODE_DIRECT_IO, ...
};
enum llama_lazy_mode { LLAMA_LAZY_MODE_OFF, LLAMA_LAZY_MODE_AUTO, LLAMA_LAZY_MODE_ON, ... };
enum llama_rope_scaling_type {
    LLAMA_ROPE_SCALING_TYPE_UNSPECIFIED, LLAMA_ROPE_SCALING_TYPE_NONE, LLAMA_ROPE_SCALING_TYPE_LINEAR,
    LLAMA_ROPE_SCALING_TYPE_YARN, ...
};
enum llama_pooling_type {
    LLAMA_POOLING_TYPE_UNSPECIFIED, LLAMA_POOLING_TYPE_NONE, LLAMA_POOLING_TYPE_MEAN, LLAMA_POOLING_TYPE_CLS,
    LLAMA_POOLING_TYPE_LAST, LLAMA_POOLING_TYPE_RANK, ...
};
enum llama_rope_type { LLAMA_ROPE_TYPE_NONE, ... };
enum llama_attention_type {
    LLAMA_ATTENTION_TYPE_UNSPECIFIED, LLAMA_ATTENTION_TYPE_CAUSAL, LLAMA_ATTENTION_TYPE_NON_CAUSAL, ...
};
enum llama_flash_attn_type {
    LLAMA_FLASH_ATTN_TYPE_AUTO, LLAMA_FLASH_ATTN_TYPE_DISABLED, LLAMA_FLASH_ATTN_TYPE_ENABLED, ...
};
enum llama_ftype { LLAMA_FTYPE_ALL_F32, LLAMA_FTYPE_GUESSED, ... };
enum llama_vocab_type { LLAMA_VOCAB_TYPE_NONE, LLAMA_VOCAB_TYPE_SPM, LLAMA_VOCAB_TYPE_BPE, LLAMA_VOCAB_TYPE_WPM, ... };
enum ggml_type {
    GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_Q4_0, GGML_TYPE_Q4_1, GGML_TYPE_Q5_0, GGML_TYPE_Q5_1, GGML_TYPE_Q8_0,
    GGML_TYPE_IQ4_NL, GGML_TYPE_BF16, GGML_TYPE_I8, GGML_TYPE_I16, GGML_TYPE_I32, GGML_TYPE_I64, GGML_TYPE_F64,
    GGML_TYPE_COUNT, ...
};
enum ggml_numa_strategy {
    GGML_NUMA_STRATEGY_DISABLED, GGML_NUMA_STRATEGY_DISTRIBUTE, GGML_NUMA_STRATEGY_ISOLATE,
    GGML_NUMA_STRATEGY_NUMACTL, ...
};
enum ggml_backend_dev_type {
    GGML_BACKEND_DEVICE_TYPE_CPU, GGML_BACKEND_DEVICE_TYPE_GPU, GGML_BACKEND_DEVICE_TYPE_IGPU,
    GGML_BACKEND_DEVICE_TYPE_ACCEL, ...
};

enum ggml_sched_priority { GGML_SCHED_PRIO_NORMAL, ... };
struct ggml_threadpool_params {
    bool cpumask[...];
    int n_threads;
    enum ggml_sched_priority prio;
    uint32_t poll;
    bool strict_cpu;
    bool paused;
    ...;
};

struct llama_model_kv_override {
    enum llama_model_kv_override_type tag;
    char key[128];
    union { int64_t val_i64; double val_f64; bool val_bool; char val_str[128]; };
    ...;
};
struct llama_model_tensor_buft_override {
    const char *pattern;
    ggml_backend_buffer_type_t buft;
};
struct llama_model_params {
    ggml_backend_dev_t *devices;
    int32_t n_gpu_layers;
    enum llama_split_mode split_mode;
    enum llama_load_mode load_mode;
    int32_t main_gpu;
    const float *tensor_split;
    const struct llama_model_tensor_buft_override *tensor_buft_overrides;
    const struct llama_model_kv_override *kv_overrides;
    enum llama_lazy_mode lazy_mode;
    bool vocab_only;
    bool check_tensors;
    bool use_extra_bufts;
    bool no_host;
    bool no_alloc;
    ...;
};
struct llama_context_params {
    uint32_t n_ctx;
    uint32_t n_batch;
    uint32_t n_ubatch;
    uint32_t n_seq_max;
    uint32_t n_rs_seq;
    uint32_t n_outputs_max;
    int32_t n_threads;
    int32_t n_threads_batch;
    enum llama_rope_scaling_type rope_scaling_type;
    enum llama_pooling_type pooling_type;
    enum llama_attention_type attention_type;
    enum llama_flash_attn_type flash_attn_type;
    float rope_freq_base;
    float rope_freq_scale;
    float yarn_ext_factor;
    float yarn_attn_factor;
    float yarn_beta_fast;
    float yarn_beta_slow;
    uint32_t yarn_orig_ctx;
    enum ggml_type type_k;
    enum ggml_type type_v;
    bool embeddings;
    bool offload_kqv;
    bool no_perf;
    bool op_offload;
    bool swa_full;
    bool kv_unified;
    ...;
};

void llama_numa_init(enum ggml_numa_strategy numa);
size_t llama_max_devices(void);
size_t llama_max_parallel_sequences(void);
bool llama_supports_gpu_offload(void);
const char *llama_print_system_info(void);
struct llama_model_params llama_model_default_params(void);
struct llama_context_params llama_context_default_params(void);

llama_memory_t llama_get_memory(const struct llama_context *ctx);
llama_pos llama_memory_seq_pos_max(llama_memory_t mem, llama_seq_id seq_id);
void llama_memory_seq_cp(llama_memory_t mem, llama_seq_id seq_id_src, llama_seq_id seq_id_dst, llama_pos p0, llama_pos p1);
enum llama_pooling_type llama_pooling_type(const struct llama_context *ctx);
bool llama_get_causal_attn(const struct llama_context *ctx);
uint32_t llama_n_ctx(const struct llama_context *ctx);
uint32_t llama_n_ctx_seq(const struct llama_context *ctx);
uint32_t llama_n_batch(const struct llama_context *ctx);
uint32_t llama_n_ubatch(const struct llama_context *ctx);
uint32_t llama_n_rs_seq(const struct llama_context *ctx);
uint32_t llama_n_seq_max(const struct llama_context *ctx);

const struct llama_vocab *llama_model_get_vocab(const struct llama_model *model);
int32_t llama_model_n_ctx_train(const struct llama_model *model);
int32_t llama_model_n_embd(const struct llama_model *model);
int32_t llama_model_n_embd_inp(const struct llama_model *model);
int32_t llama_model_n_embd_out(const struct llama_model *model);
uint32_t llama_model_n_cls_out(const struct llama_model *model);
const char *llama_model_cls_label(const struct llama_model *model, uint32_t i);
enum llama_rope_type llama_model_rope_type(const struct llama_model *model);
int32_t llama_model_n_layer(const struct llama_model *model);
int32_t llama_model_n_head(const struct llama_model *model);
int32_t llama_model_n_head_kv(const struct llama_model *model);
int32_t llama_model_n_swa(const struct llama_model *model);
uint64_t llama_model_size(const struct llama_model *model);
uint64_t llama_model_n_params(const struct llama_model *model);
bool llama_model_has_encoder(const struct llama_model *model);
bool llama_model_has_decoder(const struct llama_model *model);
bool llama_model_is_recurrent(const struct llama_model *model);
bool llama_model_is_hybrid(const struct llama_model *model);
int32_t llama_model_desc(const struct llama_model *model, char *buf, size_t n_buf);
enum llama_ftype llama_model_ftype(const struct llama_model *model);
const char *llama_ftype_name(enum llama_ftype ftype);
int32_t llama_model_meta_val_str(const struct llama_model *model, const char *key, char *buf, size_t n_buf);
const char *llama_model_chat_template(const struct llama_model *model, const char *name);

enum llama_vocab_type llama_vocab_type(const struct llama_vocab *vocab);
int32_t llama_vocab_n_tokens(const struct llama_vocab *vocab);
const char *llama_vocab_get_text(const struct llama_vocab *vocab, llama_token token);
llama_token llama_vocab_bos(const struct llama_vocab *vocab);
llama_token llama_vocab_eos(const struct llama_vocab *vocab);
llama_token llama_vocab_eot(const struct llama_vocab *vocab);
llama_token llama_vocab_sep(const struct llama_vocab *vocab);
bool llama_vocab_get_add_sep(const struct llama_vocab *vocab);
llama_token llama_vocab_nl(const struct llama_vocab *vocab);
llama_token llama_vocab_fim_pre(const struct llama_vocab *vocab);
llama_token llama_vocab_fim_suf(const struct llama_vocab *vocab);
llama_token llama_vocab_fim_mid(const struct llama_vocab *vocab);
llama_token llama_vocab_fim_rep(const struct llama_vocab *vocab);
llama_token llama_vocab_fim_sep(const struct llama_vocab *vocab);
bool llama_vocab_get_add_bos(const struct llama_vocab *vocab);
bool llama_vocab_get_add_eos(const struct llama_vocab *vocab);
const llama_token *llama_vocab_get_suppress_tokens(const struct llama_vocab *vocab, int32_t *n);

size_t ggml_backend_dev_count(void);
ggml_backend_dev_t ggml_backend_dev_get(size_t index);
ggml_backend_dev_t ggml_backend_dev_by_name(const char *name);
const char *ggml_backend_dev_name(ggml_backend_dev_t device);
const char *ggml_backend_dev_description(ggml_backend_dev_t device);
void ggml_backend_dev_memory(ggml_backend_dev_t device, size_t *free, size_t *total);
enum ggml_backend_dev_type ggml_backend_dev_type(ggml_backend_dev_t device);
ggml_backend_buffer_type_t ggml_backend_dev_buffer_type(ggml_backend_dev_t device);
const char *ggml_backend_buft_name(ggml_backend_buffer_type_t type);
size_t ggml_row_size(enum ggml_type type, int64_t n);
int64_t ggml_blck_size(enum ggml_type type);

void ggml_threadpool_params_init(struct ggml_threadpool_params *params, int n_threads);
#define RPC_PROTO_MAJOR_VERSION ...
#define RPC_PROTO_MINOR_VERSION ...

/* Of function_table.h. */
typedef struct llamad_table llamad_table;
typedef struct { int32_t id; float scale; } llamad_adapter_use;
