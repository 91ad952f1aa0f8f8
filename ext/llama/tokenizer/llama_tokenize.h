/* llama.cpp's tokenizer, on a stack that is as large as it needs.
 *
 * Owns: the threads that have such stacks, each for one text.
 */
#ifndef LLAMAD_LLAMA_TOKENIZE_H
#define LLAMAD_LLAMA_TOKENIZE_H

#include "vocabulary.h"

#include <cstdint>

/* As llama_tokenize. Throws std::length_error where the text is too long to be tokenized in one. */
int32_t ask_llama(const Vocabulary &vocabulary, const char *text, int32_t n_text, int32_t *tokens, int32_t n_max,
                  bool add_special, bool parse_special);

#endif
