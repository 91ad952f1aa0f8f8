// Builds the batch for rows of embeddings. Runs on the thread of its context: the engine's, or the embedder's.
#include "rows.h"

#include <algorithm>
#include <vector>

namespace {

// Fills the positions of n rows as models with M-RoPE take them: three sections (t, y, x), and a fourth that is not
// used.
void fill_grid(const llamad_rows *r, std::vector<llama_pos> &pos) {
    const auto n = static_cast<size_t>(r->n);
    for (size_t k = 0; k < 3; k++) {
        for (size_t i = 0; i < n; i++) {
            const int32_t at = r->grid ? r->grid[k * static_cast<size_t>(r->stride) + i] : static_cast<int32_t>(i);
            pos[k * n + i] = r->pos + at;
        }
    }
    std::fill(pos.begin() + static_cast<std::ptrdiff_t>(3 * n), pos.end(), 0);
}

} // namespace

int32_t rows_decode(llama_context *ctx, const llamad_rows *r, bool is_output_each) {
    const llama_rope_type rope = llama_model_rope_type(llama_get_model(ctx));
    const bool has_grid = rope == LLAMA_ROPE_TYPE_MROPE || rope == LLAMA_ROPE_TYPE_IMROPE;
    if (r->n < 1 || (r->grid && !has_grid)) return -1;
    const auto n = static_cast<size_t>(r->n);
    std::vector<llama_pos> pos(has_grid ? 4 * n : n);
    if (has_grid) {
        fill_grid(r, pos);
    } else {
        for (size_t i = 0; i < n; i++) pos[i] = r->pos + static_cast<int32_t>(i);
    }
    llama_seq_id seq = r->seq;
    std::vector<int32_t> n_seq(n, 1);
    std::vector<llama_seq_id *> seqs(n, &seq);
    std::vector<int8_t> output(n, static_cast<int8_t>(is_output_each));
    if (r->output) output[n - 1] = 1;
    llama_batch batch{};
    batch.n_tokens = r->n;
    batch.embd = const_cast<float *>(r->data);
    batch.pos = pos.data();
    batch.n_seq_id = n_seq.data();
    batch.seq_id = seqs.data();
    batch.logits = output.data();
    if (r->is_non_causal) llama_set_causal_attn(ctx, false);
    const int32_t code = llama_decode(ctx, batch);
    if (r->is_non_causal) llama_set_causal_attn(ctx, true);
    return code;
}
