// Tokens of texts, word by word out of a cache. Threads: any; each has a cache of its own. Exceptions are llama.cpp's
// and memory's, and the caller's to catch.
//
// Tokenizers of GPT-2's kind cut a text into words by regular expressions, and merge within words only. All those
// that vocabulary.cpp lists cut between a printable character of ASCII and a space behind it, wherever these stand:
// no alternative of theirs goes on there, and none looks back. What lies between two such places (here: a word) is
// therefore tokenized the same alone, within the text or beside other words, unless one of the special tokens, which
// are looked for before anything is cut, reaches over such a place.
//
// Of a word that is not known yet they make one piece if it has one space at most, before capital letters and then
// small ones, and one more of the signs behind these; it is put together here (merges.cpp). For all others of a text
// llama.cpp is asked in one call, for a call alone may cost more than ten words (some pre-tokenizers compile their
// expressions each time), and they are told apart by the bytes that each token stands for.
#include "words.h"

#include "../shim.h"
#include "hash.h"
#include "llama_tokenize.h"
#include "utf8.h"
#include "vocabulary.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

namespace {

constexpr int kWordBytes = 22;
constexpr int kWordTokens = 9;
constexpr uint32_t kSets = 1 << 13;    // of two words each
constexpr size_t kKeptBytes = 1 << 16; // of buffers, from text to text

struct alignas(64) Entry {
    uint32_t key; // of the vocabulary and of how special tokens are taken; 0: empty
    uint8_t n_bytes;
    uint8_t n_tokens;
    char bytes[kWordBytes];
    int32_t tokens[kWordTokens];

    bool is_of(uint32_t wanted, const char *word, int32_t n) const {
        return key == wanted && n_bytes == n && memcmp(bytes, word, n) == 0;
    }
};
static_assert(sizeof(Entry) == 64, "an entry is a line of the processor's cache");

struct Miss {
    int32_t at, n_bytes; // in the text
    int32_t n_before;    // tokens of known words before it
    int32_t n_tokens;
};

// What a thread keeps from text to text.
struct Desk {
    Entry entries[kSets][2] = {}; // the newer first
    std::vector<int32_t> known;   // tokens of known words, in the text's order
    std::vector<int32_t> asked;   // of the others
    std::vector<Miss> misses;
    std::string joined; // the words that are not known
    size_t n_asked = 0; // bytes of such in the parts of the last text so far
};

Desk *desk_of_this_thread() {
    thread_local std::unique_ptr<Desk> desk;
    if (!desk) desk.reset(new Desk);
    return desk.get();
}

// Empties a buffer; one that a long text has made large is given back.
template <typename T> void clear(T &buffer) {
    if (buffer.capacity() * sizeof(buffer[0]) > kKeptBytes) T().swap(buffer);
    buffer.clear();
}

// The thread's desk, for one text.
struct Sitting {
    Desk *desk = desk_of_this_thread();

    ~Sitting() {
        desk->n_asked += desk->joined.size();
        clear(desk->known);
        clear(desk->asked);
        clear(desk->misses);
        clear(desk->joined);
    }
};

// Up to where the word goes that begins at `at`.
int32_t word_end(const char *text, int32_t n, int32_t at) {
    for (int32_t i = at + 1; i < n; i++) {
        if (is_cut(text[i - 1], text[i])) return i;
    }
    return n;
}

struct Text {
    const Vocabulary *vocabulary;
    Desk *desk;
    uint32_t key;
    bool parse_special;

    Entry *entries_of(const char *bytes, int32_t n) const {
        return desk->entries[hash_text(bytes, n, key) >> 40 & (kSets - 1)];
    }

    const Entry *find(const char *bytes, int32_t n) const {
        if (n > kWordBytes) return nullptr;
        const Entry *entries = entries_of(bytes, n);
        return entries[0].is_of(key, bytes, n) ? &entries[0] : entries[1].is_of(key, bytes, n) ? &entries[1] : nullptr;
    }

    // Puts a plain word together; false if it is none, or may hold a special token.
    bool put_together(const char *word, int32_t n) const {
        const Merges *merges = vocabulary->merges();
        int32_t tokens[kWordBytes], at = 0, n_letters, n_tokens, n_more;
        if (!merges || n > kWordBytes) return false;
        for (int32_t i = 0; i < n; i++) {
            if (vocabulary->begins_plain[static_cast<unsigned char>(word[i])]) return false;
        }
        at += word[0] == ' ';
        n_letters = at;
        while (at < n && is_upper(word[at])) at++;
        while (at < n && is_lower(word[at])) at++;
        if (at == n_letters) return false;
        n_letters = at;
        while (at < n && is_end_sign(word[at])) at++;
        if (at < n) return false;
        n_tokens = merges->apply(word, n_letters, tokens);
        n_more = n_letters < n ? merges->apply(word + n_letters, n - n_letters, tokens + n_tokens) : 0;
        if (!n_tokens || (n_letters < n && !n_more)) return false;
        desk->known.insert(desk->known.end(), tokens, tokens + n_tokens + n_more);
        remember(word, n, tokens, n_tokens + n_more);
        return true;
    }

    // The words that are known go to desk->known, the others to desk->misses and desk->joined.
    void look_up(const char *text, int32_t n) const {
        for (int32_t at = 0, end; at < n; at = end) {
            end = word_end(text, n, at);
            const int32_t n_bytes = end - at;
            if (const Entry *entry = find(text + at, n_bytes)) {
                desk->known.insert(desk->known.end(), entry->tokens, entry->tokens + entry->n_tokens);
                continue;
            }
            if (put_together(text + at, n_bytes)) continue;
            desk->misses.push_back({at, n_bytes, static_cast<int32_t>(desk->known.size()), 0});
            desk->joined.append(text + at, n_bytes);
        }
    }

    // Asks llama.cpp for the words that are not known; false if its tokens cannot be told apart.
    bool ask() const {
        const std::string &joined = desk->joined;
        const auto n = static_cast<int32_t>(joined.size());
        if (!utf8_is_valid(joined.data(), joined.size())) return false; // a token may stand for what replaces a byte
        const bool parse = parse_special && vocabulary->may_have_control(joined.data(), joined.size());
        desk->asked.resize(joined.size()); // each stands for a byte at least
        const int32_t found = ask_llama(*vocabulary, joined.data(), n, desk->asked.data(), n, false, parse);
        if (found < 0) return false;
        desk->asked.resize(found);
        return tell_apart();
    }

    // Bytes that a vocabulary has no token for are left out by llama.cpp: then there are not enough.
    bool tell_apart() const {
        size_t at = 0;
        for (Miss &miss : desk->misses) {
            int32_t n_bytes = 0;
            for (const size_t begin = at; n_bytes < miss.n_bytes; miss.n_tokens = static_cast<int32_t>(at - begin)) {
                if (at == desk->asked.size()) return false;
                const int32_t length = vocabulary->n_bytes[desk->asked[at++]];
                if (!length) return false;
                n_bytes += length;
            }
            if (n_bytes != miss.n_bytes) return false;
        }
        return at == desk->asked.size();
    }

    void remember(const char *word, int32_t n, const int32_t *tokens, int32_t n_tokens) const {
        if (n > kWordBytes || n_tokens > kWordTokens) return;
        Entry *entry = entries_of(word, n);
        entry[1] = entry[0];
        entry->key = key;
        entry->n_bytes = static_cast<uint8_t>(n);
        entry->n_tokens = static_cast<uint8_t>(n_tokens);
        memcpy(entry->bytes, word, n);
        memcpy(entry->tokens, tokens, n_tokens * sizeof(int32_t));
    }

    void remember_misses(const char *text) const {
        const int32_t *tokens = desk->asked.data();
        for (const Miss &miss : desk->misses) {
            remember(text + miss.at, miss.n_bytes, tokens, miss.n_tokens);
            tokens += miss.n_tokens;
        }
    }

    int32_t *write(int32_t *out) const {
        const int32_t *known = desk->known.data(), *asked = desk->asked.data();
        int32_t n_known = 0;
        for (const Miss &miss : desk->misses) {
            out = std::copy(known + n_known, known + miss.n_before, out);
            out = std::copy(asked, asked + miss.n_tokens, out);
            n_known = miss.n_before;
            asked += miss.n_tokens;
        }
        return std::copy(known + n_known, known + desk->known.size(), out);
    }
};

// What llama_tokenize would return, in the last argument; false where the text must be asked for as a whole.
bool tokenize_words(const Vocabulary &vocabulary, const char *text, int32_t n_text, int32_t *tokens, int32_t n_max,
                    bool add_special, bool parse_special, int32_t *result) {
    const Sitting sitting;
    const Desk *desk = sitting.desk;
    const Text words{&vocabulary, sitting.desk, vocabulary.id * 2 + parse_special, parse_special};
    words.look_up(text, n_text);
    if (!desk->misses.empty()) {
        if (!words.ask()) return false;
        words.remember_misses(text);
    }
    const bool begins = add_special && vocabulary.before >= 0, ends = add_special && vocabulary.behind >= 0;
    const size_t n = desk->known.size() + desk->asked.size() + begins + ends;
    if (n >= INT32_MAX) return false;
    *result = -static_cast<int32_t>(n);
    if (static_cast<int64_t>(n) > n_max) return true;
    int32_t *out = tokens;
    if (begins) *out++ = vocabulary.before;
    out = words.write(out);
    // One that the text has itself: llama.cpp warns of it.
    if (add_special && (tokens[begins] == vocabulary.before || out[-1] == vocabulary.behind)) return false;
    if (ends) *out = vocabulary.behind;
    *result = static_cast<int32_t>(n);
    return true;
}

} // namespace

int32_t words_tokenize(const Vocabulary &vocabulary, const char *text, int32_t n_text, int32_t *tokens, int32_t n_max,
                       bool add_special, bool parse_special) {
    int32_t result;
    if (vocabulary.has_words &&
        tokenize_words(vocabulary, text, n_text, tokens, n_max, add_special, parse_special, &result)) {
        return result;
    }
    return ask_llama(vocabulary, text, n_text, tokens, n_max, add_special, parse_special);
}

void words_begin() { desk_of_this_thread()->n_asked = 0; }

extern "C" int64_t llamad_words_asked(void) { return static_cast<int64_t>(desk_of_this_thread()->n_asked); }
