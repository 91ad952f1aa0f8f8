// A grammar at work: the places a text may have reached in the automata, found when first needed and kept.
//
// A *stack node* says where to go on when the rule at hand ends: a set of (state, node below). A *place* is the set of
// (state, node) that the text so far may have led to. Both are kept once each, by contents, and known by number. So
// what a byte does at a place is worked out once, and the automaton of places is deterministic: walking a known text
// is one table lookup a byte, and two texts that mean the same to the grammar lead to the same number.
//
// Ambiguity costs space, not time twice: calls of one rule at one point of the text share a node whatever led there.
// The owner (grammar_api.cpp) holds a lock over every call.
#pragma once

#include <atomic>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "automaton.hpp"

namespace llamad {

// Thrown when a text would need more room or work than a grammar is given.
struct TooMuch {};

constexpr uint32_t DEAD = 0; // the place that nothing leads on from

class Machine {
  public:
    explicit Machine(const Automaton &automaton);

    uint32_t start() const { return start_; }
    bool may_end(uint32_t place) const { return places_[place].may_end; }

    // The place after one more byte.
    uint32_t next(uint32_t place, uint8_t byte) {
        uint32_t row = places_[place].row;
        if (row != NONE) {
            uint32_t known = rows_[row + automaton_.class_of[byte]];
            if (known != NONE) return known;
        }
        return find_next(place, automaton_.class_of[byte]);
    }

    // The place after a token, which may match as bytes, as itself, or both ways. "Any token but" means tokens that
    // are whole characters (is_text): a piece of one would leave the text broken.
    uint32_t next_token(uint32_t place, const char *bytes, size_t n, int32_t token, bool is_text);

    // Whether some edge here is about tokens as such; calls fn(token, is_not) for each.
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

    // Forgets all but these places and rewrites their numbers.
    void compact(std::vector<uint32_t *> &kept);

    int64_t work_left = 0;                        // in edges looked at; below 0 the call throws TooMuch
    const std::atomic<bool> *cancelled = nullptr; // when it turns true, the call throws as well

    bool is_cancelled() const { return cancelled != nullptr && cancelled->load(std::memory_order_relaxed); }

  private:
    static constexpr uint32_t NONE = UINT32_MAX;
    static constexpr uint32_t THE_END = UINT32_MAX; // as a return state: the whole text is complete

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
        bool operator<(const Call &o) const { return rank > o.rank; } // the lowest rank first out of a heap
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
    uint32_t start_ = DEAD;

    // Of the place being worked out.
    std::vector<Item> todo_, found_, back_;
    std::vector<Call> calls_;
    bool may_end_ = false, has_token_edges_ = false;
    std::vector<Item> seen_; // a hash set; a slot counts when its round is the present one
    std::vector<uint32_t> seen_round_;
    uint32_t n_seen_ = 0, round_ = 0;
};

} // namespace llamad
