// Coverage-guided: any bytes as a grammar, the rest as a text for it.
//
// Invariant: compiling ends in a grammar or in an error with a reason; feeding ends accepted, refused or given up;
// a mask never allows what judging alone refuses; nothing is read or written out of bounds, and memory stays bounded.
//
// With clang: built by fuzz/grammar.py with -fsanitize=fuzzer. Without: REPLAY_MAIN makes a program that runs the files
// it is given, once as they are and once byte by byte through every prefix.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "../ext/llamad/grammar/grammar_api.h"

namespace {

void require(bool holds, const char *what) {
    if (holds) return;
    fprintf(stderr, "broken: %s\n", what);
    abort();
}

struct Vocabulary {
    std::string bytes;
    std::vector<uint32_t> offsets{0};
    std::vector<uint8_t> is_eog;
    llamad_trie *trie;

    Vocabulary() {
        for (int byte = 0; byte < 256; byte++) add(std::string(1, static_cast<char>(byte)), false);
        for (const char *text : {"ab", "abc", "\xC3\xA9", "\xE6\x97\xA5", "{\"", "\":", "  ", "\n\n", "<think>"}) {
            add(text, false);
        }
        add("", false);
        add("</s>", true);
        trie = llamad_trie_open(bytes.data(), offsets.data(), is_eog.data(), static_cast<int32_t>(is_eog.size()));
    }
    void add(const std::string &text, bool eog) {
        bytes += text;
        offsets.push_back(static_cast<uint32_t>(bytes.size()));
        is_eog.push_back(eog);
    }
    int32_t size() const { return static_cast<int32_t>(is_eog.size()); }
};

int32_t find_token(void *, const char *text, int32_t n) {
    return std::string(text, static_cast<size_t>(n)) == "<think>" ? 264 : -1;
}

void follow(llamad_grammar *grammar, const Vocabulary &vocabulary, const uint8_t *text, size_t n) {
    llamad_matcher *matcher = llamad_matcher_open(grammar, vocabulary.trie);
    require(matcher != nullptr, "a matcher opens");
    std::vector<uint64_t> bits((static_cast<size_t>(vocabulary.size()) + 63) / 64);
    for (size_t i = 0; i < n && i < 64; i++) {
        int32_t n_allowed = llamad_matcher_bits(matcher, bits.data());
        if (n_allowed == LLAMAD_GRAMMAR_E_TOO_MUCH) break;
        int32_t token = text[i] % vocabulary.size(), code = llamad_matcher_allows(matcher, token);
        if (code < 0) break;
        require((bits[static_cast<size_t>(token >> 6)] >> (token & 63) & 1) == static_cast<uint64_t>(code),
                "the mask and the single judgement agree");
        int32_t taken = llamad_matcher_accept(matcher, token);
        require(taken == LLAMAD_GRAMMAR_E_TOO_MUCH || (taken == 0) == (code == 1), "what is allowed is accepted");
        if (taken < 0) break;
    }
    llamad_matcher_close(matcher);
    matcher = llamad_matcher_open(grammar, nullptr);
    llamad_matcher_feed(matcher, reinterpret_cast<const char *>(text), n);
    llamad_matcher_close(matcher);
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const Vocabulary vocabulary;
    // The text for the grammar follows the last byte 0xFF, which no grammar has.
    size_t n_grammar = size;
    for (size_t i = size; i-- > 0;) {
        if (data[i] == 0xFF) {
            n_grammar = i;
            break;
        }
    }
    llamad_grammar_error error;
    memset(&error, 0, sizeof error);
    llamad_grammar *grammar = llamad_grammar_open(reinterpret_cast<const char *>(data), n_grammar, vocabulary.size(),
                                                  find_token, nullptr, 0, &error);
    if (grammar == nullptr) {
        require(error.reason[0] != 0, "a refusal has a reason");
        return 0;
    }
    if (n_grammar < size) follow(grammar, vocabulary, data + n_grammar + 1, size - n_grammar - 1);
    llamad_grammar_drop(grammar);
    return 0;
}

#ifdef REPLAY_MAIN
int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        FILE *file = fopen(argv[i], "rb");
        require(file != nullptr, argv[i]);
        std::vector<uint8_t> data(1 << 20);
        data.resize(fread(data.data(), 1, data.size(), file));
        fclose(file);
        LLVMFuzzerTestOneInput(data.data(), data.size());
        for (size_t n = 0; n < data.size() && n < 2000; n++) {
            std::vector<uint8_t> prefix(data.begin(), data.begin() + static_cast<long>(n)); // its own size, for ASan
            LLVMFuzzerTestOneInput(prefix.data(), prefix.size());
        }
    }
    printf("replayed %d files\n", argc - 1);
}
#endif
