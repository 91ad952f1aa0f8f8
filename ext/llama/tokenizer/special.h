/* A vocabulary's special tokens. They split a text as in llama.cpp, but in linear time.
 *
 * Owns: the order of the tokens and the trie that finds them. Immutable after construction; any thread.
 */
#ifndef LLAMAD_SPECIAL_H
#define LLAMAD_SPECIAL_H

#include "llama.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

class SpecialTokens {
  public:
    struct Piece {
        int32_t at, n; /* bytes of the text; white space that a token strips belongs to no piece */
        int32_t token; /* below 0: text without a special token */
    };

    explicit SpecialTokens(const llama_vocab *vocab);

    /* Counts the places in the text where a special token begins, up to `max`. */
    int32_t count(const char *text, int32_t n, bool parse_special, int32_t max) const;

    /* Appends the text's pieces in order. Two pieces of plain text are never adjacent. */
    void split(const char *text, int32_t n, bool parse_special, std::vector<Piece> *pieces) const;

    bool strips() const { return strips_; } /* some tokens strip the white space beside them */

  private:
    struct Token {
        std::string text;
        int32_t id;
        bool is_control, strips_left, strips_right;
    };
    struct Node {
        int32_t child, sibling; /* below 0: none */
        /* Indices in tokens_ of the tokens with this text: the first of all, and the first that is found without
         * parse_special. Below 0: none. */
        int32_t first, first_plain;
        char byte;
    };
    struct Run {
        int32_t from, to;
    };
    struct Match {
        Piece piece;
        Run taken; /* with the white space that is stripped */
    };
    struct Cluster;

    void add(int32_t rank);
    int32_t child_of(int32_t node, char byte) const;
    template <typename Visit>
    void visit_at(const char *text, int32_t n, int32_t at, bool parse_special, Visit visit) const;
    void resolve(const char *text, Cluster *cluster, std::vector<Match> *matches) const;
    void take(const char *text, const Token &token, Run run, std::vector<Run> *left, std::vector<Match> *matches) const;

    std::vector<Token> tokens_; /* in the order in which llama.cpp searches for them */
    std::vector<Node> nodes_;
    int32_t roots_[256];
    bool strips_ = false;
};

#endif
