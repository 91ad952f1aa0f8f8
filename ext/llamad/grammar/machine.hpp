// Runs a grammar: computes the places that a text may have reached in the automata, and caches them.
//
// A *stack node* says where to continue when the current rule ends: a set of (state, node below). A *place* is the set
// of (state, node) pairs that the text so far may have led to. Equal nodes and equal places are stored once and have a
// number. So what a byte does at a place is computed once, and the automaton of places is deterministic: walking a
// known text takes one table lookup per byte, and two texts that mean the same to the grammar lead to the same number.
//
// Ambiguity does not multiply the work: all calls of one rule at one point of the text share a node.
// The owner (grammar_api.cpp) holds a lock during every call.
#pragma once

#include <atomic>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "automaton.hpp"

namespace llamad {

// Thrown when a text would need more memory or work than a grammar may use.
struct TooMuch {};

constexpr uint32_t DEAD = 0; // the place from which nothing can follow

class Machine {
  public:
    explicit Machine(const Automaton &automaton);

    uint32_t start() const { return start_; }
    bool may_end(uint32_t place) const { return places_[place].may_end; }

    // Returns the place after one more byte.
    uint32_t next(uint32_t place, uint8_t byte) {
        uint32_t row = places_[place].row;
        if (row != NONE) {
            uint32_t known = rows_[row + automaton_.class_of[byte]];
            if (known != NONE) return known;
        }
        return find_next(place, automaton_.class_of[byte]);
    }

    // Returns the place after a token, which may match by its bytes, as a token, or both. "Any token but" matches only
    // tokens of whole characters (is_text), because a part of a character would break the text.
    uint32_t next_token(uint32_t place, const char *bytes, size_t n, int32_t token, bool is_text);

    // Returns the byte that must come next, or -1 if there is a choice: another byte, the end of the text, or a token.
    int32_t only_byte(uint32_t place);

    // Calls fn(token, is_not) for each edge of this place that matches tokens.
    template <class Fn> void each_token_edge(uint32_t place, Fn fn) const {
        if (!places_[place].has_token_edges) return;
        for (uint32_t i = 0; i < places_[place].n_items; i++) {
            uint32_t state = items_[places_[place].first_item + i].state;
            for (uint32_t e = automaton_.first_edge[state]; e < automaton_.first_edge[state + 1]; e++) {
                const Edge &edge = automaton_.edges[e];
                if (edge.step == Step::Token) fn(static_cast<int32_t>(edge.value), false);
                if (edge.step == Step::NotToken) fn(static_cast<int32_t>(edge.value), true);
            }
        }
    }

    size_t bytes() const;
    uint32_t n_places() const { return static_cast<uint32_t>(places_.size()); }

    // Forgets all other places and renumbers these.
    void compact(std::vector<uint32_t *> &kept);

    int64_t work_left = 0;                        // in edges; below 0 the call throws TooMuch
    const std::atomic<bool> *cancelled = nullptr; // when it becomes true, the call throws TooMuch too

    bool is_cancelled() const { return cancelled != nullptr && cancelled->load(std::memory_order_relaxed); }

  private:
    static constexpr uint32_t NONE = UINT32_MAX;
    static constexpr uint32_t THE_END = UINT32_MAX; // as a return state: the text is complete

    struct Item {
        uint32_t state, node;
        bool operator==(const Item &o) const { return state == o.state && node == o.node; }
        bool operator<(const Item &o) const { return state != o.state ? state < o.state : node < o.node; }
    };
    struct Node {
        uint32_t first, n;
    };
    struct PlaceData {
        uint32_t first_item, n_items, row;
        bool may_end, has_token_edges;
    };
    struct Call {
        uint32_t rank, rule;
        Item back;
        bool operator<(const Call &o) const { return rank > o.rank; } // the heap returns the lowest rank first
    };

    uint32_t find_next(uint32_t place, uint8_t byte_class);
    void begin();
    void reach(Item item) { todo_.push_back(item); }
    uint32_t settle();
    void visit(Item item);
    uint32_t make_node(std::vector<Item> &back);
    bool is_tail(uint32_t state);
    uint32_t keep_place();
    bool was_visited(Item item);
    void forget_scratch();

    const Automaton &automaton_;
    std::vector<Node> nodes_;
    std::vector<Item> node_items_;
    std::vector<PlaceData> places_;
    std::vector<Item> items_;
    std::vector<uint32_t> rows_;
    std::unordered_multimap<uint64_t, uint32_t> node_ids_, place_ids_;
    std::vector<int8_t> tails_;
    std::vector<int16_t> byte_of_; // for each class: its byte, -1: it has several
    uint32_t start_ = DEAD;

    // Scratch memory for the place that is being computed.
    std::vector<Item> todo_, kept_, back_;
    std::vector<Call> calls_;
    bool may_end_ = false, has_token_edges_ = false;
    std::vector<Item> seen_; // a hash set; an entry is valid if its round is the current one
    std::vector<uint32_t> seen_round_;
    uint32_t n_seen_ = 0, round_ = 0;
};

} // namespace llamad
