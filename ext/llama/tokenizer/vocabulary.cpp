// Collects facts about vocabularies: whether words.cpp can cut their texts, and how many bytes their tokens stand for.
#include "vocabulary.h"

#include "../shim.h"
#include "utf8.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <iterator>
#include <memory>
#include <mutex>
#include <string>

#include <sys/stat.h>

namespace {

// The pre-tokenizers whose expressions cut as words.cpp requires. Tests compare each with llama.cpp.
const char *const kPres[] = {
    "gpt-2",     "olmo",     "smollm", "starcoder", "command-r", "exaone",      "llama-bpe",
    "llama3",    "llama-v3", "lfm2",   "falcon3",   "glm4",      "qwen2",       "deepseek-r1-qwen",
    "stablelm2", "qwen35",   "gpt-4o", "llama4",    "tekken",    "deepseek-v3",
};

// Those of them that llama.cpp has no code for, so that it uses std::regex.
const char *const kDeepPres[] = {"gpt-4o", "llama4", "tekken", "deepseek-v3"};

constexpr int kControl = LLAMA_TOKEN_ATTR_CONTROL | LLAMA_TOKEN_ATTR_UNKNOWN;
constexpr int kSpecial = kControl | LLAMA_TOKEN_ATTR_USER_DEFINED;
constexpr int kStrips = LLAMA_TOKEN_ATTR_LSTRIP | LLAMA_TOKEN_ATTR_RSTRIP;

// Readers compare only `vocab` until it matches, because `known` of another place may be freed meanwhile.
struct Place {
    std::atomic<const llama_vocab *> vocab{nullptr};
    std::unique_ptr<Vocabulary> known;
};
std::mutex changing; // held while a vocabulary is added or removed
Place places[8];
uint32_t last_id = 0;

std::string meta(const llama_model *model, const char *key) {
    char value[64];
    const int n = llama_model_meta_val_str(model, key, value, sizeof(value));
    return n >= 0 && n < static_cast<int>(sizeof(value)) ? std::string(value, n) : std::string();
}

template <typename Names> bool is_among(const Names &names, const std::string &name) {
    return std::any_of(std::begin(names), std::end(names), [&](const char *known) { return name == known; });
}

bool is_deep(const llama_model *model) {
    if (llama_vocab_type(llama_model_get_vocab(model)) != LLAMA_VOCAB_TYPE_BPE) return false;
    const std::string pre = meta(model, "tokenizer.ggml.pre");
    return !is_among(kPres, pre) || is_among(kDeepPres, pre);
}

// Notes the tokens that llama.cpp adds before and after a text.
void add_ends(Vocabulary *known) {
    const llama_vocab *vocab = known->vocab;
    known->before = known->behind = -1;
    switch (llama_vocab_type(vocab)) {
        case LLAMA_VOCAB_TYPE_SPM:
        case LLAMA_VOCAB_TYPE_BPE:
        case LLAMA_VOCAB_TYPE_UGM:
            if (llama_vocab_get_add_bos(vocab)) known->before = llama_vocab_bos(vocab);
            if (llama_vocab_get_add_eos(vocab)) known->behind = llama_vocab_eos(vocab);
            break;
        case LLAMA_VOCAB_TYPE_WPM:
            known->before = llama_vocab_bos(vocab);
            known->behind = llama_vocab_sep(vocab);
            break;
        default: break;
    }
}

bool can_cut(const llama_model *model, const llama_model_kv_override *overrides) {
    const llama_vocab *vocab = llama_model_get_vocab(model);
    if (llama_vocab_type(vocab) != LLAMA_VOCAB_TYPE_BPE || meta(model, "tokenizer.ggml.model") != "gpt2") return false;
    for (; overrides && overrides->key[0]; overrides++) {
        if (strncmp(overrides->key, "tokenizer.", 10) == 0) return false; // the file's values are not the ones in use
    }
    return is_among(kPres, meta(model, "tokenizer.ggml.pre"));
}

// Returns the number of bytes that a text of GPT-2 letters stands for, or 0 if it is no such text. GPT-2 writes each
// byte as one letter: a visible byte as itself, any other as a letter from U+0100 on.
size_t count_letters(const std::string &text) {
    const auto *at = reinterpret_cast<const unsigned char *>(text.data()), *end = at + text.size();
    size_t n = 0;
    for (int valid; at < end; n++) {
        const size_t length = utf8_length(at, end, &valid);
        const unsigned letter = length == 1 ? at[0] : (at[0] & 31u) << 6 | (at[1] & 63u);
        if (!valid || length > 2) return 0;
        if (letter <= ' ' || letter == 127 || (letter > 127 && letter < 161) || letter == 173 || letter > 323) return 0;
        at += length;
    }
    return n;
}

bool is_plain(const std::string &text) {
    for (size_t i = 0; i < text.size(); i++) {
        if (!is_known(text[i]) || (text[i] == ' ' && i > 0)) return false;
    }
    return true;
}

bool has_cut(const std::string &text) {
    for (size_t i = 0; i + 1 < text.size(); i++) {
        if (is_cut(text[i], text[i + 1])) return true;
    }
    return false;
}

// Returns false if texts cannot be cut because of this special token: it may reach over a place where texts are cut, it
// stands for two texts, or it takes a part of a character, whose rest llama.cpp replaces by more bytes than there were.
bool take_special(const std::string &text, int attr, int32_t token, Vocabulary *known) {
    const size_t n_letters = count_letters(text);
    if (text.empty() || (attr & kStrips) || has_cut(text) || !utf8_is_valid(text.data(), text.size())) return false;
    if (n_letters && n_letters != text.size()) return false;
    if (attr & kControl) known->begins_control[static_cast<unsigned char>(text[0])] = true;
    if (is_plain(text)) known->begins_plain[static_cast<unsigned char>(text[0])] = true;
    known->n_bytes[token] = text.size() < 256 ? static_cast<uint8_t>(text.size()) : 0;
    return true;
}

bool read_tokens(const llama_vocab *vocab, Vocabulary *known) {
    known->n_bytes.resize(llama_vocab_n_tokens(vocab));
    for (int32_t i = 0; i < llama_vocab_n_tokens(vocab); i++) {
        const int attr = llama_vocab_get_attr(vocab, i);
        const std::string text = llama_vocab_get_text(vocab, i);
        if (attr & kSpecial) {
            if (!take_special(text, attr, i, known)) return false;
            continue;
        }
        const size_t n_letters = count_letters(text);
        known->n_bytes[i] = n_letters < 256 ? static_cast<uint8_t>(n_letters) : 0;
    }
    return true;
}

} // namespace

bool Vocabulary::may_have_control(const char *bytes, size_t n) const {
    return std::any_of(bytes, bytes + n, [&](char c) { return begins_control[static_cast<unsigned char>(c)]; });
}

FileId file_id(const std::string &path) {
    struct stat status{};
    if (stat(path.c_str(), &status) != 0) return {};
    return {status.st_dev, status.st_ino, static_cast<uint64_t>(status.st_size), status.st_mtim.tv_sec,
            status.st_mtim.tv_nsec};
}

void Vocabulary::read_merges(const std::string &path, const FileId &file) {
    reader_ = std::thread([this, path, file] {
        try {
            std::unique_ptr<const Merges> merges = Merges::read(vocab, path);
            const FileId now = file_id(path);
            if (memcmp(&now, &file, sizeof(file)) != 0) return; // the merges may belong to another model
            read_ = std::move(merges);
            merges_.store(read_.get(), std::memory_order_release);
        } catch (const std::exception &) {
            // Memory ran out: llama.cpp tokenizes all words that are not cached.
        }
    });
}

Vocabulary::~Vocabulary() {
    if (reader_.joinable()) reader_.join();
}

const Vocabulary *vocabulary_of(const llama_vocab *vocab) {
    for (Place &place : places) {
        if (place.vocab.load(std::memory_order_acquire) == vocab) return place.known.get();
    }
    return nullptr;
}

void vocabulary_add(const llama_model *model, const std::string &path, const FileId &file,
                    const llama_model_kv_override *overrides, bool may_cut) try {
    auto known = std::make_unique<Vocabulary>();
    known->vocab = llama_model_get_vocab(model);
    if (llama_vocab_type(known->vocab) == LLAMA_VOCAB_TYPE_NONE) return;
    add_ends(known.get());
    known->is_deep = is_deep(model);
    known->special = std::make_unique<SpecialTokens>(known->vocab);
    known->has_words = may_cut && can_cut(model, overrides) && read_tokens(known->vocab, known.get());
    const std::lock_guard<std::mutex> lock(changing);
    known->id = ++last_id;
    for (Place &place : places) {
        if (place.vocab.load()) continue;
        const llama_vocab *vocab = known->vocab;
        place.known = std::move(known);
        place.vocab.store(vocab, std::memory_order_release);
        if (place.known->has_words) place.known->read_merges(path, file);
        return;
    }
} catch (const std::exception &) {
    // No memory or no thread was left: llama.cpp tokenizes the texts, or the words that are not cached.
}

void vocabulary_remove(const llama_model *model) {
    const std::lock_guard<std::mutex> lock(changing);
    for (Place &place : places) {
        if (place.vocab.load() != llama_model_get_vocab(model)) continue;
        place.vocab.store(nullptr);
        place.known.reset();
    }
}

extern "C" int32_t llamad_knows_merges(const llama_vocab *vocab) {
    const Vocabulary *known = vocabulary_of(vocab);
    return known && known->merges();
}

extern "C" int32_t llamad_knows_words(const llama_vocab *vocab) {
    const Vocabulary *known = vocabulary_of(vocab);
    return known && known->has_words;
}
