/* A vocabulary's special tokens, and how they cut a text: as llama.cpp does, in linear time.
 *
 * Owns: their order and the trie that finds them. Never changes once it is made; any thread.
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
        int32_t at, n; /* bytes of the text; what a token strips beside it belongs to no piece */
        int32_t token; /* below 0: text without a special token */
    };

    explicit SpecialTokens(const llama_vocab *vocab);

    /* How many bytes of the text begin a special token; counted up to `max`. */
    int32_t count(const char *text, int32_t n, bool parse_special, int32_t max) const;

    /* The text's pieces in order, never two of text side by side. */
    void split(const char *text, int32_t n, bool parse_special, std::vector<Piece> *pieces) const;

    bool strips() const { return strips_; } /* some take the white space beside them */

  private:
    struct Token {
        std::string text;
        int32_t id;
        bool is_control, strips_left, strips_right;
    };
    struct Node {
        int32_t child, sibling; /* below 0: none */
        int32_t first,
            first_plain; /* in tokens_, of those with this text: the first of all, and of those that are found
                            without parse_special; below 0: none */
        char byte;
    };
    struct Run {
        int32_t from, to;
    };
    struct Found {
        Piece piece;
        Run taken; /* with what is stripped */
    };
    struct Cluster;

    void add(int32_t rank);
    int32_t child_of(int32_t node, char byte) const;
    template <typename Visit>
    void visit_at(const char *text, int32_t n, int32_t at, bool parse_special, Visit visit) const;
    void resolve(const char *text, Cluster *cluster, std::vector<Found> *found) const;
    void take(const char *text, const Token &token, Run run, std::vector<Run> *left, std::vector<Found> *found) const;

    std::vector<Token> tokens_; /* in the order in which llama.cpp looks for them */
    std::vector<Node> nodes_;
    int32_t roots_[256];
    bool strips_ = false;
};

#endif
