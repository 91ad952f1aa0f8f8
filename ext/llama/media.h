// Turns images (pixels) and sound (samples) into rows of embeddings, through mtmd.h. Called only by the encoder
// process, from one thread. A piece is a run of text tokens or of rows; the pieces are in the order of the prompt.
#pragma once
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct llamad_media llamad_media;

typedef struct {
    int32_t is_text;
    int32_t n_tokens;
    int32_t n_pos;         // positions that the piece takes; fewer than its tokens with M-RoPE
    int32_t is_non_causal; // every row sees all the others, so they go into one batch
    int32_t is_grid;       // the rows have positions in a grid (llamad_media_positions)
} llamad_piece;

typedef struct {
    int32_t n_threads;
    int32_t uses_gpu;
    int32_t image_min_tokens; // -1: the projector's default
    int32_t image_max_tokens;
    int32_t flash_attn; // llama_flash_attn_type
    const char *device; // NULL: mtmd chooses
} llamad_media_params;

typedef struct {
    int32_t sees;
    int32_t hears;
    int32_t sample_rate;
    int32_t has_mrope;
    int32_t n_row; // floats per row
} llamad_media_info;

// Returns NULL on an error; llamad_last_error() has its text.
llamad_media *llamad_media_open(const char *path, const char *model, const llamad_media_params *params);
void llamad_media_close(llamad_media *media);
void llamad_media_describe(const llamad_media *media, llamad_media_info *info);
// Cuts a file into pieces, which stay valid until the next call. Returns their number, or -1. An image is width *
// height * 3 bytes, or NULL to only count the tokens; a sound is `width` floats, with height 0.
int32_t llamad_media_cut(llamad_media *media, const void *data, int32_t width, int32_t height);
int32_t llamad_media_piece(const llamad_media *media, int32_t index, llamad_piece *piece);
// Copies the tokens of a text piece.
int32_t llamad_media_tokens(const llamad_media *media, int32_t index, int32_t *tokens, int32_t n);
// Copies the positions of a piece's rows, relative to its first position: t[n], y[n], x[n].
int32_t llamad_media_positions(const llamad_media *media, int32_t index, int32_t *positions, int32_t n);
// Computes the rows of a piece. Returns 0, or -1.
int32_t llamad_media_encode(llamad_media *media, int32_t index, float *rows, int64_t n_floats);

#ifdef __cplusplus
}
#endif
