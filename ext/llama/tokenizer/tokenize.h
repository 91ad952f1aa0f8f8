/* Tokenizes any text: with llama.cpp's result, in linear time, and within limits.
 *
 * Owns: how a text is cut into parts, and when it is given up.
 */
#ifndef LLAMAD_TOKENIZE_H
#define LLAMAD_TOKENIZE_H

#include "../function_table.h"
#include "llama.h"

#include <cstdint>

/* Like llama_tokenize; `limits` may be null. Throws what llama.cpp throws, and std::length_error (llama_tokenize.h). */
int32_t text_tokenize(const llama_vocab *vocab, const char *text, int32_t n_text, int32_t *tokens, int32_t n_max,
                      bool add_special, bool parse_special, const llamad_tokenize_limits *limits);

#endif
