/* Tokenizes texts word by word with a cache, if the result is that of llama.cpp for the whole text.
 *
 * Owns: the caches, one for each thread that tokenizes.
 */
#ifndef LLAMAD_WORDS_H
#define LLAMAD_WORDS_H

#include "llama.h"
#include "vocabulary.h"

#include <cstdint>

/* Call before each text: restarts the count of bytes that go to llama.cpp (llamad_words_asked). */
void words_begin();

/* Like llama_tokenize. */
int32_t words_tokenize(const Vocabulary &vocabulary, const char *text, int32_t n_text, int32_t *tokens, int32_t n_max,
                       bool add_special, bool parse_special);

#endif
