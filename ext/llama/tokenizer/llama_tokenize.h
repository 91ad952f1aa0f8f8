/* Runs llama.cpp's tokenizer on a stack that is large enough.
 *
 * Owns: the threads with such stacks; each lives for one text.
 */
#ifndef LLAMAD_LLAMA_TOKENIZE_H
#define LLAMAD_LLAMA_TOKENIZE_H

#include "vocabulary.h"

#include <cstdint>

/* Like llama_tokenize. Throws std::length_error if the text is too long to be tokenized in one call. */
int32_t ask_llama(const Vocabulary &vocabulary, const char *text, int32_t n_text, int32_t *tokens, int32_t n_max,
                  bool add_special, bool parse_special);

#endif
