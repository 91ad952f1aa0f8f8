/* The facts about a model's vocabulary that are needed to tokenize its texts in parts.
 *
 * Owns: the decision which vocabularies allow texts to be cut into words. Threads: any, while the model is open.
 */
#ifndef LLAMAD_VOCABULARY_H
#define LLAMAD_VOCABULARY_H

#include "llama.h"
#include "merges.h"
#include "special.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

/* Identifies a file, so that a replaced one is noticed. */
struct FileId {
    uint64_t device, inode, size;
    int64_t seconds, nanoseconds; /* when it was last written to */
};
FileId file_id(const std::string &path);

struct Vocabulary {
    const llama_vocab *vocab;
    uint32_t id;                /* counts from 1 and is never reused */
    llama_token before, behind; /* tokens that are added before and after a text; -1: none */
    bool is_deep;               /* llama.cpp recurses as deep as the text is long (llama_tokenize.cpp) */
    bool has_words = false;     /* texts can be cut into words; if not, only `special` below is set */
    std::unique_ptr<const SpecialTokens> special;
    bool begins_control[256] = {}; /* the first bytes of control tokens */
    bool begins_plain[256] = {};   /* the first bytes of special tokens that a plain word may contain (merges.h) */
    std::vector<uint8_t> n_bytes;  /* length of the text that a token stands for; 0: unknown */

    bool may_have_control(const char *bytes, size_t n) const;

    /* Null if there are none, and until a separate thread has read them. */
    const Merges *merges() const { return merges_.load(std::memory_order_acquire); }
    void read_merges(const std::string &path, const FileId &file);
    ~Vocabulary();

  private:
    std::unique_ptr<const Merges> read_;
    std::atomic<const Merges *> merges_{nullptr};
    std::thread reader_;
};

/* Returns null if memory ran out for it. The result is valid as long as the model is open. */
const Vocabulary *vocabulary_of(const llama_vocab *vocab);

/* `file` identifies the file before the model was loaded from it. `may_cut` allows cutting into words, which relies on
 * knowledge of llama.cpp's tokenizers. */
void vocabulary_add(const llama_model *model, const std::string &path, const FileId &file,
                    const llama_model_kv_override *overrides, bool may_cut);
void vocabulary_remove(const llama_model *model); /* call before the model is freed */

/* Whether every text is cut between these two characters. */
inline bool is_cut(char left, char right) { return right == ' ' && left > ' ' && left < 127; }

#endif
