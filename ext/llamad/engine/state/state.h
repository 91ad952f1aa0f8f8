/* Saved slot states as workers, the engine and the fuzzer see them: plain C over the C++ beside it. No exception leaves.
 *
 * SES1 is "SES1", u32 n_tokens, i32 tokens, then what llama.cpp's per-sequence state call writes. Nothing that came from
 * outside reaches llama.cpp before llamad_state_check() has compared every length and header with the layout that the
 * running model was seen to use. All functions may run on any thread and never touch the engine.
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
    LLAMAD_STATE_E_WRONG  = -1, /* the reason says what */
    LLAMAD_STATE_E_MEMORY = -2
};

/* How this model's memory is written, learned from what llama.cpp wrote for a sequence of one token and of two. n_window:
 * the tokens that its sliding window holds, 0 without one. NULL and a reason where that is no form known here. */
llamad_layout *llamad_layout_learn(const uint8_t *one, size_t n_one, const uint8_t *two, size_t n_two, uint32_t n_window,
                                   llamad_state_error *error);
void           llamad_layout_close(llamad_layout *layout);
/* The largest SES1 blob of so many tokens under this layout, saved here, or (max) by whatever number of slots. */
size_t         llamad_layout_bytes(const llamad_layout *layout, uint32_t n_tokens);
size_t         llamad_layout_bytes_max(const llamad_layout *layout, uint32_t n_tokens);

/* 0 where llama.cpp can be given the blob. *n_tokens is its count, *n_bytes the size it has once it is written for the
 * running cache: other than n where the blob is of another number of slots, and then it must be rewritten. */
int32_t llamad_state_check(const llamad_layout *layout, const uint8_t *data, size_t n, uint32_t n_vocab, uint32_t n_ctx,
                           uint32_t *n_tokens, size_t *n_bytes, llamad_state_error *error);
/* A checked blob for the running cache, into n_bytes at out. */
int32_t llamad_state_rewrite(const llamad_layout *layout, const uint8_t *data, size_t n, uint8_t *out);

/* A slot's file as llama.cpp and llama-server write it. The size of the SES1 blob that it becomes, or an error. */
int64_t llamad_file_ses1_bytes(const uint8_t *data, size_t n, llamad_state_error *error);
void    llamad_file_to_ses1(const uint8_t *data, size_t n, uint8_t *out);

/* Base64, and the request body {"state": "<base64>"}: where the text of the value lies, or an error. */
size_t  llamad_base64_encode(const uint8_t *data, size_t n, char *out);
int64_t llamad_base64_decode(const char *text, size_t n, uint8_t *out); /* at most n / 4 * 3 + 3 bytes; -1: not base64 */
int32_t llamad_json_find_state(const char *body, size_t n, size_t *begin, size_t *end, llamad_state_error *error);

#ifdef __cplusplus
}
#endif
#endif
