// Tokenizes a text in parts. Threads: any.
//
// A short text with few special tokens is one part. A long text is cut into parts at places where the tokenizer cuts it
// anyway (words.cpp). A part with many special tokens is split at them (special.cpp). Between parts the limits are
// checked, so that a text can be given up.
#include "tokenize.h"

#include "special.h"
#include "vocabulary.h"
#include "words.h"

#include <algorithm>
#include <new>
#include <vector>

namespace {

constexpr int32_t kPartBytes = 1 << 16;
constexpr int32_t kFewSpecial = 32; // llama.cpp's steps grow with the square of their number

bool is_simple(const Vocabulary &vocabulary, const char *text, int32_t n, bool parse_special) {
    return n <= 2 * kPartBytes && vocabulary.special->count(text, n, parse_special, kFewSpecial + 1) <= kFewSpecial;
}

struct Tokenizing {
    const Vocabulary &vocabulary;
    const llamad_tokenize_limits *limits;
    bool parse_special;
    std::vector<int32_t> out = {};
    std::vector<SpecialTokens::Piece> pieces = {};

    /* Returns 0, or the code of the limit that was reached. */
    int32_t given_up() const {
        if (!limits) return 0;
        if (limits->is_stopped && __atomic_load_n(limits->is_stopped, __ATOMIC_RELAXED)) return LLAMAD_TOKENIZE_STOPPED;
        if (limits->n_tokens_max > 0 && out.size() > static_cast<size_t>(limits->n_tokens_max))
            return LLAMAD_TOKENIZE_TOO_MANY;
        return 0;
    }

    int32_t part_end(const char *text, int32_t n, int32_t at) const {
        if (!vocabulary.has_words || n - at <= kPartBytes) return n;
        for (int32_t i = at + kPartBytes; i < n; i++) {
            if (is_cut(text[i - 1], text[i])) return i;
        }
        return n;
    }

    void add_plain(const char *text, int32_t n, bool parse) {
        const size_t n_before = out.size();
        int32_t n_max = n + 8, n_tokens;
        for (;;) {
            out.resize(n_before + static_cast<size_t>(n_max));
            n_tokens = words_tokenize(vocabulary, text, n, out.data() + n_before, n_max, false, parse);
            if (n_tokens >= 0) break;
            if (n_tokens == INT32_MIN) throw std::bad_alloc();
            n_max = -n_tokens;
        }
        out.resize(n_before + static_cast<size_t>(n_tokens));
    }

    int32_t add_split(const char *text, int32_t n) {
        pieces.clear();
        vocabulary.special->split(text, n, parse_special, &pieces);
        for (const SpecialTokens::Piece &piece : pieces) {
            if (piece.token >= 0) out.push_back(piece.token);
            else add_plain(text + piece.at, piece.n, false); // it has no special token
            if (const int32_t code = given_up()) return code;
        }
        return 0;
    }

    int32_t add(const char *text, int32_t n) {
        for (int32_t at = 0, end; at < n; at = end) {
            end = part_end(text, n, at);
            if (is_simple(vocabulary, text + at, end - at, parse_special))
                add_plain(text + at, end - at, parse_special);
            else if (const int32_t code = add_split(text + at, end - at)) return code;
            if (const int32_t code = given_up()) return code;
        }
        return 0;
    }
};

} // namespace

int32_t text_tokenize(const llama_vocab *vocab, const char *text, int32_t n_text, int32_t *tokens, int32_t n_max,
                      bool add_special, bool parse_special, const llamad_tokenize_limits *limits) {
    const Vocabulary *known = n_text > 0 ? vocabulary_of(vocab) : nullptr;
    if (!known) return llama_tokenize(vocab, text, n_text, tokens, n_max, add_special, parse_special);
    words_begin();
    if (n_text <= kPartBytes && is_simple(*known, text, n_text, parse_special)) {
        return words_tokenize(*known, text, n_text, tokens, n_max, add_special, parse_special);
    }
    Tokenizing text_{*known, limits, parse_special};
    if (add_special && known->before >= 0) text_.out.push_back(known->before);
    if (const int32_t code = text_.add(text, n_text)) return code;
    if (add_special && known->behind >= 0) text_.out.push_back(known->behind);
    const std::vector<int32_t> &out = text_.out;
    if (out.size() >= INT32_MAX) return INT32_MIN;
    if (out.size() > static_cast<size_t>(std::max(n_max, 0))) return -static_cast<int32_t>(out.size());
    std::copy(out.begin(), out.end(), tokens);
    return static_cast<int32_t>(out.size());
}
