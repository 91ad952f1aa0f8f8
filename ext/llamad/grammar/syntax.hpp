// What a GBNF text says, as a tree: rules by number, each an expression. Made by parser.cpp, read by compiler.cpp.
// Plain data. Any thread; nothing here allocates but through its vectors.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace llamad {

struct Place {
    int32_t line = 1;
    int32_t column = 1;
};

// Thrown by parser and compiler; grammar_api.cpp turns it into llamad_grammar_error.
struct GrammarError {
    Place place;
    std::string reason;
};

using Ranges = std::vector<std::pair<uint32_t, uint32_t>>; // of code points, sorted, apart, no surrogates

enum class Kind : uint8_t { Empty, Literal, Chars, Rule, Token, NotToken, Sequence, Choice, Repeat };

constexpr uint32_t NO_MAX = UINT32_MAX;

struct Expression {
    Kind kind = Kind::Empty;
    uint32_t value = 0;             // rule or token number, index into Syntax::chars, offset into Syntax::text
    uint32_t min = 0, max = 0;      // of a Repeat; of a Literal max is the number of bytes
    std::vector<uint32_t> children; // indices into Syntax::expressions, all below this one's own
};

struct Rule {
    std::string name;
    uint32_t body = UINT32_MAX; // UINT32_MAX: named, not defined
    Place first_seen, defined;
};

struct Syntax {
    std::vector<Expression> expressions;
    std::vector<Ranges> chars;
    std::string text; // of the literals, UTF-8
    std::vector<Rule> rules;
    uint32_t root = 0;
};

struct Limits {
    uint32_t text_max = 4u << 20;
    uint32_t rules_max = 65536;
    uint32_t nesting_max = 256;
    uint32_t repeats_max = 16; // of one item, as in a*?+
    uint32_t repeat_max = 100000;
    uint32_t expressions_max = 500000;
    uint32_t states_max = 1000000;
    int32_t n_vocab = 0; // 0: no vocabulary, token references are refused
    int32_t (*find_token)(void *arg, const char *text, int32_t n) = nullptr;
    void *find_token_arg = nullptr;
    int64_t t_end_us = 0; // 0: no limit
};

Syntax parse(const char *text, size_t n, const Limits &limits);

// Throws when the compile has taken longer than it may.
void check_time(const Limits &limits);

} // namespace llamad
