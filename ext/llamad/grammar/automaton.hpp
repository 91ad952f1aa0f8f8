// The automata of a grammar: one nondeterministic automaton over bytes for each rule. An edge may also call another
// rule. compiler.cpp makes them once; after that they are only read, from any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "syntax.hpp"

namespace llamad {

enum class Step : uint8_t {
    Free,     // consumes nothing
    Bytes,    // one byte of the classes low..high
    Call,     // the rule `value`; continue at the target
    Token,    // exactly the token `value`, as a whole
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
    uint32_t rank;       // lower than that of every rule it can call before any byte
};

struct Automaton {
    std::vector<uint32_t> first_edge; // index of each state's first edge; one more entry at the end
    std::vector<Edge> edges;
    std::vector<uint8_t> is_end; // for each state: whether its rule is complete here
    std::vector<AutomatonRule> rules;
    uint32_t root = 0;
    uint8_t class_of[256] = {}; // bytes that all edges treat alike share a class
    uint32_t n_classes = 1;
};

// Throws GrammarError on left recursion, or if there are more states than the limits allow.
Automaton compile(const Syntax &syntax, const Limits &limits);

} // namespace llamad
