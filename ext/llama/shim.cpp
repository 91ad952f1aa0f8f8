// This folder is the only code that calls llama.cpp. It catches every exception and turns it into a code.
// Owns: the table's functions, contexts that can be rebuilt. Threads: see function_table.h and shim.h.
#include "shim.h"
#include "adapters.h"
#include "ggml-cpu.h"
#include "guarded.hpp"
#include "host_pages.h"
#include "rows.h"
#include "tokenizer/tokenize.h"
#include "tokenizer/vocabulary.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <vector>

// OpenMP's function, if llama.cpp was built with OpenMP.
extern "C" __attribute__((weak)) void omp_set_num_threads(int n);

struct llamad_context {
    llama_model *model;
    llama_context_params params;
    llama_context *ctx;
    ggml_threadpool *pools[2];  // for steps of one token, and for all others; the second may be null
    int32_t pool_threads[2];    // the threads for both kinds of steps; 0: there are no pools
    std::vector<float> control; // sum of the control vectors: a row for each layer from the second on
    int32_t control_layers[2];  // the first and the last layer that it is added to
};

namespace {

thread_local char last_error[512];

void remember(const char *what) { std::snprintf(last_error, sizeof last_error, "%s", what); }

llama_context *context_of(void *ctx) { return static_cast<llamad_context *>(ctx)->ctx; }

int32_t table_decode(void *ctx, const llamad_batch *b) {
    return guarded<int32_t>(LLAMAD_E_THROWN, [&] {
        const AdaptersHeld lock;
        llama_batch batch{};
        batch.n_tokens = b->n_tokens;
        batch.token = b->token;
        batch.pos = b->pos;
        batch.n_seq_id = b->n_seq_id;
        batch.seq_id = b->seq_id;
        batch.logits = b->output;
        return llama_decode(context_of(ctx), batch);
    });
}

int32_t table_decode_rows(void *ctx, const llamad_rows *r) {
    return guarded<int32_t>(LLAMAD_E_THROWN, [&] {
        const AdaptersHeld lock;
        return rows_decode(context_of(ctx), r, false);
    });
}

float *table_logits(void *ctx, int32_t i_batch) {
    return guarded<float *>(nullptr, [&] { return llama_get_logits_ith(context_of(ctx), i_batch); });
}

float *table_rows(void *ctx) {
    return guarded<float *>(nullptr, [&] { return llama_get_logits(context_of(ctx)); });
}

void free_context(llamad_context *ctx) {
    if (!ctx->ctx) return;
    adapters_forget(ctx->ctx);
    llama_free(ctx->ctx);
    ctx->ctx = nullptr;
}

int32_t set_control(llamad_context *ctx) {
    if (ctx->control.empty()) return 0;
    return llama_set_adapter_cvec(ctx->ctx, ctx->control.data(), ctx->control.size(), llama_model_n_embd(ctx->model),
                                  ctx->control_layers[0], ctx->control_layers[1]);
}

int32_t table_rebuild(void *handle) {
    auto *ctx = static_cast<llamad_context *>(handle);
    return guarded<int32_t>(LLAMAD_E_THROWN, [&]() -> int32_t {
        const AdaptersHeld lock;
        free_context(ctx);
        ctx->ctx = llama_init_from_model(ctx->model, ctx->params);
        if (ctx->ctx && ctx->pools[0]) llama_attach_threadpool(ctx->ctx, ctx->pools[0], ctx->pools[1]);
        return ctx->ctx ? set_control(ctx) : -1;
    });
}

int32_t table_set_adapters(void *ctx, const llamad_adapter_use *uses, int32_t n) {
    return guarded<int32_t>(LLAMAD_E_THROWN, [&] { return adapters_apply(context_of(ctx), uses, n); });
}

int32_t table_lock_pages(void *, uint8_t *data, size_t n) {
    return guarded<int32_t>(0, [&] { return host_pages_lock(data, n); });
}

void table_unlock_pages(void *, uint8_t *data) { host_pages_unlock(data); }

uint8_t *table_alloc_pages(void *handle, size_t n, void **buffer) {
    const auto *ctx = static_cast<llamad_context *>(handle);
    if (!ctx->params.offload_kqv) return nullptr;
    return guarded<uint8_t *>(nullptr, [&] { return host_pages_alloc(ctx->model, n, buffer); });
}

void table_free_pages(void *, void *buffer) { host_pages_free(buffer); }

void table_close_adapter(void *, int32_t id) { llamad_adapter_close(id); }

// A rebuilt context gets the same numbers.
void table_set_threads(void *handle, int32_t n_threads, int32_t n_threads_batch) {
    auto *ctx = static_cast<llamad_context *>(handle);
    const int32_t numbers[2] = {n_threads, n_threads_batch};
    int32_t *params[2] = {&ctx->params.n_threads, &ctx->params.n_threads_batch};
    for (int i = 0; i < 2; i++) {
        if (numbers[i] <= 0) continue;
        *params[i] = ctx->pool_threads[i] ? std::min(numbers[i], ctx->pool_threads[i]) : numbers[i];
    }
    if (ctx->ctx) llama_set_n_threads(ctx->ctx, *params[0], *params[1]);
}

int32_t table_seq_rm(void *ctx, int32_t seq, int32_t p0, int32_t p1) {
    return guarded<int32_t>(LLAMAD_E_THROWN, [&]() -> int32_t {
        return llama_memory_seq_rm(llama_get_memory(context_of(ctx)), seq, p0, p1) ? 1 : 0;
    });
}

int32_t table_seq_add(void *ctx, int32_t seq, int32_t p0, int32_t p1, int32_t delta) {
    return guarded<int32_t>(LLAMAD_E_THROWN, [&]() -> int32_t {
        llama_memory_seq_add(llama_get_memory(context_of(ctx)), seq, p0, p1, delta);
        return 1;
    });
}

int32_t table_seq_div(void *ctx, int32_t seq, int32_t p0, int32_t p1, int32_t divisor) {
    return guarded<int32_t>(LLAMAD_E_THROWN, [&]() -> int32_t {
        llama_memory_seq_div(llama_get_memory(context_of(ctx)), seq, p0, p1, divisor);
        return 1;
    });
}

int32_t table_seq_cp(void *ctx, int32_t src, int32_t dst, int32_t p0, int32_t p1) {
    return guarded<int32_t>(LLAMAD_E_THROWN, [&]() -> int32_t {
        llama_memory_seq_cp(llama_get_memory(context_of(ctx)), src, dst, p0, p1);
        return 1;
    });
}

int32_t table_seq_pos_min(void *ctx, int32_t seq) {
    return llama_memory_seq_pos_min(llama_get_memory(context_of(ctx)), seq);
}

int32_t table_can_shift(void *ctx) { return llamad_can_shift(static_cast<llamad_context *>(ctx)); }

static_assert(LLAMAD_STATE_PARTIAL == LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY);
static_assert(LLAMAD_STATE_ON_DEVICE == LLAMA_STATE_SEQ_FLAGS_ON_DEVICE);

llama_state_seq_flags flags_of(int32_t flags) { return static_cast<llama_state_seq_flags>(flags); }

size_t table_state_size(void *ctx, int32_t seq, int32_t flags) {
    return guarded<size_t>(0, [&] { return llama_state_seq_get_size_ext(context_of(ctx), seq, flags_of(flags)); });
}

size_t table_state_get(void *ctx, int32_t seq, uint8_t *data, size_t n, int32_t flags) {
    return guarded<size_t>(
        0, [&] { return llama_state_seq_get_data_ext(context_of(ctx), data, n, seq, flags_of(flags)); });
}

size_t table_state_set(void *ctx, int32_t seq, const uint8_t *data, size_t n, int32_t flags) {
    return guarded<size_t>(
        0, [&] { return llama_state_seq_set_data_ext(context_of(ctx), data, n, seq, flags_of(flags)); });
}

int64_t table_device_free(void *ctx) { return llamad_model_free(static_cast<llamad_context *>(ctx)->model); }

int32_t table_tokenize(const void *vocab, const char *text, int32_t n_text, int32_t *tokens, int32_t n_max,
                       int32_t add_special, int32_t parse_special, const llamad_tokenize_limits *limits) {
    return guarded<int32_t>(INT32_MIN, [&] {
        return text_tokenize(static_cast<const llama_vocab *>(vocab), text, n_text, tokens, n_max, add_special != 0,
                             parse_special != 0, limits);
    });
}

int32_t table_piece(const void *vocab, int32_t token, char *buf, int32_t n_buf, int32_t special) {
    return guarded<int32_t>(INT32_MIN, [&] {
        return llama_token_to_piece(static_cast<const llama_vocab *>(vocab), token, buf, n_buf, 0, special != 0);
    });
}

int32_t table_detokenize(const void *vocab, const int32_t *tokens, int32_t n_tokens, char *text, int32_t n_max,
                         int32_t remove_special, int32_t unparse_special) {
    return guarded<int32_t>(INT32_MIN, [&] {
        return llama_detokenize(static_cast<const llama_vocab *>(vocab), tokens, n_tokens, text, n_max,
                                remove_special != 0, unparse_special != 0);
    });
}

int32_t table_is_eog(const void *vocab, int32_t token) {
    return llama_vocab_is_eog(static_cast<const llama_vocab *>(vocab), token) ? 1 : 0;
}

llama_sampler *open_one(const llama_vocab *vocab, int32_t n_vocab, const llamad_sampling &s, uint8_t kind,
                        std::vector<const char *> &breakers) {
    const size_t min_keep = s.min_keep > 0 ? static_cast<size_t>(s.min_keep) : 0;
    switch (kind) {
        case LLAMAD_SAMPLER_PENALTIES:
            return llama_sampler_init_penalties(n_vocab, s.repeat_last_n, s.repeat_penalty, s.frequency_penalty,
                                                s.presence_penalty);
        case LLAMAD_SAMPLER_DRY:
            if (s.dry_multiplier == 0.0f || s.dry_penalty_last_n == 0) return nullptr;
            return llama_sampler_init_dry(vocab, s.dry_multiplier, s.dry_base, s.dry_allowed_length,
                                          s.dry_penalty_last_n, breakers.data(), breakers.size());
        case LLAMAD_SAMPLER_TOP_N_SIGMA: return llama_sampler_init_top_n_sigma(s.top_n_sigma);
        case LLAMAD_SAMPLER_TOP_K: return llama_sampler_init_top_k(s.top_k);
        case LLAMAD_SAMPLER_TYPICAL: return llama_sampler_init_typical(s.typical_p, min_keep);
        case LLAMAD_SAMPLER_TOP_P: return llama_sampler_init_top_p(s.top_p, min_keep);
        case LLAMAD_SAMPLER_MIN_P: return llama_sampler_init_min_p(s.min_p, min_keep);
        case LLAMAD_SAMPLER_XTC: return llama_sampler_init_xtc(s.xtc_probability, s.xtc_threshold, min_keep, s.seed);
        case LLAMAD_SAMPLER_TEMPERATURE:
            return llama_sampler_init_temp_ext(s.temperature, s.dynatemp_range, s.dynatemp_exponent);
        case LLAMAD_SAMPLER_INFILL: return llama_sampler_init_infill(vocab);
        default: return nullptr;
    }
}

void add(llama_sampler *chain, llama_sampler *one) {
    if (one) llama_sampler_chain_add(chain, one);
}

void *table_sampler_open(const void *vocab_, const llamad_sampling *s, const llamad_bias *bias, int32_t n_bias,
                         const char *breakers_, int32_t n_breakers) {
    const auto *vocab = static_cast<const llama_vocab *>(vocab_);
    const int32_t n_vocab = llama_vocab_n_tokens(vocab);
    return guarded<void *>(nullptr, [&]() -> void * {
        std::vector<const char *> breakers;
        for (int32_t i = 0; i < n_breakers; i++) {
            breakers.push_back(breakers_);
            breakers_ += std::strlen(breakers_) + 1;
        }
        static_assert(sizeof(llamad_bias) == sizeof(llama_logit_bias), "the ring carries llama.cpp's layout");
        llama_sampler *chain = llama_sampler_chain_init({/*no_perf=*/true});
        if (n_bias > 0) {
            add(chain,
                llama_sampler_init_logit_bias(n_vocab, n_bias, reinterpret_cast<const llama_logit_bias *>(bias)));
        }
        if (s->mirostat == 1 || s->mirostat == 2) {
            add(chain, llama_sampler_init_temp(s->temperature));
            add(chain, s->mirostat == 1
                           ? llama_sampler_init_mirostat(n_vocab, s->seed, s->mirostat_tau, s->mirostat_eta, 100)
                           : llama_sampler_init_mirostat_v2(s->seed, s->mirostat_tau, s->mirostat_eta));
            return chain;
        }
        bool is_adaptive = false;
        for (int32_t i = 0; i < s->n_samplers; i++) {
            is_adaptive |= s->samplers[i] == LLAMAD_SAMPLER_ADAPTIVE_P;
            add(chain, open_one(vocab, n_vocab, *s, s->samplers[i], breakers));
        }
        add(chain, is_adaptive ? llama_sampler_init_adaptive_p(s->adaptive_target, s->adaptive_decay, s->seed)
                               : llama_sampler_init_dist(s->seed));
        return chain;
    });
}

void table_sampler_accept(void *sampler, int32_t token) {
    guarded<int>(0, [&] {
        llama_sampler_accept(static_cast<llama_sampler *>(sampler), token);
        return 0;
    });
}

int32_t table_sampler_sample(void *sampler, const float *logits, int32_t n_vocab, void *scratch,
                             llamad_candidate **data_, int32_t *n) {
    return guarded<int32_t>(LLAMAD_E_THROWN, [&]() -> int32_t {
        static_assert(sizeof(llamad_candidate) == sizeof(llama_token_data), "candidates have llama.cpp's layout");
        auto *data = static_cast<llama_token_data *>(scratch);
        for (int32_t i = 0; i < n_vocab; i++) data[i] = {i, logits[i], 0.0f};
        llama_token_data_array row = {data, static_cast<size_t>(n_vocab), -1, false};
        llama_sampler_apply(static_cast<llama_sampler *>(sampler), &row);
        *data_ = reinterpret_cast<llamad_candidate *>(row.data);
        *n = static_cast<int32_t>(row.size);
        if (row.selected < 0 || row.selected >= static_cast<int64_t>(row.size)) return -1;
        return row.data[row.selected].id;
    });
}

void table_sampler_close(void *sampler) { llama_sampler_free(static_cast<llama_sampler *>(sampler)); }

// Equal logits stay in whatever order the sort leaves them. The same library's sort gives the order that llama.cpp has.
constexpr auto larger = [](const llamad_candidate &a, const llamad_candidate &b) { return a.logit > b.logit; };

// A NaN would make std::sort leave the array. Requests can cause NaNs: an infinite penalty on an infinite logit.
void table_sort(llamad_candidate *data, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        if (std::isnan(data[i].logit)) data[i].logit = -INFINITY;
    }
    std::sort(data, data + n, larger);
}

void table_sort_front(llamad_candidate *data, int32_t n, int32_t k) {
    std::partial_sort(data, data + k, data + n, larger);
}

void table_order(const float *scores, int32_t *order, int32_t n) {
    std::sort(order, order + n, [&](int32_t a, int32_t b) { return scores[a] < scores[b]; });
}

const llamad_table table = {
    LLAMAD_TABLE_VERSION, sizeof(llamad_table), table_decode,       table_decode_rows,   table_logits,
    table_rows,           table_rebuild,        table_set_adapters, table_close_adapter, table_set_threads,
    table_seq_rm,         table_seq_add,        table_seq_div,      table_seq_cp,        table_seq_pos_min,
    table_can_shift,      table_state_size,     table_state_get,    table_state_set,     table_device_free,
    table_lock_pages,     table_unlock_pages,   table_alloc_pages,  table_free_pages,    table_tokenize,
    table_piece,          table_detokenize,     table_is_eog,       table_sampler_open,  table_sampler_accept,
    table_sampler_sample, table_sampler_close,  table_sort,         table_sort_front,    table_order,
};

// The CPU backend may be a shared library of its own, so its functions are looked up in the registry.
template <typename F> F cpu_function(const char *name) {
    ggml_backend_dev_t device = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    if (!device) return nullptr;
    return reinterpret_cast<F>(ggml_backend_reg_get_proc_address(ggml_backend_dev_backend_reg(device), name));
}

bool on_progress(float progress, void *state_) {
    auto *state = static_cast<llamad_load_state *>(state_);
    __atomic_store_n(&state->permille, static_cast<int32_t>(progress * 1000), __ATOMIC_RELAXED);
    return __atomic_load_n(&state->cancel, __ATOMIC_RELAXED) == 0;
}

} // namespace

extern "C" {

const llamad_table *llamad_llama_table(void) { return &table; }

void llamad_remember_error(const char *what) { remember(what); }

const char *llamad_last_error(void) { return last_error; }

llama_model *llamad_model_open(const char *path, llama_model_params params, llamad_load_state *state) {
    last_error[0] = 0;
    // OpenMP's threads rearrange the weights, by default one thread per core, with a barrier for each tensor. If a core
    // is busy, all threads wait for it. The setting applies to the calling thread only.
    if (omp_set_num_threads && state->n_threads > 0) omp_set_num_threads(state->n_threads);
    params.progress_callback = on_progress;
    params.progress_callback_user_data = state;
    return guarded<llama_model *>(nullptr, [&]() -> llama_model * {
        if (llamad_backends_open() != 0) return nullptr;
        const FileId file = file_id(path);
        llama_model *model = llama_model_load_from_file(path, params);
        if (model) vocabulary_add(model, path, file, params.kv_overrides, !state->api_only);
        return model;
    });
}

llama_model *llamad_vocab_open(const char *path, const llama_model_kv_override *overrides, bool api_only) {
    last_error[0] = 0;
    // With the default list llama.cpp would open every device, even for a vocabulary.
    ggml_backend_dev_t no_devices[] = {nullptr};
    llama_model_params params = llama_model_default_params();
    params.devices = no_devices;
    params.kv_overrides = overrides;
    params.vocab_only = true;
    return guarded<llama_model *>(nullptr, [&] {
        const FileId file = file_id(path);
        llama_model *model = llama_model_load_from_file(path, params);
        if (model) vocabulary_add(model, path, file, overrides, !api_only);
        return model;
    });
}

void llamad_model_close(llama_model *model) {
    vocabulary_remove(model);
    llamad_adapters_forget();
    llama_model_free(model);
}

int32_t llamad_tokenize(const llama_vocab *vocab, const char *text, int32_t n_text, int32_t *tokens, int32_t n_max,
                        bool add_special, bool parse_special, bool whole) {
    if (!whole) return table_tokenize(vocab, text, n_text, tokens, n_max, add_special, parse_special, nullptr);
    return guarded<int32_t>(
        INT32_MIN, [&] { return llama_tokenize(vocab, text, n_text, tokens, n_max, add_special, parse_special); });
}

llamad_context *llamad_context_open(llama_model *model, llama_context_params params) {
    last_error[0] = 0;
    return guarded<llamad_context *>(nullptr, [&]() -> llamad_context * {
        llama_context *ctx = llama_init_from_model(model, params);
        return ctx ? new llamad_context{model, params, ctx, {}, {}, {}, {}} : nullptr;
    });
}

void llamad_context_close(llamad_context *ctx) {
    free_context(ctx);
    auto pool_free = cpu_function<decltype(ggml_threadpool_free) *>("ggml_threadpool_free");
    for (ggml_threadpool *pool : ctx->pools) {
        if (pool && pool_free) pool_free(pool);
    }
    delete ctx;
}

int32_t llamad_context_pools(llamad_context *ctx, ggml_threadpool_params *decode, ggml_threadpool_params *batch) {
    auto pool_new = cpu_function<decltype(ggml_threadpool_new) *>("ggml_threadpool_new");
    if (!pool_new) return -1;
    ctx->pools[0] = pool_new(decode);
    ctx->pools[1] = batch ? pool_new(batch) : nullptr;
    if (!ctx->pools[0] || (batch && !ctx->pools[1])) return -1;
    ctx->pool_threads[0] = decode->n_threads;
    ctx->pool_threads[1] = batch ? batch->n_threads : decode->n_threads;
    llama_attach_threadpool(ctx->ctx, ctx->pools[0], ctx->pools[1]);
    return 0;
}

void llamad_context_threads(llamad_context *ctx, int32_t n_threads, int32_t n_threads_batch) {
    table_set_threads(ctx, n_threads, n_threads_batch);
}

int32_t llamad_context_control(llamad_context *ctx, const float *rows, int32_t n_rows, int32_t first, int32_t last) {
    ctx->control_layers[0] = first;
    ctx->control_layers[1] = last;
    return guarded<int32_t>(LLAMAD_E_THROWN, [&] {
        ctx->control.assign(rows, rows + static_cast<size_t>(n_rows) * llama_model_n_embd(ctx->model));
        return set_control(ctx);
    });
}

int32_t llamad_vocab_difference(const llama_vocab *one, const llama_vocab *other, int32_t first) {
    const int32_t n = std::min(llama_vocab_n_tokens(one), llama_vocab_n_tokens(other));
    for (int32_t i = first; i < n; i++) {
        if (std::strcmp(llama_vocab_get_text(one, i), llama_vocab_get_text(other, i)) != 0) return i;
    }
    return -1;
}

int32_t llamad_has_openmp(void) { return omp_set_num_threads != nullptr; }

llama_context *llamad_context_get(llamad_context *ctx) { return ctx->ctx; }

// A hybrid model with a sliding window has a second KV cache for the layers without a window. If there are no such
// layers, llama.cpp aborts when it moves the cells of that cache, although it reports that it can shift.
int32_t llamad_can_shift(llamad_context *ctx) {
    llama_memory_t memory = llama_get_memory(ctx->ctx);
    if (!memory || !llama_memory_can_shift(memory)) return 0;
    return llama_model_is_hybrid(ctx->model) && llama_model_n_swa(ctx->model) > 0 ? 0 : 1;
}

int32_t llamad_context_rebuild(llamad_context *ctx) { return table_rebuild(ctx); }
}
