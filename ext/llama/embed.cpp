// Embeddings: decodes a batch of texts, or one text with images or sound, in a context that was made for embeddings,
// and copies the pooled rows or the rows of all tokens out. Owns: llamad_embed, llamad_embed_mixed and their checks.
// llama.cpp would abort the process on what they refuse. Threads: one at a time for each context (the embedder's). Must
// not let a C++ exception out.
#include "rows.h"
#include "shim.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <exception>
#include <vector>

namespace {

struct Texts {
    const int32_t *tokens;
    const int32_t *lengths;
    int32_t n_texts;
    int64_t n_tokens;
};

// What llama.cpp reports about the context. It is read once for each call, which is cheap.
struct Shape {
    llama_context *ctx;
    llama_memory_t memory;
    enum llama_pooling_type pooling;
    int32_t n_row;
    int64_t n_step; // tokens that one decode may hold
    bool can_split;

    explicit Shape(llama_context *ctx) : ctx(ctx), memory(llama_get_memory(ctx)), pooling(llama_pooling_type(ctx)) {
        const llama_model *model = llama_get_model(ctx);
        n_row = pooling == LLAMA_POOLING_TYPE_RANK ? static_cast<int32_t>(llama_model_n_cls_out(model))
                                                   : llama_model_n_embd_out(model);
        n_step = std::min<int64_t>(llama_n_batch(ctx), llama_n_ubatch(ctx));
        // A text can be split over several decodes only if each token sees just those before it, and the pooling looks
        // at single tokens.
        can_split = memory && llama_get_causal_attn(ctx) &&
                    (pooling == LLAMA_POOLING_TYPE_NONE || pooling == LLAMA_POOLING_TYPE_LAST ||
                     pooling == LLAMA_POOLING_TYPE_RANK);
    }
};

bool is_allowed(const Shape &s, const Texts &t, int32_t n_row) {
    const llama_model *model = llama_get_model(s.ctx);
    const int32_t n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(model));
    if (t.n_texts < 1 || t.n_texts > static_cast<int32_t>(llama_n_seq_max(s.ctx))) return false;
    if (n_row != s.n_row || s.pooling == LLAMA_POOLING_TYPE_UNSPECIFIED) return false;
    if (t.n_tokens > s.n_step && !(t.n_texts == 1 && s.can_split)) return false;
    if (s.memory && t.n_tokens > static_cast<int64_t>(llama_n_ctx(s.ctx))) return false;
    // A table of learned positions ends at n_ctx_train. Reading past it aborts, or reads wild memory on a GPU.
    const bool has_rows = !s.memory || llama_model_rope_type(model) == LLAMA_ROPE_TYPE_NONE;
    for (int32_t i = 0; i < t.n_texts; i++) {
        if (t.lengths[i] < 1 || (has_rows && t.lengths[i] > llama_model_n_ctx_train(model))) return false;
    }
    return std::all_of(t.tokens, t.tokens + t.n_tokens, [&](int32_t one) { return one >= 0 && one < n_vocab; });
}

// The arrays of a llama_batch. Every token is an output, because llama.cpp requires that for embeddings.
struct Batch {
    std::vector<llama_pos> pos;
    std::vector<llama_seq_id> seq;
    std::vector<llama_seq_id *> seqs;
    std::vector<int32_t> n_seqs;
    std::vector<int8_t> output;

    explicit Batch(const Texts &t, llama_pos first = 0)
        : pos(t.n_tokens), seq(t.n_tokens), seqs(t.n_tokens), n_seqs(t.n_tokens, 1), output(t.n_tokens, 1) {
        int64_t at = 0;
        for (int32_t i = 0; i < t.n_texts; i++) {
            for (int32_t k = 0; k < t.lengths[i]; k++, at++) {
                pos[at] = first + k;
                seq[at] = i;
                seqs[at] = &seq[at];
            }
        }
    }

    llama_batch slice(const int32_t *tokens, int64_t first, int64_t n) {
        llama_batch batch{};
        batch.n_tokens = static_cast<int32_t>(n);
        batch.token = const_cast<llama_token *>(tokens + first);
        batch.pos = pos.data() + first;
        batch.n_seq_id = n_seqs.data() + first;
        batch.seq_id = seqs.data() + first;
        batch.logits = output.data() + first;
        return batch;
    }
};

bool copy_row(float *out, const float *row, int32_t n) {
    if (!row) return false;
    std::memcpy(out, row, sizeof(float) * static_cast<size_t>(n));
    return true;
}

int32_t embed(const Shape &s, const Texts &t, float *out) {
    Batch batch(t);
    for (int64_t first = 0; first < t.n_tokens; first += s.n_step) {
        const int64_t n = std::min(s.n_step, t.n_tokens - first);
        const int32_t code = llama_decode(s.ctx, batch.slice(t.tokens, first, n));
        if (code != 0) return code;
        if (s.pooling != LLAMA_POOLING_TYPE_NONE) continue;
        for (int64_t i = 0; i < n; i++) {
            const float *row = llama_get_embeddings_ith(s.ctx, static_cast<int32_t>(i));
            if (!copy_row(out + (first + i) * s.n_row, row, s.n_row)) return LLAMAD_E_NO_ROW;
        }
    }
    if (s.pooling == LLAMA_POOLING_TYPE_NONE) return 0;
    for (int32_t i = 0; i < t.n_texts; i++) {
        if (!copy_row(out + static_cast<int64_t>(i) * s.n_row, llama_get_embeddings_seq(s.ctx, i), s.n_row)) {
            return LLAMAD_E_NO_ROW;
        }
    }
    return 0;
}

// Copies the rows that llama.cpp has after each decode of one text into the output of that text.
class Collector {
  public:
    Collector(const Shape &s, float *out) : s(s), out(out), sum(static_cast<size_t>(s.n_row), 0.0) {}

    bool take(int64_t n) {
        const int64_t n_before = n_done;
        n_done += n;
        if (s.pooling == LLAMA_POOLING_TYPE_NONE) {
            for (int64_t i = 0; i < n; i++) {
                const float *row = llama_get_embeddings_ith(s.ctx, static_cast<int32_t>(i));
                if (!copy_row(out + (n_before + i) * s.n_row, row, s.n_row)) return false;
            }
            return true;
        }
        const float *row = llama_get_embeddings_seq(s.ctx, 0);
        if (s.pooling == LLAMA_POOLING_TYPE_MEAN) {
            if (!row) return false;
            for (size_t i = 0; i < sum.size(); i++) sum[i] += static_cast<double>(n) * static_cast<double>(row[i]);
            for (size_t i = 0; i < sum.size(); i++) out[i] = static_cast<float>(sum[i] / static_cast<double>(n_done));
            return true;
        }
        if (s.pooling == LLAMA_POOLING_TYPE_CLS && n_before > 0) return true;
        return copy_row(out, row, s.n_row);
    }

  private:
    const Shape &s;
    float *out;
    int64_t n_done = 0;
    std::vector<double> sum;
};

// A text that consists of tokens and of embedding rows of images or sound.
struct Mixed {
    const int32_t *ids;
    int32_t n_ids;
    const llamad_run *runs;
    int32_t n_runs;
};

bool is_allowed_run(const Shape &s, const llamad_run &run, const Mixed &m, int32_t end) {
    const llama_rope_type rope = llama_model_rope_type(llama_get_model(s.ctx));
    const bool has_grid = rope == LLAMA_ROPE_TYPE_MROPE || rope == LLAMA_ROPE_TYPE_IMROPE;
    return run.data && run.n >= 1 && run.n_pos >= 1 && run.first >= end && run.n <= m.n_ids - run.first &&
           (run.grid ? has_grid : run.n_pos == run.n) && !(run.is_non_causal && run.n > s.n_step);
}

bool is_allowed_mixed(const Shape &s, const Mixed &m, int32_t n_row) {
    const llama_model *model = llama_get_model(s.ctx);
    const int32_t n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(model));
    if (!s.memory || !llama_get_causal_attn(s.ctx) || n_row != s.n_row) return false;
    if (s.pooling == LLAMA_POOLING_TYPE_RANK || s.pooling == LLAMA_POOLING_TYPE_UNSPECIFIED) return false;
    if (m.n_ids < 1 || m.n_ids > static_cast<int64_t>(llama_n_ctx(s.ctx))) return false;
    const bool has_rows = llama_model_rope_type(model) == LLAMA_ROPE_TYPE_NONE;
    if (has_rows && m.n_ids > llama_model_n_ctx_train(model)) return false;
    const auto is_token = [&](int32_t one) { return one >= 0 && one < n_vocab; };
    int32_t end = 0;
    for (int32_t i = 0; i < m.n_runs; i++) {
        const llamad_run &run = m.runs[i];
        if (!is_allowed_run(s, run, m, end) || !std::all_of(m.ids + end, m.ids + run.first, is_token)) return false;
        end = run.first + run.n;
    }
    return std::all_of(m.ids + end, m.ids + m.n_ids, is_token);
}

int32_t embed_tokens(const Shape &s, const int32_t *tokens, int32_t n_tokens, llama_pos pos, Collector &collector) {
    const Texts text{tokens, &n_tokens, 1, n_tokens};
    Batch batch(text, pos);
    for (int64_t first = 0; first < n_tokens; first += s.n_step) {
        const int64_t n = std::min<int64_t>(s.n_step, n_tokens - first);
        const int32_t code = llama_decode(s.ctx, batch.slice(tokens, first, n));
        if (code != 0) return code;
        if (!collector.take(n)) return LLAMAD_E_NO_ROW;
    }
    return 0;
}

int32_t embed_run(const Shape &s, const llamad_run &run, llama_pos pos, Collector &collector) {
    const int64_t n_embd = llama_model_n_embd_inp(llama_get_model(s.ctx));
    for (int32_t first = 0; first < run.n;) {
        llamad_rows rows{};
        rows.data = run.data + first * n_embd;
        rows.grid = run.grid ? run.grid + first : nullptr;
        rows.stride = run.n;
        rows.n = static_cast<int32_t>(std::min<int64_t>(s.n_step, run.n - first));
        rows.pos = run.grid ? pos : pos + first; // a grid's positions are relative to the run's first position
        rows.is_non_causal = run.is_non_causal;
        const int32_t code = rows_decode(s.ctx, &rows, true);
        if (code != 0) return code;
        if (!collector.take(rows.n)) return LLAMAD_E_NO_ROW;
        first += rows.n;
    }
    return 0;
}

int32_t embed_mixed(const Shape &s, const Mixed &m, float *out) {
    Collector collector(s, out);
    llama_pos pos = 0;
    int32_t end = 0;
    for (int32_t i = 0; i < m.n_runs; i++) {
        const llamad_run &run = m.runs[i];
        int32_t code = embed_tokens(s, m.ids + end, run.first - end, pos, collector);
        pos += run.first - end;
        if (code == 0) code = embed_run(s, run, pos, collector);
        if (code != 0) return code;
        pos += run.n_pos;
        end = run.first + run.n;
    }
    return embed_tokens(s, m.ids + end, m.n_ids - end, pos, collector);
}

// Empties the KV cache. Attention multiplies masked cells by zero, which keeps a NaN, so the cells are zeroed after
// one.
void clear(const Shape &s, int32_t code, const float *out, int64_t n_rows) {
    const bool is_sound = code == 0 &&
                          std::all_of(out, out + n_rows * s.n_row, [](float x) { return std::isfinite(x); });
    if (s.memory) llama_memory_clear(s.memory, !is_sound);
}

} // namespace

extern "C" {

int32_t llamad_embed_with(llamad_context *handle, const llamad_adapter_use *uses, int32_t n) {
    llama_context *ctx = llamad_context_get(handle);
    if (!ctx) return LLAMAD_E_NO_CONTEXT;
    try {
        return adapters_apply(ctx, uses, n);
    } catch (...) {
        return LLAMAD_E_THROWN;
    }
}

int32_t llamad_embed(llamad_context *handle, const int32_t *tokens, const int32_t *lengths, int32_t n_texts,
                     int32_t n_row, float *out) {
    llama_context *ctx = llamad_context_get(handle);
    if (!ctx) return LLAMAD_E_NO_CONTEXT;
    Texts texts{tokens, lengths, n_texts, 0};
    for (int32_t i = 0; i < n_texts; i++) texts.n_tokens += lengths[i];
    try {
        const AdaptersHeld lock;
        const Shape shape(ctx);
        if (!is_allowed(shape, texts, n_row)) return LLAMAD_E_REFUSED;
        const int32_t code = embed(shape, texts, out);
        clear(shape, code, out, shape.pooling == LLAMA_POOLING_TYPE_NONE ? texts.n_tokens : n_texts);
        return code;
    } catch (...) {
        return LLAMAD_E_THROWN;
    }
}

int32_t llamad_embed_mixed(llamad_context *handle, const int32_t *ids, int32_t n_ids, const llamad_run *runs,
                           int32_t n_runs, int32_t n_row, float *out) {
    llama_context *ctx = llamad_context_get(handle);
    if (!ctx) return LLAMAD_E_NO_CONTEXT;
    const Mixed mixed{ids, n_ids, runs, n_runs};
    try {
        const AdaptersHeld lock;
        const Shape shape(ctx);
        if (!is_allowed_mixed(shape, mixed, n_row)) return LLAMAD_E_REFUSED;
        const int32_t code = embed_mixed(shape, mixed, out);
        clear(shape, code, out, shape.pooling == LLAMA_POOLING_TYPE_NONE ? n_ids : 1);
        return code;
    } catch (...) {
        return LLAMAD_E_THROWN;
    }
}
}
