// Tokenizes texts word by word, with a cache. Threads: any; each has its own cache. Exceptions (llama.cpp's, or no
// memory) go to the caller.
//
// Tokenizers like GPT-2's cut a text into words by regular expressions, and merge only within words. All those that
// vocabulary.cpp lists cut between a printable ASCII character and a space after it, wherever these are: no alternative
// of their expressions matches across that place, and none looks back. The text between two such places (called a word
// here) therefore has the same tokens alone, within the text or beside other words. The exception are special tokens
// that reach over such a place, because they are searched before anything is cut.
//
// A new word is tokenized here (merges.cpp) if it is plain: at most one space, then capital letters, then small
// letters, then signs. The tokenizer makes one piece of the letters with the space, and one of the signs. All other new
// words of a text go to llama.cpp in one call, because a call can cost more than ten words (some pre-tokenizers compile
// their expressions each time). The tokens are then assigned to the words by the number of bytes that each stands for.
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
constexpr uint32_t kSets = 1 << 13;    // sets of two words
constexpr size_t kKeptBytes = 1 << 16; // a larger buffer is freed after its text

struct alignas(64) Entry {
    uint32_t key; // made of the vocabulary's id and parse_special; 0: empty
    uint8_t n_bytes;
    uint8_t n_tokens;
    char bytes[kWordBytes];
    int32_t tokens[kWordTokens];

    bool is_of(uint32_t text_key, const char *word, int32_t n) const {
        return key == text_key && n_bytes == n && memcmp(bytes, word, n) == 0;
    }
};
static_assert(sizeof(Entry) == 64, "an entry fills one cache line");

struct Miss {
    int32_t at, n_bytes; // in the text
    int32_t n_before;    // tokens in `known` before it
    int32_t n_tokens;
};

// What a thread keeps between texts: its cache and its buffers.
struct ThreadMemory {
    Entry entries[kSets][2] = {}; // the newer entry first
    std::vector<int32_t> known;   // tokens of words that need no llama.cpp, in text order
    std::vector<int32_t> asked;   // tokens of the other words, from llama.cpp
    std::vector<Miss> misses;
    std::string joined; // the words that go to llama.cpp
    size_t n_asked = 0; // bytes of the current text that went to llama.cpp so far
};

ThreadMemory *memory_of_this_thread() {
    thread_local std::unique_ptr<ThreadMemory> memory;
    if (!memory) memory.reset(new ThreadMemory);
    return memory.get();
}

// Empties a buffer, and frees it if a long text has made it large.
template <typename T> void clear(T &buffer) {
    if (buffer.capacity() * sizeof(buffer[0]) > kKeptBytes) T().swap(buffer);
    buffer.clear();
}

// The thread's memory, in use for one text. The destructor empties its buffers.
struct MemoryUse {
    ThreadMemory *memory = memory_of_this_thread();

    ~MemoryUse() {
        memory->n_asked += memory->joined.size();
        clear(memory->known);
        clear(memory->asked);
        clear(memory->misses);
        clear(memory->joined);
    }
};

// Returns the end of the word that begins at `at`.
int32_t word_end(const char *text, int32_t n, int32_t at) {
    for (int32_t i = at + 1; i < n; i++) {
        if (is_cut(text[i - 1], text[i])) return i;
    }
    return n;
}

struct Text {
    const Vocabulary *vocabulary;
    ThreadMemory *memory;
    uint32_t key;
    bool parse_special;

    Entry *entries_of(const char *bytes, int32_t n) const {
        return memory->entries[hash_text(bytes, n, key) >> 40 & (kSets - 1)];
    }

    const Entry *find(const char *bytes, int32_t n) const {
        if (n > kWordBytes) return nullptr;
        const Entry *entries = entries_of(bytes, n);
        return entries[0].is_of(key, bytes, n) ? &entries[0] : entries[1].is_of(key, bytes, n) ? &entries[1] : nullptr;
    }

    // Tokenizes a plain word by its merges. Returns false if the word is not plain, or may contain a special token.
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
        memory->known.insert(memory->known.end(), tokens, tokens + n_tokens + n_more);
        remember(word, n, tokens, n_tokens + n_more);
        return true;
    }

    // Puts the tokens of known words into memory->known, and the other words into memory->misses and memory->joined.
    void look_up(const char *text, int32_t n) const {
        for (int32_t at = 0, end; at < n; at = end) {
            end = word_end(text, n, at);
            const int32_t n_bytes = end - at;
            if (const Entry *entry = find(text + at, n_bytes)) {
                memory->known.insert(memory->known.end(), entry->tokens, entry->tokens + entry->n_tokens);
                continue;
            }
            if (put_together(text + at, n_bytes)) continue;
            memory->misses.push_back({at, n_bytes, static_cast<int32_t>(memory->known.size()), 0});
            memory->joined.append(text + at, n_bytes);
        }
    }

    // Tokenizes the words that are not known with llama.cpp. Returns false if the tokens cannot be assigned to words.
    bool ask() const {
        const std::string &joined = memory->joined;
        const auto n = static_cast<int32_t>(joined.size());
        if (!utf8_is_valid(joined.data(), joined.size()))
            return false; // a token may stand for U+FFFD, which replaces bytes
        const bool parse = parse_special && vocabulary->may_have_control(joined.data(), joined.size());
        memory->asked.resize(joined.size()); // each token stands for at least one byte
        const int32_t n_tokens = ask_llama(*vocabulary, joined.data(), n, memory->asked.data(), n, false, parse);
        if (n_tokens < 0) return false;
        memory->asked.resize(n_tokens);
        return assign_tokens();
    }

    // Counts the tokens of each word by their bytes. Returns false if that fails: llama.cpp leaves out bytes that the
    // vocabulary has no token for.
    bool assign_tokens() const {
        size_t at = 0;
        for (Miss &miss : memory->misses) {
            int32_t n_bytes = 0;
            for (const size_t begin = at; n_bytes < miss.n_bytes; miss.n_tokens = static_cast<int32_t>(at - begin)) {
                if (at == memory->asked.size()) return false;
                const int32_t length = vocabulary->n_bytes[memory->asked[at++]];
                if (!length) return false;
                n_bytes += length;
            }
            if (n_bytes != miss.n_bytes) return false;
        }
        return at == memory->asked.size();
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
        const int32_t *tokens = memory->asked.data();
        for (const Miss &miss : memory->misses) {
            remember(text + miss.at, miss.n_bytes, tokens, miss.n_tokens);
            tokens += miss.n_tokens;
        }
    }

    int32_t *write(int32_t *out) const {
        const int32_t *known = memory->known.data(), *asked = memory->asked.data();
        int32_t n_known = 0;
        for (const Miss &miss : memory->misses) {
            out = std::copy(known + n_known, known + miss.n_before, out);
            out = std::copy(asked, asked + miss.n_tokens, out);
            n_known = miss.n_before;
            asked += miss.n_tokens;
        }
        return std::copy(known + n_known, known + memory->known.size(), out);
    }
};

// Sets *result to what llama_tokenize would return. Returns false if llama.cpp must tokenize the whole text.
bool tokenize_words(const Vocabulary &vocabulary, const char *text, int32_t n_text, int32_t *tokens, int32_t n_max,
                    bool add_special, bool parse_special, int32_t *result) {
    const MemoryUse use;
    const ThreadMemory *memory = use.memory;
    const Text words{&vocabulary, use.memory, vocabulary.id * 2 + parse_special, parse_special};
    words.look_up(text, n_text);
    if (!memory->misses.empty()) {
        if (!words.ask()) return false;
        words.remember_misses(text);
    }
    const bool begins = add_special && vocabulary.before >= 0, ends = add_special && vocabulary.behind >= 0;
    const size_t n = memory->known.size() + memory->asked.size() + begins + ends;
    if (n >= INT32_MAX) return false;
    *result = -static_cast<int32_t>(n);
    if (static_cast<int64_t>(n) > n_max) return true;
    int32_t *out = tokens;
    if (begins) *out++ = vocabulary.before;
    out = words.write(out);
    // The text itself begins or ends with that token: llama.cpp warns about it.
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

void words_begin() { memory_of_this_thread()->n_asked = 0; }

extern "C" int64_t llamad_words_asked(void) { return static_cast<int64_t>(memory_of_this_thread()->n_asked); }
