// Owns: how a mask is computed by walking the vocabulary's tree, and how it is applied to logits. Runs on sampler and
// grammar threads; make_mask under the grammar's lock. See mask.hpp.
#include "mask.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace llamad {
namespace {

constexpr int64_t WORK_OF_WALK = 4; // nodes of the vocabulary's tree that count as one edge
constexpr uint32_t WALK_CHECK = 64; // nodes between two checks of the work left

void allow(Mask &mask, const llamad_trie &trie, int32_t token) {
    for (; token >= 0; token = trie.same[token]) mask.bits[token >> 6] |= 1ull << (token & 63);
}

void walk_tree(Machine &machine, const llamad_trie &trie, uint32_t place, bool is_limited, Mask &mask) {
    std::vector<uint32_t> walk(trie.depth_max + 1); // the places on the current path down the tree
    walk[0] = place;
    uint32_t n = static_cast<uint32_t>(trie.nodes.size()), n_seen = 0;
    for (uint32_t at = 0; at < n;) {
        if (++n_seen % WALK_CHECK == 0) {
            machine.work_left -= WALK_CHECK / WORK_OF_WALK;
            if ((is_limited && machine.work_left < 0) || machine.is_cancelled()) throw TooMuch{};
        }
        const llamad_trie::Node &node = trie.nodes[at];
        uint32_t next = machine.next(walk[node.depth], node.byte);
        if (next == DEAD) {
            at = node.skip;
            continue;
        }
        walk[node.depth + 1] = next;
        if (node.token >= 0) allow(mask, trie, node.token);
        at++;
    }
}

void allow_token_edges(Machine &machine, const llamad_trie &trie, uint32_t place, Mask &mask) {
    int32_t n_not = 0, the_not = -1;
    machine.each_token_edge(place, [&](int32_t token, bool is_not) {
        if (is_not) {
            // Two edges that exclude different tokens together allow all tokens.
            n_not += n_not == 0 || token != the_not;
            the_not = token;
        } else if (!trie.is_eog[token] && trie.has_text(token)) {
            mask.bits[token >> 6] |= 1ull << (token & 63);
        }
    });
    if (n_not == 0) return;
    for (int32_t token = 0; token < trie.n_vocab; token++) {
        if (!trie.is_eog[token] && trie.is_text[token] && (n_not > 1 || token != the_not)) {
            mask.bits[token >> 6] |= 1ull << (token & 63);
        }
    }
}

// Sets the logits whose bit is 0 to -inf. It has no branches, so that the compiler can vectorize it.
void forbid(float *logits, int32_t n, uint32_t allowed) {
    uint32_t bits[32], minus_infinity = 0xFF800000u;
    if (n < 32) {
        for (int32_t i = 0; i < n; i++) logits[i] = (allowed >> i & 1) ? logits[i] : -INFINITY;
        return;
    }
    memcpy(bits, logits, sizeof bits);
    for (uint32_t i = 0; i < 32; i++) {
        uint32_t keep = 0u - (allowed >> i & 1u);
        bits[i] = (bits[i] & keep) | (minus_infinity & ~keep);
    }
    memcpy(logits, bits, sizeof bits);
}

} // namespace

Mask make_mask(Machine &machine, const llamad_trie &trie, uint32_t place, bool is_limited) {
    Mask mask;
    mask.bits.assign((static_cast<size_t>(trie.n_vocab) + 63) / 64, 0);
    walk_tree(machine, trie, place, is_limited, mask);
    allow_token_edges(machine, trie, place, mask);
    if (machine.may_end(place)) {
        for (int32_t token : trie.eog) mask.bits[token >> 6] |= 1ull << (token & 63);
    }
    for (uint64_t word : mask.bits) mask.n_allowed += __builtin_popcountll(word);
    return mask;
}

void apply_mask(const Mask &mask, float *logits, int32_t n) {
    for (int32_t first = 0; first < n; first += 32) {
        uint32_t word = static_cast<uint32_t>(mask.bits[static_cast<size_t>(first >> 6)] >> (first & 32));
        if (word != UINT32_MAX) forbid(logits + first, std::min(32, n - first), word);
    }
}

} // namespace llamad
