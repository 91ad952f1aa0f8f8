// Splits a text at its special tokens.
//
// llama.cpp searches for one special token after the other, the longest first, in every piece of text that the earlier
// ones have left. It keeps the pieces in a linked list and walks that from the start for each match: 390 KB of
// "<|im_end|>" take 6 seconds, and ten times as much takes ten minutes.
//
// Here a trie finds every place where a special token begins. Matches that overlap form a cluster, and the order of the
// tokens matters only within a cluster. There they are searched one after the other as in llama.cpp, but in vectors,
// and only those that occur in the cluster. A token that strips white space may reach into the next cluster, so if a
// vocabulary has such tokens, the whole text is one cluster.
//
// The time is linear in the length of the text. How many tokens can overlap and how long they are depends only on the
// vocabulary.
#include "special.h"

#include <algorithm>
#include <cctype>
#include <string_view>

namespace {

constexpr int kControl = LLAMA_TOKEN_ATTR_CONTROL | LLAMA_TOKEN_ATTR_UNKNOWN;
constexpr int kSpecial = kControl | LLAMA_TOKEN_ATTR_USER_DEFINED;

} // namespace

// Matches that overlap, and the ranks of their tokens.
struct SpecialTokens::Cluster {
    Run range{0, 0};
    std::vector<int32_t> ranks;
    std::vector<bool> has; // by rank
    std::vector<Run> runs, left;

    explicit Cluster(size_t n_tokens) : has(n_tokens) {}

    void add(int32_t at, int32_t end, int32_t rank) {
        if (ranks.empty()) range = {at, end};
        range.to = std::max(range.to, end);
        if (has[static_cast<size_t>(rank)]) return;
        has[static_cast<size_t>(rank)] = true;
        ranks.push_back(rank);
    }

    void clear() {
        for (const int32_t rank : ranks) has[static_cast<size_t>(rank)] = false;
        ranks.clear();
        range = {0, 0};
    }
};

SpecialTokens::SpecialTokens(const llama_vocab *vocab) {
    std::fill(std::begin(roots_), std::end(roots_), -1);
    for (int32_t id = 0; id < llama_vocab_n_tokens(vocab); id++) {
        const int attr = llama_vocab_get_attr(vocab, id);
        const char *text = llama_vocab_get_text(vocab, id);
        if (!(attr & kSpecial) || !text[0]) continue;
        tokens_.push_back({text, id, (attr & kControl) != 0, (attr & LLAMA_TOKEN_ATTR_LSTRIP) != 0,
                           (attr & LLAMA_TOKEN_ATTR_RSTRIP) != 0});
        strips_ = strips_ || (attr & (LLAMA_TOKEN_ATTR_LSTRIP | LLAMA_TOKEN_ATTR_RSTRIP));
    }
    // This sort is not stable, on purpose: llama.cpp uses the same sort, so tokens of equal length get the same order.
    std::sort(tokens_.begin(), tokens_.end(),
              [](const Token &a, const Token &b) { return a.text.size() > b.text.size(); });
    for (size_t rank = 0; rank < tokens_.size(); rank++) add(static_cast<int32_t>(rank));
}

void SpecialTokens::add(int32_t rank) {
    const Token &token = tokens_[static_cast<size_t>(rank)];
    int32_t node = -1;
    for (const char byte : token.text) {
        int32_t next = node < 0 ? roots_[static_cast<unsigned char>(byte)] : child_of(node, byte);
        if (next < 0) {
            next = static_cast<int32_t>(nodes_.size());
            nodes_.push_back({-1, node < 0 ? -1 : nodes_[static_cast<size_t>(node)].child, -1, -1, byte});
            if (node < 0) roots_[static_cast<unsigned char>(byte)] = next;
            else nodes_[static_cast<size_t>(node)].child = next;
        }
        node = next;
    }
    Node &last = nodes_[static_cast<size_t>(node)];
    if (last.first < 0) last.first = rank;
    if (last.first_plain < 0 && !token.is_control) last.first_plain = rank;
}

int32_t SpecialTokens::child_of(int32_t node, char byte) const {
    int32_t child = nodes_[static_cast<size_t>(node)].child;
    while (child >= 0 && nodes_[static_cast<size_t>(child)].byte != byte)
        child = nodes_[static_cast<size_t>(child)].sibling;
    return child;
}

// Calls visit(end, rank) for every token that begins at `at`, the shortest first, until one returns false.
template <typename Visit>
void SpecialTokens::visit_at(const char *text, int32_t n, int32_t at, bool parse_special, Visit visit) const {
    int32_t node = roots_[static_cast<unsigned char>(text[at])];
    for (int32_t end = at + 1; node >= 0; end++) {
        const Node &here = nodes_[static_cast<size_t>(node)];
        const int32_t rank = parse_special ? here.first : here.first_plain;
        if (rank >= 0 && !visit(end, rank)) return;
        if (end == n) return;
        node = child_of(node, text[end]);
    }
}

int32_t SpecialTokens::count(const char *text, int32_t n, bool parse_special, int32_t max) const {
    int32_t n_found = 0;
    for (int32_t at = 0; at < n && n_found < max; at++) {
        visit_at(text, n, at, parse_special, [&](int32_t, int32_t) {
            n_found++;
            return false;
        });
    }
    return n_found;
}

// Finds all matches of one token in one run of text that is left, as llama.cpp does.
void SpecialTokens::take(const char *text, const Token &token, Run run, std::vector<Run> *left,
                         std::vector<Match> *matches) const {
    const auto length = static_cast<int32_t>(token.text.size());
    while (run.to - run.from >= length) {
        const size_t begin =
            std::string_view(text, static_cast<size_t>(run.to)).find(token.text, static_cast<size_t>(run.from));
        if (begin == std::string_view::npos) break;
        const auto at = static_cast<int32_t>(begin);
        Run taken{at, at + length};
        while (token.strips_left && taken.from > run.from && isspace(text[taken.from - 1])) taken.from--;
        while (token.strips_right && taken.to < run.to && isspace(text[taken.to])) taken.to++;
        if (taken.from > run.from) left->push_back({run.from, taken.from});
        matches->push_back({{at, length, token.id}, taken});
        run.from = taken.to;
    }
    if (run.to > run.from) left->push_back(run);
}

void SpecialTokens::resolve(const char *text, Cluster *cluster, std::vector<Match> *matches) const {
    const size_t n_before = matches->size();
    cluster->runs.assign(1, cluster->range);
    std::sort(cluster->ranks.begin(), cluster->ranks.end());
    for (const int32_t rank : cluster->ranks) {
        cluster->left.clear();
        for (const Run &run : cluster->runs)
            take(text, tokens_[static_cast<size_t>(rank)], run, &cluster->left, matches);
        cluster->runs.swap(cluster->left);
    }
    std::sort(matches->begin() + static_cast<ptrdiff_t>(n_before), matches->end(),
              [](const Match &a, const Match &b) { return a.piece.at < b.piece.at; });
    cluster->clear();
}

void SpecialTokens::split(const char *text, int32_t n, bool parse_special, std::vector<Piece> *pieces) const {
    Cluster cluster(tokens_.size());
    std::vector<Match> matches;
    for (int32_t at = 0; at < n; at++) {
        visit_at(text, n, at, parse_special, [&](int32_t end, int32_t rank) {
            if (!strips_ && !cluster.ranks.empty() && at >= cluster.range.to) resolve(text, &cluster, &matches);
            cluster.add(at, end, rank);
            return true;
        });
    }
    if (strips_) cluster.range = {0, n};
    resolve(text, &cluster, &matches);
    int32_t from = 0;
    for (const Match &match : matches) {
        if (match.taken.from > from) pieces->push_back({from, match.taken.from - from, -1});
        pieces->push_back(match.piece);
        from = match.taken.to;
    }
    if (from < n) pieces->push_back({from, n - from, -1});
}
