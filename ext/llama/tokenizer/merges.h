/* Tokenizes plain words by a vocabulary's merges.
 *
 * Owns: those merges of a GPT-2 vocabulary that plain words can need, read from the model's file. Immutable after
 * construction; any thread.
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

    /* Returns null if the file has no usable merges. `vocab` must be the file's vocabulary, and must outlive this. */
    static std::unique_ptr<const Merges> read(const llama_vocab *vocab, const std::string &path);

    /* Writes the tokens of a piece that the tokenizer does not cut any further. Returns their number, or 0 if llama.cpp
     * must tokenize it. `tokens` needs room for one token per byte. */
    int32_t apply(const char *piece, int32_t n, int32_t *tokens) const;

  private:
    struct Pair {
        int32_t left, right; /* tokens; below 0: the place is free */
        int32_t rank;        /* the pair with the lowest rank is merged first */
        int32_t merged;      /* below 0: the merged text is not a token */
    };

    explicit Merges(const llama_vocab *vocab);
    void add_tokens();
    bool add_merges(const std::string &path);
    int32_t token_of(const char *text, size_t n) const;
    const Pair &pair_of(int32_t left, int32_t right) const;
    size_t place_of(int32_t left, int32_t right) const;

    const llama_vocab *vocab_;
    int32_t letters_[128];        /* the token of a single byte; below 0: there is none */
    std::vector<int32_t> tokens_; /* hash table by the tokens' texts; below 0: the place is free */
    std::vector<Pair> pairs_;
};

/* The bytes that Merges knows and that plain words consist of: a space at the start, letters, and signs at the end. */
inline bool is_upper(char c) { return c >= 'A' && c <= 'Z'; }
inline bool is_lower(char c) { return c >= 'a' && c <= 'z'; }
inline bool is_end_sign(char c) { return c && strchr(".,;:!?)", c); }
inline bool is_known(char c) { return c == ' ' || is_upper(c) || is_lower(c) || is_end_sign(c); }

#endif
