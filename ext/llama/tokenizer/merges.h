/* What the words of plain letters become, by a vocabulary's merges.
 *
 * Owns: the merges of GPT-2's kind that such words can need, read out of a model's file. Never changes once it is made;
 * any thread.
 */
#ifndef LLAMAD_MERGES_H
#define LLAMAD_MERGES_H

#include "llama.h"

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

class Merges {
  public:
    static constexpr int kPieceBytes = 32;

    /* Null where the file has none that can be used. `vocab` is the file's, and stays. */
    static std::unique_ptr<const Merges> read(const llama_vocab *vocab, const std::string &path);

    /* Writes the tokens of a piece that the tokenizer does not cut any further; how many, or 0 if llama.cpp must be
     * asked. `tokens` has room for one each byte. */
    int32_t apply(const char *piece, int32_t n, int32_t *tokens) const;

  private:
    struct Pair {
        int32_t left, right; /* tokens; below 0: empty */
        int32_t rank;        /* the lowest is merged first */
        int32_t merged;      /* below 0: nothing that is a token */
    };

    explicit Merges(const llama_vocab *vocab);
    void add_tokens();
    bool add_merges(const std::string &path);
    int32_t token_of(const char *text, size_t n) const;
    const Pair &pair_of(int32_t left, int32_t right) const;
    size_t place_of(int32_t left, int32_t right) const;

    const llama_vocab *vocab_;
    int32_t letters_[128];        /* of a byte that is a token itself; below 0: none is */
    std::vector<int32_t> tokens_; /* by the hash of their texts; below 0: empty */
    std::vector<Pair> pairs_;
};

/* The bytes that Merges knows and plain words are made of: a space first, letters, and signs that end a word. */
inline bool is_upper(char c) { return c >= 'A' && c <= 'Z'; }
inline bool is_lower(char c) { return c >= 'a' && c <= 'z'; }
inline bool is_end_sign(char c) { return c && strchr(".,;:!?)", c); }
inline bool is_known(char c) { return c == ' ' || is_upper(c) || is_lower(c) || is_end_sign(c); }

#endif
