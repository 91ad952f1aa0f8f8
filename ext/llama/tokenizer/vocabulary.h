/* What must be known of a model's vocabulary to tokenize its texts in parts.
 *
 * Owns: the decision for which vocabularies texts can be cut into words. Threads: any; one is asked for only while its model is open.
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

/* Tells a file from another that was put in its place. */
struct FileId {
    uint64_t device, inode, size;
    int64_t seconds, nanoseconds; /* when it was last written to */
};
FileId file_id(const std::string &path);

struct Vocabulary {
    const llama_vocab *vocab;
    uint32_t id;                /* from 1 on, never given twice */
    llama_token before, behind; /* that are added to texts; -1: none */
    bool is_deep;               /* how deep llama.cpp's calls go depends on the text (llama_tokenize.cpp) */
    bool has_words = false;     /* its texts can be cut into words; else nothing below is known */
    std::unique_ptr<const SpecialTokens> special;
    bool begins_control[256] = {}; /* the bytes that control tokens begin with */
    bool begins_plain[256] = {};   /* and those of special tokens that a plain word may hold (merges.h) */
    std::vector<uint8_t> n_bytes;  /* of text that a token stands for; 0: not known */

    bool may_have_control(const char *bytes, size_t n) const;

    /* Null until they have been read, which a thread of its own does, and where there are none. */
    const Merges *merges() const { return merges_.load(std::memory_order_acquire); }
    void read_merges(const std::string &path, const FileId &file);
    ~Vocabulary();

  private:
    std::unique_ptr<const Merges> read_;
    std::atomic<const Merges *> merges_{nullptr};
    std::thread reader_;
};

/* Null if no memory was left for it. Valid as long as the model is open. */
const Vocabulary *vocabulary_of(const llama_vocab *vocab);

/* `file` is what the path led to before the model was loaded from it. `may_cut` into words, which needs to know how
 * llama.cpp's tokenizers work. */
void vocabulary_add(const llama_model *model, const std::string &path, const FileId &file,
                    const llama_model_kv_override *overrides, bool may_cut);
void vocabulary_remove(const llama_model *model); /* before it is freed */

/* Whether every text is cut between these two. */
inline bool is_cut(char left, char right) { return right == ' ' && left > ' ' && left < 127; }

#endif
