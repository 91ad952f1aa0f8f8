/* llama.cpp's tokenizer, on a stack that is as large as it needs.
 *
 * Owns: the threads that have such stacks, each for one text.
 */
#ifndef LLAMAD_ASK_H
#define LLAMAD_ASK_H

#include "llama.h"

#include <cstdint>

/* As llama_tokenize. `is_deep`: the vocabulary's regular expressions are those of the C++ library. Throws
 * std::length_error where the text is too long for these. */
int32_t ask_llama(const llama_vocab *vocab, const char *text, int32_t n_text, int32_t *tokens, int32_t n_max,
                  bool add_special, bool parse_special, bool is_deep);

#endif
