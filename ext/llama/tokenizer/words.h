/* Tokens of texts, word by word out of a cache, where that gives what llama.cpp gives for the whole.
 *
 * Owns: the caches, one for each thread that tokenizes.
 */
#ifndef LLAMAD_WORDS_H
#define LLAMAD_WORDS_H

#include "llama.h"
#include "vocabulary.h"

#include <cstdint>

/* Before each text, of whose parts the bytes that llama.cpp is asked for are counted (llamad_words_asked). */
void words_begin();

/* As llama_tokenize. */
int32_t words_tokenize(const Vocabulary &vocabulary, const char *text, int32_t n_text, int32_t *tokens, int32_t n_max,
                       bool add_special, bool parse_special);

#endif
