// The syntax tree of a GBNF text: numbered rules, each with an expression. parser.cpp makes it, compiler.cpp reads it.
// Plain data, any thread.
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

// Thrown by the parser and the compiler; grammar_api.cpp turns it into llamad_grammar_error.
struct GrammarError {
    Place place;
    std::string reason;
};

using Ranges = std::vector<std::pair<uint32_t, uint32_t>>; // of code points: sorted, not adjacent, no surrogates

enum class Kind : uint8_t { Empty, Literal, Chars, Rule, Token, NotToken, Sequence, Choice, Repeat };

constexpr uint32_t NO_MAX = UINT32_MAX;

struct Expression {
    Kind kind = Kind::Empty;
    uint32_t value = 0;             // rule or token number, index into Syntax::chars, offset into Syntax::text
    uint32_t min = 0, max = 0;      // of a Repeat; in a Literal max is the number of bytes
    std::vector<uint32_t> children; // indices into Syntax::expressions, all lower than its own
};

struct Rule {
    std::string name;
    uint32_t body = UINT32_MAX; // UINT32_MAX: used, but not defined
    Place first_seen, defined;
};

struct Syntax {
    std::vector<Expression> expressions;
    std::vector<Ranges> chars;
    std::string text; // the bytes of all literals, UTF-8
    std::vector<Rule> rules;
    uint32_t root = 0;
};

struct Limits {
    uint32_t text_max = 4u << 20;
    uint32_t rules_max = 65536;
    uint32_t nesting_max = 256;
    uint32_t repeats_max = 16; // operators after one item, as in a*?+
    uint32_t repeat_max = 100000;
    uint32_t expressions_max = 500000;
    uint32_t states_max = 1000000;
    int32_t n_vocab = 0; // 0: no vocabulary, token references are refused
    int32_t (*find_token)(void *arg, const char *text, int32_t n) = nullptr;
    void *find_token_arg = nullptr;
    int64_t t_end_us = 0; // 0: no limit
};

Syntax parse(const char *text, size_t n, const Limits &limits);

// Throws GrammarError if the compilation has taken too long.
void check_time(const Limits &limits);

} // namespace llamad
