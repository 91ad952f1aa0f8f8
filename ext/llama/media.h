// Images and sound through mtmd.h: from pixels and samples to rows of embeddings. Called by the encoder process alone,
// from one thread. A piece is a run of text tokens or of rows, in the order in which the prompt takes them.
#pragma once
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct llamad_media llamad_media;

typedef struct {
    int32_t is_text;
    int32_t n_tokens;
    int32_t n_pos;         // positions that it advances; fewer than its tokens with M-RoPE
    int32_t is_non_causal; // its rows see each other: they go into one batch
    int32_t is_grid;       // its rows have positions of their own (llamad_media_positions)
} llamad_piece;

typedef struct {
    int32_t n_threads;
    int32_t uses_gpu;
    int32_t image_min_tokens; // -1: the projector's
    int32_t image_max_tokens;
    int32_t flash_attn; // llama_flash_attn_type
    const char *device; // NULL: mtmd's choice
} llamad_media_params;

typedef struct {
    int32_t sees;
    int32_t hears;
    int32_t sample_rate;
    int32_t has_mrope;
    int32_t n_row; // floats of a row
} llamad_media_info;

// NULL: llamad_last_error() says why.
llamad_media *llamad_media_open(const char *path, const char *model, const llamad_media_params *params);
void llamad_media_close(llamad_media *media);
void llamad_media_describe(const llamad_media *media, llamad_media_info *info);
// Cut what was sent into pieces, which stay until the next call. Their number, or -1. An image is width * height * 3
// bytes, or NULL to count only; a sound is `width` floats, with height 0.
int32_t llamad_media_cut(llamad_media *media, const void *data, int32_t width, int32_t height);
int32_t llamad_media_piece(const llamad_media *media, int32_t index, llamad_piece *piece);
// The tokens of a piece of text.
int32_t llamad_media_tokens(const llamad_media *media, int32_t index, int32_t *tokens, int32_t n);
// Its rows' positions, relative to its first: t[n], y[n], x[n].
int32_t llamad_media_positions(const llamad_media *media, int32_t index, int32_t *positions, int32_t n);
// Its rows. 0, or -1.
int32_t llamad_media_encode(llamad_media *media, int32_t index, float *rows, int64_t n_floats);

#ifdef __cplusplus
}
#endif
