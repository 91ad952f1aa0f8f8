// Holds the merges of a vocabulary as pairs of token ids, so that the letters of a word are merged by comparing
// numbers. llama.cpp compares texts, and makes two new strings for each pair that it looks at.
#include "merges.h"

#include "gguf.h"
#include "hash.h"

#include <algorithm>
#include <cstring>
#include <string_view>

namespace {

// GPT-2 writes a space as this letter. All other bytes that is_known() accepts stand for themselves.
constexpr char kSpace[] = "\u0120";

// The size of a hash table for n entries: a power of two, with free places left.
size_t room_for(size_t n) {
    size_t room = 16;
    while (room < n + n / 2) room *= 2;
    return room;
}

// Whether this text can occur in a word of known bytes.
bool can_occur(std::string_view text) {
    while (!text.empty()) {
        if (text.substr(0, 2) == kSpace) text.remove_prefix(2);
        else if (text[0] != ' ' && is_known(text[0])) text.remove_prefix(1);
        else return false;
    }
    return true;
}

} // namespace

Merges::Merges(const llama_vocab *vocab) : vocab_(vocab) {
    add_tokens();
    std::fill(std::begin(letters_), std::end(letters_), -1);
    for (char c = 0; c >= 0 && c < 127; c++) {
        if (c == ' ') letters_[static_cast<int>(c)] = token_of(kSpace, 2);
        else if (is_known(c)) letters_[static_cast<int>(c)] = token_of(&c, 1);
    }
}

void Merges::add_tokens() {
    const int32_t n = llama_vocab_n_tokens(vocab_);
    tokens_.assign(room_for(static_cast<size_t>(n)), -1);
    for (int32_t token = 0; token < n; token++) {
        const char *text = llama_vocab_get_text(vocab_, token);
        const size_t length = strlen(text), mask = tokens_.size() - 1;
        size_t at = hash_text(text, length, length) & mask;
        while (tokens_[at] >= 0) at = (at + 1) & mask;
        tokens_[at] = token;
    }
}

int32_t Merges::token_of(const char *text, size_t n) const {
    const size_t mask = tokens_.size() - 1;
    for (size_t at = hash_text(text, n, n) & mask; tokens_[at] >= 0; at = (at + 1) & mask) {
        const char *token_text = llama_vocab_get_text(vocab_, tokens_[at]);
        if (strncmp(token_text, text, n) == 0 && token_text[n] == 0) return tokens_[at];
    }
    return -1;
}

// Returns the place of the pair in the hash table, or the free place for it.
size_t Merges::place_of(int32_t left, int32_t right) const {
    const size_t mask = pairs_.size() - 1;
    size_t at = hash_mix(static_cast<uint64_t>(left), static_cast<uint64_t>(right) << 32) & mask;
    while (pairs_[at].left >= 0 && (pairs_[at].left != left || pairs_[at].right != right)) at = (at + 1) & mask;
    return at;
}

const Merges::Pair &Merges::pair_of(int32_t left, int32_t right) const { return pairs_[place_of(left, right)]; }

bool Merges::add_merges(const std::string &path) {
    gguf_init_params params{};
    params.no_alloc = true;
    const std::unique_ptr<gguf_context, decltype(&gguf_free)> head(gguf_init_from_file(path.c_str(), params),
                                                                   gguf_free);
    const gguf_context *file = head.get();
    if (!file) return false;
    const int64_t key = gguf_find_key(file, "tokenizer.ggml.merges");
    if (key < 0 || gguf_get_kv_type(file, key) != GGUF_TYPE_ARRAY) return false;
    if (gguf_get_arr_type(file, key) != GGUF_TYPE_STRING) return false;
    struct Merge {
        std::string_view left, right;
        int32_t rank;
    };
    std::vector<Merge> merges;
    for (size_t i = 0; i < gguf_get_arr_n(file, key); i++) {
        const std::string_view text = gguf_get_arr_str(file, key, i);
        const size_t space = text.find(' ', 1);
        if (space == std::string_view::npos) continue; // llama.cpp reads it as a merge of two empty texts
        const std::string_view left = text.substr(0, space), right = text.substr(space + 1);
        if (can_occur(left) && can_occur(right)) merges.push_back({left, right, static_cast<int32_t>(i)});
    }
    pairs_.assign(room_for(merges.size()), {-1, -1, 0, -1});
    std::string both;
    for (const Merge &merge : merges) {
        const int32_t left = token_of(merge.left.data(), merge.left.size());
        const int32_t right = token_of(merge.right.data(), merge.right.size());
        if (left < 0 || right < 0) continue; // apply() starts from tokens, so it never needs this merge
        both.assign(merge.left).append(merge.right);
        Pair &pair = pairs_[place_of(left, right)];
        if (pair.left >= 0) continue; // llama.cpp keeps the first of two merges of the same pair
        pair = {left, right, merge.rank, token_of(both.data(), both.size())};
    }
    return true;
}

std::unique_ptr<const Merges> Merges::read(const llama_vocab *vocab, const std::string &path) {
    std::unique_ptr<Merges> merges(new Merges(vocab));
    return merges->add_merges(path) ? std::move(merges) : nullptr;
}

int32_t Merges::apply(const char *piece, int32_t n, int32_t *tokens) const {
    const Pair *pairs[kPieceBytes]; // the pair of each token and the next
    char text[kPieceBytes + 2];
    size_t n_text = 0;
    int32_t n_tokens = n;
    if (n < 1 || n > kPieceBytes) return 0;
    for (int32_t i = 0; i < n; i++) {
        const auto c = static_cast<unsigned char>(piece[i]);
        if (c > 126 || letters_[c] < 0 || (c == ' ' && i > 0)) return 0;
        tokens[i] = letters_[c];
        if (c == ' ') text[n_text++] = kSpace[0], text[n_text++] = kSpace[1];
        else text[n_text++] = piece[i];
    }
    for (int32_t i = 0; i + 1 < n; i++) pairs[i] = &pair_of(tokens[i], tokens[i + 1]);
    while (n_tokens > 1) {
        int32_t best = -1;
        for (int32_t i = 0; i + 1 < n_tokens; i++) {
            if (pairs[i]->left >= 0 && (best < 0 || pairs[i]->rank < pairs[best]->rank)) best = i;
        }
        if (best < 0) break;
        if (pairs[best]->merged < 0) return 0;
        tokens[best] = pairs[best]->merged;
        n_tokens--;
        std::copy(tokens + best + 2, tokens + n_tokens + 1, tokens + best + 1);
        if (best < n_tokens - 1) {
            std::copy(pairs + best + 2, pairs + n_tokens, pairs + best + 1);
            pairs[best] = &pair_of(tokens[best], tokens[best + 1]);
        }
        if (best > 0) pairs[best - 1] = &pair_of(tokens[best - 1], tokens[best]);
    }
    // Some tokenizers take a whole piece that is a token at once, others only if the merges lead to it: let llama.cpp
    // decide.
    return n_tokens == 1 || token_of(text, n_text) < 0 ? n_tokens : 0;
}
