// The vocabulary as a tree of bytes, in the order of a depth-first walk. Made once per model, then only read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

struct llamad_trie {
    struct Node {
        uint32_t skip;  // the next node if nothing below this one fits
        int32_t token;  // the token that ends here, -1: none
        uint16_t depth; // index of the byte in the token
        uint8_t byte;
    };
    std::vector<Node> nodes;
    std::vector<int32_t> same; // for each token: the next one with the same bytes, -1: none
    std::vector<int32_t> eog;  // tokens that end a text; they are not in the tree
    std::vector<uint8_t> is_eog;
    std::vector<uint8_t> is_text; // for each token: whether it consists of whole characters
    const char *bytes = nullptr;
    const uint32_t *offsets = nullptr;
    int32_t n_vocab = 0;
    uint32_t depth_max = 0;

    llamad_trie(const char *bytes, const uint32_t *offsets, const uint8_t *is_eog, int32_t n_vocab);

    // Returns the longest token that the text begins with, or -1.
    int32_t longest(const uint8_t *text, size_t n) const;

    uint32_t length(int32_t token) const { return offsets[token + 1] - offsets[token]; }
    // Tokens without text, or whose text begins with NUL, never fit a grammar.
    bool has_text(int32_t token) const { return length(token) > 0 && bytes[offsets[token]] != 0; }
};
