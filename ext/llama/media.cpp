// Owns: mtmd's context and the pieces of the current file. Threads: the only one of the encoder process. Must not let a
// C++ exception out. An abort in llama.cpp ends the encoder process, which costs one request.
#include "media.h"
#include "graph_pieces.h"
#include "guarded.hpp"
#include "shim.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <exception>
#include <memory>

struct llamad_media {
    llama_model *model = nullptr; // shape and vocabulary only, no weights
    mtmd_context *ctx = nullptr;
    const llama_vocab *vocab = nullptr;
    mtmd_input_chunks *chunks = nullptr;
    int32_t n_row = 0;
    llamad::GraphPieces pieces;

    ~llamad_media() {
        if (chunks) mtmd_input_chunks_free(chunks);
        if (ctx) mtmd_free(ctx);
        if (model) llama_model_free(model);
    }
};

namespace {

constexpr uint32_t PROBE_SIDE = 448;

struct FreeBitmap {
    void operator()(mtmd_bitmap *bitmap) const { mtmd_bitmap_free(bitmap); }
};
struct FreeChunks {
    void operator()(mtmd_input_chunks *chunks) const { mtmd_input_chunks_free(chunks); }
};
using Chunks = std::unique_ptr<mtmd_input_chunks, FreeChunks>;

// Returns the chunks of the bitmap after a text, or NULL if llama.cpp refuses it.
Chunks cut_behind(const llamad_media *media, const char *text, const mtmd_bitmap *bitmap) {
    Chunks chunks(mtmd_input_chunks_init());
    mtmd_input_text before{};
    before.text = text;
    before.text_len = std::strlen(text);
    mtmd_input_part first{}, second{};
    first.text = &before;
    second.bitmap = bitmap;
    const mtmd_input_part *parts[] = {&first, &second};
    const bool is_alone = *text == '\0';
    const size_t n_parts = is_alone ? 1 : 2;
    return mtmd_tokenize_from_parts(media->ctx, chunks.get(), parts + is_alone, n_parts, false) == 0 ? std::move(chunks)
                                                                                                     : nullptr;
}

const mtmd_input_chunk *chunk_at(const llamad_media *media, int32_t index) {
    if (!media->chunks || index < 0) return nullptr;
    if (static_cast<size_t>(index) >= mtmd_input_chunks_size(media->chunks)) return nullptr;
    return mtmd_input_chunks_get(media->chunks, static_cast<size_t>(index));
}

bool is_text(const mtmd_input_chunk *chunk) { return mtmd_input_chunk_get_type(chunk) == MTMD_INPUT_CHUNK_TYPE_TEXT; }

// Whether the rows have a fourth coordinate, which is the image's number in its prompt.
bool has_number(const llamad_media *media, const mtmd_input_chunk *chunk) {
    const mtmd_image_tokens *image = mtmd_input_chunk_get_tokens_image(chunk);
    if (!image || !mtmd_decode_use_mrope(media->ctx)) return false;
    for (size_t i = 0; i < mtmd_input_chunk_get_n_tokens(chunk); i++)
        if (mtmd_image_tokens_get_decoder_pos(image, 0, i).z != 0) return true;
    return false;
}

// Whether the rows of an image depend on the text before it (DeepSeek V4 fills up blocks of four tokens, HunyuanVL
// counts images). Such rows could not be reused in other prompts. This is tried with an image without pixels.
bool depends_on_place(const llamad_media *media) {
    const std::unique_ptr<mtmd_bitmap, FreeBitmap> bitmap(mtmd_bitmap_init(PROBE_SIDE, PROBE_SIDE, nullptr));
    size_t n_alone = 0;
    for (const char *text : {"", "a", "aa", "aaa"}) {
        const Chunks chunks = cut_behind(media, text, bitmap.get());
        if (!chunks) return false;
        size_t n = 0;
        for (size_t i = 0; i < mtmd_input_chunks_size(chunks.get()); i++) {
            const mtmd_input_chunk *chunk = mtmd_input_chunks_get(chunks.get(), i);
            if (has_number(media, chunk)) return true;
            if (!is_text(chunk)) n += mtmd_input_chunk_get_n_tokens(chunk);
        }
        if (*text == '\0') n_alone = n;
        if (n != n_alone) return true;
    }
    return false;
}

} // namespace

llamad_media *llamad_media_open(const char *path, const char *model, const llamad_media_params *params) {
    return guarded<llamad_media *>(nullptr, [&]() -> llamad_media * {
        if (llamad_backends_open() != 0) return nullptr;
        auto media = std::make_unique<llamad_media>();
        ggml_backend_dev_t no_devices[] = {nullptr};
        llama_model_params shape = llama_model_default_params();
        shape.devices = no_devices;
        shape.n_gpu_layers = 0;
        shape.load_mode = LLAMA_LOAD_MODE_NONE;
        shape.lazy_mode = LLAMA_LAZY_MODE_OFF;
        shape.no_alloc = true;
        llamad_remember_error("the model's shape could not be read");
        media->model = llama_model_load_from_file(model, shape);
        if (!media->model) return nullptr;
        mtmd_context_params ctx_params = mtmd_context_params_default();
        ctx_params.use_gpu = params->uses_gpu != 0;
        ctx_params.print_timings = false;
        ctx_params.n_threads = params->n_threads;
        ctx_params.warmup = false;
        ctx_params.image_min_tokens = params->image_min_tokens;
        ctx_params.image_max_tokens = params->image_max_tokens;
        ctx_params.flash_attn_type = static_cast<llama_flash_attn_type>(params->flash_attn);
        if (ctx_params.use_gpu) {
            ctx_params.cb_eval = llamad::GraphPieces::on_node;
            ctx_params.cb_eval_user_data = &media->pieces;
        }
        if (params->device) ctx_params.device = ggml_backend_dev_by_name(params->device);
        llamad_remember_error("it is not a projector for this model; the log says more");
        media->ctx = mtmd_init_from_file(path, media->model, ctx_params);
        if (!media->ctx) return nullptr;
        media->vocab = llama_model_get_vocab(media->model);
        media->n_row = llama_model_n_embd_inp(media->model);
        llamad_remember_error("its images depend on what stands before them in a prompt; llamad cannot use it");
        if (mtmd_support_vision(media->ctx) && depends_on_place(media.get())) return nullptr;
        return media.release();
    });
}

void llamad_media_close(llamad_media *media) { delete media; }

void llamad_media_describe(const llamad_media *media, llamad_media_info *info) {
    info->sees = mtmd_support_vision(media->ctx);
    info->hears = mtmd_support_audio(media->ctx);
    info->sample_rate = info->hears ? mtmd_get_audio_sample_rate(media->ctx) : 0;
    info->has_mrope = mtmd_decode_use_mrope(media->ctx);
    info->n_row = media->n_row;
}

int32_t llamad_media_cut(llamad_media *media, const void *data, int32_t width, int32_t height) {
    return guarded<int32_t>(-1, [&]() -> int32_t {
        const bool is_sound = height == 0;
        if (width < 1 || height < 0 || (is_sound && !data)) return -1;
        const auto n = static_cast<uint32_t>(width);
        std::unique_ptr<mtmd_bitmap, FreeBitmap> bitmap(
            is_sound ? mtmd_bitmap_init_from_audio(n, static_cast<const float *>(data))
                     : mtmd_bitmap_init(n, static_cast<uint32_t>(height), static_cast<const unsigned char *>(data)));
        if (!bitmap) return -1;
        if (media->chunks) mtmd_input_chunks_free(media->chunks);
        llamad_remember_error("llama.cpp could not prepare it");
        media->chunks = cut_behind(media, "", bitmap.get()).release();
        if (!media->chunks) return -1;
        const size_t n_chunks = mtmd_input_chunks_size(media->chunks);
        for (size_t i = 0; i < n_chunks; i++) {
            size_t n_tokens = 0;
            const mtmd_input_chunk *chunk = mtmd_input_chunks_get(media->chunks, i);
            if (!is_text(chunk)) continue;
            const llama_token *tokens = mtmd_input_chunk_get_tokens_text(chunk, &n_tokens);
            const int32_t n_vocab = llama_vocab_n_tokens(media->vocab);
            // mtmd uses token -1 for a marker that the vocabulary lacks, and llama.cpp cannot decode that.
            if (!std::all_of(tokens, tokens + n_tokens, [&](llama_token t) { return t >= 0 && t < n_vocab; })) {
                llamad_remember_error("the model's vocabulary lacks a token that the projector needs");
                return -1;
            }
        }
        return static_cast<int32_t>(n_chunks);
    });
}

int32_t llamad_media_piece(const llamad_media *media, int32_t index, llamad_piece *piece) {
    return guarded<int32_t>(-1, [&]() -> int32_t {
        const mtmd_input_chunk *chunk = chunk_at(media, index);
        if (!chunk) return -1;
        piece->is_text = is_text(chunk);
        piece->n_tokens = static_cast<int32_t>(mtmd_input_chunk_get_n_tokens(chunk));
        piece->n_pos = mtmd_input_chunk_get_n_pos(chunk);
        piece->is_non_causal = !piece->is_text && mtmd_decode_use_non_causal(media->ctx, chunk);
        piece->is_grid = !piece->is_text && mtmd_decode_use_mrope(media->ctx) &&
                         mtmd_input_chunk_get_type(chunk) == MTMD_INPUT_CHUNK_TYPE_IMAGE;
        return 0;
    });
}

int32_t llamad_media_tokens(const llamad_media *media, int32_t index, int32_t *tokens, int32_t n) {
    const mtmd_input_chunk *chunk = chunk_at(media, index);
    size_t n_tokens = 0;
    if (!chunk || !is_text(chunk)) return -1;
    const llama_token *chunk_tokens = mtmd_input_chunk_get_tokens_text(chunk, &n_tokens);
    if (n_tokens != static_cast<size_t>(n)) return -1;
    std::memcpy(tokens, chunk_tokens, n_tokens * sizeof(int32_t));
    return 0;
}

int32_t llamad_media_positions(const llamad_media *media, int32_t index, int32_t *positions, int32_t n) {
    const mtmd_input_chunk *chunk = chunk_at(media, index);
    const mtmd_image_tokens *image = chunk ? mtmd_input_chunk_get_tokens_image(chunk) : nullptr;
    if (!image || mtmd_input_chunk_get_n_tokens(chunk) != static_cast<size_t>(n)) return -1;
    for (int32_t i = 0; i < n; i++) {
        const mtmd_decoder_pos pos = mtmd_image_tokens_get_decoder_pos(image, 0, static_cast<size_t>(i));
        positions[i] = static_cast<int32_t>(pos.t);
        positions[n + i] = static_cast<int32_t>(pos.y);
        positions[2 * n + i] = static_cast<int32_t>(pos.x);
    }
    return 0;
}

int32_t llamad_media_encode(llamad_media *media, int32_t index, float *rows, int64_t n_floats) {
    return guarded<int32_t>(-1, [&]() -> int32_t {
        const mtmd_input_chunk *chunk = chunk_at(media, index);
        if (!chunk || is_text(chunk)) return -1;
        const auto n = static_cast<int64_t>(mtmd_input_chunk_get_n_tokens(chunk)) * media->n_row;
        llamad_remember_error("llama.cpp could not encode it");
        media->pieces.begin();
        if (n != n_floats || mtmd_encode_chunk(media->ctx, chunk) != 0) return -1;
        const float *out = mtmd_get_output_embd(media->ctx);
        if (!out) return -1;
        if (!std::all_of(out, out + n, [](float one) { return std::isfinite(one); })) {
            llamad_remember_error("the projector computed values that are not finite");
            return -1;
        }
        std::memcpy(rows, out, static_cast<size_t>(n) * sizeof(float));
        return 0;
    });
}
