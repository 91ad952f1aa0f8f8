// Runs llama.cpp's tokenizer on a stack that is large enough. Threads: any.
//
// llama.cpp uses std::regex for pre-tokenizers that it has no code for. std::regex recurses for every character of a
// match: about 370 bytes of stack for each byte of a word, of white space or of a row of signs. 25 KB of "aaa…"
// overflow the 8 MB stack of an ordinary thread and crash the process. Longer texts are therefore tokenized by a thread
// whose stack has room for a match of the whole text. Only the used part of that stack takes memory.
#include "llama_tokenize.h"

#include <exception>
#include <stdexcept>

#include <pthread.h>

namespace {

constexpr int32_t kShortText = 4096;
// Limit for the text between two special tokens, or for one word if texts are cut into words: that takes some seconds
// and 200 MB. Tokenizers without words merge the whole text, and have the higher limit.
constexpr int32_t kWordMax = 1 << 20;
constexpr int32_t kTextMax = 1 << 23;
constexpr size_t kStackPerByte = 768; // twice what was measured
constexpr size_t kStack = 1 << 20;

struct Call {
    const llama_vocab *vocab;
    const char *text;
    int32_t n_text;
    int32_t *tokens;
    int32_t n_max;
    bool add_special, parse_special;
    int32_t result;
    std::exception_ptr error;

    void run() { result = llama_tokenize(vocab, text, n_text, tokens, n_max, add_special, parse_special); }
};

void *run_aside(void *arg) {
    auto *call = static_cast<Call *>(arg);
    try {
        call->run();
    } catch (...) {
        call->error = std::current_exception();
    }
    return nullptr;
}

} // namespace

int32_t ask_llama(const Vocabulary &vocabulary, const char *text, int32_t n_text, int32_t *tokens, int32_t n_max,
                  bool add_special, bool parse_special) {
    Call call{vocabulary.vocab, text, n_text, tokens, n_max, add_special, parse_special, 0, nullptr};
    if (n_text > (vocabulary.has_words || vocabulary.is_deep ? kWordMax : kTextMax)) {
        throw std::length_error("a part of the text is too long to be tokenized in one call");
    }
    if (!vocabulary.is_deep || n_text <= kShortText) {
        call.run();
        return call.result;
    }
    pthread_attr_t attr;
    pthread_t thread;
    if (pthread_attr_init(&attr) != 0) throw std::bad_alloc();
    int failed = pthread_attr_setstacksize(&attr, kStack + kStackPerByte * static_cast<size_t>(n_text));
    failed = failed ? failed : pthread_create(&thread, &attr, run_aside, &call);
    pthread_attr_destroy(&attr);
    if (failed) throw std::bad_alloc();
    pthread_join(thread, nullptr);
    if (call.error) std::rethrow_exception(call.error);
    return call.result;
}
