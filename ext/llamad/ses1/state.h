/* The C interface to saved slot states, for workers, the engine and the fuzzer. No exception leaves it.
 *
 * SES1 is "SES1", u32 n_tokens, i32 tokens, then what llama.cpp's per-sequence state call writes. Nothing from outside
 * reaches llama.cpp before llamad_state_check() has compared every length and header with the layout that the running
 * model uses. All functions may run on any thread and never touch the engine.
 */
#ifndef LLAMAD_STATE_H
#define LLAMAD_STATE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct llamad_layout llamad_layout;

typedef struct llamad_state_error {
    char reason[256];
} llamad_state_error;

enum {
    LLAMAD_STATE_E_WRONG = -1, /* the reason says what is wrong */
    LLAMAD_STATE_E_MEMORY = -2
};

/* Learns the layout in which this model's memory is written, from what llama.cpp wrote for a sequence of one token and
 * of two. n_window is the number of tokens in its sliding window, 0 without one. Returns NULL and a reason if the form
 * is unknown. */
llamad_layout *llamad_layout_learn(const uint8_t *one, size_t n_one, const uint8_t *two, size_t n_two,
                                   uint32_t n_window, llamad_state_error *error);
void llamad_layout_close(llamad_layout *layout);
/* Returns the size of the largest SES1 blob with this many tokens: saved here, or (max) with any number of slots. */
size_t llamad_layout_bytes(const llamad_layout *layout, uint32_t n_tokens);
size_t llamad_layout_bytes_max(const llamad_layout *layout, uint32_t n_tokens);
/* Returns the largest power of two that divides the size of each cell's rows; 0 if rows are quantized, transposed
 * or empty, or if there are no cells. */
uint64_t llamad_layout_row_unit(const llamad_layout *layout);

/* Returns 0 if llama.cpp can read the blob. *n_tokens is its token count, *n_bytes the size that it needs for the
 * running cache. That differs from n if the blob was saved with another number of slots; then it must be rewritten. */
int32_t llamad_state_check(const llamad_layout *layout, const uint8_t *data, size_t n, uint32_t n_vocab, uint32_t n_ctx,
                           uint32_t *n_tokens, size_t *n_bytes, llamad_state_error *error);
/* Returns 0 if llama.cpp can read the blob, which has n_tokens tokens but only the cells from position `begin` on, and no
 * end (pieces.h): what it writes for a spare sequence that has only these, and what is cut from a state. */
int32_t llamad_segment_check(const llamad_layout *layout, const uint8_t *data, size_t n, uint32_t n_vocab,
                             uint32_t n_ctx, uint32_t begin, uint32_t n_tokens, llamad_state_error *error);
/* Returns 0 if llama.cpp can read the blob, which has n_tokens tokens and the end of their state. */
int32_t llamad_end_check(const llamad_layout *layout, const uint8_t *data, size_t n, uint32_t n_vocab, uint32_t n_ctx,
                         uint32_t n_tokens, llamad_state_error *error);
/* Returns 0 if llama.cpp can read a checkpoint of a sequence of n_tokens, which is what its flag for partial states
 * writes: windows and recurrent parts, without the cells of all tokens, and nothing before llama.cpp's own head. */
int32_t llamad_checkpoint_check(const llamad_layout *layout, const uint8_t *data, size_t n, uint32_t n_tokens,
                                llamad_state_error *error);
/* Rewrites a checked blob for the running cache, into n_out bytes at out. */
int32_t llamad_state_rewrite(const llamad_layout *layout, const uint8_t *data, size_t n, uint8_t *out, size_t n_out);

/* A slot file of llama.cpp or llama-server has a front, which is the head and the list of tokens, and the memory, which
 * is read directly to its place. Returns the length of the front, from the first bytes of a file of n_file, or an
 * error. */
int64_t llamad_file_front(const uint8_t *head, size_t n, size_t n_file, uint32_t n_ctx, llamad_state_error *error);
/* Returns the size of the SES1 blob that the file becomes, from the whole front, or an error. */
int64_t llamad_file_ses1_bytes(const uint8_t *front, size_t n, size_t n_file, llamad_state_error *error);
/* Writes all of that blob except the memory, and returns the offset where the memory begins. */
size_t llamad_file_to_ses1(const uint8_t *front, size_t n, uint8_t *out);

/* Base64, and the position of the value's text in the request body {"state": "<base64>"}. */
size_t llamad_base64_encode(const uint8_t *data, size_t n, char *out);
int64_t llamad_base64_decode(const char *text, size_t n,
                             uint8_t *out); /* at most n / 4 * 3 + 3 bytes; -1: not base64 */
int32_t llamad_json_find_state(const char *body, size_t n, size_t *begin, size_t *end, llamad_state_error *error);

#ifdef __cplusplus
}
#endif
#endif
