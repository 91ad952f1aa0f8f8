// A grammar as automata: one nondeterministic automaton over bytes for each rule, where an edge may also call
// another rule. Made once by compiler.cpp, then only read, from any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "syntax.hpp"

namespace llamad {

enum class Step : uint8_t {
    Free,     // costs nothing
    Bytes,    // one byte of the classes low..high
    Call,     // the rule `value`, then on at the target
    Token,    // exactly the token `value`, at a token's beginning
    NotToken, // any token but `value`
};

struct Edge {
    uint32_t target;
    uint32_t value;
    Step step;
    uint8_t low, high; // byte classes
};

struct AutomatonRule {
    uint32_t entry, end; // states
    uint32_t rank;       // a rule that can call another before any byte has the lower rank
};

struct Automaton {
    std::vector<uint32_t> first_edge; // of each state; one more at the end
    std::vector<Edge> edges;
    std::vector<uint8_t> is_end; // of each state: its rule is complete here
    std::vector<AutomatonRule> rules;
    uint32_t root = 0;
    uint8_t class_of[256] = {}; // bytes that no edge tells apart share a class
    uint32_t n_classes = 1;
};

// Throws GrammarError: left recursion, or more states than the limits allow.
Automaton compile(const Syntax &syntax, const Limits &limits);

} // namespace llamad
