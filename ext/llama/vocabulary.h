/* What words.cpp must know of a model's vocabulary, if its texts can be cut into words.
 *
 * Owns: the decision for which vocabularies that holds. Threads: any; one is asked for only while its model is open.
 */
#ifndef LLAMAD_VOCABULARY_H
#define LLAMAD_VOCABULARY_H

#include "llama.h"

#include <cstddef>
#include <cstdint>
#include <vector>

struct Vocabulary {
    const llama_vocab   *vocab;
    uint32_t             id; /* from 1 on, never given twice */
    llama_token          bos, eos;            /* that are added to texts; -1: none */
    bool                 begins_control[256]; /* the bytes that control tokens begin with */
    std::vector<uint8_t> n_bytes;             /* of text that a token stands for; 0: not known */

    bool may_have_control(const char *bytes, size_t n) const;
};

/* Null if its texts are not cut. Valid as long as the model is open. */
const Vocabulary *vocabulary_of(const llama_vocab *vocab);

void vocabulary_add(const llama_model *model, const llama_model_kv_override *overrides);
void vocabulary_remove(const llama_model *model); /* before it is freed */

/* Whether every text is cut between these two. */
inline bool is_cut(char left, char right) {
    return right == ' ' && left > ' ' && left < 127;
}

#endif
