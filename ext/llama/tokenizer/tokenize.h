/* The tokens of any text: as llama.cpp has them, in linear time, and no longer than somebody waits for them.
 *
 * Owns: into which parts a text is cut, and when it is given up.
 */
#ifndef LLAMAD_TOKENIZE_H
#define LLAMAD_TOKENIZE_H

#include "../function_table.h"
#include "llama.h"

#include <cstdint>

/* As llama_tokenize; `limits` may be null. Throws what llama.cpp does, and std::length_error (ask.h). */
int32_t text_tokenize(const llama_vocab *vocab, const char *text, int32_t n_text, int32_t *tokens, int32_t n_max,
                      bool add_special, bool parse_special, const llamad_tokenize_limits *limits);

#endif
