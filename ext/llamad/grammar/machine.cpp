// Owns: the computation of a place from the one before it. Called under the grammar's lock, on sampler and grammar
// threads. See machine.hpp.
#include "machine.hpp"

#include <algorithm>

namespace llamad {
namespace {

constexpr size_t BYTES_MAX = 64u << 20;      // hard limit for the places and nodes of one grammar
constexpr int64_t START_WORK_MAX = 20000000; // the first place can be as large as the grammar
constexpr size_t SEEN_START = 256;

template <class Items> uint64_t hash_of(const Items *items, size_t n, uint64_t seed) {
    uint64_t h = seed ^ n;
    for (size_t i = 0; i < n; i++) {
        h ^= (static_cast<uint64_t>(items[i].state) << 32) | items[i].node;
        h *= 0x9E3779B97F4A7C15ull;
        h ^= h >> 29;
    }
    return h;
}

} // namespace

Machine::Machine(const Automaton &automaton) : automaton_(automaton), tails_(automaton.is_end.size(), -1) {
    byte_of_.assign(automaton.n_classes, -2);
    for (int16_t byte = 0; byte < 256; byte++) {
        int16_t &only = byte_of_[automaton.class_of[byte]];
        only = only == -2 ? byte : -1;
    }
    seen_.resize(SEEN_START);
    seen_round_.resize(SEEN_START);
    node_items_.push_back({THE_END, 0});
    nodes_.push_back({0, 1});
    places_.push_back({0, 0, NONE, false, false}); // DEAD
    work_left = START_WORK_MAX;
    begin();
    reach({automaton_.rules[automaton_.root].entry, 0});
    start_ = settle();
    forget_scratch();
}

// --- computing a place ------------------------------------------------------------------------------------------

void Machine::begin() {
    todo_.clear();
    kept_.clear();
    calls_.clear();
    may_end_ = has_token_edges_ = false;
    n_seen_ = 0;
    if (++round_ == 0) {
        std::fill(seen_round_.begin(), seen_round_.end(), 0);
        round_ = 1;
    }
}

bool Machine::was_visited(Item item) {
    if (2 * (n_seen_ + 1) > seen_.size()) {
        std::vector<Item> old;
        for (size_t i = 0; i < seen_.size(); i++) {
            if (seen_round_[i] == round_) old.push_back(seen_[i]);
        }
        size_t n = seen_.size() * 2;
        std::vector<Item> seen(n);
        std::vector<uint32_t> seen_round(n, 0);
        seen_.swap(seen);
        seen_round_.swap(seen_round);
        round_ = 1;
        n_seen_ = 0;
        for (Item one : old) was_visited(one);
    }
    size_t at = hash_of(&item, 1, 0) & (seen_.size() - 1);
    while (seen_round_[at] == round_) {
        if (seen_[at] == item) return true;
        at = (at + 1) & (seen_.size() - 1);
    }
    seen_[at] = item;
    seen_round_[at] = round_;
    n_seen_++;
    return false;
}

void Machine::visit(Item item) {
    if (was_visited(item)) return;
    uint32_t from = automaton_.first_edge[item.state], to = automaton_.first_edge[item.state + 1];
    work_left -= 1 + (to - from);
    if (work_left < 0 || is_cancelled()) throw TooMuch{};
    if (automaton_.is_end[item.state]) {
        const Node node = nodes_[item.node];
        work_left -= node.n;
        for (uint32_t i = 0; i < node.n; i++) {
            Item back = node_items_[node.first + i];
            if (back.state == THE_END) may_end_ = true;
            else reach(back);
        }
    }
    bool is_kept = false;
    for (uint32_t i = from; i < to; i++) {
        const Edge &edge = automaton_.edges[i];
        switch (edge.step) {
            case Step::Free: reach({edge.target, item.node}); break;
            case Step::Call:
                calls_.push_back({automaton_.rules[edge.value].rank, edge.value, {edge.target, item.node}});
                std::push_heap(calls_.begin(), calls_.end());
                break;
            case Step::Bytes: is_kept = true; break;
            case Step::Token:
            case Step::NotToken: is_kept = has_token_edges_ = true; break;
        }
    }
    if (is_kept) kept_.push_back(item);
}

// Whether nothing can follow after this state in its rule. A call that would return to such a state can return directly
// to the caller below. So a rule that ends with a call of itself does not add a node for each round.
bool Machine::is_tail(uint32_t state) {
    if (tails_[state] >= 0) return tails_[state];
    std::vector<uint32_t> stack{state}, passed;
    bool is_tail = true;
    uint32_t n_edges = 0;
    while (!stack.empty() && is_tail) {
        uint32_t at = stack.back();
        stack.pop_back();
        if (std::find(passed.begin(), passed.end(), at) != passed.end()) continue;
        passed.push_back(at);
        for (uint32_t i = automaton_.first_edge[at]; i < automaton_.first_edge[at + 1] && is_tail; i++) {
            if (automaton_.edges[i].step == Step::Free) stack.push_back(automaton_.edges[i].target);
            else is_tail = false;
            if (++n_edges > 256) is_tail = false; // stop searching: an unneeded node does no harm
        }
        if (passed.size() > 64) is_tail = false;
    }
    work_left -= n_edges;
    tails_[state] = is_tail;
    return is_tail;
}

uint32_t Machine::make_node(std::vector<Item> &back) {
    size_t n = back.size();
    for (size_t i = 0; i < n; i++) {
        if (!is_tail(back[i].state)) continue;
        const Node below = nodes_[back[i].node];
        work_left -= below.n;
        if (work_left < 0) throw TooMuch{};
        back[i] = node_items_[below.first];
        for (uint32_t k = 1; k < below.n; k++) back.push_back(node_items_[below.first + k]);
    }
    std::sort(back.begin(), back.end());
    back.erase(std::unique(back.begin(), back.end()), back.end());
    uint64_t hash = hash_of(back.data(), back.size(), 1);
    auto [at, end] = node_ids_.equal_range(hash);
    for (; at != end; ++at) {
        const Node &node = nodes_[at->second];
        if (node.n == back.size() && std::equal(back.begin(), back.end(), node_items_.begin() + node.first)) {
            return at->second;
        }
    }
    if (work_left < 0 || bytes() > BYTES_MAX) throw TooMuch{};
    nodes_.push_back({static_cast<uint32_t>(node_items_.size()), static_cast<uint32_t>(back.size())});
    node_items_.insert(node_items_.end(), back.begin(), back.end());
    uint32_t id = static_cast<uint32_t>(nodes_.size() - 1);
    node_ids_.emplace(hash, id);
    return id;
}

// Follows all edges that consume no byte. Returns are followed first, then calls in the order of their rules' ranks, so
// that all calls of a rule at this point of the text are known before its node is made.
uint32_t Machine::settle() {
    while (true) {
        while (!todo_.empty()) {
            Item item = todo_.back();
            todo_.pop_back();
            visit(item);
        }
        if (calls_.empty()) break;
        uint32_t rule = calls_.front().rule;
        back_.clear();
        while (!calls_.empty() && calls_.front().rule == rule) {
            back_.push_back(calls_.front().back);
            std::pop_heap(calls_.begin(), calls_.end());
            calls_.pop_back();
        }
        reach({automaton_.rules[rule].entry, make_node(back_)});
    }
    return keep_place();
}

uint32_t Machine::keep_place() {
    if (kept_.empty() && !may_end_) return DEAD;
    std::sort(kept_.begin(), kept_.end());
    uint64_t hash = hash_of(kept_.data(), kept_.size(), 2 + may_end_);
    auto [at, end] = place_ids_.equal_range(hash);
    for (; at != end; ++at) {
        const PlaceData &place = places_[at->second];
        if (place.may_end == may_end_ && place.n_items == kept_.size() &&
            std::equal(kept_.begin(), kept_.end(), items_.begin() + place.first_item)) {
            return at->second;
        }
    }
    if (bytes() > BYTES_MAX) throw TooMuch{};
    uint32_t id = static_cast<uint32_t>(places_.size());
    places_.push_back(
        {static_cast<uint32_t>(items_.size()), static_cast<uint32_t>(kept_.size()), NONE, may_end_, has_token_edges_});
    items_.insert(items_.end(), kept_.begin(), kept_.end());
    place_ids_.emplace(hash, id);
    return id;
}

// --- steps ------------------------------------------------------------------------------------------------------

uint32_t Machine::find_next(uint32_t place, uint8_t byte_class) {
    if (place == DEAD) return DEAD;
    begin();
    const PlaceData data = places_[place];
    for (uint32_t i = 0; i < data.n_items; i++) {
        Item item = items_[data.first_item + i];
        uint32_t from = automaton_.first_edge[item.state], to = automaton_.first_edge[item.state + 1];
        work_left -= 1 + (to - from);
        if (work_left < 0) throw TooMuch{};
        for (uint32_t e = from; e < to; e++) {
            const Edge &edge = automaton_.edges[e];
            if (edge.step == Step::Bytes && edge.low <= byte_class && byte_class <= edge.high) {
                reach({edge.target, item.node});
            }
        }
    }
    uint32_t next = todo_.empty() ? DEAD : settle();
    if (places_[place].row == NONE) {
        rows_.resize(rows_.size() + automaton_.n_classes, NONE); // may throw; then the place still has no row
        places_[place].row = static_cast<uint32_t>(rows_.size() - automaton_.n_classes);
    }
    rows_[places_[place].row + byte_class] = next;
    return next;
}

uint32_t Machine::next_token(uint32_t place, const char *bytes, size_t n, int32_t token, bool is_text) {
    uint32_t by_bytes = n ? place : DEAD;
    for (size_t i = 0; i < n && by_bytes != DEAD; i++) by_bytes = next(by_bytes, static_cast<uint8_t>(bytes[i]));
    if (n == 0 || !places_[place].has_token_edges) return by_bytes;
    begin();
    bool matches = false;
    const PlaceData data = places_[place];
    for (uint32_t i = 0; i < data.n_items; i++) {
        Item item = items_[data.first_item + i];
        for (uint32_t e = automaton_.first_edge[item.state]; e < automaton_.first_edge[item.state + 1]; e++) {
            const Edge &edge = automaton_.edges[e];
            bool is_it = edge.value == static_cast<uint32_t>(token);
            if ((edge.step == Step::Token && is_it) || (edge.step == Step::NotToken && !is_it && is_text)) {
                reach({edge.target, item.node});
                matches = true;
            }
        }
    }
    if (!matches) return by_bytes;
    const PlaceData &other = places_[by_bytes];
    may_end_ = other.may_end;
    for (uint32_t i = 0; i < other.n_items; i++) reach(items_[other.first_item + i]);
    return settle();
}

int32_t Machine::only_byte(uint32_t place) {
    const PlaceData &data = places_[place];
    if (data.may_end || data.has_token_edges) return -1;
    int32_t only = -1;
    for (uint32_t i = 0; i < data.n_items; i++) {
        uint32_t state = items_[data.first_item + i].state;
        if (--work_left < 0 || is_cancelled()) throw TooMuch{};
        for (uint32_t e = automaton_.first_edge[state]; e < automaton_.first_edge[state + 1]; e++) {
            const Edge &edge = automaton_.edges[e];
            if (edge.step != Step::Bytes) continue;
            if (edge.low != edge.high || (only >= 0 && only != edge.low)) return -1;
            only = edge.low;
        }
    }
    return only < 0 ? -1 : std::max<int32_t>(-1, byte_of_[static_cast<size_t>(only)]);
}

// --- room -------------------------------------------------------------------------------------------------------

size_t Machine::bytes() const {
    return (node_items_.size() + items_.size()) * sizeof(Item) + rows_.size() * sizeof(uint32_t) +
           nodes_.size() * (sizeof(Node) + 32) + places_.size() * (sizeof(PlaceData) + 32);
}

// Frees scratch memory that a large place has needed, instead of keeping it for the next.
void Machine::forget_scratch() {
    if (seen_.size() <= (SEEN_START << 8)) return;
    std::vector<Item> seen(SEEN_START);
    std::vector<uint32_t> seen_round(SEEN_START, 0);
    seen_.swap(seen);
    seen_round_.swap(seen_round);
    round_ = 0;
    std::vector<Item>().swap(todo_);
    std::vector<Item>().swap(kept_);
    std::vector<Item>().swap(back_);
    std::vector<Call>().swap(calls_);
}

void Machine::compact(std::vector<uint32_t *> &kept) {
    // Nodes refer to lower numbers only, so one pass down finds those in use and one pass up moves them. Nothing
    // changes before every allocation that can fail has been made.
    std::vector<uint32_t> new_node(nodes_.size(), NONE), new_place(places_.size(), NONE);
    std::vector<uint8_t> used(nodes_.size(), 0);
    kept.push_back(&start_);
    used[0] = 1;
    for (uint32_t *place : kept) {
        for (uint32_t i = 0; i < places_[*place].n_items; i++) used[items_[places_[*place].first_item + i].node] = 1;
    }
    for (size_t id = nodes_.size(); id-- > 1;) {
        if (!used[id]) continue;
        for (uint32_t i = 0; i < nodes_[id].n; i++) used[node_items_[nodes_[id].first + i].node] = 1;
    }
    std::vector<Node> nodes;
    std::vector<Item> node_items;
    std::unordered_multimap<uint64_t, uint32_t> node_ids, place_ids;
    for (size_t id = 0; id < nodes_.size(); id++) {
        if (!used[id]) continue;
        new_node[id] = static_cast<uint32_t>(nodes.size());
        Node node{static_cast<uint32_t>(node_items.size()), nodes_[id].n};
        for (uint32_t i = 0; i < nodes_[id].n; i++) {
            Item item = node_items_[nodes_[id].first + i];
            node_items.push_back({item.state, item.state == THE_END ? 0 : new_node[item.node]});
        }
        // The new numbers have the same order, so a node's items are still sorted.
        if (id > 0) node_ids.emplace(hash_of(&node_items[node.first], node.n, 1), new_node[id]);
        nodes.push_back(node);
    }
    std::vector<PlaceData> places{{0, 0, NONE, false, false}};
    std::vector<Item> items;
    new_place[DEAD] = DEAD;
    for (uint32_t *place : kept) {
        if (new_place[*place] != NONE) continue;
        PlaceData data = places_[*place];
        uint32_t first = static_cast<uint32_t>(items.size());
        for (uint32_t i = 0; i < data.n_items; i++) {
            Item item = items_[data.first_item + i];
            items.push_back({item.state, new_node[item.node]});
        }
        data.first_item = first;
        data.row = NONE;
        new_place[*place] = static_cast<uint32_t>(places.size());
        place_ids.emplace(hash_of(items.data() + first, data.n_items, 2 + data.may_end), new_place[*place]);
        places.push_back(data);
    }
    forget_scratch();
    for (uint32_t *place : kept) *place = new_place[*place];
    node_ids_ = std::move(node_ids);
    place_ids_ = std::move(place_ids);
    nodes_ = std::move(nodes);
    node_items_ = std::move(node_items);
    places_ = std::move(places);
    items_ = std::move(items);
    rows_.clear();
    rows_.shrink_to_fit();
}

} // namespace llamad
