// The tokens that may come next at a place of a grammar: a bit for each token of the vocabulary.
#pragma once

#include <cstdint>
#include <vector>

#include "machine.hpp"
#include "trie.hpp"

namespace llamad {

struct Mask {
    std::vector<uint64_t> bits;
    int32_t n_allowed = 0;
};

// Throws TooMuch if a new place takes more work than the machine has left; with is_limited, also if the walk itself
// does.
Mask make_mask(Machine &machine, const llamad_trie &trie, uint32_t place, bool is_limited);
// Sets the logits of tokens that may not come next to -inf, of n logits in all.
void apply_mask(const Mask &mask, float *logits, int32_t n);

} // namespace llamad
