// Owns: how the tree is built when a model is loaded. Very long tokens are left out, so no mask allows them; the depth
// has to fit the stack of the walk, and no model needs such tokens.
#include "trie.hpp"

#include "llama/tokenizer/utf8.h"

#include <algorithm>
#include <cstring>

namespace {
constexpr uint32_t TOKEN_BYTES_MAX = 4096;
} // namespace

llamad_trie::llamad_trie(const char *all_bytes, const uint32_t *all_offsets, const uint8_t *ends, int32_t n)
    : same(static_cast<size_t>(n), -1), is_eog(ends, ends + n), bytes(all_bytes), offsets(all_offsets), n_vocab(n) {
    std::vector<int32_t> order;
    is_text.resize(static_cast<size_t>(n));
    for (int32_t token = 0; token < n; token++) {
        is_text[token] = has_text(token) && utf8_is_valid(bytes + offsets[token], length(token)) != 0;
        if (is_eog[token]) eog.push_back(token);
        else if (has_text(token) && length(token) <= TOKEN_BYTES_MAX) order.push_back(token);
    }
    std::sort(order.begin(), order.end(), [this](int32_t a, int32_t b) {
        uint32_t n_a = length(a), n_b = length(b);
        int c = memcmp(bytes + offsets[a], bytes + offsets[b], std::min(n_a, n_b));
        return c != 0 ? c < 0 : n_a != n_b ? n_a < n_b : a < b;
    });
    std::vector<uint32_t> path; // the nodes of the current token's bytes
    int32_t before = -1;
    for (int32_t token : order) {
        uint32_t n_token = length(token), n_common = 0;
        const char *text = bytes + offsets[token];
        if (before >= 0) {
            uint32_t n_max = std::min(n_token, length(before));
            while (n_common < n_max && text[n_common] == bytes[offsets[before] + n_common]) n_common++;
        }
        if (before >= 0 && n_common == n_token && n_token == length(before)) {
            same[before] = token;
            before = token;
            continue;
        }
        while (path.size() > n_common) {
            nodes[path.back()].skip = static_cast<uint32_t>(nodes.size());
            path.pop_back();
        }
        for (uint32_t i = n_common; i < n_token; i++) {
            path.push_back(static_cast<uint32_t>(nodes.size()));
            nodes.push_back({0, -1, static_cast<uint16_t>(i), static_cast<uint8_t>(text[i])});
        }
        nodes.back().token = token;
        depth_max = std::max(depth_max, n_token);
        before = token;
    }
    for (uint32_t at : path) nodes[at].skip = static_cast<uint32_t>(nodes.size());
    nodes.shrink_to_fit();
}

int32_t llamad_trie::longest(const uint8_t *text, size_t n) const {
    int32_t token = -1;
    uint32_t at = 0, end = static_cast<uint32_t>(nodes.size()); // the siblings at one depth
    for (size_t i = 0; i < n; i++) {
        while (at < end && nodes[at].byte != text[i]) at = nodes[at].skip;
        if (at >= end) break;
        if (nodes[at].token >= 0) token = nodes[at].token;
        end = nodes[at].skip;
        at++;
    }
    return token;
}
